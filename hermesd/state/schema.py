"""The tables of the store, as forward migrations counted by SQLite's `user_version`.

A migration that was ever released is never edited: the next one changes what it made. A store of
a later version than this program knows is refused, never read by guess.
"""

from __future__ import annotations

import sqlite3
from typing import Final

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE events (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            source TEXT NOT NULL,
            id TEXT NOT NULL,
            record TEXT NOT NULL,
            accepted_at TEXT NOT NULL,
            decided_at TEXT,
            verdicts TEXT,
            UNIQUE (source, id)
        )""",
        "CREATE INDEX events_undecided ON events (seq) WHERE decided_at IS NULL",
        "CREATE INDEX events_by_id ON events (id)",
        "CREATE INDEX events_accepted ON events (accepted_at)",
        """CREATE TABLE rule_states (
            rule TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            state TEXT NOT NULL,
            PRIMARY KEY (rule, fingerprint)
        ) WITHOUT ROWID""",
        """CREATE TABLE incidents (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            rule TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            title TEXT NOT NULL,
            labels TEXT NOT NULL,
            severity TEXT NOT NULL,
            opened_at TEXT NOT NULL,
            last_event_at TEXT NOT NULL,
            status TEXT NOT NULL,
            resolved_at TEXT,
            events INTEGER NOT NULL,
            last_value REAL,
            unit TEXT NOT NULL
        )""",
        # One problem is one open incident: the table refuses a second, whoever asks.
        "CREATE UNIQUE INDEX incidents_open ON incidents (fingerprint) WHERE status <> 'resolved'",
        """CREATE TABLE incident_events (
            event_seq INTEGER NOT NULL REFERENCES events (seq) ON DELETE CASCADE,
            incident_id TEXT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE,
            PRIMARY KEY (event_seq, incident_id)
        ) WITHOUT ROWID""",
        "CREATE INDEX incident_events_by_incident ON incident_events (incident_id, event_seq)",
        """CREATE TABLE runs (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            task_id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,
            goal TEXT NOT NULL,
            created_at TEXT NOT NULL,
            incident_id TEXT REFERENCES incidents (id),
            event_id TEXT,
            runbook TEXT NOT NULL,
            asked_by TEXT NOT NULL,
            status TEXT NOT NULL,
            outcome TEXT,
            reason TEXT NOT NULL,
            started_at TEXT,
            ended_at TEXT,
            round INTEGER NOT NULL,
            stage TEXT NOT NULL,
            report TEXT NOT NULL,
            worked_ms INTEGER NOT NULL,
            stages TEXT NOT NULL
        )""",
        "CREATE INDEX runs_active ON runs (seq) WHERE status <> 'ended'",
        "CREATE INDEX runs_by_incident ON runs (incident_id, seq)",
        """CREATE TABLE decisions (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            task_id TEXT NOT NULL REFERENCES runs (task_id) ON DELETE CASCADE,
            round INTEGER NOT NULL,
            planner TEXT NOT NULL,
            decision TEXT NOT NULL,
            refused TEXT NOT NULL DEFAULT '',
            made_at TEXT NOT NULL
        )""",
        "CREATE INDEX decisions_by_run ON decisions (task_id, seq)",
        """CREATE TABLE steps (
            task_id TEXT NOT NULL REFERENCES runs (task_id) ON DELETE CASCADE,
            round INTEGER NOT NULL,
            position INTEGER NOT NULL,
            attempt INTEGER NOT NULL,
            request_id TEXT NOT NULL UNIQUE,
            action TEXT NOT NULL,
            status TEXT NOT NULL,
            result TEXT,
            PRIMARY KEY (task_id, round, position, attempt)
        )""",
        """CREATE TABLE marks (
            name TEXT NOT NULL,
            scope TEXT NOT NULL,
            value TEXT NOT NULL,
            set_at TEXT NOT NULL,
            life_s REAL NOT NULL,
            PRIMARY KEY (name, scope)
        ) WITHOUT ROWID""",
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    ),
    (
        # What is remembered knows when it must be looked at again, and the event that it rests on.
        "ALTER TABLE rule_states ADD COLUMN due_at TEXT",
        "ALTER TABLE rule_states ADD COLUMN event TEXT",
        "CREATE INDEX rule_states_due ON rule_states (due_at) WHERE due_at IS NOT NULL",
        # Why a person must look at an incident; empty when nobody must.
        "ALTER TABLE incidents ADD COLUMN escalated TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX incidents_unresolved ON incidents (rule) WHERE status <> 'resolved'",
        "CREATE INDEX runs_created ON runs (created_at)",
    ),
    (
        """CREATE TABLE silences (
            id TEXT PRIMARY KEY,
            matchers TEXT NOT NULL,
            author TEXT NOT NULL,
            reason TEXT NOT NULL,
            created_at TEXT NOT NULL,
            ends_at TEXT NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX silences_end ON silences (ends_at)",
    ),
    (
        "ALTER TABLE runs ADD COLUMN malformed INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN cost REAL NOT NULL DEFAULT 0",
    ),
)


class SchemaError(Exception):
    """The store was written by another version of the program."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the store to the newest version, each migration whole or not at all. Raise SchemaError."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise SchemaError(f"the store has version {version}, this program knows {len(MIGRATIONS)}")
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number:d}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def check_version(connection: sqlite3.Connection) -> None:
    """Raise SchemaError unless the store is of this program's version: for who must not migrate it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != len(MIGRATIONS):
        raise SchemaError(
            f"it has version {version}, this program reads {len(MIGRATIONS)}; start hermesd first"
        )
