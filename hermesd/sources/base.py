"""The contract of a source: it yields events, and hears when they are safe.

A source hands events to `deliver`, which returns only once they are committed. Whoever owes a
sender an answer (a PUBACK, a 202) gives it after that, and never before.

This module must never know a particular source, and never grow behaviour that one of them needs.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from hermesd.events import Event


class InboxFull(Exception):  # noqa: N818 - a state of the inbox that the sender waits out
    """The inbox takes no more for now. Nothing of what was delivered has been kept."""

    def __init__(self, retry_after_seconds: float = 1.0) -> None:
        super().__init__(f"the inbox is full; try again in {retry_after_seconds:g} s")
        self.retry_after_seconds = retry_after_seconds


class SourceFailed(Exception):  # noqa: N818 - it is named for what became of the source
    """A source cannot go on for a reason outside the program. ``str()`` says it to a person."""


class SourceHalted(SourceFailed):
    """A source must not go on by itself: trying again would do harm. A person must change something."""


class Unreadable(Exception):  # noqa: N818 - it is a property of the input
    """Input from a stranger is not an event. ``str()`` says why, and quotes none of it."""


Deliver = Callable[[Sequence[Event]], Awaitable[None]]
"""Returns once every event is durable. Raises InboxFull, and then none of them is."""

Now = Callable[[], datetime]
Sleep = Callable[[float], Awaitable[object]]


class Source(Protocol):
    """A place where events come from. ``kind`` names the implementation, ``name`` the configured one."""

    name: str
    kind: str

    async def run(self, deliver: Deliver) -> None:
        """Yield events until cancelled. Raising means that it died; it may then be run again."""
        ...


SHORTEST_REST_S: Final = 0.05
"""The pause after a round that took longer than the interval."""


def rest_s(interval_s: float, took_s: float) -> float:
    """Return for how long a source rests after a round that took so long."""
    return max(interval_s - took_s, SHORTEST_REST_S)


def utc_now() -> datetime:
    """Return the wall clock, aware and in UTC: the default of everything that takes a `now`."""
    return datetime.now(UTC)


class EventIds:
    """Ids for events that have no identity of their own: never equal, over restarts either."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}-{secrets.token_hex(5)}"
        self._numbers = itertools.count(1)

    def next(self) -> str:
        """Return an id that was never given before."""
        return f"{self._prefix}-{next(self._numbers)}"
