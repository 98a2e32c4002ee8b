"""Rows of what a run decided and did: the memory from which a run goes on after a crash.

A decision is stored before it is acted on, and a step before its request is sent: a step that is
`sent` without a result is in doubt until the executor has been asked about its request id.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from hermesd.protocol import Action, CommandResult, Decision
from hermesd.state.columns import from_time, to_time


class StepStatus(StrEnum):
    """`planned` was never sent; `sent` may have happened; `ended` has its result."""

    PLANNED = "planned"
    SENT = "sent"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Step:
    """One action of one round, tried for the ``attempt``-th time under its own request id."""

    task_id: str
    round: int
    index: int
    attempt: int
    request_id: str
    action: Action
    status: StepStatus = StepStatus.PLANNED
    result: CommandResult | None = None


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """What a planner decided in a round. ``refused`` says why it was not acted on, empty when it was."""

    seq: int
    task_id: str
    round: int
    planner: str
    decision: Decision
    made_at: datetime
    refused: str = ""


_FIELDS: Final = "task_id, round, position, attempt, request_id, action, status, result"


def insert_decision(
    connection: sqlite3.Connection,
    task_id: str,
    round_no: int,
    planner: str,
    decision: Decision,
    made_at: datetime,
) -> int:
    """Store a decision and return its number."""
    done = connection.execute(
        "INSERT INTO decisions (task_id, round, planner, decision, made_at) VALUES (?, ?, ?, ?, ?)",
        (task_id, round_no, planner, decision.model_dump_json(), from_time(made_at)),
    )
    return int(done.lastrowid or 0)


def refuse_decision(connection: sqlite3.Connection, seq: int, reason: str) -> None:
    """Write down that the decision was not acted on, and why."""
    connection.execute("UPDATE decisions SET refused = ? WHERE seq = ?", (reason, seq))


def decisions_of(connection: sqlite3.Connection, task_id: str) -> list[StoredDecision]:
    """Return the decisions of a run in their order, refused ones too."""
    rows = connection.execute(
        "SELECT seq, task_id, round, planner, decision, made_at, refused FROM decisions"
        " WHERE task_id = ? ORDER BY seq",
        (task_id,),
    )
    return [
        StoredDecision(
            seq=row[0],
            task_id=row[1],
            round=row[2],
            planner=row[3],
            decision=Decision.model_validate_json(row[4]),
            made_at=to_time(row[5]),
            refused=row[6],
        )
        for row in rows
    ]


def insert_step(connection: sqlite3.Connection, step: Step) -> None:
    """Insert it. Raise sqlite3.IntegrityError when its place or its request id is taken."""
    connection.execute(f"INSERT INTO steps ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _row(step))


def update_step(connection: sqlite3.Connection, step: Step) -> None:
    """Replace the row of that request id. Raise KeyError when there is none."""
    done = connection.execute(
        f"UPDATE steps SET ({_FIELDS}) = (?, ?, ?, ?, ?, ?, ?, ?) WHERE request_id = ?",
        (*_row(step), step.request_id),
    )
    if done.rowcount != 1:
        raise KeyError(step.request_id)


def find_step(connection: sqlite3.Connection, request_id: str) -> Step | None:
    """Return the step that was sent under the request id."""
    row = connection.execute(f"SELECT {_FIELDS} FROM steps WHERE request_id = ?", (request_id,)).fetchone()
    return _step(row) if row else None


def steps_of(connection: sqlite3.Connection, task_id: str) -> list[Step]:
    """Return the steps of a run in the order of round, place and attempt."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM steps WHERE task_id = ? ORDER BY round, position, attempt", (task_id,)
    )
    return [_step(row) for row in rows]


def _row(step: Step) -> tuple[Any, ...]:
    return (
        step.task_id,
        step.round,
        step.index,
        step.attempt,
        step.request_id,
        step.action.model_dump_json(),
        step.status.value,
        step.result.model_dump_json() if step.result else None,
    )


def _step(row: tuple[Any, ...]) -> Step:
    return Step(
        task_id=row[0],
        round=row[1],
        index=row[2],
        attempt=row[3],
        request_id=row[4],
        action=Action.model_validate_json(row[5]),
        status=StepStatus(row[6]),
        result=CommandResult.model_validate_json(row[7]) if row[7] else None,
    )
