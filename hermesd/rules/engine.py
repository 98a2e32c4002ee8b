"""The rule engine: event, remembered state and now give a verdict with its reason, and a new state.

Everything here is pure: the same arguments give the same answer, for ever. Nothing that an event can
contain raises. This module must never read a clock, the store or the configuration, and must never
return a verdict without saying why in words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, NamedTuple

from hermesd.durations import render_duration
from hermesd.events import Event
from hermesd.rules.book import RuleBook
from hermesd.rules.memory import count_hit, not_from_the_future, rest, still_flapping, take_in
from hermesd.rules.rule import Rule, fingerprint_of
from hermesd.rules.standing import Standing, stand
from hermesd.rules.titles import MAX_GOAL, render
from hermesd.rules.verdict import (
    Brake,
    Hold,
    HoldKind,
    RuleState,
    Verdict,
    VerdictKind,
    no_brake,
    state_from_record,
)

__all__ = [
    "Case",
    "Recall",
    "RuleBook",
    "RuleState",
    "Verdict",
    "VerdictKind",
    "judge",
    "judge_all",
    "mismatch",
    "open_case",
    "render_goal",
    "select_rules",
    "state_from_record",
]

MAX_CAUSES: Final = 3
"""How long a chain of causes may be: an event at its end starts nothing more."""

Recall = Callable[[str, str], RuleState | None]
"""Returns what was remembered for a rule's name and a fingerprint."""

Judgement = tuple[Verdict, RuleState | None]


class Case(NamedTuple):
    """All that one judgement rests on, once the event is known to be the rule's business."""

    rule: Rule
    event: Event
    mark: str
    known: RuleState
    finding: str
    now: datetime
    brake: Brake

    def verdict(
        self,
        kind: VerdictKind,
        reason: str,
        *,
        granted: bool = False,
        held: HoldKind | None = None,
        title: bool = False,
        incident_id: str = "",
    ) -> Verdict:
        """Return a verdict of this case; with ``title`` the incident's title is rendered."""
        return Verdict(
            self.rule.name,
            self.mark,
            kind,
            reason,
            granted,
            render(self.rule.title, self.event) if title else "",
            incident_id or self.known.incident_id,
            held,
        )


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
    rule: Rule, event: Event, state: RuleState | None, now: datetime, brake: Brake = no_brake
) -> Judgement:
    """Return what the rule makes of the event, and what to remember (None: nothing).

    ``state`` is what was remembered for ``fingerprint_of(rule, event)``. ``now`` is aware. When the
    verdict grants a run, the state is already stamped with it: store it before the run is attempted.
    A state that need not be stored again is the same object.
    """
    missed = mismatch(rule, event)
    if missed:
        return Verdict(rule.name, "", VerdictKind.IGNORED, missed), state
    return _judge_matching(rule, event, fingerprint_of(rule, event), state, now, brake)


def judge_all(
    book: RuleBook, event: Event, recall: Recall, now: datetime, brake: Brake = no_brake
) -> list[Judgement]:
    """Judge the event by each rule whose business it is. An empty list: no rule matches."""
    judged = []
    for rule in book.matching(event):
        mark = fingerprint_of(rule, event)
        judged.append(_judge_matching(rule, event, mark, recall(rule.name, mark), now, brake))
    return judged


def render_goal(rule: Rule, event: Event) -> str:
    """Return the goal of the run that the event starts, empty when the rule starts none."""
    return render(rule.run.goal, event, MAX_GOAL) if rule.run else ""


def _judge_matching(
    rule: Rule, event: Event, mark: str, state: RuleState | None, now: datetime, brake: Brake
) -> Judgement:
    if rule.when is not None and (missed := rule.when.judge(event)):
        return Verdict(rule.name, mark, VerdictKind.IGNORED, missed), state
    if rule.absent_seconds is not None:
        return _judge_series(rule, event, mark, state, now, brake)
    standing, finding = stand(rule, event)
    if standing is Standing.SILENT:
        return Verdict(rule.name, mark, VerdictKind.IGNORED, finding), state
    if state is None:
        if standing is not Standing.HOLDS:
            return Verdict(rule.name, mark, VerdictKind.BELOW, finding), None
        known = RuleState(None, None, "", None, (event.subject,))
    else:
        known = take_in(not_from_the_future(state, now), event, standing)
    if standing is Standing.HOLDS:
        return _judge_holding(Case(rule, event, mark, known, finding, now, brake))
    if known.opened_at is None:
        if known.subjects:
            reason = f"{finding}; {_others(known, event)}"
            return Verdict(rule.name, mark, VerdictKind.BELOW, reason), known
        return Verdict(rule.name, mark, VerdictKind.BELOW, finding), rest(rule, known, now)
    case = Case(rule, event, mark, known, finding, now, brake)
    if standing is Standing.CLEARED and not known.subjects:
        return case.verdict(VerdictKind.RESOLVED, finding), rest(rule, known, now)
    return case.verdict(VerdictKind.ABSORBED, f"{finding}; {_why_it_stays(known, event)}"), known


