"""Rows of what each rule remembers of each thing it watches. The shape is the rule engine's."""

from __future__ import annotations

import sqlite3
from typing import Any

from hermesd.state.columns import from_json, to_json


def load_rule_state(connection: sqlite3.Connection, rule: str, fingerprint: str) -> dict[str, Any] | None:
    """Return the remembered state as plain values, None when there is none."""
    row = connection.execute(
        "SELECT state FROM rule_states WHERE rule = ? AND fingerprint = ?", (rule, fingerprint)
    ).fetchone()
    return dict(to_json(row[0])) if row else None


def save_rule_state(
    connection: sqlite3.Connection, rule: str, fingerprint: str, state: dict[str, Any] | None
) -> None:
    """Remember the state; None forgets it."""
    if state is None:
        connection.execute("DELETE FROM rule_states WHERE rule = ? AND fingerprint = ?", (rule, fingerprint))
        return
    connection.execute(
        "INSERT INTO rule_states (rule, fingerprint, state) VALUES (?, ?, ?)"
        " ON CONFLICT (rule, fingerprint) DO UPDATE SET state = excluded.state",
        (rule, fingerprint, from_json(state)),
    )


def rule_states(connection: sqlite3.Connection) -> dict[tuple[str, str], dict[str, Any]]:
    """Return every remembered state by (rule, fingerprint)."""
    rows = connection.execute("SELECT rule, fingerprint, state FROM rule_states")
    return {(rule, fingerprint): dict(to_json(state)) for rule, fingerprint, state in rows}
