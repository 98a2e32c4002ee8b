"""What other rules would have made of the events of late: for whoever is about to change a rule.

The events that the store still has are judged again, in their order and at their times, in a store in
memory that nobody else sees: by the same judgement that serves live, with what was open before the
first of them, and with the silences of that time. Runs take no time here. This module must never
write to the store that it reads, and starts nothing.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from hermesd.config import Config
from hermesd.incidents import Incident, RunStatus
from hermesd.pipeline.judging import Terms, judge_batch
from hermesd.rules.book import RuleBook
from hermesd.rules.verdict import RuleState, VerdictKind
from hermesd.state.events import StoredEvent, find_event, insert_event, recent_events
from hermesd.state.incidents import incidents_open_at, open_incident
from hermesd.state.rule_states import next_due, save_rule_state
from hermesd.state.runs import active_runs, runs_of_incident, update_run
from hermesd.state.silences import SilenceRow, insert_silence, list_silences
from hermesd.state.store import scratch

MAX_SILENCES: Final = 10_000
NOTHING: Final = "nothing"
_QUIET: Final = frozenset({VerdictKind.IGNORED.value, VerdictKind.BELOW.value})

Made = Mapping[str, tuple[str, str]]
"""For a rule's name what it made of one event, in words, and its reason."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Events of which a rule makes something else. ``first`` is the earliest; ``reason`` is said of it."""

    rule: str
    was: str
    would_be: str
    events: int
    first: StoredEvent
    reason: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay found. ``opened`` and ``runs`` are how many there were, and how many there would be."""

    events: int
    since: datetime | None
    until: datetime | None
    same: int
    differences: tuple[Difference, ...]
    opened: tuple[int, int]
    runs: tuple[int, int]


def replay(connection: sqlite3.Connection, config: Config, limit: int) -> Replay:
    """Judge the last ``limit`` judged events anew, by the configuration. Only reads ``connection``."""
    then = recent_events(connection, limit)
    if not then:
        return Replay(0, None, None, 0, (), (0, 0), (0, 0))
    with closing(scratch()) as desk:
        anew = _Anew(desk, config, list_silences(connection, MAX_SILENCES))
        for incident in incidents_open_at(connection, then[0].accepted_at):
            anew.remember(incident, [run.created_at for run in runs_of_incident(connection, incident.id)])
        for stored in then:
            anew.judge(stored)
        return _compare(then, [anew.verdicts(stored) for stored in then])


class _Anew:
    """The judgement in memory. Time is that of the events."""

    def __init__(self, desk: sqlite3.Connection, config: Config, silences: Iterable[SilenceRow]) -> None:
        self._desk = desk
        self._terms = Terms(
            book=RuleBook(config.rules),
            places=config.limits.parallel_runs,
            schedules={schedule.name: schedule for schedule in config.schedules},
            runbooks=config.runbooks,
            maintenance=config.maintenance,
        )
        self._silences = sorted(silences, key=lambda row: row.created_at, reverse=True)

    def remember(self, incident: Incident, runs: Sequence[datetime]) -> None:
        """Let an incident be open that was so before the first event."""
        if incident.rule not in self._terms.book.by_name:
            return
        open_incident(self._desk, replace(incident, resolved_at=None, status=incident.status.OPEN))
        last = max((at for at in runs if at < incident.last_event_at), default=None)
        state = RuleState(opened_at=incident.opened_at, incident_id=incident.id, last_run_at=last)
        save_rule_state(self._desk, incident.rule, incident.fingerprint, state.to_record())

    def judge(self, stored: StoredEvent) -> None:
        """Let time go on to the event, with what becomes due on the way, and judge it."""
        now = stored.decided_at or stored.accepted_at
        self._let_pass(now)
        insert_event(self._desk, stored.event, stored.accepted_at)
        self._judge(now)

    def verdicts(self, stored: StoredEvent) -> tuple[dict[str, Any], ...]:
        """Return what was made of the event, by itself and by the time after it."""
        judged = find_event(self._desk, stored.event.id, stored.event.source)
        return judged.verdicts if judged else ()

    def _let_pass(self, now: datetime) -> None:
        for at in self._moments(now):
            self._judge(at)
        while self._silences and self._silences[-1].created_at <= now:
            insert_silence(self._desk, self._silences.pop())

    def _moments(self, until: datetime) -> Iterator[datetime]:
        before = None
        while (due := next_due(self._desk)) is not None and due <= until and due != before:
            yield due
            before = due

    def _judge(self, now: datetime) -> None:
        judge_batch(self._desk, self._terms, limit=2, now=now)
        for run in active_runs(self._desk):
            update_run(self._desk, replace(run, status=RunStatus.ENDED, ended_at=now))


def _compare(then: Sequence[StoredEvent], anew: Sequence[Sequence[Mapping[str, Any]]]) -> Replay:
    found: dict[tuple[str, str, str], Difference] = {}
    same = 0
    totals = Counter[str]()
    for stored, verdicts in zip(then, anew, strict=True):
        was, would_be = _made(stored.verdicts), _made(verdicts)
        totals.update({f"was {name}": n for name, n in _counted(stored.verdicts).items()})
        totals.update({f"would {name}": n for name, n in _counted(verdicts).items()})
        others = [rule for rule in {**was, **would_be} if _word(was, rule) != _word(would_be, rule)]
        same += not others
        for rule in others:
            key = (rule, _word(was, rule), _word(would_be, rule))
            reason = would_be.get(rule, ("", "no such rule concerns it"))[1]
            known = found.get(key) or Difference(*key, 0, stored, reason)
            found[key] = replace(known, events=known.events + 1)
    return Replay(
        events=len(then),
        since=then[0].accepted_at,
        until=then[-1].accepted_at,
        same=same,
        differences=tuple(sorted(found.values(), key=lambda one: (one.rule, one.first.seq))),
        opened=(totals["was opened"], totals["would opened"]),
        runs=(totals["was runs"], totals["would runs"]),
    )


def _word(made: Made, rule: str) -> str:
    return made.get(rule, (NOTHING, ""))[0]


def _made(verdicts: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return for each rule what it made of an event; what time added later is joined to it."""
    made: dict[str, tuple[str, str]] = {}
    for verdict in verdicts:
        if not (rule := str(verdict.get("rule", ""))):
            continue
        kind = str(verdict.get("kind", ""))
        word = NOTHING if kind in _QUIET else kind + (" with a run" if verdict.get("start_run") else "")
        before = made.get(rule)
        made[rule] = (f"{before[0]}, then {word}" if before else word, str(verdict.get("reason", "")))
    return made


def _counted(verdicts: Iterable[Mapping[str, Any]]) -> Counter[str]:
    counted = Counter[str]()
    for verdict in verdicts:
        counted["opened"] += verdict.get("kind") == VerdictKind.OPENED.value and bool(verdict.get("rule"))
        counted["runs"] += bool(verdict.get("start_run"))
    return counted
