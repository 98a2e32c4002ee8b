"""Keeps sources alive: one named task each, and a restart with back-off for one that died.

A source's death is its own: the others go on, `status` shows it, the log says it once for each new
reason. One that must not go on by itself is halted: it stays so until a reload, and an event of
HALTED_TYPE is the alarm; the same event resolves when it is started again. This is the one place
among the sources where any exception is caught.

This module must never know a kind of source, and never drop what a source delivered.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from hermesd.events import Event, EventStatus, Severity
from hermesd.sources.base import (
    Deliver,
    InboxFull,
    Now,
    Sleep,
    Source,
    SourceFailed,
    SourceHalted,
    utc_now,
)
from hermesd.sources.settings import SourceSettings
from hermesd.telemetry import Metrics

log = logging.getLogger("hermesd.sources")

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
LIVED_LONG_S: Final = 60.0
"""A source that lived so long starts anew: its next pause is the first again."""

STOP_SECONDS: Final = 10.0

HALTED_TYPE: Final = "hermesd.source_halted"

Make = Callable[[SourceSettings], Source]


@dataclass(frozen=True, slots=True)
class SourceState:
    """How a source stands, for `status`.

    ``state`` is `running`, `waiting` (to be restarted), `halted` (until a reload) or `off`. ``error``
    is why it died last, empty once it has lived long or delivered since.
    """

    name: str
    kind: str
    state: str
    since: datetime
    restarts: int = 0
    error: str = ""
    last_event_at: datetime | None = None


@dataclass(slots=True)
class _Kept:
    """One configured source: what it is to be, how it stands, and its task unless it is off."""

    settings: SourceSettings
    state: SourceState
    task: asyncio.Task[None] | None = None
    alarmed: bool = False

    def change(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)


class Supervisor:
    """Runs the enabled sources. ``make`` builds one from its settings; ``chance`` is the jitter's dice."""

    def __init__(
        self,
        make: Make,
        metrics: Metrics,
        *,
        now: Now = utc_now,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._make = make
        self._metrics = metrics
        self._now = now
        self._sleep = sleep
        self._chance = chance
        self._kept: dict[str, _Kept] = {}
        self._changing = asyncio.Lock()
        self._group: asyncio.TaskGroup | None = None
        self._deliver: Deliver | None = None

    async def run(self, settings: Sequence[SourceSettings], deliver: Deliver) -> None:
        """Run the sources until cancelled. Raise ValueError when two have the same name."""
        self._deliver = deliver
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self.apply(settings)
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def apply(self, settings: Sequence[SourceSettings]) -> None:
        """Take new settings over: stop what changed or went, start what is new, keep the rest.

        Raise ValueError when two have the same name, RuntimeError when `run` is not under way;
        nothing has changed then.
        """
        wanted = {one.name: one for one in settings}
        if len(wanted) < len(settings):
            raise ValueError("two sources have the same name")
        group, deliver = self._group, self._deliver
        if group is None or deliver is None:
            raise RuntimeError("sources are started only while the supervisor runs")
        async with self._changing:
            alarmed: set[str] = set()
            for name, kept in list(self._kept.items()):
                if wanted.get(name) != kept.settings or kept.state.state == "halted":
                    await _stop(kept)
                    del self._kept[name]
                    alarmed |= {name} if kept.alarmed else set()
            for one in wanted.values():
                if one.name not in self._kept:
                    self._kept[one.name] = self._start(one, group, deliver, alarmed=one.name in alarmed)

    def states(self) -> tuple[SourceState, ...]:
        """Return how each configured source stands now, by name."""
        now = self._now()
        return tuple(_settled(self._kept[name].state, now) for name in sorted(self._kept))

    def _start(
        self, settings: SourceSettings, group: asyncio.TaskGroup, deliver: Deliver, *, alarmed: bool
    ) -> _Kept:
        state = "running" if settings.enabled else "off"
        kept = _Kept(settings, SourceState(settings.name, settings.kind, state, self._now()), alarmed=alarmed)
        if settings.enabled:
            kept.task = group.create_task(self._keep(kept, deliver), name=f"source-{settings.name}")
        return kept

    async def _keep(self, kept: _Kept, deliver: Deliver) -> None:
        """Run one source for ever: each pass of the loop is one life of it."""
        source: Source | None = None
        deaths = 0
        if kept.alarmed:
            await self._alarm(kept, deliver, EventStatus.RESOLVED)
        while True:
            kept.change(state="running", since=self._now())
            fault: BaseException = SourceFailed("it ended by itself")
            try:
                source = source or self._make(kept.settings)
                await source.run(self._noting(kept, deliver))
            except SourceHalted as error:
                self._bury(kept, error)
                kept.change(state="halted")
                return await self._alarm(kept, deliver, EventStatus.FIRING)
            except Exception as error:  # noqa: BLE001 - the supervisor is where a source's death ends
                fault = _leaf(error)
            deaths = 1 if _lived_long(kept.state, self._now()) else deaths + 1
            self._bury(kept, fault)
            await self._sleep(pause_after(deaths, self._chance()))

    def _bury(self, kept: _Kept, fault: BaseException) -> None:
        """Count a death, show it, and log it when its reason is a new one."""
        now = self._now()
        known, reason = _settled(kept.state, now).error, reason_of(fault)
        if reason != known:
            trace = None if isinstance(fault, SourceFailed) else fault
            log.warning("source %s died: %s", kept.settings.name, reason, exc_info=trace)
        self._metrics.source_restarts.labels(kept.settings.name).inc()
        kept.change(state="waiting", since=now, error=reason, restarts=kept.state.restarts + 1)

    async def _alarm(self, kept: _Kept, deliver: Deliver, status: EventStatus) -> None:
        """Tell as an event that the source was halted, or that it no longer is. Waits out a full inbox."""
        now, name = self._now(), kept.settings.name
        event = Event(
            id=f"{status.value} {now.isoformat()}",
            source=name,
            type=HALTED_TYPE,
            time=now,
            subject=name,
            labels={"source": name, "kind": kept.settings.kind},
            status=status,
            severity=Severity.CRITICAL,
            text=kept.state.error,
        )
        while True:
            try:
                await deliver([event])
                break
            except InboxFull as full:
                await self._sleep(full.retry_after_seconds)
        kept.alarmed = status is EventStatus.FIRING

    def _noting(self, kept: _Kept, deliver: Deliver) -> Deliver:
        async def deliver_and_note(events: Sequence[Event]) -> None:
            await deliver(events)
            if kept.state.error:
                log.info("source %s delivers again", kept.settings.name)
            kept.change(last_event_at=self._now(), error="")

        return deliver_and_note


async def _stop(kept: _Kept) -> None:
    if kept.task is None:
        return
    kept.task.cancel()
    _done, running = await asyncio.wait({kept.task}, timeout=STOP_SECONDS)
    if running:
        log.error("source %s did not stop within %g s: left behind", kept.settings.name, STOP_SECONDS)


def pause_after(deaths: int, chance: float) -> float:
    """Return how many seconds to wait after so many deaths in a row. ``chance`` is in [0, 1).

    It doubles from FIRST_PAUSE_S to LONGEST_PAUSE_S; the upper half of each pause is drawn, so that
    many hosts do not come back to one broker together.
    """
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(deaths, 16))
    return max(FIRST_PAUSE_S, longest * (0.5 + chance / 2))


def reason_of(fault: BaseException) -> str:
    """Return why a source died, in words."""
    return str(fault) if isinstance(fault, SourceFailed) else f"{type(fault).__name__}: {fault}"


def _leaf(error: BaseException) -> BaseException:
    """Return the first exception of a group of groups, or the exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _lived_long(state: SourceState, now: datetime) -> bool:
    return state.state == "running" and now - state.since >= timedelta(seconds=LIVED_LONG_S)


def _settled(state: SourceState, now: datetime) -> SourceState:
    return replace(state, error="") if _lived_long(state, now) else state
