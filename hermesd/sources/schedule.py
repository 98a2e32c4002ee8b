"""Schedules as a source: a slot that has come is an event `schedule.due`, one that was missed is told too.

A slot is an instant in UTC, and its event's id is made of the schedule's name and the slot alone: the
inbox takes it once, ever. What has been seen of each schedule outlives the process (`Memory`), so that
slots that passed while nobody ran are found. What runs, and whether it may, is decided behind the inbox.

This module must never run anything, and never let one schedule hold up another.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo

from hermesd.durations import render_duration
from hermesd.events import Event, EventStatus, Severity
from hermesd.sources.base import Deliver, InboxFull, Now, Sleep, utc_now
from hermesd.sources.schedule_file import Missed, Schedule
from hermesd.sources.timetable import Slots, slots_between

log = logging.getLogger("hermesd.sources.schedule")

SOURCE: Final = "schedule"
DUE: Final = "schedule.due"
MISSED: Final = "schedule.missed"

LONGEST_SLEEP_S: Final = 15.0
"""The clock may be set, and a host may be suspended, while this waits: it looks again at least so often."""
MAX_AT_ONCE: Final = 100
_TRUSTED_AHEAD: Final = timedelta(days=1)
"""A clock set back by less leaves what was seen standing; by more, it was wrong before, for who knows
how long, and the inbox alone sees that no slot runs twice."""


class Memory(Protocol):
    """What outlives the process."""

    async def recall(self) -> Mapping[str, Any]:
        """Return what was remembered last, empty when nothing was."""
        ...

    async def remember(self, state: Mapping[str, Any]) -> None:
        """Keep the state in place of the one before; return once it is durable."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What is remembered of a schedule: all slots of its ``table`` up to ``until`` are dealt with.

    ``missed`` counts slots that nobody was there for, ``last_missed`` is the newest of them.
    """

    until: datetime
    table: str = ""
    last_slot: datetime | None = None
    missed: int = 0
    last_missed: datetime | None = None

    def to_record(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "until": self.until.isoformat(),
            "table": self.table,
            "last_slot": self.last_slot and self.last_slot.isoformat(),
            "missed": self.missed,
            "last_missed": self.last_missed and self.last_missed.isoformat(),
        }


def seen_from_record(record: Mapping[str, Any]) -> Seen:
    """Return what `to_record` wrote. Raise KeyError or ValueError on anything else."""
    return Seen(
        until=datetime.fromisoformat(record["until"]),
        table=str(record["table"]),
        last_slot=_moment(record["last_slot"]),
        missed=int(record["missed"]),
        last_missed=_moment(record["last_missed"]),
    )


@dataclass(frozen=True, slots=True)
class Turn:
    """What a look at the clock gives: events to deliver, and what is to be remembered after that."""

    events: tuple[Event, ...]
    seen: Seen


def begins_at(schedule: Schedule, slot: datetime) -> datetime:
    """Return when the slot's event is due: the slot itself and its jitter, the same one each time."""
    if not schedule.jitter_s:
        return slot
    drawn = hashlib.sha256(f"{schedule.name} {slot.isoformat()}".encode()).digest()
    share = int.from_bytes(drawn[:6]) / (1 << 48)
    return slot + timedelta(seconds=schedule.jitter_s * share)


def look(schedule: Schedule, seen: Seen | None, now: datetime) -> Turn:
    """Return what the schedule has to tell now. Pure.

    A schedule that was never seen, or that has another timetable since, begins with now: slots that it
    would have had are none that were missed.
    """
    if seen is None or seen.table != schedule.table:
        return Turn((), replace(seen or Seen(now), until=now, table=schedule.table))
    if seen.until - now > _TRUSTED_AHEAD:
        seen = replace(seen, until=now)
    gone = now - timedelta(seconds=schedule.grace_seconds + schedule.jitter_s)
    missed = slots_between(schedule.next_slot, seen.until, gone)
    due = list(islice(_begun(schedule, missed.last if missed else seen.until, now), MAX_AT_ONCE))
    events = []
    if missed:
        made_up = schedule.missed is Missed.RUN_ONCE and not due
        due = [missed.last] if made_up else due
        lost = _without_last(schedule, missed) if made_up else missed
        seen = replace(seen, until=missed.last)
        if lost:
            events.append(_missed(schedule, lost, now))
            seen = replace(seen, missed=seen.missed + lost.count, last_missed=lost.last)
    if due:
        seen = replace(seen, until=due[-1], last_slot=due[-1])
    return Turn((*events, *(_due(schedule, slot, now) for slot in due)), seen)


