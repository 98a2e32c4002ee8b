"""Brief: what a planner is to know, gathered once: event, host facts, earlier runs, the catalogue.

Marks past their life are left out: a planner acts on what it is told. A catalogue that cannot be
had now is taken from memory; without any, nothing could be looked at and the run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from hermesd.agent.choose import arguments_in
from hermesd.agent.planner import Briefing
from hermesd.clocks import SECOND
from hermesd.incidents import Incident, Outcome, Run, RunKind
from hermesd.ipc.client import Unreachable
from hermesd.pipeline.ending import RunEnds
from hermesd.pipeline.passage import Passage
from hermesd.pipeline.stages.receive import Received
from hermesd.protocol import CatalogueView, Stage
from hermesd.state.marks import Mark, is_current

_CATALOGUE_SHARE: Final = 0.8
"""How much of the stage's budget waiting for the executor may take: a restart is worth waiting for."""

_FRESH_SECONDS: Final = 10.0
"""How old a catalogue may be: reading it costs 10 ms, and an executor that has changed says so itself."""

_HOST_TYPES: Final = ("host.", "health.")
_CALM_AT_ZERO: Final = ("flag", "count")


async def brief(passage: Passage, received: Received) -> Briefing:
    """Return the run's briefing. Raise StageTimeout, or RunEnds when there is no catalogue at all."""
    run = passage.run
    async with passage.stage(Stage.BRIEF):
        catalogue = await _catalogue(passage)
        briefing = Briefing(
            task_id=run.task_id,
            goal=run.goal,
            catalogue=catalogue,
            language=passage.config.agent.language,
            event=received.event.to_record() if received.event else {},
            incident=incident_record(received.incident) if received.incident else {},
            facts=_facts(run, received.marks, passage.kit.now()),
            past_runs=tuple(past_line(past) for past in received.past_runs),
            runbook=run.runbook,
        )
    passage.tell(
        passage.words.briefed.format(
            commands=len(catalogue.commands), facts=len(briefing.facts), past=len(briefing.past_runs)
        )
    )
    return briefing


def _facts(run: Run, marks: Iterable[Mark], now: datetime) -> Mapping[str, Any]:
    """Return what is known: the host's state, and the path or unit that a sentence names."""
    named = {} if run.kind is RunKind.EVENT else arguments_in(run.goal)
    return {**host_facts(marks, now), **named}


async def _catalogue(passage: Passage) -> CatalogueView:
    hands = passage.kit.hands
    try:
        patience = passage.config.stages.brief_ms / SECOND * _CATALOGUE_SHARE
        return await hands.catalogue(patience, _FRESH_SECONDS)
    except Unreachable as error:
        if hands.known is None:
            reason = passage.words.executor_away.format(reason=error)
            raise RunEnds(Outcome.FAILED, reason) from None
        return hands.known


def incident_record(incident: Incident) -> dict[str, Any]:
    """Return the incident as plain values."""
    return {
        "id": incident.id,
        "rule": incident.rule,
        "title": incident.title,
        "status": incident.status.value,
        "severity": incident.severity,
        "labels": incident.labels,
        "opened_at": incident.opened_at.isoformat(),
        "resolved_at": incident.resolved_at.isoformat() if incident.resolved_at else None,
        "events": incident.events,
        "last_value": incident.last_value,
        "unit": incident.unit,
        "escalated": incident.escalated,
    }


def host_facts(marks: Iterable[Mark], now: datetime) -> Mapping[str, Any]:
    """Return the host's present state by kind of reading: what was read of each thing.

    Short, since a planner is shown so many characters of it: what is resolved, and a flag or a count of
    nothing, say nothing; a value has four digits.
    """
    facts: dict[str, list[dict[str, Any]]] = {}
    for mark in marks:
        if mark.name.startswith(_HOST_TYPES) and is_current(mark, now) and not _is_calm(mark.value):
            facts.setdefault(mark.name, []).append(_fact(mark))
    return facts


def _is_calm(value: Mapping[str, Any]) -> bool:
    return value["status"] == "resolved" or (value["unit"] in _CALM_AT_ZERO and not value["value"])


def _fact(mark: Mark) -> dict[str, Any]:
    value, status = mark.value["value"], mark.value["status"]
    fact: dict[str, Any] = {"of": mark.scope}
    if value is not None:
        fact |= {"value": float(f"{value:.4g}"), "unit": mark.value["unit"]}
    return fact | ({"status": status, "labels": mark.value["labels"]} if status else {})


def past_line(run: Run) -> str:
    """Return an earlier run of the same incident in one line."""
    ended = run.ended_at.isoformat(timespec="seconds") if run.ended_at else ""
    outcome = run.outcome.value if run.outcome else ""
    return f"{ended} {run.task_id}: {outcome}{run.reason and ': '}{run.reason}"
