"""Rows of runs. A run is stored before it starts and after each stage, so that it can be resumed."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import Any, Final

from hermesd.incidents import Outcome, Run, RunKind, RunStatus
from hermesd.protocol import StageTiming
from hermesd.state.columns import (
    from_json,
    from_optional_text,
    from_optional_time,
    from_text,
    from_time,
    to_json,
    to_optional_time,
    to_time,
)

_FIELDS: Final = (
    "task_id, kind, goal, created_at, incident_id, event_id, runbook, asked_by, status, outcome,"
    " reason, started_at, ended_at, round, stage, report, worked_ms, stages,"
    " malformed, tokens, cost"
)
_PLACES: Final = ", ".join("?" * 21)


def insert_run(connection: sqlite3.Connection, run: Run) -> None:
    """Insert it. Raise sqlite3.IntegrityError when the task_id exists or its incident does not."""
    connection.execute(f"INSERT INTO runs ({_FIELDS}) VALUES ({_PLACES})", _row(run))


def update_run(connection: sqlite3.Connection, run: Run) -> None:
    """Replace the row of that task_id. Raise KeyError when there is none."""
    done = connection.execute(
        f"UPDATE runs SET ({_FIELDS}) = ({_PLACES}) WHERE task_id = ?", (*_row(run), run.task_id)
    )
    if done.rowcount != 1:
        raise KeyError(run.task_id)


def find_run(connection: sqlite3.Connection, task_id: str) -> Run | None:
    """Return the run of that task_id."""
    row = connection.execute(f"SELECT {_FIELDS} FROM runs WHERE task_id = ?", (task_id,)).fetchone()
    return _run(row) if row else None


def active_runs(connection: sqlite3.Connection, incident_id: str = "") -> list[Run]:
    """Return the runs that have not ended, oldest first; of one incident when it is named."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM runs WHERE status <> 'ended' AND ? IN ('', incident_id) ORDER BY seq",
        (incident_id,),
    )
    return [_run(row) for row in rows]


def list_runs(connection: sqlite3.Connection, limit: int = 50, incident_id: str = "") -> list[Run]:
    """Return runs, newest first; of one incident when it is named."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM runs WHERE ? IN ('', incident_id) ORDER BY seq DESC LIMIT ?",
        (incident_id, limit),
    )
    return [_run(row) for row in rows]


def runs_of_incident(connection: sqlite3.Connection, incident_id: str) -> list[Run]:
    """Return every run of the incident, oldest first."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM runs WHERE incident_id = ? ORDER BY seq", (incident_id,)
    )
    return [_run(row) for row in rows]


def runs_of_event(connection: sqlite3.Connection, event_id: str) -> list[Run]:
    """Return every run that the event started, oldest first."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM runs WHERE event_id = ? ORDER BY seq", (from_text(event_id),)
    )
    return [_run(row) for row in rows]


def _row(run: Run) -> tuple[Any, ...]:
    return (
        run.task_id,
        run.kind.value,
        from_text(run.goal),
        from_time(run.created_at),
        run.incident_id,
        from_optional_text(run.event_id),
        from_text(run.runbook),
        from_text(run.asked_by),
        run.status.value,
        run.outcome.value if run.outcome else None,
        from_text(run.reason),
        from_optional_time(run.started_at),
        from_optional_time(run.ended_at),
        run.round,
        run.stage,
        from_text(run.report),
        run.worked_ms,
        from_json([timing.model_dump(mode="json") for timing in run.stages]),
        run.malformed,
        run.tokens,
        run.cost,
    )


def _run(row: tuple[Any, ...]) -> Run:
    return Run(
        task_id=row[0],
        kind=RunKind(row[1]),
        goal=row[2],
        created_at=to_time(row[3]),
        incident_id=row[4],
        event_id=row[5],
        runbook=row[6],
        asked_by=row[7],
        status=RunStatus(row[8]),
        outcome=Outcome(row[9]) if row[9] else None,
        reason=row[10],
        started_at=to_optional_time(row[11]),
        ended_at=to_optional_time(row[12]),
        round=row[13],
        stage=row[14],
        report=row[15],
        worked_ms=row[16],
        stages=tuple(StageTiming.model_validate(item, strict=False) for item in to_json(row[17])),
        malformed=row[18],
        tokens=row[19],
        cost=row[20],
    )


def active_runs_of(connection: sqlite3.Connection, rule: str) -> list[str]:
    """Return the task ids of a rule's runs that have not ended, oldest first."""
    rows = connection.execute(
        "SELECT r.task_id FROM runs AS r JOIN incidents AS i ON i.id = r.incident_id"
        " WHERE r.status <> 'ended' AND i.rule = ? ORDER BY r.seq",
        (rule,),
    )
    return [task_id for (task_id,) in rows]


def rules_of_active(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the rule's name for the task id of each run that has not ended and came of an incident."""
    rows = connection.execute(
        "SELECT r.task_id, i.rule FROM runs AS r JOIN incidents AS i ON i.id = r.incident_id"
        " WHERE r.status <> 'ended'"
    )
    return dict(rows.fetchall())


def runs_since(
    connection: sqlite3.Connection, since: datetime, limit: int
) -> list[tuple[str, str, dict[str, str], datetime]]:
    """Return rule, fingerprint, labels and time of the runs made since then, the newest first."""
    rows = connection.execute(
        "SELECT i.rule, i.fingerprint, i.labels, r.created_at FROM runs AS r"
        " JOIN incidents AS i ON i.id = r.incident_id"
        " WHERE r.created_at > ? ORDER BY r.created_at DESC LIMIT ?",
        (from_time(since), limit),
    )
    return [(rule, mark, to_json(labels), to_time(at)) for rule, mark, labels, at in rows]
