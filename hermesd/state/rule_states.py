"""Rows of what each rule remembers of each thing it watches. The shape is the rule engine's.

A row may name the moment at which it must be looked at again although nothing was said, and then
carries the event that it rests on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hermesd.state.columns import from_json, from_optional_time, from_time, to_json, to_optional_time


@dataclass(frozen=True, slots=True)
class StateRow:
    """One remembered state as plain values. ``event`` is None where it rests on none."""

    rule: str
    fingerprint: str
    state: dict[str, Any]
    due_at: datetime | None = None
    event: dict[str, Any] | None = None


_COLUMNS = "rule, fingerprint, state, due_at, event"


def load_rule_state(connection: sqlite3.Connection, rule: str, fingerprint: str) -> dict[str, Any] | None:
    """Return the remembered state as plain values, None when there is none."""
    row = connection.execute(
        "SELECT state FROM rule_states WHERE rule = ? AND fingerprint = ?", (rule, fingerprint)
    ).fetchone()
    return dict(to_json(row[0])) if row else None


def save_rule_state(
    connection: sqlite3.Connection,
    rule: str,
    fingerprint: str,
    state: Mapping[str, Any] | None,
    due_at: datetime | None = None,
    event: Mapping[str, Any] | None = None,
) -> None:
    """Remember the state; None forgets it."""
    if state is None:
        connection.execute("DELETE FROM rule_states WHERE rule = ? AND fingerprint = ?", (rule, fingerprint))
        return
    connection.execute(
        f"INSERT INTO rule_states ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (rule, fingerprint) DO UPDATE"
        " SET (state, due_at, event) = (excluded.state, excluded.due_at, excluded.event)",
        (
            rule,
            fingerprint,
            from_json(state),
            from_optional_time(due_at),
            from_json(event) if event is not None else None,
        ),
    )


def set_due(connection: sqlite3.Connection, row: StateRow, due_at: datetime | None) -> None:
    """Change when a remembered state must be looked at again."""
    connection.execute(
        "UPDATE rule_states SET due_at = ? WHERE rule = ? AND fingerprint = ?",
        (from_optional_time(due_at), row.rule, row.fingerprint),
    )


def due_states(connection: sqlite3.Connection, now: datetime, limit: int) -> list[StateRow]:
    """Return the states that must be looked at by now, the longest due first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM rule_states WHERE due_at IS NOT NULL AND due_at <= ?"
        " ORDER BY due_at LIMIT ?",
        (from_time(now), limit),
    )
    return [_row(row) for row in rows]


def next_due(connection: sqlite3.Connection) -> datetime | None:
    """Return when the next state must be looked at, None when none must."""
    (due,) = connection.execute("SELECT min(due_at) FROM rule_states WHERE due_at IS NOT NULL").fetchone()
    return to_optional_time(due)


def rule_states(connection: sqlite3.Connection) -> list[StateRow]:
    """Return every remembered state."""
    return [_row(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM rule_states")]


def _row(row: tuple[Any, ...]) -> StateRow:
    rule, fingerprint, state, due_at, event = row
    return StateRow(
        rule,
        fingerprint,
        dict(to_json(state)),
        to_optional_time(due_at),
        dict(to_json(event)) if event else None,
    )
