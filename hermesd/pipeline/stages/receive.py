"""Receive: the run takes in what is stored of it, of its event and of its incident.

For a run that was interrupted this is where its way so far is read back. It writes nothing but the
record that the run began, or goes on.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from hermesd.events import Event
from hermesd.incidents import Incident, Run, RunKind
from hermesd.pipeline.passage import Passage
from hermesd.pipeline.trail import Trail, read_trail
from hermesd.protocol import Stage
from hermesd.state.events import find_event
from hermesd.state.incidents import find_incident
from hermesd.state.marks import Mark, list_marks
from hermesd.state.runs import runs_of_incident
from hermesd.state.steps import decisions_of, steps_of

PAST_RUNS = 5


@dataclass(frozen=True, slots=True)
class Received:
    """What the store knows that matters to a run."""

    trail: Trail
    event: Event | None
    incident: Incident | None
    past_runs: tuple[Run, ...]
    marks: tuple[Mark, ...]


async def receive(passage: Passage) -> Received:
    """Read what the run begins with. Raise StageTimeout."""
    run = passage.run
    async with passage.stage(Stage.RECEIVE):
        received = await passage.kit.store.read(lambda connection: _read(connection, run))
        passage.trail = received.trail
        resumed = bool(run.stages or run.round)
        passage.note(
            "run.resumed" if resumed else "run.started",
            run_kind=run.kind.value,
            incident=run.incident_id,
            event=run.event_id,
            runbook=run.runbook,
            # A person's words are kept in the store, where they can be erased; here only that they were.
            goal=None if run.kind is RunKind.PERSON else run.goal,
            config=passage.config.digest,
        )
    passage.tell("" if run.kind is RunKind.PERSON else run.goal)
    return received


def _read(connection: sqlite3.Connection, run: Run) -> Received:
    past: list[Run] = []
    if run.incident_id:
        past = [item for item in runs_of_incident(connection, run.incident_id) if item.ended_at]
    return Received(
        trail=read_trail(decisions_of(connection, run.task_id), steps_of(connection, run.task_id)),
        event=_event(connection, run),
        incident=find_incident(connection, run.incident_id) if run.incident_id else None,
        past_runs=tuple(past[-PAST_RUNS:]),
        marks=tuple(list_marks(connection)),
    )


def _event(connection: sqlite3.Connection, run: Run) -> Event | None:
    stored = find_event(connection, run.event_id) if run.event_id else None
    return stored.event if stored else None
