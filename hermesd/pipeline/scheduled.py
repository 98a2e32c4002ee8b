"""Runs by the clock: what becomes of a `schedule.due` event, in the transaction that judges it.

One slot gives one run at most, since its event is taken once. A schedule whose last run has not ended
gets no second one beside it: by its `overlap` the slot goes without, or its run waits.

This module must never look at the clock itself, and never start anything: it places runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hermesd.agent.choose import choose_runbook
from hermesd.agent.runbook import Runbook
from hermesd.events import Event
from hermesd.incidents import Run, RunKind, RunStatus
from hermesd.pipeline.slots import new_task_id, place_run, schedule_of
from hermesd.sources.schedule import DUE, SOURCE
from hermesd.sources.schedule_file import Overlap, Schedule
from hermesd.state.runs import active_runs, insert_run


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of a slot: its run, if it has one, and why, for people."""

    schedule: str
    kind: str
    reason: str
    run: Run | None = None

    def to_record(self) -> dict[str, object]:
        """Return it as a verdict beside those of the rules."""
        return {
            "schedule": self.schedule,
            "kind": self.kind,
            "reason": self.reason,
            "start_run": self.run is not None,
            "run": self.run.task_id if self.run else "",
        }


def is_slot(event: Event) -> bool:
    """Say whether the event is a slot that has come."""
    return event.source == SOURCE and event.type == DUE


def place_slot(
    connection: sqlite3.Connection,
    event: Event,
    schedules: Mapping[str, Schedule],
    runbooks: Mapping[str, Runbook],
    places: int,
    now: datetime,
) -> Placed:
    """Give the slot its run, working if there is a place for it, else queued."""
    name = event.labels.get("schedule", "")
    schedule = schedules.get(name)
    if schedule is None or not schedule.enabled:
        return Placed(name, "skipped", "there is no such schedule any more, or it is switched off")
    run = _run(schedule, event, runbooks, now)
    before = [one for one in active_runs(connection) if schedule_of(one) == name]
    if not before:
        placed = place_run(connection, run, places, now) or run
        waits = placed.status is RunStatus.QUEUED
        reason = "all places are taken: its run waits for one" if waits else "its run starts"
        return Placed(name, "queued" if waits else "started", reason, placed)
    if schedule.overlap is Overlap.SKIP:
        return Placed(name, "skipped", f"its last run, {before[0].task_id}, has not ended")
    waiting = next((one for one in before if one.status is RunStatus.QUEUED), None)
    if waiting is not None:
        return Placed(name, "skipped", f"{waiting.task_id} of an earlier slot waits already")
    insert_run(connection, run)
    return Placed(name, "queued", f"its run waits until {before[0].task_id} has ended", run)


def _run(schedule: Schedule, event: Event, runbooks: Mapping[str, Runbook], now: datetime) -> Run:
    choice = None if schedule.runbook else choose_runbook(schedule.goal, runbooks.values())
    return Run(
        task_id=new_task_id(),
        kind=RunKind.SCHEDULE,
        goal=schedule.goal,
        created_at=now,
        event_id=event.id,
        runbook=schedule.runbook or (choice.runbook if choice else ""),
    )
