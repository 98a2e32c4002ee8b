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
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hermesd.events import Event, EventStatus
from hermesd.sources.base import Deliver, EventIds, InboxFull, Now, Sleep, SourceFailed, rest_s, utc_now
from hermesd.sources.mounts import Filesystem, Mount, choose_mounts, is_confined, read_boot, read_mounts
from hermesd.sources.probe import Answer, Probe
from hermesd.sources.readings import PROBE_STUCK, Measure, Reading, Sample, Series, Told, is_due, keep
from hermesd.sources.series import mount_name, series_of
from hermesd.sources.sessions import Forgetful, Memory
from hermesd.sources.settings_host import HostSettings

log = logging.getLogger("hermesd.sources.host")


def _nothing(_sample: Sample, _earlier: Sequence[Sample]) -> None:
    """Read nothing: of what has only its farewell to come."""


_STUCK: Final = Measure(PROBE_STUCK, "", _nothing)
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class HostSource:
    """Measures every ``interval_s`` and delivers what changed. ``host`` is the label of all its events.

    What it measured is in its ``memory`` over restarts, so that what is gone at the next start (unmounted,
    or not asked for any more) has its farewell too.
    """

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
        boot: Callable[[], str] = read_boot,
        memory: Memory | None = None,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._probe = probe
        self._host = host
        self._now = now
        self._sleep = sleep
        self._mounts = mounts
        self._boot = boot
        self._memory = memory or Forgetful()
        self._remembered: Mapping[str, Any] = {}
        self._ids = EventIds(settings.name)
        self._told: dict[tuple[str, str], Told] = {}
        self._known: dict[tuple[str, str], Series] = {}
        self._asked: set[str] = set()
        self._faults: dict[tuple[str, str], str] = {}
        self._past: dict[tuple[str, str], tuple[Sample, ...]] = {}
        self._held: dict[Filesystem, str] = {}

    async def run(self, deliver: Deliver) -> None:
        """Measure and deliver until cancelled. Raise SourceFailed when nothing can be measured."""
        await self.begin()
        try:
            while True:
                began = time.monotonic()
                await self.round(deliver)
                await self._sleep(rest_s(self._settings.interval_s, time.monotonic() - began))
        finally:
            self._probe.close()

    async def begin(self) -> None:
        """Take up what an earlier life measured. Where it measured is true for as long as the host is up."""
        self._remembered = found = await self._memory.recall()
        for kind, subject, labels in found.get("series", []):
            series = Series(Measure(kind, "", _nothing), "", subject, tuple(labels.items()))
            self._known[_key(series)] = series
            self._told[_key(series)] = Told(_LONG_AGO, EventStatus.READING)
        for ask in found.get("asked", []):
            self._asked.add(ask)
            self._told[_key(_stuck(ask))] = Told(_LONG_AGO, EventStatus.FIRING)
        if found.get("boot") == self._boot():
            self._held = {(number, device, kind): path for number, device, kind, path in found["held"]}

    async def round(self, deliver: Deliver) -> None:
        """Measure everything once and deliver what is due."""
        mounts = await self._read_mounts()
        wanted = series_of(self._settings, self._chosen(mounts))
        answers = await self._answers(wanted, mounts)
        now = self._now()
        present = {_key(series) for series in wanted}
        gone = [one for key, one in self._known.items() if key not in present]
        silent = self._asked - set(answers)
        events = [event for series in gone for event in self._farewell(series, now)]
        events += [event for ask in silent for event in self._stuck_farewell(ask, now)]
        events += [event for answer in answers.values() for event in self._stuck_event(answer, now)]
        events += [event for series in wanted for event in self._read(series, answers[series.ask], now)]
        self._known |= {_key(series): series for series in wanted}
        self._asked |= set(answers)
        if not events or await self._deliver(deliver, events):
            self._forget(gone, silent)
            await self._remember()

    async def _remember(self) -> None:
        state = {
            "boot": self._boot(),
            "held": sorted([*filesystem, path] for filesystem, path in self._held.items()),
            "series": [[one.type, one.subject, dict(one.labels)] for one in self._known.values()],
            "asked": sorted(self._asked),
        }
        if state != self._remembered:
            await self._memory.remember(state)
            self._remembered = state

    async def _read_mounts(self) -> list[Mount]:
        if not self._settings.filesystems.enabled:
            return []
        try:
            return await asyncio.to_thread(self._mounts)
        except OSError as error:
            raise SourceFailed(f"the list of mounts cannot be read: {error}") from None

    def _chosen(self, mounts: list[Mount]) -> list[Mount]:
        """Return what is measured of what is mounted, and hold on to it for the next round."""
        settings = self._settings.filesystems
        chosen = choose_mounts(mounts, settings.only, settings.exclude, self._held)
        self._held = {mount.filesystem: mount.path for mount in chosen}
        return chosen

    async def _answers(self, wanted: list[Series], mounts: list[Mount]) -> dict[str, Answer]:
        """Return the answer to each question, the probe's or what the list of mounts says already."""
        confined = is_confined(mounts)
        known = {mount_name(mount.path): _answer_of(mount, confined=confined) for mount in mounts}
        names = list(dict.fromkeys(series.ask for series in wanted))
        asked = [name for name in names if name not in known]
        probed = await self._probe.measure(asked, self._settings.probe_timeout_s)
        answers = known | {answer.name: answer for answer in probed}
        return {name: answers[name] for name in names}

    async def _deliver(self, deliver: Deliver, events: list[Event]) -> bool:
        try:
            await deliver(events)
        except InboxFull as full:
            log.warning("%s: %d events wait for the next round: %s", self.name, len(events), full)
            return False
        for event in events:
            self._told[event.type, event.subject] = Told(event.time, event.status, event.value)
        return True

    def _read(self, series: Series, answer: Answer, now: datetime) -> Iterator[Event]:
        found = self._found(series, answer, now)
        self._note_fault(series, found if isinstance(found, str) and not answer.stuck else "")
        if isinstance(found, Reading):
            yield from self._due(series, EventStatus.READING, now, found.value, found.text)

    def _found(self, series: Series, answer: Answer, now: datetime) -> Reading | str | None:
        if answer.stuck or answer.error:
            return answer.error or "no answer in time"
        measure, sample = series.measure, Sample(now, answer.facts)
        earlier = self._past.get(_key(series), ())
        if measure.keep_s:
            self._past[_key(series)] = keep(earlier, sample, measure.keep_s, measure.every_s)
        return measure.read(sample, earlier)

    def _stuck_event(self, answer: Answer, now: datetime) -> Iterator[Event]:
        stuck, name = _stuck(answer.name), answer.name
        if answer.stuck:
            limit = self._settings.probe_timeout_s
            text = f"measuring {name} did not end within {limit:g} s; the rest is measured without it"
            yield from self._due(stuck, EventStatus.FIRING, now, None, text)
        elif not name.startswith(mount_name("")):
            yield from self._due(stuck, EventStatus.RESOLVED, now, None, f"{name} answers")

    def _farewell(self, series: Series, now: datetime) -> Iterator[Event]:
        """Tell of a series that is there no more (unmounted): whatever it suffered from has ended."""
        if _key(series) in self._told:
            text = f"{series.subject} is not there any more"
            yield from self._due(series, EventStatus.RESOLVED, now, None, text)

    def _stuck_farewell(self, ask: str, now: datetime) -> Iterator[Event]:
        if _key(_stuck(ask)) in self._told:
            text = f"{ask} is not measured any more"
            yield from self._due(_stuck(ask), EventStatus.RESOLVED, now, None, text)

    def _forget(self, gone: list[Series], silent: set[str]) -> None:
        for series in gone:
            del self._known[_key(series)]
            self._faults.pop(_key(series), None)
            self._past.pop(_key(series), None)
            self._told.pop(_key(series), None)
        for ask in silent:
            self._told.pop(_key(_stuck(ask)), None)
        self._asked -= silent

    def _due(
        self, series: Series, status: EventStatus, now: datetime, value: float | None, text: str
    ) -> Iterator[Event]:
        told = self._told.get(_key(series))
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
                unit="" if value is None else series.measure.unit,
                text=text,
            )

    def _note_fault(self, series: Series, fault: str) -> None:
        """Log why a series has no reading, once for each new reason."""
        key = _key(series)
        if fault and self._faults.get(key) != fault:
            log.warning("%s: %s is not measured: %s", self.name, series.name, fault)
        self._faults[key] = fault


def _key(series: Series) -> tuple[str, str]:
    return (series.type, series.subject)


def _stuck(ask: str) -> Series:
    """Return the series that says whether a probe hangs."""
    return Series(_STUCK, ask, ask, (("probe", ask), ("path", ask.partition(":")[2])))


def _answer_of(mount: Mount, *, confined: bool) -> Answer:
    read_only = mount.read_only or (mount.mounted_read_only and not confined)
    return Answer(mount_name(mount.path), {"read_only": read_only})
