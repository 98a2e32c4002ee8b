"""Who may run now: places are claimed in the same transaction that makes or wakes a run.

At most so many runs work at a time. A run that waits for a person or is paused holds no place, so
that a question nobody answers keeps no incident from being looked at; when it goes on, it goes on at
once, and may for that while be one too many.

Every function takes the connection of a write of the store. None may be called outside of one.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from hermesd.incidents import Run, RunKind, RunStatus
from hermesd.state.runs import active_runs, insert_run, update_run
from hermesd.state.settings import read_setting

PAUSED_SETTING: Final = "runs.paused"
"""Name of the stored fact that a person paused the starting of new runs."""


def new_task_id() -> str:
    """Return a task id that was never given before."""
    return f"run-{secrets.token_hex(6)}"


def place_run(connection: sqlite3.Connection, run: Run, places: int, now: datetime) -> Run | None:
    """Store a new run, working if there is a place for it, else queued.

    Return None, and store nothing, when its incident has a run that has not ended.
    """
    if run.incident_id is not None and active_runs(connection, run.incident_id):
        return None
    placed = _started(run, now) if _free(connection, places) > 0 else run
    insert_run(connection, placed)
    return placed


def claim_queued(connection: sqlite3.Connection, places: int, now: datetime) -> list[Run]:
    """Give free places to queued runs, oldest first. Return those that start now."""
    free = _free(connection, places)
    if free <= 0:
        return []
    active = active_runs(connection)
    queued = [run for run in active if run.status is RunStatus.QUEUED and not _held_back(run, active)]
    claimed = [_started(run, now) for run in queued[:free]]
    for run in claimed:
        update_run(connection, run)
    return claimed


def schedule_of(run: Run) -> str:
    """Return the name of the schedule that the run is of, empty when it is of none."""
    of_schedule = run.kind is RunKind.SCHEDULE and run.event_id is not None
    return (run.event_id or "").partition(":")[0] if of_schedule else ""


def _held_back(queued: Run, active: Sequence[Run]) -> bool:
    """Say whether the run waits for another one of its schedule to end."""
    name = schedule_of(queued)
    return bool(name) and any(
        schedule_of(run) == name and run.status is not RunStatus.QUEUED for run in active
    )


def _free(connection: sqlite3.Connection, places: int) -> int:
    if read_setting(connection, PAUSED_SETTING, default=False):
        return 0
    working = sum(run.status is RunStatus.RUNNING for run in active_runs(connection))
    return places - working


def _started(run: Run, now: datetime) -> Run:
    return replace(run, status=RunStatus.RUNNING, started_at=now)
