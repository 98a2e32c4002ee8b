"""The rule engine: event, remembered state and now give a verdict with its reason, and a new state.

Everything here is pure: the same arguments give the same answer, for ever. Nothing that an event can
contain raises. This module must never read a clock, the store or the configuration, and must never
return a verdict without saying why in words.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from hermesd.durations import render_duration
from hermesd.events import Event, EventStatus
from hermesd.rules.rule import Rule, fingerprint_of
from hermesd.rules.titles import MAX_GOAL, render
from hermesd.rules.verdict import MAX_SUBJECTS, RuleState, Verdict, VerdictKind, state_from_record

__all__ = [
    "Recall",
    "RuleState",
    "Verdict",
    "VerdictKind",
    "judge",
    "judge_all",
    "mismatch",
    "render_goal",
    "select_rules",
    "state_from_record",
]


Recall = Callable[[str, str], RuleState | None]
"""Returns what was remembered for a rule's name and a fingerprint."""


class _Standing(StrEnum):
    HOLDS = "holds"
    BETWEEN = "between"
    CLEARED = "cleared"
    SILENT = "silent"  # the event says nothing that this rule could judge


def mismatch(rule: Rule, event: Event) -> str:
    """Return why the event is not this rule's business; empty when it is."""
    if not rule.enabled:
        return "the rule is switched off"
    for matcher in rule.match:
        if not matcher.test(matcher.read(event)):
            return matcher.miss
    return ""


def select_rules(rules: Iterable[Rule], event: Event) -> list[Rule]:
    """Return the rules whose business the event is, in their order."""
    return [rule for rule in rules if not mismatch(rule, event)]


def judge(
    rule: Rule, event: Event, state: RuleState | None, now: datetime
) -> tuple[Verdict, RuleState | None]:
    """Return what the rule makes of the event, and what to remember (None: nothing).

    ``state`` is what was remembered for ``fingerprint_of(rule, event)``. ``now`` is aware. When the
    verdict grants a run, the state is already stamped with it: store it before the run is attempted.
    A state that need not be stored again is the same object.
    """
    missed = mismatch(rule, event)
    if missed:
        return Verdict(rule.name, "", VerdictKind.IGNORED, missed), state
    return _judge_matching(rule, event, fingerprint_of(rule, event), state, now)


def judge_all(
    rules: Iterable[Rule], event: Event, recall: Recall, now: datetime
) -> list[tuple[Verdict, RuleState | None]]:
    """Judge the event by each rule whose business it is. An empty list: no rule matches."""
    judged = []
    for rule in rules:
        if not mismatch(rule, event):
            mark = fingerprint_of(rule, event)
            judged.append(_judge_matching(rule, event, mark, recall(rule.name, mark), now))
    return judged


def _judge_matching(
    rule: Rule, event: Event, mark: str, state: RuleState | None, now: datetime
) -> tuple[Verdict, RuleState | None]:
    standing, finding = _stand(rule, event)
    if standing is _Standing.SILENT:
        return Verdict(rule.name, mark, VerdictKind.IGNORED, finding), state
    if state is None and standing is not _Standing.HOLDS:
        return Verdict(rule.name, mark, VerdictKind.BELOW, finding), None
    known = _take_in(_not_from_the_future(state or RuleState(), now), event, standing)
    case = _Case(rule, event, mark, known, finding, now)
    if known.opened_at is None:
        return _judge_new(case) if standing is _Standing.HOLDS else _judge_quiet(case)
    if standing is _Standing.HOLDS:
        return _judge_lasting(case)
    if standing is _Standing.CLEARED and not known.subjects:
        return case.verdict(VerdictKind.RESOLVED, finding, title=True), _rest(case)
    return case.verdict(VerdictKind.ABSORBED, f"{finding}; {_why_it_stays(known, event)}"), known


def render_goal(rule: Rule, event: Event) -> str:
    """Return the goal of the run that the event starts, empty when the rule starts none."""
    return render(rule.run.goal, event, MAX_GOAL) if rule.run else ""


def _stand(rule: Rule, event: Event) -> tuple[_Standing, str]:
    """Say whether the rule's condition holds by this event, and what was found."""
    if event.status is EventStatus.RESOLVED:
        return _Standing.CLEARED, "the sender says resolved"
    if rule.threshold is None:
        if event.status is EventStatus.READING:
            return _Standing.SILENT, "a reading is judged by a threshold, and the rule has none"
        return _Standing.HOLDS, "the sender says firing"
    value, ends = event.value, rule.ends
    if value is None or not math.isfinite(value) or ends is None:
        return _Standing.SILENT, "the rule has a threshold, and the event has no value to compare"
    shown = f"{value:g} {event.unit}".rstrip()
    if rule.threshold.holds(value):
        return _Standing.HOLDS, f"{shown} is {rule.threshold}"
    if ends.holds(value):
        return _Standing.CLEARED, f"{shown} is {ends}"
    return _Standing.BETWEEN, f"{shown} is neither {rule.threshold} nor {ends}"


