"""Rows of incidents. The table itself refuses two open incidents of one fingerprint."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from hermesd.incidents import Incident, IncidentStatus
from hermesd.state.columns import (
    from_json,
    from_optional_time,
    from_text,
    from_time,
    to_json,
    to_optional_time,
    to_time,
)

_PLACES: Final = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?"
_FIELDS: Final = (
    "id, rule, fingerprint, title, labels, severity, opened_at, last_event_at,"
    " status, resolved_at, events, last_value, unit, escalated"
)


def open_incident(connection: sqlite3.Connection, incident: Incident) -> None:
    """Insert it. Raise sqlite3.IntegrityError when one of its fingerprint is open, or its id exists."""
    connection.execute(
        f"INSERT INTO incidents ({_FIELDS}) VALUES ({_PLACES})",
        _row(incident),
    )


def update_incident(connection: sqlite3.Connection, incident: Incident) -> None:
    """Replace the row of that id. Raise KeyError when there is none."""
    done = connection.execute(
        f"UPDATE incidents SET ({_FIELDS}) = ({_PLACES}) WHERE id = ?",
        (*_row(incident), incident.id),
    )
    if done.rowcount != 1:
        raise KeyError(incident.id)


def find_incident(connection: sqlite3.Connection, incident_id: str) -> Incident | None:
    """Return the incident of that id."""
    row = connection.execute(f"SELECT {_FIELDS} FROM incidents WHERE id = ?", (incident_id,)).fetchone()
    return _incident(row) if row else None


def find_open_incident(connection: sqlite3.Connection, fingerprint: str) -> Incident | None:
    """Return the incident of that fingerprint that is not resolved, open or acknowledged."""
    row = connection.execute(
        f"SELECT {_FIELDS} FROM incidents WHERE fingerprint = ? AND status <> 'resolved'", (fingerprint,)
    ).fetchone()
    return _incident(row) if row else None


def list_incidents(
    connection: sqlite3.Connection, limit: int = 50, *, include_resolved: bool = False
) -> list[Incident]:
    """Return incidents, newest first; only those not resolved unless asked for all."""
    where = "" if include_resolved else "WHERE status <> 'resolved'"
    rows = connection.execute(f"SELECT {_FIELDS} FROM incidents {where} ORDER BY seq DESC LIMIT ?", (limit,))
    return [_incident(row) for row in rows]


def open_incidents_of(connection: sqlite3.Connection, rules: Iterable[str]) -> list[Incident]:
    """Return the incidents of these rules that are not resolved, oldest first."""
    names = tuple(rules)
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM incidents WHERE status <> 'resolved'"
        f" AND rule IN ({', '.join('?' * len(names))}) ORDER BY seq",
        names,
    )
    return [_incident(row) for row in rows]


def incidents_open_at(connection: sqlite3.Connection, moment: datetime) -> list[Incident]:
    """Return the incidents that had been opened before that moment and were not resolved then."""
    at = from_time(moment)
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM incidents WHERE opened_at < ? AND (resolved_at IS NULL OR resolved_at >= ?)"
        " ORDER BY seq",
        (at, at),
    )
    return [_incident(row) for row in rows]


def count_open_incidents(connection: sqlite3.Connection) -> int:
    """Return how many incidents are not resolved."""
    (count,) = connection.execute("SELECT count(*) FROM incidents WHERE status <> 'resolved'").fetchone()
    return int(count)


def _row(incident: Incident) -> tuple[Any, ...]:
    return (
        incident.id,
        incident.rule,
        incident.fingerprint,
        from_text(incident.title),
        from_json(incident.labels),
        incident.severity,
        from_time(incident.opened_at),
        from_time(incident.last_event_at),
        incident.status.value,
        from_optional_time(incident.resolved_at),
        incident.events,
        incident.last_value,
        from_text(incident.unit),
        from_text(incident.escalated),
    )


def _incident(row: tuple[Any, ...]) -> Incident:
    return Incident(
        id=row[0],
        rule=row[1],
        fingerprint=row[2],
        title=row[3],
        labels=dict(to_json(row[4])),
        severity=row[5],
        opened_at=to_time(row[6]),
        last_event_at=to_time(row[7]),
        status=IncidentStatus(row[8]),
        resolved_at=to_optional_time(row[9]),
        events=row[10],
        last_value=row[11],
        unit=row[12],
        escalated=row[13],
    )
