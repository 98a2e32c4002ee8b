"""The health source: whether things answer. Up, down and unknown are three different things.

An answer says up or down, and a refused connection says down. A probe that failed (no answer in
time, a name that does not resolve) says nothing yet; only when it failed so often in a row that the
check's patience ends, it means down.

This module must never take its own failure for the target's, and never act on a target beyond
asking it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import aiohttp

from hermesd.events import Event, EventStatus
from hermesd.sources.base import Deliver, EventIds, InboxFull, Now, Sleep, rest_s, utc_now
from hermesd.sources.health_asking import Asker
from hermesd.sources.health_found import Condition, Found, RunCommand, no_commands
from hermesd.sources.readings import Told, is_due
from hermesd.sources.settings_health import Check, HealthSettings

log = logging.getLogger("hermesd.sources.health")

CHECK_TYPE: Final = "health.check"
UNKNOWN_TYPE: Final = "health.unknown"
LATENCY_TYPE: Final = "health.latency"
CERTIFICATE_TYPE: Final = "health.certificate"
_LEAST_CHANGE: Final = 0.1
"""A latency is told again when it changed by so much of itself, or when its last telling is old."""


@dataclass(frozen=True, slots=True)
class CheckState:
    """What is believed of a check: its last known condition, failed probes in a row, last telling."""

    condition: Condition = Condition.UNKNOWN
    failed: int = 0
    told: str = ""
    told_at: datetime | None = None


Asking = Callable[[Check], Awaitable[Found]]


def decide(state: CheckState, found: Found, times: int) -> CheckState:
    """Return the state after a probe: ``times`` failed ones in a row are down."""
    if found.condition is not Condition.UNKNOWN:
        return replace(state, condition=found.condition, failed=0)
    failed = state.failed + 1
    return replace(state, condition=Condition.DOWN if failed >= times else state.condition, failed=failed)


def what_to_tell(state: CheckState, now: datetime, refresh_s: float, times: int) -> Condition | None:
    """Return what should be told now: a change at once, up once, what is not up each ``refresh_s``."""
    unsure = 0 < state.failed < times
    saying = Condition.UNKNOWN if unsure else state.condition
    if state.told != saying or state.told_at is None:
        return saying
    if saying is Condition.UP or now - state.told_at < timedelta(seconds=refresh_s):
        return None
    return saying


class HealthSource:
    """Asks each check in its own time.

    ``run_command`` is the door to the executor; ``ask`` does the asking, where tests want another one.
    """

    kind = "health"

    def __init__(
        self,
        settings: HealthSettings,
        host: str,
        *,
        now: Now = utc_now,
        sleep: Sleep = asyncio.sleep,
        ask: Asking | None = None,
        run_command: RunCommand = no_commands,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._host = host
        self._now = now
        self._sleep = sleep
        self._ask = ask
        self._run_command = run_command
        self._told: dict[tuple[str, str], Told] = {}
        self._ids = EventIds(settings.name)
        self._states = {check.name: CheckState() for check in settings.check}

    async def run(self, deliver: Deliver) -> None:
        """Check until cancelled: one task and one clock for each check."""
        connector = aiohttp.TCPConnector(force_close=True, use_dns_cache=False)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            ask = self._ask or Asker(session, self._run_command).ask
            for check in self._settings.check:
                group.create_task(self._watch(check, ask, deliver), name=f"health-{check.name}")

    async def _watch(self, check: Check, ask: Asking, deliver: Deliver) -> None:
        while True:
            began = time.monotonic()
            await self._look(check, await ask(check), deliver)
            every_s = check.every_s or self._settings.interval_s
            await self._sleep(rest_s(every_s, time.monotonic() - began))

    async def _look(self, check: Check, found: Found, deliver: Deliver) -> None:
        state = decide(self._states[check.name], found, check.times)
        now = self._now()
        saying = what_to_tell(state, now, self._settings.refresh_s, check.times)
        events = [self._event(check, saying, found, state, now)] if saying else []
        readings = list(self._readings(check, found, now))
        if events or readings:
            try:
                await deliver([*events, *readings])
                state = replace(state, told=saying, told_at=now) if saying else state
                for one in readings:
                    self._told[one.type, check.name] = Told(now, one.status, one.value)
            except InboxFull as full:
                log.warning("%s: %s is told in the next round: %s", self.name, check.name, full)
        self._states[check.name] = state

    def _readings(self, check: Check, found: Found, now: datetime) -> Iterator[Event]:
        """Yield what was measured of an answer, where it is worth telling."""
        latency, days = found.latency_ms, found.certificate_days
        if latency is not None and found.condition is not Condition.UNKNOWN:
            text = f"{check.url} took {latency:.0f} ms to answer"
            yield from self._due(check, LATENCY_TYPE, latency, "ms", text, now)
        if days is not None:
            text = f"the certificate of {check.url} is valid for {days:.1f} more days"
            yield from self._due(check, CERTIFICATE_TYPE, days, "days", text, now)

    def _due(
        self, check: Check, kind: str, value: float, unit: str, text: str, now: datetime
    ) -> Iterator[Event]:
        told = self._told.get((kind, check.name))
        change = _LEAST_CHANGE * abs(told.value or 0.0) if told else 0.0
        if is_due(told, EventStatus.READING, value, now, max(change, 0.5), self._settings.refresh_s):
            yield Event(
                id=self._ids.next(),
                source=self.name,
                type=kind,
                time=now,
                subject=check.name,
                labels=self._labels(check),
                status=EventStatus.READING,
                severity=check.severity,
                value=value,
                unit=unit,
                text=text,
            )

    def _labels(self, check: Check) -> dict[str, str]:
        return {**check.labels, "host": self._host, "check": check.name, "target": check.url}

    def _event(
        self, check: Check, saying: Condition, found: Found, state: CheckState, now: datetime
    ) -> Event:
        unknown = saying is Condition.UNKNOWN
        firing = EventStatus.RESOLVED if saying is Condition.UP else EventStatus.FIRING
        return Event(
            id=self._ids.next(),
            source=self.name,
            type=UNKNOWN_TYPE if unknown else CHECK_TYPE,
            time=now,
            subject=check.name,
            labels=self._labels(check),
            status=EventStatus.READING if unknown else firing,
            severity=check.severity,
            value=float(state.failed) if unknown else None,
            unit="failures" if unknown else "",
            text=_words(check, saying, found, state),
        )


def _words(check: Check, saying: Condition, found: Found, state: CheckState) -> str:
    if saying is Condition.UP:
        return f"{check.url} is up: {found.reason}"
    if saying is Condition.UNKNOWN:
        return f"{check.url} could not be asked ({state.failed} of {check.times} times): {found.reason}"
    patience = f" {state.failed} times in a row" if state.failed else ""
    return f"{check.url} is down{patience}: {found.reason}"
