"""From start to stop: signals, systemd's notifications, the watchdog, and leaving in stages.

Both processes are built inside one `Lifecycle`. Parts are entered in order and left in reverse, all
within one budget; READY is said when the process asks for it, and the watchdog is fed by the event
loop itself, so that a loop that hangs is ended and started again by systemd.

    async with Lifecycle() as life:
        store = await life.enter("store", open_store(...))
        life.on_reload(reload_configuration)
        life.ready("watching 3 sources")
        await life.stop_requested()

A second signal skips the waiting. When even that does not help (a thread that never comes back), the
process ends itself a little after its budget: whatever was accepted is on disk by then.

This module must never wait without a bound, never say READY by itself, and never know what a part is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from time import CLOCK_MONOTONIC, clock_gettime_ns, monotonic
from types import TracebackType
from typing import Final, Self, TypeVar

import sdnotify

from hermesd.telemetry import visible

log = logging.getLogger("hermesd.lifecycle")

STOP_SECONDS: Final = 20.0
"""What all parts together may take to leave. The units' TimeoutStopSec is longer than this."""

HURRIED_SECONDS: Final = 0.5
"""What each part still gets after the budget or after a second signal: to let go, not to finish."""

RELOAD_SECONDS: Final = 30.0

STUCK_SECONDS: Final = 5.0
"""How long after the budget a process that was signalled ends itself."""

EXIT_STUCK: Final = 75
"""Exit status of a process that could not leave in time."""

PETS_PER_PERIOD: Final = 3

T = TypeVar("T")
Reload = Callable[[], Awaitable[str]]
"""Reads the configuration again and returns what is now in force, in a few words. Raising keeps the old."""

_Leave = Callable[
    [type[BaseException] | None, BaseException | None, TracebackType | None], Awaitable[bool | None]
]


class StoppedEarly(Exception):  # noqa: N818 - somebody's wish, not an error
    """The process was asked to stop before it was ready. `Lifecycle` ends quietly on it."""


