"""Judging a batch: what the rules make of events, written down in one transaction.

An event's verdicts, what rules remember, the incidents and the runs that follow are committed
together or not at all, so that a crash between them cannot be. This module must never start
anything: it returns what came of the batch, and the dispatcher records that before it lets it act.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from hermesd.agent.runbook import Runbook
from hermesd.events import RETAINED_TYPE, Event, EventStatus
from hermesd.incidents import Incident, IncidentStatus, Run, RunKind
from hermesd.pipeline.scheduled import Placed, is_slot, place_slot
from hermesd.pipeline.slots import new_task_id, place_run
from hermesd.rules.engine import (
    RuleState,
    Verdict,
    VerdictKind,
    judge_all,
    render_goal,
    state_from_record,
)
from hermesd.rules.rule import Rule
from hermesd.sources.schedule_file import Schedule
from hermesd.state.events import StoredEvent, mark_decided, undecided_events
from hermesd.state.incidents import find_incident, find_open_incident, open_incident, update_incident
from hermesd.state.marks import Mark, reading_mark, set_mark
from hermesd.state.rule_states import load_rule_state, save_rule_state

MARKED_TYPES: Final = ("host.", "health.", RETAINED_TYPE)
"""Types whose newest event is kept as a mark: what is known of the host. Others could be endless."""

Key = tuple[str, str]


@dataclass(slots=True)
class Judged:
    """What came of a batch. ``started`` have a place and may start once all this is recorded."""

    events: int = 0
    opened: list[Incident] = field(default_factory=list)
    resolved: list[Incident] = field(default_factory=list)
    started: list[Run] = field(default_factory=list)
    queued: list[Run] = field(default_factory=list)
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    evidence: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)


def judge_batch(
    connection: sqlite3.Connection,
    rules: Sequence[Rule],
    *,
    places: int,
    limit: int,
    now: datetime,
    schedules: Iterable[Schedule] = (),
    runbooks: Mapping[str, Runbook] = MappingProxyType({}),
) -> Judged:
    """Judge up to ``limit`` undecided events in their order. ``places`` bounds the runs at work."""
    timed = {schedule.name: schedule for schedule in schedules}
    batch = _Batch(connection, {rule.name: rule for rule in rules}, places, timed, runbooks)
    for number, stored in enumerate(undecided_events(connection, limit)):
        # Two openings of one fingerprint must differ in their moment, whatever the clock's grain.
        batch.judge(stored, now + timedelta(microseconds=number))
    batch.flush()
    return batch.judged


class _Batch:
    """The transaction's working memory: each state, incident and mark is read once and written once."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        rules: Mapping[str, Rule],
        places: int,
        schedules: Mapping[str, Schedule],
        runbooks: Mapping[str, Runbook],
    ) -> None:
        self._connection = connection
        self._rules = rules
        self._places = places
        self._schedules = schedules
        self._runbooks = runbooks
        self._states: dict[Key, RuleState | None] = {}
        self._stale_states: set[Key] = set()
        self._incidents: dict[str, Incident] = {}
        self._marks: dict[Key, Mark] = {}
        self.judged = Judged()

    def judge(self, stored: StoredEvent, now: datetime) -> None:
        event = stored.event
        incident_ids = []
        verdicts: list[dict[str, Any]] = [self._place(event, now).to_record()] if is_slot(event) else []
        rules = self._rules.values() if event.type != RETAINED_TYPE else ()
        for verdict, state in judge_all(rules, event, self._recall, now):
            self._remember((verdict.rule, verdict.fingerprint), state)
            applied = self._apply(verdict, event, now)
            verdicts.append(applied.to_record())
            if applied.incident_id and applied.kind in _COUNTED:
                incident_ids.append(applied.incident_id)
        if not verdicts:
            self.judged.verdicts["", VerdictKind.IGNORED.value] += 1
            verdicts = [{"kind": VerdictKind.IGNORED.value, "reason": "no rule matches"}]
        mark_decided(self._connection, stored.seq, verdicts, now, incident_ids)
        self._mark(event, now)
        self.judged.events += 1

    def flush(self) -> None:
        for rule, fingerprint in self._stale_states:
            state = self._states[rule, fingerprint]
            save_rule_state(self._connection, rule, fingerprint, state.to_record() if state else None)
        for incident in self._incidents.values():
            update_incident(self._connection, incident)
        for mark in self._marks.values():
            set_mark(self._connection, mark)
        # What was opened or resolved is told as it stands at the end of the batch.
        self.judged.opened = [self._incidents.get(item.id, item) for item in self.judged.opened]
        self.judged.resolved = [self._incidents.get(item.id, item) for item in self.judged.resolved]

    def _recall(self, rule: str, fingerprint: str) -> RuleState | None:
        key = (rule, fingerprint)
        if key not in self._states:
            record = load_rule_state(self._connection, rule, fingerprint)
            self._states[key] = state_from_record(record) if record else None
        return self._states[key]

    def _remember(self, key: Key, state: RuleState | None) -> None:
        if key[1] and state is not self._states.get(key):
            self._states[key] = state
            self._stale_states.add(key)

    def _apply(self, verdict: Verdict, event: Event, now: datetime) -> Verdict:
        """Do what the verdict says to incidents and runs; return it as it came out."""
        if verdict.kind is VerdictKind.OPENED:
            verdict = self._open(verdict, event, now)
        elif verdict.kind is VerdictKind.ABSORBED:
            self._count_in(verdict.incident_id, event)
        elif verdict.kind is VerdictKind.RESOLVED:
            self._resolve(verdict.incident_id, event, now)
        run = self._start(verdict, event, now) if verdict.start_run else None
        self._note(verdict, event, run)
        return verdict

    def _open(self, verdict: Verdict, event: Event, now: datetime) -> Verdict:
        standing = find_open_incident(self._connection, verdict.fingerprint)
        if standing is not None and self._incidents.get(standing.id, standing).resolved_at is None:
            # The rule forgot it (its file went and came back): the problem is still the same one.
            key = (verdict.rule, verdict.fingerprint)
            state = self._states[key]
            assert state is not None  # noqa: S101 - an opening always leaves a state
            self._remember(key, replace(state, incident_id=standing.id))
            self._count_in(standing.id, event)
            return replace(verdict, kind=VerdictKind.ABSORBED, incident_id=standing.id)
        if standing is not None:
            update_incident(self._connection, self._incidents[standing.id])
        rule = self._rules[verdict.rule]
        incident = Incident(
            id=verdict.incident_id,
            rule=verdict.rule,
            fingerprint=verdict.fingerprint,
            title=verdict.title,
            labels=dict(event.labels),
            severity=(rule.severity or event.severity).value,
            opened_at=now,
            last_event_at=event.time,
            last_value=event.value,
            unit=event.unit,
        )
        open_incident(self._connection, incident)
        self.judged.opened.append(incident)
        self._incidents[incident.id] = incident
        return verdict

    def _known(self, incident_id: str) -> Incident | None:
        return self._incidents.get(incident_id) or find_incident(self._connection, incident_id)

    def _count_in(self, incident_id: str, event: Event) -> Incident | None:
        incident = self._known(incident_id)
        if incident is not None:
            incident = replace(
                incident,
                events=incident.events + 1,
                last_event_at=event.time,
                last_value=incident.last_value if event.value is None else event.value,
                unit=event.unit or incident.unit,
            )
            self._incidents[incident_id] = incident
        return incident

    def _resolve(self, incident_id: str, event: Event, now: datetime) -> None:
        incident = self._count_in(incident_id, event)
        if incident is not None and incident.status is not IncidentStatus.RESOLVED:
            resolved = replace(incident, status=IncidentStatus.RESOLVED, resolved_at=now)
            self._incidents[incident_id] = resolved
            self.judged.resolved.append(resolved)

    def _start(self, verdict: Verdict, event: Event, now: datetime) -> Run | None:
        rule = self._rules[verdict.rule]
        assert rule.run is not None  # noqa: S101 - only a rule with a run grants one
        run = Run(
            task_id=new_task_id(),
            kind=RunKind.EVENT,
            goal=render_goal(rule, event),
            created_at=now,
            incident_id=verdict.incident_id,
            event_id=event.id,
            runbook=rule.run.runbook,
        )
        placed = place_run(self._connection, run, self._places, now)
        if placed is not None:
            (self.judged.started if placed.started_at else self.judged.queued).append(placed)
        return placed

    def _place(self, event: Event, now: datetime) -> Placed:
        """Give a slot of a schedule its run, or say why it has none."""
        slot = place_slot(self._connection, event, self._schedules, self._runbooks, self._places, now)
        if slot.run is not None:
            (self.judged.started if slot.run.started_at else self.judged.queued).append(slot.run)
        self.judged.verdicts[f"schedule {slot.schedule}", slot.kind] += 1
        self.judged.evidence["schedule", event.id, slot.kind] = {
            "schedule": slot.schedule,
            "event": event.id,
            "verdict": slot.kind,
            "reason": slot.reason,
            "run": slot.run.task_id if slot.run else "",
        }
        return slot

    def _note(self, verdict: Verdict, event: Event, run: Run | None) -> None:
        """Add to the batch's evidence: one entry for what happened alike, with its count."""
        kind = verdict.kind.value
        self.judged.verdicts[verdict.rule, kind] += 1
        if verdict.kind in _UNREMARKABLE:
            return
        entry = self.judged.evidence.setdefault(
            (verdict.rule, verdict.fingerprint, kind),
            {
                "rule": verdict.rule,
                "fingerprint": verdict.fingerprint,
                "verdict": kind,
                "count": 0,
                "first_event": event.id,
                "runs": [],
            },
        )
        entry |= {
            "count": entry["count"] + 1,
            "source": event.source,
            "last_event": event.id,
            "reason": verdict.reason,
            "incident": verdict.incident_id,
        }
        if verdict.start_run:
            entry["runs"].append(run.task_id if run else "none: a run of this incident is under way")

    def _mark(self, event: Event, now: datetime) -> None:
        if not event.type.startswith(MARKED_TYPES):
            return
        value = {
            "value": event.value,
            "unit": event.unit,
            "labels": event.labels,
            "status": None if event.status is EventStatus.READING else event.status.value,
            "at": event.time.isoformat(),
        }
        scope = event.subject or ",".join(f"{name}={event.labels[name]}" for name in sorted(event.labels))
        self._marks[event.type, scope] = reading_mark(event.type, value, now, scope)


_COUNTED: Final = frozenset({VerdictKind.OPENED, VerdictKind.ABSORBED, VerdictKind.RESOLVED})
_UNREMARKABLE: Final = frozenset({VerdictKind.IGNORED, VerdictKind.BELOW})
