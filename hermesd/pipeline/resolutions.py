"""News of incidents that were seen to end, for the runs that wait to see it.

Nobody looks into the store in a loop: who waits is woken. This module must never say that an incident
has ended; it passes on what the dispatcher committed and recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Resolutions:
    """Who waits for which incident."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Event]] = {}

    @contextmanager
    def listening(self, incident_id: str) -> Iterator[asyncio.Event]:
        """Give an event that is set when the incident ends from now on."""
        heard = asyncio.Event()
        self._waiting.setdefault(incident_id, []).append(heard)
        try:
            yield heard
        finally:
            self._waiting[incident_id].remove(heard)
            if not self._waiting[incident_id]:
                del self._waiting[incident_id]

    def publish(self, incident_id: str) -> None:
        """Wake whoever waits for this incident."""
        for heard in self._waiting.get(incident_id, ()):
            heard.set()
