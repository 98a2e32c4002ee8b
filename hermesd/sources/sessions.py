"""What is known of the sessions that brokers keep for this host, beyond one connection's life.

A broker remembers what a session subscribed to, and tells nobody. So the filters are remembered
here, over restarts too: what the settings no longer name can then be unsubscribed. This module must
never speak to a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class Memory(Protocol):
    """Something that outlives the process: one JSON object."""

    async def recall(self) -> Mapping[str, Any]:
        """Return what was remembered last, empty when nothing was."""
        ...

    async def remember(self, state: Mapping[str, Any]) -> None:
        """Keep the state in place of the one before; return once it is durable."""
        ...


class Forgetful:
    """A memory for this process alone. ``name`` says whose."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._state: Mapping[str, Any] = {}

    async def recall(self) -> Mapping[str, Any]:
        """Return what was remembered last, empty when nothing was."""
        return self._state

    async def remember(self, state: Mapping[str, Any]) -> None:
        """Keep the state in place of the one before."""
        self._state = state


class Sessions:
    """Filters and the last notice told, by client id. Without a ``memory``, for this process alone."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory
        self._filters: dict[str, list[str]] | None = None
        self.told: dict[str, int] = {}

    async def filters(self, client_id: str) -> frozenset[str]:
        """Return what the session is subscribed to, as far as is known."""
        return frozenset((await self._all()).get(client_id, ()))

    async def keep(self, client_id: str, filters: Iterable[str]) -> None:
        """Remember what the session is subscribed to from now on."""
        known, wanted = await self._all(), sorted(filters)
        if known.get(client_id) == wanted:
            return
        known[client_id] = wanted
        if self._memory is not None:
            await self._memory.remember(known)

    async def _all(self) -> dict[str, list[str]]:
        if self._filters is None:
            found = await self._memory.recall() if self._memory is not None else {}
            self._filters = {name: [str(one) for one in filters] for name, filters in found.items()}
        return self._filters
