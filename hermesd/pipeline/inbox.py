"""The inbox: what a source delivers is on disk before the source hears that it is.

An event is known by its source and id: delivered twice, it is one. The inbox is bounded; when it is
full, or the store cannot write, the source is told to come again and keeps what it has, so that
nothing is acknowledged that could be lost.

This module must never judge an event and never drop one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from hermesd.clocks import SECOND
from hermesd.events import Event
from hermesd.protocol import Stage
from hermesd.sources.base import InboxFull
from hermesd.state.events import count_events, count_undecided, insert_events
from hermesd.state.store import Store, StoreError
from hermesd.telemetry import Metrics

log = logging.getLogger("hermesd.inbox")

_RETRY_FULL_SECONDS = 1.0
_RETRY_STORE_SECONDS = 5.0


class Inbox:
    """Takes events in. Call :meth:`open` once before anything is delivered.

    ``limit`` bounds the events that no rule has judged yet; one delivery may go over it.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        limit: int,
        receive_ms: int,
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._limit = limit
        self._receive_ms = receive_ms
        self._now = now
        self._arrived = asyncio.Event()
        self.undecided = 0
        self.accepted = 0

    async def open(self) -> None:
        """Count what an earlier life left undecided, and have it judged."""
        self.undecided, self.accepted = await self._store.read(
            lambda connection: (count_undecided(connection), count_events(connection))
        )
        self._arrived.set()

    async def accept(self, events: Sequence[Event]) -> None:
        """Return once every event is durable. Raise InboxFull: then the sender must come again."""
        if not events:
            return
        if self.undecided >= self._limit:
            raise InboxFull(_RETRY_FULL_SECONDS)
        now = self._now()
        self.undecided += len(events)  # before the write, so that deliveries side by side are bounded too
        fresh: list[bool] = []
        try:
            async with asyncio.timeout(self._receive_ms / SECOND):
                fresh = await self._store.write(lambda connection: insert_events(connection, events, now))
        except TimeoutError:
            self._metrics.stage_timeouts.labels(Stage.RECEIVE.value).inc()
            log.error("%d events could not be stored within %d ms", len(events), self._receive_ms)  # noqa: TRY400 - the store's slowness is no fault of this code
            raise InboxFull(_RETRY_STORE_SECONDS) from None
        except StoreError as error:
            log.error("%d events could not be stored: %s", len(events), error)  # noqa: TRY400 - the disk's words are enough
            raise InboxFull(_RETRY_STORE_SECONDS) from error
        finally:
            self.undecided -= len(events) - sum(fresh)
        self._count(events, fresh)

    def _count(self, events: Sequence[Event], fresh: Sequence[bool]) -> None:
        new = Counter(event.source for event, is_new in zip(events, fresh, strict=True) if is_new)
        for source, number in new.items():
            self._metrics.events.labels(source).inc(number)
        self.accepted += new.total()
        if new:
            self._arrived.set()

    async def arrival(self) -> None:
        """Wait until there may be something undecided."""
        await self._arrived.wait()
        self._arrived.clear()

    def decided(self, number: int) -> None:
        """Hear from the dispatcher that so many events have been judged."""
        self.undecided -= number
