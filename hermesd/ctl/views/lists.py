"""Incidents, runs and waiting operations as tables. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from hermesd.ctl import messages as m
from hermesd.ctl.screen import Cell, Column, Item, Line, Table, Tone
from hermesd.ctl.speech import Speech
from hermesd.ctl.views.fields import reading, rows_of, text_of

GOOD_OUTCOMES: Final = frozenset({"resolved", "answered"})
_SEVERITY_TONES: Final = {"critical": Tone.BAD, "warning": Tone.WARN}
_STATUS_TONES: Final = {"open": Tone.BAD, "acknowledged": Tone.WARN, "resolved": Tone.GOOD}


def render_incidents(payload: dict[str, Any], say: Speech, now: datetime, *, everything: bool) -> list[Item]:
    """Return the incidents, one row each."""
    incidents = rows_of(payload, "incidents")
    if not incidents:
        return [Line(say(m.NO_INCIDENTS_EVER if everything else m.NO_INCIDENTS), Tone.DIM)]
    columns = (
        Column(say(m.ID), whole=True),
        Column(say(m.STATE), whole=True),
        Column(say(m.SEVERITY), whole=True),
        Column(say(m.OPENED), whole=True),
        Column(say(m.VALUE), whole=True, right=True),
        Column(say(m.TITLE)),
    )
    return [Table(columns, tuple(_incident_row(one, say, now) for one in incidents))]


def _incident_row(incident: dict[str, Any], say: Speech, now: datetime) -> tuple[Cell, ...]:
    status, severity = text_of(incident, "status"), text_of(incident, "severity")
    return (
        Cell(text_of(incident, "id")),
        Cell(say.word(m.INCIDENT_STATUSES, status), _STATUS_TONES.get(status, Tone.PLAIN)),
        Cell(say.word(m.SEVERITIES, severity), _SEVERITY_TONES.get(severity, Tone.PLAIN)),
        Cell(say.ago(incident.get("opened_at"), now)),
        Cell(reading(incident)),
        Cell(text_of(incident, "title")),
    )


def render_runs(payload: dict[str, Any], say: Speech, now: datetime) -> list[Item]:
    """Return the runs, one row each."""
    runs = rows_of(payload, "runs")
    if not runs:
        return [Line(say(m.NO_RUNS), Tone.DIM)]
    columns = (
        Column(say(m.ID), whole=True),
        Column(say(m.STATE)),
        Column(say(m.CREATED), whole=True),
        Column(say(m.GOAL)),
    )
    return [Table(columns, tuple(_run_row(run, say, now) for run in runs))]


def _run_row(run: dict[str, Any], say: Speech, now: datetime) -> tuple[Cell, ...]:
    return (
        Cell(text_of(run, "task_id")),
        Cell(run_state(run, say), run_tone(run)),
        Cell(say.ago(run.get("created_at"), now)),
        Cell(text_of(run, "goal")),
    )


def run_state(run: dict[str, Any], say: Speech) -> str:
    """Return how a run stands in words: its outcome once it ended, else its status and stage."""
    if outcome := text_of(run, "outcome"):
        return say.word(m.OUTCOMES, outcome)
    status, stage = say.word(m.RUN_STATUSES, run.get("status")), text_of(run, "stage")
    shown = stage and text_of(run, "status") == "running"
    return f"{status} ({say.word(m.STAGES, stage)})" if shown else status


def run_tone(run: dict[str, Any]) -> Tone:
    """Return the tone of how a run stands."""
    outcome = text_of(run, "outcome")
    if outcome in GOOD_OUTCOMES:
        return Tone.GOOD
    if outcome:
        return Tone.WARN if outcome in {"reported", "denied", "expired", "cancelled"} else Tone.BAD
    return Tone.WARN if text_of(run, "status") in {"waiting", "paused"} else Tone.PLAIN


def render_approvals(payload: dict[str, Any], say: Speech, now: datetime) -> list[Item]:
    """Return what waits for a person, and the exact command to type for the oldest."""
    waiting = rows_of(payload, "operations")
    if not waiting:
        return [Line(say(m.NO_APPROVALS), Tone.DIM)]
    columns = (
        Column(say(m.ID), whole=True),
        Column(say(m.COMMAND)),
        Column(say(m.EXPIRES), whole=True),
        Column(say(m.IMPACT)),
    )
    rows = tuple(_operation_row(operation, say, now) for operation in waiting)
    hint = say(m.HOW_TO_APPROVE, id=text_of(waiting[0], "id"))
    return [Table(columns, rows), Line(), Line(hint)]


def _operation_row(operation: dict[str, Any], say: Speech, now: datetime) -> tuple[Cell, ...]:
    return (
        Cell(text_of(operation, "id")),
        Cell(text_of(operation, "command")),
        Cell(say.left(operation.get("expires_at"), now)),
        Cell(text_of(operation, "text"), Tone.WARN),
    )