class Notifier:
    """systemd's notification socket; without one (`NOTIFY_SOCKET` unset) everything here does nothing."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._systemd = sdnotify.SystemdNotifier() if environ.get("NOTIFY_SOCKET") else None
        if self._systemd is not None and self._systemd.socket is not None:
            self._systemd.socket.setblocking(False)

    def tell(self, *lines: str) -> None:
        """Send the lines. A manager that does not read is not waited for."""
        if self._systemd is not None:
            # The package encodes as Latin-1; so handed over, the bytes on the wire are UTF-8.
            self._systemd.notify("\n".join(lines).encode().decode("latin-1"))

    def status(self, text: str) -> str:
        """Return the line that sets what `systemctl status` shows."""
        return f"STATUS={visible(text)}"

    def close(self) -> None:
        """Let go of the socket."""
        if self._systemd is not None and self._systemd.socket is not None:
            self._systemd.socket.close()
            self._systemd = None


def watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """Return how often systemd wants a sign of life from this process, None when it does not.

    ``WATCHDOG_USEC`` without ``WATCHDOG_PID`` is meant for whoever reads it, as in sd_watchdog_enabled.
    """
    period, owner = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not period.isascii() or not period.isdigit() or int(period) == 0:
        return None
    if owner and owner != str(pid):
        return None
    return int(period) / 1_000_000


class Lifecycle:
    """One process's life. Use as an async context manager in the main task, once."""

    def __init__(
        self,
        *,
        stop_seconds: float = STOP_SECONDS,
        reload_seconds: float = RELOAD_SECONDS,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._stop_seconds = stop_seconds
        self._reload_seconds = reload_seconds
        self._environ = environ
        self._notifier = Notifier(environ)
        self._parts = AsyncExitStack()
        self._tasks = asyncio.TaskGroup()
        self._stop = asyncio.Event()
        self._hup = asyncio.Event()
        self._ready = asyncio.Event()
        self._reload: Reload | None = None
        self._reason = ""
        self._deadline: float | None = None
        self._hurried = False
        self._entering: asyncio.Timeout | None = None
        self._leaving: asyncio.Timeout | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._hup.set)
        self._reloading = self._tasks.create_task(self._reload_when_asked(), name="reload-on-hangup")
        period = watchdog_seconds(self._environ, os.getpid())
        self._petting = self._tasks.create_task(self._pet_watchdog(period), name="watchdog")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._begin_stop("the work is done" if error is None else "a part ended")
        self._reloading.cancel()
        try:
            handled = bool(await self._parts.__aexit__(kind, error, trace))
        finally:
            self._petting.cancel()
            await self._tasks.__aexit__(None, None, None)
            self._remove_handlers()
            self._notifier.close()
        return handled or isinstance(error, StoppedEarly)

    async def enter(self, name: str, part: AbstractAsyncContextManager[T]) -> T:
        """Enter a part; it is left in reverse order, within what is then left of the budget.

        Raise StoppedEarly when the process is asked to stop before the part is there.
        """
        if self._stop.is_set():
            raise StoppedEarly(self._reason)
        try:
            async with asyncio.timeout(None) as self._entering:
                value = await part.__aenter__()
        except TimeoutError:
            if self._stop.is_set():
                raise StoppedEarly(self._reason) from None
            raise
        finally:
            self._entering = None
        self._parts.push_async_exit(self._bounded(name, part))
        return value

    def on_reload(self, callback: Reload) -> None:
        """Have ``callback`` called at each SIGHUP, one call at a time."""
        self._reload = callback

    def ready(self, status: str = "") -> None:
        """Tell systemd that the process does its work from now on."""
        self._ready.set()
        self._notifier.tell("READY=1", self._notifier.status(status or "ready"))
        log.info("ready%s", f": {status}" if status else "")

    def status(self, text: str) -> None:
        """Set what `systemctl status` shows."""
        self._notifier.tell(self._notifier.status(text))

    def request_stop(self, reason: str) -> None:
        """Ask for a stop from inside, as a signal does from outside."""
        if not self._stop.is_set():
            self._reason = reason
            self._stop.set()
            _end_now(self._entering)

    async def stop_requested(self) -> str:
        """Wait until the process is to stop; return why (a signal's name, or `request_stop`'s reason)."""
        await self._stop.wait()  # the life of the process: the one wait that has no clock
        self._begin_stop(self._reason)
        return self._reason

    async def reload(self) -> None:
        """Call the reload callback. What it raises is logged, and what was in force stays."""
        if self._reload is None:
            log.info("hangup: there is nothing to read again")
            return
        stamp = f"MONOTONIC_USEC={clock_gettime_ns(CLOCK_MONOTONIC) // 1000}"
        self._notifier.tell("RELOADING=1", stamp, self._notifier.status("reading the configuration again"))
        try:
            async with asyncio.timeout(self._reload_seconds):
                text = f"reloaded: {await self._reload()}"
        except Exception as error:  # noqa: BLE001 - the border of a request: a bad file ends nothing
            text = "reload refused, the old configuration stays"
            for line in (str(error) or type(error).__name__).splitlines():
                log.error("%s: %s", text, line)  # noqa: TRY400 - the faults are for people
        else:
            log.info("%s", text)
        self._notifier.tell("READY=1", self._notifier.status(text))

    def _signalled(self, number: signal.Signals) -> None:
        name = number.name
        if self._stop.is_set() and not self._hurried:
            log.warning("%s again: not waiting any longer", name)
            self._hurried = True
            _end_now(self._leaving)
        elif not self._stop.is_set():
            log.info("%s: stopping within %g s", name, self._stop_seconds)
            _arm_last_resort(self._stop_seconds + STUCK_SECONDS)
            self.request_stop(name)

    def _begin_stop(self, reason: str) -> None:
        self._stop.set()
        if self._deadline is None:
            self._deadline = monotonic() + self._stop_seconds
            self._notifier.tell("STOPPING=1", self._notifier.status(f"stopping: {reason}"))

    def _bounded(self, name: str, part: AbstractAsyncContextManager[T]) -> _Leave:
        async def leave(
            kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> bool | None:
            began = monotonic()
            try:
                async with asyncio.timeout(self._seconds_left()) as self._leaving:
                    return await part.__aexit__(kind, error, trace)
            except TimeoutError:
                if self._leaving is None or not self._leaving.expired():
                    raise
                log.warning("%s did not leave in %.1f s and was cut off", name, monotonic() - began)
                return False
            finally:
                self._leaving = None

        return leave

    def _seconds_left(self) -> float:
        left = 0.0 if self._deadline is None else self._deadline - monotonic()
        return HURRIED_SECONDS if self._hurried else max(left, HURRIED_SECONDS)

    async def _reload_when_asked(self) -> None:
        await self._ready.wait()  # a hangup during the start is answered once there is something to replace
        while True:
            await self._hup.wait()
            self._hup.clear()
            await self.reload()

    async def _pet_watchdog(self, period: float | None) -> None:
        while period is not None:
            self._notifier.tell("WATCHDOG=1")
            await asyncio.sleep(period / PETS_PER_PERIOD)

    def _remove_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def _end_now(scope: asyncio.Timeout | None) -> None:
    if scope is not None and not scope.expired():
        scope.reschedule(asyncio.get_running_loop().time())


def _arm_last_resort(seconds: float) -> None:
    timer = threading.Timer(seconds, _end_process, [seconds])
    timer.daemon = True
    timer.name = "last-resort"
    timer.start()


def _end_process(seconds: float) -> None:
    log.error("still here %g s after the signal: ending without waiting for what hangs", seconds)
    os._exit(EXIT_STUCK)
