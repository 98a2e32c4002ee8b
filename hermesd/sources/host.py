"""The host source: what this machine measures of itself, told as readings.

Each round measures through the probe, so that nothing that hangs can stop more than its own series;
a series that hangs becomes an event itself. What could not be delivered is not remembered as told,
and so is told again in the next round.

This module must never look at the host by itself, and never judge a value: rules do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from hermesd.events import Event, EventStatus
from hermesd.sources.base import Deliver, EventIds, InboxFull, Now, Sleep, SourceFailed, utc_now
from hermesd.sources.mounts import Mount, choose_mounts, read_mounts
from hermesd.sources.probe import Answer, Probe
from hermesd.sources.readings import PROBE_STUCK, Reading, Series, Told, is_due, read_answer, series_of
from hermesd.sources.settings import HostSettings

log = logging.getLogger("hermesd.sources.host")

SHORTEST_REST_S: Final = 0.05
"""The pause after a round that took longer than the interval."""


class HostSource:
    """Measures every ``interval_s`` and delivers what changed. ``host`` is the label of all its events."""

    kind = "host"

    def __init__(
        self,
        settings: HostSettings,
        probe: Probe,
        host: str,
        *,
        now: Now = utc_now,
        sleep: Sleep = asyncio.sleep,
        mounts: Callable[[], list[Mount]] = read_mounts,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._probe = probe
        self._host = host
        self._now = now
        self._sleep = sleep
        self._mounts = mounts
        self._ids = EventIds(settings.name)
        self._told: dict[tuple[str, str], Told] = {}
        self._known: dict[str, Series] = {}
        self._faults: dict[str, str] = {}

    async def run(self, deliver: Deliver) -> None:
        """Measure and deliver until cancelled. Raise SourceFailed when nothing can be measured."""
        try:
            while True:
                began = time.monotonic()
                await self.round(deliver)
                rest = self._settings.interval_s - (time.monotonic() - began)
                await self._sleep(max(rest, SHORTEST_REST_S))
        finally:
            self._probe.close()

    async def round(self, deliver: Deliver) -> None:
        """Measure everything once and deliver what is due."""
        wanted = series_of(self._settings, await self._chosen_mounts())
        names = [series.name for series in wanted]
        answers = await self._probe.measure(names, self._settings.probe_timeout_s)
        now = self._now()
        gone = [self._known[name] for name in set(self._known) - set(names)]
        events = [event for series in gone for event in self._farewell(series, now)]
        for series, answer in zip(wanted, answers, strict=True):
            events += self._events(series, answer, now)
        self._known |= {series.name: series for series in wanted}
        if not events or await self._deliver(deliver, events):
            self._forget(gone)

    async def _chosen_mounts(self) -> list[Mount]:
        chosen = self._settings.filesystems
        if not chosen.enabled:
            return []
        try:
            mounts = await asyncio.to_thread(self._mounts)
        except OSError as error:
            raise SourceFailed(f"the list of mounts cannot be read: {error}") from None
        return choose_mounts(mounts, chosen.only, chosen.exclude)

    async def _deliver(self, deliver: Deliver, events: list[Event]) -> bool:
        try:
            await deliver(events)
        except InboxFull as full:
            log.warning("%s: %d events wait for the next round: %s", self.name, len(events), full)
            return False
        for event in events:
            self._told[event.type, event.subject] = Told(event.time, event.status, event.value)
        return True

    def _events(self, series: Series, answer: Answer, now: datetime) -> Iterator[Event]:
        yield from self._stuck_event(series, answer, now)
        found = read_answer(series, answer)
        self._note_fault(series.name, found if isinstance(found, str) and not answer.stuck else "")
        if isinstance(found, Reading):
            yield from self._due(series, EventStatus.READING, now, found.value, found.text)

    def _stuck_event(self, series: Series, answer: Answer, now: datetime) -> Iterator[Event]:
        stuck = _stuck(series)
        if answer.stuck:
            limit = self._settings.probe_timeout_s
            text = f"measuring {series.name} did not end within {limit:g} s; the rest is measured without it"
            yield from self._due(stuck, EventStatus.FIRING, now, None, text)
        else:
            yield from self._due(stuck, EventStatus.RESOLVED, now, None, f"{series.name} answers")

    def _farewell(self, series: Series, now: datetime) -> Iterator[Event]:
        """Tell of a series that is there no more (unmounted): whatever it suffered from has ended."""
        text = f"{series.subject} is not there any more"
        for one in (series, _stuck(series)):
            if (one.type, one.subject) in self._told:
                yield from self._due(one, EventStatus.RESOLVED, now, None, text)

    def _forget(self, gone: list[Series]) -> None:
        for series in gone:
            del self._known[series.name]
            self._faults.pop(series.name, None)
            for one in (series, _stuck(series)):
                self._told.pop((one.type, one.subject), None)

    def _due(
        self, series: Series, status: EventStatus, now: datetime, value: float | None, text: str
    ) -> Iterator[Event]:
        told = self._told.get((series.type, series.subject))
        if is_due(told, status, value, now, series.min_change, self._settings.refresh_s):
            yield Event(
                id=self._ids.next(),
                source=self.name,
                type=series.type,
                time=now,
                subject=series.subject,
                labels={"host": self._host, **dict(series.labels)},
                status=status,
                value=value,
                unit="" if value is None else "percent",
                text=text,
            )

    def _note_fault(self, name: str, fault: str) -> None:
        """Log why a series has no reading, once for each new reason."""
        if fault and self._faults.get(name) != fault:
            log.warning("%s: %s is not measured: %s", self.name, name, fault)
        self._faults[name] = fault


def _stuck(series: Series) -> Series:
    """Return the series that says whether the probe of another one hangs."""
    path = dict(series.labels).get("path", "")
    labels = (("probe", series.name), ("path", path))
    return Series(series.name, PROBE_STUCK, series.name, labels)
