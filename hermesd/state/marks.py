"""Marks: what is known for a while. Past its life a mark is *reference*: readable, and steering nothing.

A mark fades by being looked at with a later `now`, never by being rewritten. This module must never
act on a mark and never delete one because it is old.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from hermesd.state.columns import from_json, from_text, from_time, to_json, to_time


class Mood(StrEnum):
    """A person's state, one dimension."""

    CALM = "calm"
    NEUTRAL = "neutral"
    URGENT = "urgent"


MOOD_LIVES: Final[dict[Mood, timedelta]] = {
    Mood.CALM: timedelta(hours=24),
    Mood.NEUTRAL: timedelta(hours=72),
    Mood.URGENT: timedelta(hours=2),
}
"""How long a mood steers. Urgency passes soonest: acting hastily on an old hurry does harm."""

READING_LIFE: Final = timedelta(minutes=10)
"""How long a host reading counts as the host's present state."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A state entry. ``scope`` says whose or of what it is (a person, a path); ``value`` is plain JSON."""

    name: str
    value: Any
    set_at: datetime
    life: timedelta
    scope: str = ""

    def __post_init__(self) -> None:
        if self.set_at.tzinfo is None:
            raise ValueError("a mark's time must be aware")
        if self.life <= timedelta(0):
            raise ValueError("a mark's life must be longer than nothing")


def is_current(mark: Mark, now: datetime) -> bool:
    """Say whether the mark still steers. At the end of its life, to the instant, it no longer does.

    A mark from the future (the clock was set back) is current for no longer than its life either way:
    a wrong clock must not make a mark immortal.
    """
    return abs(now - mark.set_at) < mark.life


def is_reference(mark: Mark, now: datetime) -> bool:
    """Say whether the mark is only to be read."""
    return not is_current(mark, now)


def mood_mark(mood: Mood, person: str, now: datetime) -> Mark:
    """Return the mark of a person's mood, with the life that this mood has."""
    return Mark("mood", mood.value, now, MOOD_LIVES[mood], person)


def steering_mood(mark: Mark | None, now: datetime) -> Mood:
    """Return the mood to go by: `neutral` when none is known or it has passed."""
    if mark is None or not is_current(mark, now):
        return Mood.NEUTRAL
    return Mood(mark.value)


def reading_mark(name: str, value: Any, now: datetime, scope: str = "") -> Mark:
    """Return the mark of a host reading."""
    return Mark(name, value, now, READING_LIFE, scope)


def set_mark(connection: sqlite3.Connection, mark: Mark) -> None:
    """Store the mark in place of the one of its name and scope."""
    connection.execute(
        "INSERT INTO marks (name, scope, value, set_at, life_s) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (name, scope) DO UPDATE"
        " SET value = excluded.value, set_at = excluded.set_at, life_s = excluded.life_s",
        (
            from_text(mark.name),
            from_text(mark.scope),
            from_json(mark.value),
            from_time(mark.set_at),
            mark.life.total_seconds(),
        ),
    )


def find_mark(connection: sqlite3.Connection, name: str, scope: str = "") -> Mark | None:
    """Return the mark of that name and scope, current or not."""
    row = connection.execute(
        "SELECT name, scope, value, set_at, life_s FROM marks WHERE name = ? AND scope = ?",
        (from_text(name), from_text(scope)),
    ).fetchone()
    return _mark(row) if row else None


def list_marks(connection: sqlite3.Connection, name: str = "") -> list[Mark]:
    """Return all marks, or those of one name, by name and scope."""
    rows = connection.execute(
        "SELECT name, scope, value, set_at, life_s FROM marks WHERE ? IN ('', name) ORDER BY name, scope",
        (name,),
    )
    return [_mark(row) for row in rows]


def _mark(row: tuple[Any, ...]) -> Mark:
    name, scope, value, set_at, life_s = row
    return Mark(name, to_json(value), to_time(set_at), timedelta(seconds=life_s), scope)