def _judge_holding(case: Case) -> Judgement:
    """The condition holds: often enough, and then for long enough, it is an incident."""
    if case.rule.count is not None:
        known, missing = count_hit(case.rule, case.known, case.now)
        case = case._replace(known=known)
        if missing and known.opened_at is None:
            return case.verdict(VerdictKind.PENDING, f"{case.finding}: {missing}"), known
    return open_case(case) if case.known.opened_at is None else _judge_lasting(case)


def _judge_series(
    rule: Rule, event: Event, mark: str, state: RuleState | None, now: datetime, brake: Brake
) -> Judgement:
    """An event of a series that must not fall silent: whatever it says, it speaks."""
    known = not_from_the_future(state or RuleState(), now)
    expected = f"it is expected again within {render_duration(rule.absent_seconds or 0)}"
    case = Case(rule, event, mark, known, "the series speaks", now, brake)
    if known.opened_at is None:
        return case.verdict(VerdictKind.BELOW, f"the series speaks; {expected}"), known._replace(seen_at=now)
    left = rest(rule, known, now) or RuleState()
    verdict = case.verdict(VerdictKind.RESOLVED, f"the series speaks again; {expected}")
    return verdict, left._replace(seen_at=now)


def _judge_lasting(case: Case) -> Judgement:
    """The condition holds and the incident is open already."""
    case = case._replace(known=still_flapping(case.rule, case.known, case.now))
    held, words = _decide_run(case)
    granted = held is None and case.rule.run is not None
    reason = f"{case.finding}, and the incident is open{words}"
    kind = held.kind if held else None
    verdict = case.verdict(VerdictKind.ABSORBED, reason, granted=granted, held=kind, title=granted)
    return verdict, case.known._replace(last_run_at=case.now) if granted else case.known


def open_case(case: Case) -> Judgement:
    """The condition holds and no incident is open: it opens once the condition has held for long enough."""
    rule, known, now = case.rule, case.known, case.now
    since = known.pending_since or now
    held_for = (now - since).total_seconds()
    if held_for < rule.for_seconds:
        wanted = render_duration(rule.for_seconds)
        reason = f"{case.finding} for {render_duration(held_for)}, {wanted} are needed"
        waiting = known if known.pending_since else known._replace(pending_since=since)
        return case.verdict(VerdictKind.PENDING, reason), waiting
    if rule.flap is not None:
        flips = (*known.flips, now)[-rule.flap.high :]
        case = case._replace(known=still_flapping(rule, known._replace(flips=flips), now))
    held, words = _decide_run(case)
    granted = held is None and rule.run is not None
    lasting = f" for {render_duration(held_for)}" if rule.for_seconds else ""
    incident_id = _new_incident_id(case.mark, now)
    verdict = case.verdict(
        VerdictKind.OPENED,
        f"{case.finding}{lasting}: an incident opens{words}",
        granted=granted,
        held=held.kind if held else None,
        title=True,
        incident_id=incident_id,
    )
    opened = case.known._replace(
        pending_since=None,
        opened_at=now,
        incident_id=incident_id,
        last_run_at=now if granted else known.last_run_at,
    )
    return verdict, opened


def _why_it_stays(known: RuleState, event: Event) -> str:
    others = _others(known, event)
    return f"the incident stays open{others and ': '}{others}"


def _others(known: RuleState, event: Event) -> str:
    """Return in words how many other subjects are still wrong, empty when none is."""
    count = sum(subject != event.subject for subject in known.subjects)
    return f"{count} other subject{'s are' if count > 1 else ' is'} still wrong" if count else ""


def _decide_run(case: Case) -> tuple[Hold | None, str]:
    """Return what speaks against a run, and the words for it. Without a run there is nothing to say."""
    rule, known = case.rule, case.known
    if rule.run is None:
        return None, ""
    if known.last_run_at is not None:
        left = rule.cooldown_seconds - (case.now - known.last_run_at).total_seconds()
        if left > 0:
            words = f"cooling down, no new run for {render_duration(left)}"
            return Hold(HoldKind.COOLING_DOWN, words), f"; {words}"
    held = _looping(case) or _flapping(case) or case.brake(rule, case.event, case.mark, case.now)
    return (held, f"; {held.kind.value}, no run: {held.reason}") if held else (None, "; a run may start")


def _looping(case: Case) -> Hold | None:
    cause = case.event.cause
    if case.known.incident_id and case.known.incident_id in cause:
        return Hold(HoldKind.LOOPING, "this incident is among the causes of the event")
    if len(cause) >= MAX_CAUSES:
        return Hold(HoldKind.LOOPING, f"{len(cause)} causes lead to the event, {MAX_CAUSES} are the most")
    return None


def _flapping(case: Case) -> Hold | None:
    flap = case.rule.flap
    if flap is None or not case.known.flapping:
        return None
    window = render_duration(flap.window)
    count = len(case.known.flips)
    return Hold(
        HoldKind.FLAPPING, f"it opened {count} times within {window}, and rests at {flap.low} of them"
    )


def _new_incident_id(mark: str, now: datetime) -> str:
    """Return an id that the same opening always gets, and no other: judged twice, it is one incident."""
    return "inc-" + hashlib.sha256(f"{mark} {now.isoformat()}".encode()).hexdigest()[:12]
