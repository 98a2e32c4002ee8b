"""Silences: what a person says may happen without a run, until when and why. Pure.

A silence is matched as a maintenance window is. What is silenced opens its incident and counts as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from hermesd.events import Event
from hermesd.rules.maintenance import concerns
from hermesd.rules.matcher import Matcher
from hermesd.rules.rule import Rule
from hermesd.rules.verdict import Hold, HoldKind


@dataclass(frozen=True, slots=True)
class Silence:
    """What a person silenced. It ends by itself at ``ends_at``; that moment is no part of it."""

    id: str
    matchers: tuple[Matcher, ...]
    author: str
    reason: str
    ends_at: datetime


def match_silence(silences: Iterable[Silence], rule: Rule, event: Event, now: datetime) -> Hold | None:
    """Return the first silence that keeps the event from starting a run of the rule."""
    for silence in silences:
        if now < silence.ends_at and concerns(silence.matchers, rule, event):
            until = silence.ends_at.strftime("%Y-%m-%d %H:%M UTC")
            return Hold(
                HoldKind.SILENCED, f"{silence.id} by {silence.author} until {until}: {silence.reason}"
            )
    return None
