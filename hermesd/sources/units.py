"""The units source: what systemd says is wrong. Failed units, restart loops, a clock that nothing keeps.

`host.unit_failed` is 1 while a unit is failed, and 0 once when it no longer is; `host.unit_restarts` counts
how often systemd started a service by itself within ten minutes; `host.clock_lost` is 1 while nothing keeps
the clock. Only what is or was wrong is told, and what was told as wrong outlives the process, so that its
end is told too.

This module must never change a unit, and never judge a value: rules do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final, Protocol

from hermesd.events import Event, EventStatus
from hermesd.sources.base import Deliver, EventIds, InboxFull, Now, Sleep, rest_s, utc_now
from hermesd.sources.bus import BusFailed, Unit
from hermesd.sources.measures import COUNT, FLAG
from hermesd.sources.readings import Reading, Told, is_due
from hermesd.sources.sessions import Memory
from hermesd.sources.settings_units import UnitsSettings

log = logging.getLogger("hermesd.sources.units")

FAILED_TYPE: Final = "host.unit_failed"
RESTARTS_TYPE: Final = "host.unit_restarts"
CLOCK_TYPE: Final = "host.clock_lost"
CLOCK: Final = "clock"
CLOCK_EVERY_S: Final = 300.0
"""The clock is asked for so often: each time systemd starts a process that answers."""

WINDOW_S: Final = 600.0

_UNIT: Final = {FAILED_TYPE: FLAG, RESTARTS_TYPE: COUNT, CLOCK_TYPE: FLAG}
_RUNS: Final = frozenset({"active", "activating", "reloading", "deactivating"})

Key = tuple[str, str]
Point = tuple[datetime, int]


class Bus(Protocol):
    """What is asked of systemd. Raises BusFailed."""

    async def units(self, states: list[str], patterns: list[str]) -> list[Unit]:
        """Return the loaded units in one of the states that match one of the patterns."""
        ...

    async def restarts(self, unit: Unit) -> int:
        """Return how often a service was started again."""
        ...

    async def clock_is_kept(self) -> bool:
        """Return whether something keeps the clock."""
        ...


Connect = Callable[[], AbstractAsyncContextManager[Bus]]


def note(points: tuple[Point, ...], now: datetime, count: int) -> tuple[Point, ...]:
    """Return the moments at which a service's count changed, as far back as the window needs. Pure.

    A count that fell was set back by a person's start: it begins anew.
    """
    if not points or count < points[-1][1]:
        return ((now, count),)
    if count > points[-1][1]:
        points = (*points, (now, count))
    old = [at for at, _count in points if now - at >= timedelta(seconds=WINDOW_S)]
    return points[max(len(old) - 1, 0) :]


def read_units(
    failed: list[Unit], points: Mapping[str, tuple[Point, ...]], *, clock_is_lost: bool
) -> dict[Key, Reading]:
    """Return what is wrong now. Pure."""
    found = {
        (FAILED_TYPE, one.name): Reading(1.0, f"{one.name} failed: {one.description} ({one.sub})")
        for one in failed
    }
    for name, changes in points.items():
        started = changes[-1][1] - changes[0][1]
        if started:
            words = f"{name} was started again {started} times in the last 10 min"
            found[RESTARTS_TYPE, name] = Reading(float(started), words)
    if clock_is_lost:
        found[CLOCK_TYPE, CLOCK] = Reading(1.0, "nothing keeps the clock: it is as wrong as it happens to be")
    return found


class UnitsSource:
    """Asks systemd every ``interval_s``. ``connect`` gives the bus, ``memory`` outlives the process."""

    kind = "units"

    def __init__(
        self,
        settings: UnitsSettings,
        host: str,
        connect: Connect,
        memory: Memory,
        *,
        now: Now = utc_now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._host = host
        self._connect = connect
        self._memory = memory
        self._now = now
        self._sleep = sleep
        self._ids = EventIds(settings.name)
        self._points: dict[str, tuple[Point, ...]] = {}
        self._told: dict[Key, Told] = {}
        self._silent = ""
        self._clock_is_lost = False
        self._clock_asked_at: datetime | None = None

    async def run(self, deliver: Deliver) -> None:
        """Ask and deliver until cancelled. A host without a bus has nothing to tell, and is asked again."""
        await self.begin()
        while True:
            try:
                async with self._connect() as bus:
                    await self._listen(bus, deliver)
            except BusFailed as failed:
                if str(failed) != self._silent:
                    log.warning("%s: %s", self.name, failed)
                self._silent = str(failed)
            await self._sleep(self._settings.interval_s)

    async def begin(self) -> None:
        """Take up what an earlier life told as wrong: its end is told when it is not so any more."""
        wrong = (await self._memory.recall()).get("wrong", [])
        at = self._now() - timedelta(days=1)
        self._told = {(kind, name): Told(at, EventStatus.READING, 1.0) for kind, name in wrong}

    async def _listen(self, bus: Bus, deliver: Deliver) -> None:
        while True:
            began = time.monotonic()
            await self.round(bus, deliver)
            self._silent = ""
            await self._sleep(rest_s(self._settings.interval_s, time.monotonic() - began))

    async def round(self, bus: Bus, deliver: Deliver) -> None:
        """Ask once and deliver what is due. Raise BusFailed."""
        failed = [unit for unit in await bus.units(["failed"], []) if self._is_watched(unit)]
        await self._count_restarts(bus)
        await self._ask_for_the_clock(bus)
        now = self._now()
        wrong = read_units(failed, self._points, clock_is_lost=self._clock_is_lost)
        ended = {key: Reading(0.0, _ended(key)) for key in self._told if key not in wrong}
        events = [
            self._event(key, reading, now)
            for key, reading in (wrong | ended).items()
            if is_due(
                self._told.get(key), EventStatus.READING, reading.value, now, 1.0, self._settings.refresh_s
            )
        ]
        if not events:
            return
        try:
            await deliver(events)
        except InboxFull as full:
            log.warning("%s: %d events wait for the next round: %s", self.name, len(events), full)
            return
        await self._remember(events, ended)

    async def _count_restarts(self, bus: Bus) -> None:
        services = [unit for unit in await bus.units([], ["*.service"]) if unit.active in _RUNS]
        counted = {unit.name: await bus.restarts(unit) for unit in services if self._is_watched(unit)}
        now = self._now()
        # One that does not run now keeps its count until the window is over: it may be between two starts.
        kept = {name: note(points, now, points[-1][1]) for name, points in self._points.items()}
        self._points = {name: points for name, points in kept.items() if len(points) > 1}
        self._points |= {name: note(kept.get(name, ()), now, count) for name, count in counted.items()}

    async def _ask_for_the_clock(self, bus: Bus) -> None:
        """Ask now and then. A host without systemd's clock service has no such reading."""
        now, asked = self._now(), self._clock_asked_at
        if not self._settings.clock or (asked and now - asked < timedelta(seconds=CLOCK_EVERY_S)):
            return
        self._clock_asked_at = now
        try:
            self._clock_is_lost = not await bus.clock_is_kept()
        except BusFailed as failed:
            log.info("%s: whether the clock is kept is not known: %s", self.name, failed)

    async def _remember(self, events: list[Event], ended: Mapping[Key, Reading]) -> None:
        before = set(self._told)
        for event in events:
            self._told[event.type, event.subject] = Told(event.time, event.status, event.value)
        for key in ended:
            self._told.pop(key, None)
        if set(self._told) != before:
            await self._memory.remember({"wrong": sorted(self._told)})

    def _is_watched(self, unit: Unit) -> bool:
        only, exclude = self._settings.only, self._settings.exclude
        listed = not only or any(fnmatchcase(unit.name, pattern) for pattern in only)
        return listed and not any(fnmatchcase(unit.name, pattern) for pattern in exclude)

    def _event(self, key: Key, reading: Reading, now: datetime) -> Event:
        kind, name = key
        return Event(
            id=self._ids.next(),
            source=self.name,
            type=kind,
            time=now,
            subject=name,
            labels={"host": self._host} | ({} if kind == CLOCK_TYPE else {"unit_name": name}),
            status=EventStatus.READING,
            value=reading.value,
            unit=_UNIT[kind],
            text=reading.text,
        )


def _ended(key: Key) -> str:
    kind, name = key
    return (
        f"{name} is not failed any more"
        if kind == FAILED_TYPE
        else f"{name} was not started again for 10 min"
    )
