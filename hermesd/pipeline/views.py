"""How incidents, runs, steps and sources look on the wire: plain values, times as ISO 8601 in UTC.

Pure. This module must never leave out what a person needs to see who did what, and never shows a
command's whole output: that is the executor's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hermesd.incidents import Incident, Run
from hermesd.pipeline.stages.brief import incident_record
from hermesd.protocol import payload_of
from hermesd.sources.supervisor import SourceState
from hermesd.state.steps import Step

MAX_RECORDS: Final = 300
"""Audit records in one answer, the newest: the log itself holds all."""

MAX_RECORD_TEXT: Final = 1200


def iso(moment: datetime | None) -> str | None:
    """Return a time as the wire has it."""
    return moment.astimezone(UTC).isoformat() if moment else None


def incident_view(incident: Incident, runs: Iterable[Run]) -> dict[str, Any]:
    """Return an incident with the ids of its runs, oldest first."""
    return {**incident_record(incident), "runs": [run.task_id for run in runs]}


def run_view(run: Run) -> dict[str, Any]:
    """Return a run in one row."""
    return {
        "task_id": run.task_id,
        "incident_id": run.incident_id,
        "kind": run.kind.value,
        "goal": run.goal,
        "status": run.status.value,
        "outcome": run.outcome.value if run.outcome else None,
        "reason": run.reason,
        "round": run.round,
        "stage": run.stage,
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "ended_at": iso(run.ended_at),
    }


def whole_run_view(run: Run, steps: Sequence[Step]) -> dict[str, Any]:
    """Return a run with its stages, steps and report."""
    return {
        **run_view(run),
        "runbook": run.runbook,
        "asked_by": run.asked_by,
        "worked_ms": run.worked_ms,
        "stages": [payload_of(timing) for timing in run.stages],
        "steps": [step_view(step) for step in steps],
        "report": run.report,
    }


def step_view(step: Step) -> dict[str, Any]:
    """Return a step with what came of it. ``status`` is the result's once there is one."""
    result = step.result
    return {
        "round": step.round,
        "step": step.action.step,
        "attempt": step.attempt,
        "request_id": step.request_id,
        "command": step.action.command,
        "args": step.action.args,
        "intent": step.action.intent,
        "status": result.status.value if result else step.status.value,
        "summary": result.summary if result else "",
        "reason": result.reason if result else "",
        "impact": payload_of(result.impact) if result and result.impact else None,
        "gain": payload_of(result.gain) if result and result.gain else None,
    }


def source_view(state: SourceState) -> dict[str, Any]:
    """Return how a source stands."""
    return {
        "name": state.name,
        "kind": state.kind,
        "state": state.state,
        "since": iso(state.since),
        "restarts": state.restarts,
        "error": state.error,
        "last_event_at": iso(state.last_event_at),
    }


def record_view(record: dict[str, Any]) -> dict[str, Any]:
    """Return an audit record with overlong texts cut, so that an answer stays one line of the wire."""
    return {name: _cut(value) for name, value in record.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_RECORD_TEXT:
        return value[:MAX_RECORD_TEXT] + "…"
    return value
