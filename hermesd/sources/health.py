"""The health source: whether things answer. Up, down and unknown are three different things.

An answer says up or down, and a refused connection says down. A probe that failed (no answer in
time, a name that does not resolve) says nothing yet; only when it failed so often in a row that the
check's patience ends, it means down.

This module must never take its own failure for the target's, and never act on a target beyond
asking it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from hermesd.events import Event, EventStatus
from hermesd.sources.base import Deliver, EventIds, InboxFull, Now, Sleep, utc_now
from hermesd.sources.settings import Check, HealthSettings

log = logging.getLogger("hermesd.sources.health")

CHECK_TYPE: Final = "health.check"
UNKNOWN_TYPE: Final = "health.unknown"
SHORTEST_REST_S: Final = 0.05
_FINE: Final = range(200, 400)


class Condition(StrEnum):
    """What one probe found, and what a check is believed to be."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of one probe, with the reason in words."""

    condition: Condition
    reason: str


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
    """Asks each check every ``interval_s``. ``ask`` does the asking, where tests want another one."""

    kind = "health"

    def __init__(
        self,
        settings: HealthSettings,
        host: str,
        *,
        now: Now = utc_now,
        sleep: Sleep = asyncio.sleep,
        ask: Asking | None = None,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._host = host
        self._now = now
        self._sleep = sleep
        self._ask = ask
        self._ids = EventIds(settings.name)
        self._states = {check.name: CheckState() for check in settings.check}

    async def run(self, deliver: Deliver) -> None:
        """Check until cancelled: one task and one clock for each check."""
        connector = aiohttp.TCPConnector(force_close=True, use_dns_cache=False)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            ask = self._ask or Asker(session).ask
            for check in self._settings.check:
                group.create_task(self._watch(check, ask, deliver), name=f"health-{check.name}")

    async def _watch(self, check: Check, ask: Asking, deliver: Deliver) -> None:
        while True:
            began = time.monotonic()
            await self._look(check, await ask(check), deliver)
            rest = self._settings.interval_s - (time.monotonic() - began)
            await self._sleep(max(rest, SHORTEST_REST_S))

    async def _look(self, check: Check, found: Found, deliver: Deliver) -> None:
        state = decide(self._states[check.name], found, check.times)
        now = self._now()
        saying = what_to_tell(state, now, self._settings.refresh_s, check.times)
        if saying is not None:
            try:
                await deliver([self._event(check, saying, found, state, now)])
                state = replace(state, told=saying, told_at=now)
            except InboxFull as full:
                log.warning("%s: %s is told in the next round: %s", self.name, check.name, full)
        self._states[check.name] = state

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
            labels={**check.labels, "host": self._host, "check": check.name, "target": check.url},
            status=EventStatus.READING if unknown else firing,
            severity=check.severity,
            value=float(state.failed) if unknown else None,
            unit="failures" if unknown else "",
            text=_words(check, saying, found, state),
        )


class Asker:
    """Asks targets over one shared HTTP session, each within its check's timeout."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(self, check: Check) -> Found:
        """Probe once. Never raises for anything that a target or the network does."""
        asking = self._ask_tcp if check.url.startswith("tcp:") else self._ask_http
        try:
            async with asyncio.timeout(check.timeout_s):
                return await asking(check)
        except TimeoutError:
            return Found(Condition.UNKNOWN, f"no answer within {check.timeout_s:g} s")
        except (OSError, aiohttp.ClientError, ValueError) as error:
            return _found_in(error)

    async def _ask_http(self, check: Check) -> Found:
        verify: ssl.SSLContext | bool = check.verify_tls
        async with self._session.get(check.url, allow_redirects=False, ssl=verify) as answer:
            fine = answer.status in check.expect if check.expect else answer.status in _FINE
        return Found(Condition.UP if fine else Condition.DOWN, f"answered {answer.status}")

    async def _ask_tcp(self, check: Check) -> Found:
        target = urlsplit(check.url)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(target.hostname, target.port, type=socket.SOCK_STREAM)
        await reach([address[:2] for *_rest, address in found])
        return Found(Condition.UP, "accepted a connection")


async def reach(addresses: Sequence[tuple[Any, ...]]) -> None:
    """Connect to the first address that accepts. Raise what the others did: a refusal if all refused."""
    faults: list[OSError] = []
    for host, port in addresses:
        try:
            _reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            faults.append(error)
            continue
        writer.close()
        with contextlib.suppress(OSError):  # how it ends changes nothing: it was accepted
            await writer.wait_closed()
        return
    raise next((one for one in faults if not isinstance(one, ConnectionRefusedError)), faults[0])


def _found_in(error: Exception) -> Found:
    """Read a failed attempt: a refusal is the target's own answer, anything else only a failed probe."""
    number = getattr(error, "errno", None)
    if number == errno.ECONNREFUSED or isinstance(error, ConnectionRefusedError):
        return Found(Condition.DOWN, "refused the connection")
    return Found(Condition.UNKNOWN, str(error) or type(error).__name__)


def _words(check: Check, saying: Condition, found: Found, state: CheckState) -> str:
    if saying is Condition.UP:
        return f"{check.url} is up: {found.reason}"
    if saying is Condition.UNKNOWN:
        return f"{check.url} could not be asked ({state.failed} of {check.times} times): {found.reason}"
    patience = f" {state.failed} times in a row" if state.failed else ""
    return f"{check.url} is down{patience}: {found.reason}"
