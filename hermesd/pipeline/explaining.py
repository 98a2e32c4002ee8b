"""Why something or nothing followed from an event, and how the schedules stand: for people who ask.

What the rules made of an event was written down when they judged it, with their reasons. Of rules that
it did not concern the first condition that missed is said, as the rules stand now. Everything here reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from hermesd.incidents import Run
from hermesd.ipc.messages import Code
from hermesd.ipc.server import RequestError
from hermesd.pipeline.asked import text_in
from hermesd.pipeline.kit import Kit
from hermesd.pipeline.slots import schedule_of
from hermesd.pipeline.views import iso, run_view
from hermesd.rules.engine import mismatch
from hermesd.rules.rule import Rule
from hermesd.sources.schedule import SOURCE, Seen, seen_from_record
from hermesd.sources.schedule_file import Schedule
from hermesd.state.events import StoredEvent, find_event
from hermesd.state.runs import list_runs, runs_of_event
from hermesd.state.settings import read_setting

NEXT_TIMES: Final = 3
MAX_ID: Final = 1024
_RUNS_LOOKED_AT: Final = 500
_CHANGED: Final = (
    "it concerns the rule as it stands now; when it was judged, it did not, or there was no such rule"
)


class Explanations:
    """Answers what can be asked about events and schedules. Payload in, payload out."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    async def explain(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return what was made of an event, and why. Raise RequestError."""
        event_id, source = text_in(payload, "id", longest=MAX_ID), text_in(payload, "source", "")

        def look(connection: sqlite3.Connection) -> tuple[StoredEvent | None, list[Run]]:
            stored = find_event(connection, event_id, source)
            return stored, runs_of_event(connection, event_id) if stored else []

        stored, runs = await self._kit.store.read(look)
        if stored is None:
            raise RequestError(Code.NOT_FOUND, f"there is no event {event_id}")
        return explanation(stored, runs, self._kit.config().rules)

    async def schedules(self, _payload: dict[str, Any]) -> dict[str, Any]:
        """Return the schedules: when they come next, their last slot and run, and what was missed."""

        def look(connection: sqlite3.Connection) -> tuple[dict[str, Any], list[Run]]:
            return read_setting(connection, SOURCE, {}), list_runs(connection, _RUNS_LOOKED_AT)

        records, runs = await self._kit.store.read(look)
        newest = {schedule_of(run): run for run in reversed(runs)}
        seen = {name: seen_from_record(record) for name, record in records.items()}
        return {
            "schedules": [
                schedule_view(one, seen.get(one.name), newest.get(one.name), self._kit.now())
                for one in self._kit.config().schedules
            ]
        }


def explanation(stored: StoredEvent, runs: Iterable[Run], rules: Sequence[Rule]) -> dict[str, Any]:
    """Return the whole story of one event as the wire has it. Pure."""
    verdicts = [verdict for verdict in stored.verdicts if verdict.get("rule") or verdict.get("schedule")]
    return {
        "event": stored.event.to_record(),
        "accepted_at": iso(stored.accepted_at),
        "decided_at": iso(stored.decided_at),
        "verdicts": list(stored.verdicts),
        "not_concerned": _not_concerned(stored, verdicts, rules),
        "runs": [run_view(run) for run in runs],
    }


def _not_concerned(
    stored: StoredEvent, verdicts: Iterable[Mapping[str, Any]], rules: Iterable[Rule]
) -> list[dict[str, str]]:
    judged = {verdict.get("rule") for verdict in verdicts}
    return [
        {"rule": rule.name, "reason": mismatch(rule, stored.event) or _CHANGED}
        for rule in rules
        if stored.decided_at is not None and rule.name not in judged
    ]


def schedule_view(schedule: Schedule, seen: Seen | None, run: Run | None, now: datetime) -> dict[str, Any]:
    """Return how a schedule stands. Pure."""
    return {
        "name": schedule.name,
        "enabled": schedule.enabled,
        "when": schedule.cron or f"every {schedule.every_seconds:g} s",
        "timezone": schedule.timezone,
        "runbook": schedule.runbook,
        "task": schedule.task,
        "next": _next_times(schedule, seen, now) if schedule.enabled else [],
        "last_slot": iso(seen.last_slot) if seen else None,
        "missed": seen.missed if seen else 0,
        "last_missed": iso(seen.last_missed) if seen else None,
        "run": run_view(run) if run else None,
    }


def _next_times(schedule: Schedule, seen: Seen | None, now: datetime) -> list[str | None]:
    slot: datetime | None = max(now, seen.until) if seen and seen.table == schedule.table else now
    times = []
    for _ in range(NEXT_TIMES):
        slot = schedule.next_slot(slot) if slot else None
        times += [iso(slot)] if slot else []
    return times
