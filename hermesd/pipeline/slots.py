"""Who may run now: places are claimed in the same transaction that makes or wakes a run.

At most so many runs work at a time. A run that waits for a person or is paused holds no place, so
that a question nobody answers keeps no incident from being looked at; when it goes on, it goes on at
once, and may for that while be one too many.

Every function takes the connection of a write of the store. None may be called outside of one.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from hermesd.incidents import Run, RunKind, RunStatus
from hermesd.rules.rule import Rule
from hermesd.state.runs import active_runs, insert_run, rules_of_active, update_run
from hermesd.state.settings import read_setting

PAUSED_SETTING: Final = "runs.paused"
"""Name of the stored fact that a person paused the starting of new runs."""


def new_task_id() -> str:
    """Return a task id that was never given before."""
    return f"run-{secrets.token_hex(6)}"


def place_run(
    connection: sqlite3.Connection, run: Run, places: int, now: datetime, *, behind: bool = False
) -> Run | None:
    """Store a new run, working if there is a place for it, else queued.

    Return None, and store nothing, when its incident has a run that has not ended. ``behind`` queues it
    after the runs of its rule instead.
    """
    if behind:
        insert_run(connection, run)
        return run
    if run.incident_id is not None and active_runs(connection, run.incident_id):
        return None
    placed = _started(run, now) if _free(connection, places) > 0 else run
    insert_run(connection, placed)
    return placed


def claim_queued(
    connection: sqlite3.Connection, places: int, now: datetime, rules: Iterable[Rule] = ()
) -> list[Run]:
    """Give free places to queued runs: by their rule's priority, oldest first. Return those that start."""
    free = _free(connection, places)
    if free <= 0:
        return []
    order = _Order(connection, rules)
    active = active_runs(connection)
    at_work = [run for run in active if run.status is not RunStatus.QUEUED]
    claimed: list[Run] = []
    for run in sorted(active, key=order.rank):
        if len(claimed) < free and run.status is RunStatus.QUEUED and not order.holds_back(run, at_work):
            claimed.append(_started(run, now))
            at_work.append(claimed[-1])
    for run in claimed:
        update_run(connection, run)
    return claimed


class _Order:
    """In which order queued runs start: what the rules that made them say."""

    def __init__(self, connection: sqlite3.Connection, rules: Iterable[Rule]) -> None:
        known = {rule.name: rule for rule in rules}
        self._rules = {
            task_id: known[rule] for task_id, rule in rules_of_active(connection).items() if rule in known
        }

    def rank(self, run: Run) -> int:
        """Return the place in line: what is first is least."""
        rule = self._rules.get(run.task_id)
        return -rule.priority if rule else 0

    def holds_back(self, queued: Run, at_work: Sequence[Run]) -> bool:
        """Say whether the run waits for another one of its schedule or rule to end."""
        name, rule = schedule_of(queued), self._rules.get(queued.task_id)
        one_at_a_time = rule is not None and rule.run is not None and rule.run.one_at_a_time
        return any(
            (name and schedule_of(run) == name)
            or (one_at_a_time and self._rules.get(run.task_id) is rule)
            or (queued.incident_id is not None and run.incident_id == queued.incident_id)
            for run in at_work
        )


def schedule_of(run: Run) -> str:
    """Return the name of the schedule that the run is of, empty when it is of none."""
    of_schedule = run.kind is RunKind.SCHEDULE and run.event_id is not None
    return (run.event_id or "").partition(":")[0] if of_schedule else ""


def _free(connection: sqlite3.Connection, places: int) -> int:
    if read_setting(connection, PAUSED_SETTING, default=False):
        return 0
    working = sum(run.status is RunStatus.RUNNING for run in active_runs(connection))
    return places - working


def _started(run: Run, now: datetime) -> Run:
    return replace(run, status=RunStatus.RUNNING, started_at=now)
