"""Judging a batch: what the rules make of events, written down in one transaction.

An event's verdicts, what rules remember, the incidents and the runs that follow are committed
together or not at all, so that a crash between them cannot be. So is what becomes due although no
event came. This module must never start anything: it returns what came of the batch, and the
dispatcher records that before it lets it act.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from hermesd.agent.runbook import Runbook
from hermesd.events import RETAINED_TYPE, Event, EventStatus, event_from_record
from hermesd.incidents import Incident, IncidentStatus, Run, RunKind
from hermesd.pipeline.brakes import Brakes
from hermesd.pipeline.judged import Judged
from hermesd.pipeline.scheduled import Placed, is_slot, place_slot
from hermesd.pipeline.slots import new_task_id, place_run
from hermesd.rules.book import RuleBook
from hermesd.rules.engine import judge_all, render_goal
from hermesd.rules.maintenance import Maintenance
from hermesd.rules.rule import Mode
from hermesd.rules.timers import due_of, judge_due
from hermesd.rules.verdict import HoldKind, RuleState, Verdict, VerdictKind, state_from_record
from hermesd.sources.schedule_file import Schedule
from hermesd.state.events import StoredEvent, add_verdict, mark_decided, undecided_events
from hermesd.state.incidents import find_incident, find_open_incident, open_incident, update_incident
from hermesd.state.marks import Mark, reading_mark, set_mark
from hermesd.state.rule_states import (
    StateRow,
    due_states,
    load_rule_state,
    next_due,
    rule_states,
    save_rule_state,
    set_due,
)

MARKED_TYPES: Final = ("host.", "health.", RETAINED_TYPE)
"""Types whose newest event is kept as a mark: what is known of the host. Others could be endless."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a batch is judged by. ``places`` bounds the runs at work."""

    book: RuleBook
    places: int
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    runbooks: Mapping[str, Runbook] = field(default_factory=dict)
    maintenance: tuple[Maintenance, ...] = ()


def judge_batch(connection: sqlite3.Connection, terms: Terms, *, limit: int, now: datetime) -> Judged:
    """Judge up to ``limit`` undecided events in their order, then what is due, once none is left."""
    batch = _Batch(connection, terms)
    stored = undecided_events(connection, limit)
    for number, event in enumerate(stored):
        # Two openings of one fingerprint must differ in their moment, whatever the clock's grain.
        batch.judge(event, now + timedelta(microseconds=number))
    if len(stored) < limit:
        batch.flush_states()  # what an event has just said counts before what its silence would mean
        for row in due_states(connection, now, limit):
            batch.judge_due(row, now + timedelta(microseconds=len(stored)))
    batch.flush()
    batch.judged.next_due = next_due(connection)
    return batch.judged


def retime(connection: sqlite3.Connection, book: RuleBook) -> None:
    """Work out anew when each remembered state is due: the rules are others than those it was saved by."""
    for row in rule_states(connection):
        rule = book.by_name.get(row.rule)
        due = due_of(rule, state_from_record(row.state)) if rule and row.event else None
        if due != row.due_at:
            set_due(connection, row, due)


