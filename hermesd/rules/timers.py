"""What becomes due although nothing is said: a `for` that ran out, a series fallen silent, a quiet window.

A timer is nothing but a moment worked out from rule and state, so that it survives a restart and a
changed rule alike. Pure. This module must never read a clock.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from hermesd.durations import render_duration
from hermesd.events import Event
from hermesd.rules.engine import Case, open_case
from hermesd.rules.memory import rest
from hermesd.rules.rule import Rule, fingerprint_of
from hermesd.rules.standing import Standing, stand
from hermesd.rules.verdict import Brake, RuleState, Verdict, VerdictKind, no_brake


def due_of(rule: Rule, state: RuleState) -> datetime | None:
    """Return when the state must be looked at again if nothing is said; None: never.

    What no incident holds open becomes due at some time, so that nothing is remembered for ever.
    """
    if state.opened_at is not None:
        return _after(state.hits[-1], rule.window_seconds) if rule.count and state.hits else None
    if state.pending_since is not None:
        return _after(state.pending_since, rule.for_seconds)
    if state.seen_at is not None:
        return _after(state.seen_at, rule.absent_seconds)
    if state.hits:
        return _after(state.hits[-1], rule.window_seconds)
    ends = [_after(state.last_run_at, rule.cooldown_seconds)] if state.last_run_at else []
    if state.flips:
        ends.append(_after(state.flips[-1], rule.flap.window if rule.flap else 0))
    return max(ends, default=None)


def judge_due(
    rule: Rule, event: Event, state: RuleState, now: datetime, brake: Brake = no_brake
) -> tuple[Verdict | None, RuleState | None]:
    """Return what follows from the passing of time alone. ``event`` is the last that the state rests on.

    No verdict: there was only something to forget, or it is not due yet.
    """
    due = due_of(rule, state)
    if due is None or due > now:
        return None, state
    case = Case(rule, event, fingerprint_of(rule, event), state, "", now, brake)
    if state.opened_at is not None:
        words = f"none came for {render_duration(rule.window_seconds or 0)}"
        return case.verdict(VerdictKind.RESOLVED, words), rest(rule, state, now)
    if state.pending_since is not None:
        standing, finding = stand(rule, event)
        if standing is Standing.HOLDS:
            return open_case(case._replace(finding=finding))
        return case.verdict(VerdictKind.BELOW, finding), rest(rule, state, now)
    if state.seen_at is not None and rule.absent_seconds is not None:
        words = f"nothing was heard for {render_duration((now - state.seen_at).total_seconds())}"
        return open_case(case._replace(finding=words))
    return None, rest(rule, state, now)


def _after(begin: datetime, seconds: float | None) -> datetime:
    return begin + timedelta(seconds=seconds or 0.0)
