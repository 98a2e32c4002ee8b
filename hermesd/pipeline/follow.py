"""Who follows a run hears a line per stage, as it happens.

A follower that does not read loses the oldest lines and is told so; it never slows a run down. This
module must never hold a run up, and must never be asked for what happened before somebody listened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

MAX_LINES: Final = 256


@dataclass(frozen=True, slots=True)
class Line:
    """One thing to tell. ``task_id`` says of which run; ``last`` that its run has ended."""

    task_id: str
    line: str
    stage: str = ""
    outcome: str = ""
    last: bool = False


class Follower:
    """One listener's bounded queue of lines."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=MAX_LINES)
        self._lost = 0
        self._woken = asyncio.Event()

    def put(self, line: Line) -> None:
        """Take a line in; the oldest goes when there are too many."""
        self._lost += len(self._lines) == MAX_LINES
        self._lines.append(line)
        self._woken.set()

    async def next_line(self) -> Line:
        """Return the next line, once there is one. Cancelling this loses none."""
        while not self._lines:
            self._woken.clear()
            await self._woken.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return Line(self._lines[0].task_id, f"({lost} lines were not read in time)")
        return self._lines.popleft()

    async def lines(self) -> AsyncIterator[Line]:
        """Yield lines until one of them is the last of its run."""
        while True:
            line = await self.next_line()
            yield line
            if line.last:
                return


class Followers:
    """Everybody who follows, by run."""

    def __init__(self) -> None:
        self._by_run: dict[str, list[Follower]] = {}

    @contextmanager
    def following(self, task_id: str) -> Iterator[Follower]:
        """Listen to a run from now on."""
        follower = Follower()
        self._by_run.setdefault(task_id, []).append(follower)
        try:
            yield follower
        finally:
            self._by_run[task_id].remove(follower)
            if not self._by_run[task_id]:
                del self._by_run[task_id]

    def tell(self, line: Line) -> None:
        """Tell everybody who follows that run."""
        for follower in self._by_run.get(line.task_id, ()):
            follower.put(line)
