"""What speaks against a run beyond event and state: silences, maintenance, other incidents, runs, budgets.

The decisions are the rules'; here they get what they rest on, read once for a batch and again after
the batch has changed it. Asked only where a run would start. This module must never decide.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from hermesd.events import Event
from hermesd.incidents import Incident, IncidentStatus
from hermesd.rules.budgets import OpenIncident, PastRun, busy, host_of, inhibited, over_budget
from hermesd.rules.maintenance import Maintenance, match_maintenance
from hermesd.rules.matcher import parse_matcher
from hermesd.rules.rule import Rule
from hermesd.rules.silence import Silence, match_silence
from hermesd.rules.verdict import Hold
from hermesd.state.incidents import open_incidents_of
from hermesd.state.runs import active_runs_of, runs_since
from hermesd.state.silences import active_silences

MAX_PAST_RUNS: Final = 10_000
"""Runs of one window that are looked at, the newest: far above any budget."""


class Brakes:
    """Answers for one batch. ``current`` returns an incident as the batch has left it so far."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        maintenance: Sequence[Maintenance],
        current: Callable[[Incident], Incident],
    ) -> None:
        self._connection = connection
        self._maintenance = maintenance
        self._current = current
        self._silences: list[Silence] | None = None
        self._past: dict[float, list[PastRun]] = {}
        self._active: dict[str, list[str]] = {}

    def hold(self, rule: Rule, event: Event, fingerprint: str, now: datetime) -> Hold | None:
        """Return the first reason to start nothing."""
        return (
            match_silence(self._silenced(now), rule, event, now)
            or match_maintenance(self._maintenance, rule, event, now)
            or self._inhibited(rule, event)
            or busy(rule, len(self.active(rule)))
            or over_budget(rule, event, fingerprint, self._runs_within(rule.budget.window, now), now)
        )

    def active(self, rule: Rule) -> list[str]:
        """Return the runs of the rule that have not ended, oldest first."""
        if rule.name not in self._active:
            self._active[rule.name] = active_runs_of(self._connection, rule.name)
        return self._active[rule.name]

    def changed(self) -> None:
        """Hear that a run was made: what was read of runs is read again."""
        self._past.clear()
        self._active.clear()

    def _silenced(self, now: datetime) -> list[Silence]:
        """Return the silences in force, read once for a batch: it is short, and they are checked anew."""
        if self._silences is None:
            self._silences = [
                Silence(row.id, tuple(map(parse_matcher, row.matchers)), row.author, row.reason, row.ends_at)
                for row in active_silences(self._connection, now)
            ]
        return self._silences

    def _inhibited(self, rule: Rule, event: Event) -> Hold | None:
        if not rule.inhibit:
            return None
        found = open_incidents_of(self._connection, {entry.by for entry in rule.inhibit})
        standing = [self._current(incident) for incident in found]
        return inhibited(
            rule,
            event,
            [
                OpenIncident(one.id, one.rule, one.labels)
                for one in standing
                if one.status is not IncidentStatus.RESOLVED
            ],
        )

    def _runs_within(self, window: float, now: datetime) -> list[PastRun]:
        if window not in self._past:
            since = now - timedelta(seconds=window)
            self._past[window] = [
                PastRun(rule, fingerprint, host_of(labels), at)
                for rule, fingerprint, labels, at in runs_since(self._connection, since, MAX_PAST_RUNS)
            ]
        return self._past[window]
