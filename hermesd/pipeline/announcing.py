"""What is told outside of incidents and runs: facts of the rule and the outcome, in plain JSON.

A person's words, a report and a command's output stay where who may see them is checked: this module
must never put them into a notice.
"""

from __future__ import annotations

from datetime import datetime

from hermesd.incidents import Incident, Run
from hermesd.sources.bulletin import Notice


def incident_notice(incident: Incident) -> Notice:
    """Return what is told when an incident opened or was resolved."""
    return Notice(
        f"incidents/{incident.id}",
        {
            "id": incident.id,
            "status": incident.status.value,
            "rule": incident.rule,
            "title": incident.title,
            "severity": incident.severity,
            "labels": incident.labels,
            "events": incident.events,
            "value": incident.last_value,
            "unit": incident.unit,
            "opened_at": incident.opened_at.isoformat(),
            "resolved_at": _time(incident.resolved_at),
        },
    )


def run_notice(run: Run) -> Notice:
    """Return what is told when a run ended."""
    return Notice(
        f"runs/{run.task_id}",
        {
            "task_id": run.task_id,
            "kind": run.kind.value,
            "incident": run.incident_id,
            "runbook": run.runbook,
            "outcome": run.outcome.value if run.outcome else None,
            "started_at": _time(run.started_at),
            "ended_at": _time(run.ended_at),
            "worked_ms": run.worked_ms,
        },
    )


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
