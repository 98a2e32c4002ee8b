"""What one part remembers over restarts, as one JSON value under a name of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermesd.state.settings import read_setting, write_setting
from hermesd.state.store import Store


class StoredMemory:
    """A part's memory in the store. ``name`` is the part's alone."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    async def recall(self) -> Mapping[str, Any]:
        """Return what was remembered last, empty when nothing was. Raise StoreError."""
        found = await self._store.read(lambda connection: read_setting(connection, self._name, {}))
        return dict(found)

    async def remember(self, state: Mapping[str, Any]) -> None:
        """Keep the state in place of the one before; return once it is durable. Raise StoreError."""
        await self._store.write(lambda connection: write_setting(connection, self._name, dict(state)))
