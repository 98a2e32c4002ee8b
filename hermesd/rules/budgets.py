"""Budgets and inhibition: what other incidents and earlier runs say against one more run. Pure.

A budget that is spent is no cooldown: it means that repairs do not help, and that a person must look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from hermesd.durations import render_duration
from hermesd.events import Event
from hermesd.rules.matcher import reader
from hermesd.rules.rule import Mode, Rule
from hermesd.rules.verdict import Hold, HoldKind


class PastRun(NamedTuple):
    """A run that was started: of which rule, target and host, and when."""

    rule: str
    fingerprint: str
    host: str
    at: datetime


class OpenIncident(NamedTuple):
    """An incident that is open, and the labels it was opened with."""

    id: str
    rule: str
    labels: Mapping[str, str]


_INSTANCE: Final = "instance"


def host_of(labels: Mapping[str, str]) -> str:
    """Return the host that labels speak of: `host`, else `instance` without its port; else empty."""
    host = labels.get("host", "")
    if host:
        return host
    name, colon, port = labels.get(_INSTANCE, "").rpartition(":")
    return name if colon and port.isdigit() else labels.get(_INSTANCE, "")


def over_budget(
    rule: Rule, event: Event, fingerprint: str, runs: Iterable[PastRun], now: datetime
) -> Hold | None:
    """Return which budget of the rule is spent. ``runs`` are those of the window, of any rule."""
    budget = rule.budget
    begin = now - timedelta(seconds=budget.window)
    recent = [run for run in runs if run.at > begin]
    host = host_of(event.labels)
    spent = (
        ("this target", sum(run.fingerprint == fingerprint for run in recent), budget.per_target),
        (f"rule {rule.name}", sum(run.rule == rule.name for run in recent), budget.per_rule),
        (f"host {host}", sum(run.host == host for run in recent) if host else -1, budget.per_host),
    )
    for whose, count, limit in spent:
        if count >= limit:
            within = render_duration(budget.window)
            return Hold(HoldKind.OVER_BUDGET, f"{count} runs for {whose} within {within}; a person must look")
    return None


def inhibited(rule: Rule, event: Event, incidents: Iterable[OpenIncident]) -> Hold | None:
    """Return the incident of another rule that explains the event."""
    for incident in incidents:
        for entry in rule.inhibit:
            if entry.by == incident.rule and all(
                incident.labels.get(name, "") == reader(name)(event) for name in entry.equal
            ):
                return Hold(HoldKind.INHIBITED, f"by {incident.id} of rule {incident.rule}")
    return None


def busy(rule: Rule, active: int) -> Hold | None:
    """Say whether the rule's mode lets no further run begin beside ``active`` that have not ended."""
    run = rule.run
    if run is None or not active:
        return None
    if run.mode is Mode.SINGLE:
        return Hold(HoldKind.BUSY, "mode single, and a run of the rule has not ended")
    if run.limit is not None and active >= run.limit:
        return Hold(HoldKind.BUSY, f"mode {run.mode.value}, and {active} runs of the rule have not ended")
    return None