class _Batch:
    """The transaction's working memory: each state, incident and mark is read once and written once."""

    def __init__(self, connection: sqlite3.Connection, terms: Terms) -> None:
        self._connection = connection
        self._terms = terms
        self._rules = terms.book.by_name
        self._brakes = Brakes(connection, terms.maintenance, self._current)
        self._states: dict[Key, RuleState | None] = {}
        self._stale_states: dict[Key, Event] = {}
        self._incidents: dict[str, Incident] = {}
        self._marks: dict[Key, Mark] = {}
        self.judged = Judged()

    def judge(self, stored: StoredEvent, now: datetime) -> None:
        event = stored.event
        incident_ids = []
        verdicts: list[dict[str, Any]] = [self._place(event, now).to_record()] if is_slot(event) else []
        book = self._terms.book if event.type != RETAINED_TYPE else _NO_RULES
        for verdict, state in judge_all(book, event, self._recall, now, self._brakes.hold):
            key = (verdict.rule, verdict.fingerprint)
            self._remember(key, state, event, again=verdict.kind is VerdictKind.PENDING)
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

    def judge_due(self, row: StateRow, now: datetime) -> None:
        """Judge by the passing of time. A rule that is gone has no timers; its open incident stays."""
        self.judged.timers += 1
        rule, key = self._rules.get(row.rule), (row.rule, row.fingerprint)
        known = self._recall(*key)
        if rule is None or known is None or row.event is None:
            set_due(self._connection, row, None)
            return
        event = event_from_record(row.event)
        verdict, state = judge_due(rule, event, known, now, self._brakes.hold)
        self._remember(key, state, event, again=True)
        if verdict is not None:
            applied = self._apply(verdict, event, now, spoken=False)
            add_verdict(self._connection, event, {**applied.to_record(), "by": "time"}, applied.incident_id)

    def flush(self) -> None:
        self.flush_states()
        for incident in self._incidents.values():
            update_incident(self._connection, incident)
        for mark in self._marks.values():
            set_mark(self._connection, mark)
        # What was opened or resolved is told as it stands at the end of the batch.
        judged = self.judged
        judged.opened = [self._current(item) for item in judged.opened]
        judged.resolved = [self._current(item) for item in judged.resolved]
        judged.escalated = [self._current(item) for item in judged.escalated]

    def flush_states(self) -> None:
        """Write down what the rules remember so far, and when it is due."""
        for key, event in self._stale_states.items():
            state, rule = self._states[key], self._rules[key[0]]
            if state is None:
                save_rule_state(self._connection, *key, None)
                continue
            due = due_of(rule, state)
            last = event.to_record() if due else None
            save_rule_state(self._connection, *key, state.to_record(), due, last)
        self._stale_states.clear()

    def _recall(self, rule: str, fingerprint: str) -> RuleState | None:
        key = (rule, fingerprint)
        if key not in self._states:
            record = load_rule_state(self._connection, rule, fingerprint)
            self._states[key] = state_from_record(record) if record else None
        return self._states[key]

    def _remember(self, key: Key, state: RuleState | None, event: Event, *, again: bool = False) -> None:
        """Keep the state, and with it the event that it rests on; ``again`` also where it did not change."""
        if key[1] and (again or state is not self._states.get(key)):
            self._states[key] = state
            self._stale_states[key] = event

    def _apply(self, verdict: Verdict, event: Event, now: datetime, *, spoken: bool = True) -> Verdict:
        """Do what the verdict says to incidents and runs; return it as it came out.

        Not ``spoken``: no event said so but time, and there is none to be counted.
        """
        if verdict.kind is VerdictKind.OPENED:
            verdict = self._open(verdict, event, now)
        elif verdict.kind is VerdictKind.ABSORBED:
            self._count_in(verdict.incident_id, event)
        elif verdict.kind is VerdictKind.RESOLVED:
            self._resolve(verdict.incident_id, event if spoken else None, now)
        if verdict.held is HoldKind.OVER_BUDGET:
            self._escalate(verdict)
        run = self._start(verdict, event, now) if verdict.start_run else None
        self.judged.note(verdict, event, run)
        return verdict

    def _open(self, verdict: Verdict, event: Event, now: datetime) -> Verdict:
        standing = find_open_incident(self._connection, verdict.fingerprint)
        if standing is not None and self._incidents.get(standing.id, standing).resolved_at is None:
            # The rule forgot it (its file went and came back): the problem is still the same one.
            key = (verdict.rule, verdict.fingerprint)
            state = self._states[key]
            assert state is not None  # noqa: S101 - an opening always leaves a state
            self._remember(key, state._replace(incident_id=standing.id), event)
            self._count_in(standing.id, event)
            return verdict._replace(kind=VerdictKind.ABSORBED, incident_id=standing.id)
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

    def _current(self, incident: Incident) -> Incident:
        return self._incidents.get(incident.id, incident)

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

    def _resolve(self, incident_id: str, event: Event | None, now: datetime) -> None:
        incident = self._count_in(incident_id, event) if event else self._known(incident_id)
        if incident is not None and incident.status is not IncidentStatus.RESOLVED:
            resolved = replace(incident, status=IncidentStatus.RESOLVED, resolved_at=now)
            self._incidents[incident_id] = resolved
            self.judged.resolved.append(resolved)

    def _escalate(self, verdict: Verdict) -> None:
        """Mark the incident for a person, once."""
        incident = self._known(verdict.incident_id)
        if incident is not None and not incident.escalated:
            marked = replace(incident, escalated=verdict.reason)
            self._incidents[incident.id] = marked
            self.judged.escalated.append(marked)

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
        before = self._brakes.active(rule) if rule.run.one_at_a_time else []
        placed = place_run(self._connection, run, self._terms.places, now, behind=bool(before))
        self._brakes.changed()
        if placed is not None:
            self.judged.take_run(placed)
        if rule.run.mode is Mode.RESTART:
            self.judged.withdrawn += before
        return placed

    def _place(self, event: Event, now: datetime) -> Placed:
        """Give a slot of a schedule its run, or say why it has none."""
        terms = self._terms
        slot = place_slot(self._connection, event, terms.schedules, terms.runbooks, terms.places, now)
        if slot.run is not None:
            self.judged.take_run(slot.run)
        self.judged.verdicts[f"schedule {slot.schedule}", slot.kind] += 1
        self.judged.evidence["schedule", event.id, slot.kind] = {
            "schedule": slot.schedule,
            "event": event.id,
            "verdict": slot.kind,
            "reason": slot.reason,
            "run": slot.run.task_id if slot.run else "",
        }
        return slot

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


_NO_RULES: Final = RuleBook(())
"""What a retained message is judged by: it may be years old, and only tells what is known."""

_COUNTED: Final = frozenset({VerdictKind.OPENED, VerdictKind.ABSORBED, VerdictKind.RESOLVED})
