"""The working clock of a run: one absolute bound on the time it works, halted while people think.

It also is the one way in which a run is stopped from outside: who withdraws it ends its time. This
module must never know why a run waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic

from hermesd.clocks import SECOND


class OutOfTime(Exception):  # noqa: N818 - it is an outcome
    """The run's working time is over, or it was withdrawn (see ``WorkClock.withdrawn_by``)."""


class WorkClock:
    """Counts working time. ``spent_ms`` is what earlier lives of the run have used up."""

    def __init__(self, budget_ms: int, spent_ms: float = 0.0, now: Callable[[], float] = monotonic) -> None:
        self.budget_ms = budget_ms
        self.withdrawn_by = ""
        self._spent_ms = spent_ms
        self._now = now
        self._since: float | None = None
        self._halts = 0
        self._scope: asyncio.Timeout | None = None

    @property
    def spent_ms(self) -> float:
        """Working time until now."""
        running = 0.0 if self._since is None else (self._now() - self._since) * SECOND
        return self._spent_ms + running

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the block on the clock. Raise OutOfTime when it runs out or is ended."""
        try:
            async with asyncio.timeout(None) as self._scope:
                self._go_on()
                yield
        except TimeoutError:
            if self._scope is None or not self._scope.expired():
                raise
            raise OutOfTime from None
        finally:
            self._scope = None
            self._halt()

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Halt the clock for the block; halts within halts count as one."""
        self._halts += 1
        self._halt()
        try:
            yield
        finally:
            self._halts -= 1
            if not self._halts:
                self._go_on()

    def withdraw(self, who: str) -> None:
        """Have the run end. The block that runs on the clock is ended only by :meth:`end_now`."""
        self.withdrawn_by = self.withdrawn_by or who

    def end_now(self) -> None:
        """End the block that runs on the clock, wherever it is."""
        self._reschedule(asyncio.get_running_loop().time())

    def _go_on(self) -> None:
        self._since = self._now()
        left = max(0.0, self.budget_ms - self._spent_ms) / SECOND
        self._reschedule(asyncio.get_running_loop().time() + left)

    def _halt(self) -> None:
        self._spent_ms, self._since = self.spent_ms, None
        self._reschedule(None)

    def _reschedule(self, when: float | None) -> None:
        if self._scope is not None and not self._scope.expired() and not self._ended():
            self._scope.reschedule(when)

    def _ended(self) -> bool:
        """Whether the block's time is over already: then no halt may bring it back."""
        assert self._scope is not None  # noqa: S101 - asked only with a scope
        when = self._scope.when()
        return when is not None and when <= asyncio.get_running_loop().time()