@dataclass(frozen=True, slots=True)
class _Case:
    """All that one judgement rests on, once the event is known to be the rule's business."""

    rule: Rule
    event: Event
    mark: str
    known: RuleState
    finding: str
    now: datetime

    def verdict(
        self,
        kind: VerdictKind,
        reason: str,
        *,
        start_run: bool = False,
        title: bool = False,
        incident_id: str = "",
    ) -> Verdict:
        return Verdict(
            rule=self.rule.name,
            fingerprint=self.mark,
            kind=kind,
            reason=reason,
            start_run=start_run,
            title=render(self.rule.title, self.event) if title else "",
            incident_id=incident_id or self.known.incident_id,
        )


def _judge_lasting(case: _Case) -> tuple[Verdict, RuleState | None]:
    """The condition holds and the incident is open already."""
    granted, words = _grant(case)
    reason = f"{case.finding}, and the incident is open{words}"
    verdict = case.verdict(VerdictKind.ABSORBED, reason, start_run=granted, title=granted)
    return verdict, replace(case.known, last_run_at=case.now) if granted else case.known


def _judge_new(case: _Case) -> tuple[Verdict, RuleState | None]:
    """The condition holds and no incident is open."""
    rule, known, now = case.rule, case.known, case.now
    since = known.pending_since or now
    held = (now - since).total_seconds()
    if held < rule.for_seconds:
        wanted = render_duration(rule.for_seconds)
        reason = f"{case.finding} for {render_duration(held)}, {wanted} are needed"
        waiting = known if known.pending_since else replace(known, pending_since=since)
        return case.verdict(VerdictKind.PENDING, reason), waiting
    granted, words = _grant(case)
    lasting = f" for {render_duration(held)}" if rule.for_seconds else ""
    opened = RuleState(
        opened_at=now,
        incident_id=_new_incident_id(case.mark, now),
        last_run_at=now if granted else known.last_run_at,
        subjects=known.subjects,
    )
    verdict = case.verdict(
        VerdictKind.OPENED,
        f"{case.finding}{lasting}: an incident opens{words}",
        start_run=granted,
        title=True,
        incident_id=opened.incident_id,
    )
    return verdict, opened


def _judge_quiet(case: _Case) -> tuple[Verdict, RuleState | None]:
    """The condition does not hold for this subject, and no incident is open."""
    if case.known.subjects:
        reason = f"{case.finding}; {_others(case.known, case.event)}"
        return case.verdict(VerdictKind.BELOW, reason), case.known
    return case.verdict(VerdictKind.BELOW, case.finding), _rest(case)


def _take_in(known: RuleState, event: Event, standing: _Standing) -> RuleState:
    """Return the state with the event's subject among those that are wrong, or not among them.

    Between threshold and clear a subject stays wrong in an open incident, and never begins one.
    """
    is_in = event.subject in known.subjects
    if standing is _Standing.HOLDS:
        return known if is_in else replace(known, subjects=(*known.subjects, event.subject)[-MAX_SUBJECTS:])
    if not is_in or (standing is _Standing.BETWEEN and known.opened_at is not None):
        return known
    return replace(known, subjects=tuple(name for name in known.subjects if name != event.subject))


def _why_it_stays(known: RuleState, event: Event) -> str:
    others = _others(known, event)
    return f"the incident stays open{others and ': '}{others}"


def _others(known: RuleState, event: Event) -> str:
    """Return in words how many other subjects are still wrong, empty when none is."""
    count = sum(subject != event.subject for subject in known.subjects)
    return f"{count} other subject{'s are' if count > 1 else ' is'} still wrong" if count else ""


def _grant(case: _Case) -> tuple[bool, str]:
    """Say whether a run may start, and the words for it."""
    if case.rule.run is None:
        return False, ""
    left = _cooldown_left(case)
    if left > 0:
        return False, f"; cooling down, no new run for {render_duration(left)}"
    return True, "; a run may start"


def _cooldown_left(case: _Case) -> float:
    if case.known.last_run_at is None:
        return 0.0
    return case.rule.cooldown_seconds - (case.now - case.known.last_run_at).total_seconds()


def _rest(case: _Case) -> RuleState | None:
    """Return what is left to remember when nothing is wrong: a cooldown that still runs, or nothing."""
    if _cooldown_left(case) <= 0:
        return None
    return RuleState(last_run_at=case.known.last_run_at)


def _not_from_the_future(known: RuleState, now: datetime) -> RuleState:
    """Return the state with no stamp after now: a clock set back must not hold a rule for a year."""
    since, last = known.pending_since, known.last_run_at
    if (since is None or since <= now) and (last is None or last <= now):
        return known
    return replace(
        known,
        pending_since=since and min(since, now),
        last_run_at=last and min(last, now),
    )


def _new_incident_id(mark: str, now: datetime) -> str:
    """Return an id that the same opening always gets, and no other: judged twice, it is one incident."""
    return "inc-" + hashlib.sha256(f"{mark} {now.isoformat()}".encode()).hexdigest()[:12]
