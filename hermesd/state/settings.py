"""Rows of small facts of the daemon itself, such as that a person paused the starting of runs."""

from __future__ import annotations

import sqlite3
from typing import Any

from hermesd.state.columns import from_json, to_json


def read_setting(connection: sqlite3.Connection, name: str, default: Any = None) -> Any:
    """Return the stored JSON value, ``default`` when it was never set."""
    row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return to_json(row[0]) if row else default


def write_setting(connection: sqlite3.Connection, name: str, value: Any) -> None:
    """Store a JSON value under a name."""
    connection.execute(
        "INSERT INTO settings (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, from_json(value)),
    )
