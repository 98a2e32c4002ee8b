"""How what a rule remembers changes: subjects, hits within a window, openings, and what rests at the end.

Pure steps of the engine. Everything that is remembered has a bound. This module must never judge.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from hermesd.durations import render_duration
from hermesd.events import Event
from hermesd.rules.rule import Rule
from hermesd.rules.standing import Standing
from hermesd.rules.verdict import MAX_SUBJECTS, RuleState


def take_in(known: RuleState, event: Event, standing: Standing) -> RuleState:
    """Return the state with the event's subject among those that are wrong, or not among them.

    Between threshold and clear a subject stays wrong in an open incident, and never begins one.
    """
    is_in = event.subject in known.subjects
    if standing is Standing.HOLDS:
        return known if is_in else known._replace(subjects=(*known.subjects, event.subject)[-MAX_SUBJECTS:])
    if not is_in or (standing is Standing.BETWEEN and known.opened_at is not None):
        return known
    return known._replace(subjects=tuple(name for name in known.subjects if name != event.subject))


def count_hit(rule: Rule, known: RuleState, now: datetime) -> tuple[RuleState, str]:
    """Return the state with this hit, and in words what is missing to the rule's count."""
    count, window = rule.count or 1, rule.window_seconds or 0.0
    hits = (*_within(known.hits, now, window), now)[-count:]
    missing = "" if len(hits) >= count else f"{len(hits)} of {count} within {render_duration(window)}"
    return known._replace(hits=hits), missing


def still_flapping(rule: Rule, known: RuleState, now: datetime) -> RuleState:
    """Return the state with only the openings that count now: many begin flapping, few end it."""
    flap = rule.flap
    if flap is None or not known.flips:
        return known
    flips = _within(known.flips, now, flap.window)
    flapping = len(flips) >= flap.high or (known.flapping and len(flips) > flap.low)
    return known._replace(flips=flips, flapping=flapping)


def rest(rule: Rule, known: RuleState, now: datetime) -> RuleState | None:
    """Return what is left to remember when nothing is wrong: a cooldown, openings, or nothing."""
    last = known.last_run_at
    if last is not None and (now - last).total_seconds() >= rule.cooldown_seconds:
        last = None
    if rule.flap is None:
        if last is None:
            return None
        bare = RuleState(None, None, "", last)
    else:
        flapped = still_flapping(rule, known, now)
        if last is None and not flapped.flips:
            return None
        bare = RuleState(last_run_at=last, flips=flapped.flips, flapping=flapped.flapping)
    return known if known == bare else bare


def not_from_the_future(known: RuleState, now: datetime) -> RuleState:
    """Return the state with no stamp after now: a clock set back must not hold a rule for a year."""
    since, last, seen = known.pending_since, known.last_run_at, known.seen_at
    if (
        (since is None or since <= now)
        and (last is None or last <= now)
        and (seen is None or seen <= now)
        and not (known.hits and known.hits[-1] > now)
        and not (known.flips and known.flips[-1] > now)
    ):
        return known
    return known._replace(
        pending_since=since and min(since, now),
        last_run_at=last and min(last, now),
        seen_at=seen and min(seen, now),
        hits=tuple(min(hit, now) for hit in known.hits),
        flips=tuple(min(flip, now) for flip in known.flips),
    )


def _within(moments: tuple[datetime, ...], now: datetime, seconds: float) -> tuple[datetime, ...]:
    begin = now - timedelta(seconds=seconds)
    return moments if not moments or moments[0] > begin else tuple(one for one in moments if one > begin)
