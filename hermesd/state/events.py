"""Rows of events: the inbox on disk, what was made of each, and when they may go.

Every function takes the connection that the store hands to its work. None decides anything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hermesd.events import Event, event_from_record
from hermesd.state.columns import from_json, from_text, from_time, to_json, to_optional_time, to_time


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with its place in the inbox. ``verdicts`` are empty until ``decided_at`` is set."""

    seq: int
    event: Event
    accepted_at: datetime
    decided_at: datetime | None = None
    verdicts: tuple[dict[str, Any], ...] = ()


_COLUMNS = "seq, record, accepted_at, decided_at, verdicts"


def insert_event(connection: sqlite3.Connection, event: Event, accepted_at: datetime) -> bool:
    """Take the event in. Return False when its (source, id) is here already: it is one event."""
    done = connection.execute(
        "INSERT INTO events (source, id, record, accepted_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (source, id) DO NOTHING",
        (from_text(event.source), from_text(event.id), from_json(event.to_record()), from_time(accepted_at)),
    )
    return done.rowcount == 1


def insert_events(
    connection: sqlite3.Connection, events: Sequence[Event], accepted_at: datetime
) -> list[bool]:
    """Take several events in, all or none. Return for each whether it is new."""
    return [insert_event(connection, event, accepted_at) for event in events]


def undecided_events(connection: sqlite3.Connection, limit: int, after_seq: int = 0) -> list[StoredEvent]:
    """Return events that no rule has judged yet, in the order of their arrival."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM events WHERE decided_at IS NULL AND seq > ? ORDER BY seq LIMIT ?",
        (after_seq, limit),
    )
    return [_stored(row) for row in rows]


def recent_events(connection: sqlite3.Connection, limit: int) -> list[StoredEvent]:
    """Return the newest events that were judged, in the order of their arrival."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM events WHERE decided_at IS NOT NULL ORDER BY seq DESC LIMIT ?", (limit,)
    )
    return [_stored(row) for row in rows][::-1]


def count_undecided(connection: sqlite3.Connection) -> int:
    """Return how many events wait for judgement."""
    (count,) = connection.execute("SELECT count(*) FROM events WHERE decided_at IS NULL").fetchone()
    return int(count)


def count_events(connection: sqlite3.Connection) -> int:
    """Return how many events were ever accepted, those that have been pruned included."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return int(row[0]) if row else 0


def mark_decided(
    connection: sqlite3.Connection,
    seq: int,
    verdicts: Iterable[Mapping[str, Any]],
    decided_at: datetime,
    incident_ids: Iterable[str] = (),
) -> bool:
    """Write down what the rules made of an event, and the incidents that it counts to.

    Return False when it was decided before: the first decision stands.
    """
    done = connection.execute(
        "UPDATE events SET decided_at = ?, verdicts = ? WHERE seq = ? AND decided_at IS NULL",
        (from_time(decided_at), from_json([dict(verdict) for verdict in verdicts]), seq),
    )
    if done.rowcount != 1:
        return False
    for incident_id in incident_ids:
        connection.execute(
            "INSERT OR IGNORE INTO incident_events (event_seq, incident_id) VALUES (?, ?)", (seq, incident_id)
        )
    return True


def add_verdict(
    connection: sqlite3.Connection, event: Event, verdict: Mapping[str, Any], incident_id: str = ""
) -> bool:
    """Add to an event what time has made of it since, and the incident that it opened.

    Return False when the event is gone.
    """
    stored = find_event(connection, event.id, event.source)
    if stored is None:
        return False
    connection.execute(
        "UPDATE events SET verdicts = ? WHERE seq = ?",
        (from_json([*stored.verdicts, dict(verdict)]), stored.seq),
    )
    if incident_id:
        connection.execute(
            "INSERT OR IGNORE INTO incident_events (event_seq, incident_id) VALUES (?, ?)",
            (stored.seq, incident_id),
        )
    return True


def find_event(connection: sqlite3.Connection, event_id: str, source: str = "") -> StoredEvent | None:
    """Return the newest event of that id, of any source unless one is named."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM events WHERE id = ? AND ? IN ('', source) ORDER BY seq DESC LIMIT 1",
        (from_text(event_id), from_text(source)),
    ).fetchone()
    return _stored(row) if row else None


def events_of_incident(
    connection: sqlite3.Connection, incident_id: str, limit: int = 100
) -> list[StoredEvent]:
    """Return the newest events that count to the incident, newest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM events WHERE seq IN"
        " (SELECT event_seq FROM incident_events WHERE incident_id = ? ORDER BY event_seq DESC LIMIT ?)"
        " ORDER BY seq DESC",
        (incident_id, limit),
    )
    return [_stored(row) for row in rows]


def prune(connection: sqlite3.Connection, now: datetime, days: int, limit: int = 10_000) -> int:
    """Delete decided events accepted more than ``days`` ago. Return how many, ``limit`` at most.

    Events of an incident that is not resolved stay, and so do those that a run in progress is about.
    Call again while the answer equals ``limit``: a long deletion would keep other writers waiting.
    """
    done = connection.execute(
        "DELETE FROM events WHERE seq IN ("
        " SELECT e.seq FROM events AS e WHERE e.decided_at IS NOT NULL AND e.accepted_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM incident_events AS l JOIN incidents AS i ON i.id = l.incident_id"
        "  WHERE l.event_seq = e.seq AND i.status <> 'resolved')"
        " AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.status <> 'ended' AND r.event_id = e.id)"
        " LIMIT ?)",
        (from_time(now - timedelta(days=days)), limit),
    )
    return done.rowcount


def _stored(row: tuple[Any, ...]) -> StoredEvent:
    seq, record, accepted_at, decided_at, verdicts = row
    return StoredEvent(
        seq=seq,
        event=event_from_record(to_json(record)),
        accepted_at=to_time(accepted_at),
        decided_at=to_optional_time(decided_at),
        verdicts=tuple(to_json(verdicts)) if verdicts else (),
    )
