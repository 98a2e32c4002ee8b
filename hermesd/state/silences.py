"""Rows of silences: who said that what starts nothing, why, and until when.

A silence that has ended stays as a row: that it was there is part of why nothing happened.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hermesd.state.columns import from_json, from_text, from_time, to_json, to_time

_FIELDS: Final = "id, matchers, author, reason, created_at, ends_at"


@dataclass(frozen=True, slots=True)
class SilenceRow:
    """One silence. ``matchers`` are texts, as a person wrote them."""

    id: str
    matchers: tuple[str, ...]
    author: str
    reason: str
    created_at: datetime
    ends_at: datetime


def insert_silence(connection: sqlite3.Connection, silence: SilenceRow) -> None:
    """Insert it. Raise sqlite3.IntegrityError when its id exists."""
    connection.execute(
        f"INSERT INTO silences ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?)",
        (
            silence.id,
            from_json(silence.matchers),
            from_text(silence.author),
            from_text(silence.reason),
            from_time(silence.created_at),
            from_time(silence.ends_at),
        ),
    )


def expire_silence(connection: sqlite3.Connection, silence_id: str, now: datetime) -> bool:
    """End a silence now. Return False when there is none of that id, or it has ended already."""
    done = connection.execute(
        "UPDATE silences SET ends_at = ? WHERE id = ? AND ends_at > ?",
        (from_time(now), silence_id, from_time(now)),
    )
    return done.rowcount == 1


def active_silences(connection: sqlite3.Connection, now: datetime) -> list[SilenceRow]:
    """Return the silences that have not ended, the one that ends next first."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM silences WHERE ends_at > ? ORDER BY ends_at, id", (from_time(now),)
    )
    return [_silence(row) for row in rows]


def list_silences(connection: sqlite3.Connection, limit: int) -> list[SilenceRow]:
    """Return silences, ended ones too, the one that ends last first."""
    rows = connection.execute(f"SELECT {_FIELDS} FROM silences ORDER BY ends_at DESC, id LIMIT ?", (limit,))
    return [_silence(row) for row in rows]


def _silence(row: tuple[Any, ...]) -> SilenceRow:
    return SilenceRow(row[0], tuple(to_json(row[1])), row[2], row[3], to_time(row[4]), to_time(row[5]))