def next_look(schedule: Schedule, seen: Seen | None, now: datetime) -> datetime | None:
    """Return when the schedule's next slot begins; None when it never does again."""
    slot = schedule.next_slot(seen.until if seen else now)
    return begins_at(schedule, slot) if slot else None


def _begun(schedule: Schedule, since: datetime, now: datetime) -> Iterator[datetime]:
    """Yield the slots after ``since`` that have begun, oldest first. A later one waits for its elder."""
    slot = schedule.next_slot(since)
    while slot is not None and begins_at(schedule, slot) <= now:
        yield slot
        slot = schedule.next_slot(slot)


def _without_last(schedule: Schedule, missed: Slots) -> Slots | None:
    """Return the missed slots but the newest, which is run after all; None when there is no other."""
    if missed.count == 1:
        return None
    slot = missed.first
    while not missed.more and (later := schedule.next_slot(slot)) is not None and later < missed.last:
        slot = later
    return replace(missed, count=missed.count - 1, last=missed.last if missed.more else slot)


def _due(schedule: Schedule, slot: datetime, now: datetime) -> Event:
    local = slot.astimezone(ZoneInfo(schedule.timezone))
    return Event(
        id=slot_id(schedule.name, slot),
        source=SOURCE,
        type=DUE,
        time=now,
        subject=schedule.name,
        labels={"schedule": schedule.name, "slot": _utc(slot), "local": local.isoformat(timespec="minutes")},
        status=EventStatus.FIRING,
        severity=Severity.INFO,
        value=round((now - slot).total_seconds(), 1),
        unit="seconds",
        text=schedule.goal,
    )


def _missed(schedule: Schedule, lost: Slots, now: datetime) -> Event:
    several = f"{'at least ' if lost.more else ''}{lost.count} slots"
    count = "1 slot" if lost.count == 1 and not lost.more else several
    return Event(
        id=f"{slot_id(schedule.name, lost.last)}.missed",
        source=SOURCE,
        type=MISSED,
        time=now,
        subject=schedule.name,
        labels={"schedule": schedule.name, "first": _utc(lost.first), "last": _utc(lost.last)},
        status=EventStatus.FIRING,
        severity=Severity.WARNING,
        value=float(lost.count),
        unit="slots",
        text=f"{count} of {schedule.name} passed, unseen for {render_duration(schedule.grace_seconds)}",
    )


def slot_id(name: str, slot: datetime) -> str:
    """Return the id of a slot's event: the same slot always has it, and no other."""
    return f"{name}:{_utc(slot)}"


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


class ScheduleSource:
    """Looks at the clock for all schedules. ``schedules`` returns those in force now."""

    name: str = SOURCE
    kind: str = SOURCE

    def __init__(
        self,
        schedules: Callable[[], Sequence[Schedule]],
        memory: Memory,
        *,
        now: Now = utc_now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._schedules = schedules
        self._memory = memory
        self._now = now
        self._sleep = sleep

    async def run(self, deliver: Deliver) -> None:
        """Tell slots until cancelled."""
        while True:
            try:
                pause = await self.look_once(deliver)
            except InboxFull as full:
                pause = full.retry_after_seconds
            await self._sleep(pause)

    async def look_once(self, deliver: Deliver) -> float:
        """Look at the clock once, deliver what came, remember it. Return how long to sleep, in seconds.

        What is remembered follows the delivery: a crash between them delivers the same slots again, and
        they are the same events.
        """
        schedules = [one for one in self._schedules() if one.enabled]
        known = {name: seen_from_record(record) for name, record in (await self._memory.recall()).items()}
        now = self._now()
        turns = {one.name: look(one, known.get(one.name), now) for one in schedules}
        events = [event for turn in turns.values() for event in turn.events]
        if events:
            await deliver(events)
        seen = {name: turn.seen for name, turn in turns.items()}
        if seen != known:
            await self._memory.remember({name: one.to_record() for name, one in seen.items()})
        begins = [next_look(one, seen[one.name], now) for one in schedules]
        nearest = min((moment for moment in begins if moment), default=None)
        wait = (nearest - self._now()).total_seconds() if nearest else LONGEST_SLEEP_S
        return min(max(wait, 0.01), LONGEST_SLEEP_S)
