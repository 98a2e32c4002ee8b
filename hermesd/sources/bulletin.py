"""What the pipeline has to tell the outside world, for the sources that can say it to a broker.

The one door from the pipeline to a source: whoever commits something notable calls `tell`, and each
connection takes what came since it last looked. Notices are news, not records: the newest are kept
for a broker that is away, and what became of an incident is in the store and in the audit log.

This module must never wait for a listener, and never carry a person's words or a command's output.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

KEPT: Final = 1000
"""Notices that a listener which is away can still get; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell. ``topic`` is relative (`incidents/ID`), ``content`` is plain JSON."""

    topic: str
    content: Mapping[str, Any]


class Bulletin:
    """The newest notices, numbered from 1. Any number of listeners, each with a number of its own."""

    def __init__(self) -> None:
        self._kept: deque[Notice] = deque(maxlen=KEPT)
        self._changed = asyncio.Event()
        self.last = 0

    def tell(self, notice: Notice) -> None:
        """Take a notice in. Never waits."""
        self._kept.append(notice)
        self.last += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def after(self, number: int) -> list[tuple[int, Notice]]:
        """Return, once there are some, the notices after that number, each with its own."""
        while self.last <= number:
            await self._changed.wait()
        first = self.last - len(self._kept) + 1
        return [(at, one) for at, one in enumerate(self._kept, first) if at > number]
