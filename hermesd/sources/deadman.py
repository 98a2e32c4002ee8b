"""The dead-man: what is expected to speak every so often and stays silent is an event `source.silent`.

An `Ear` beside the inbox hears what every source delivers; the source looks at the clock, tells who fell
silent, and tells it again as resolved once they speak. When each last spoke outlives the process, so that
a silence that began before a restart is not forgotten by it.

This module must never judge what was said, and never hold up who says it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from hermesd.durations import render_duration
from hermesd.events import Event, EventStatus
from hermesd.sources.base import Deliver, InboxFull, Now, Sleep, utc_now
from hermesd.sources.sessions import Memory
from hermesd.sources.settings import BuiltIn, SourceSettings
from hermesd.sources.settings_base import Expect

SOURCE: Final = "deadman"
SILENT_TYPE: Final = "source.silent"

LONGEST_SLEEP_S: Final = 5.0
SAVE_EVERY_S: Final = 15.0
"""Who spoke is written down at least so often: a crash forgets no more, which the grace covers."""
_DRIFT: Final = timedelta(seconds=5)
_OWN: Final = ("hermesd.", "source.")


@dataclass(frozen=True, slots=True)
class Expected:
    """Something that is to speak: a source, or one series of it."""

    source: str
    expect: Expect

    @property
    def key(self) -> str:
        """Return how it is called: the source's name, and the series' where it is one."""
        return f"{self.source}/{self.expect.name}" if self.expect.name else self.source

    def is_spoken_by(self, event: Event) -> bool:
        """Say whether the event is its word. What hermesd says about the source is not."""
        wanted = self.expect
        return (
            not event.type.startswith(_OWN)
            and wanted.type in {"", event.type}
            and wanted.subject in {"", event.subject}
            and all(event.labels.get(name) == value for name, value in wanted.labels.items())
        )


@dataclass(frozen=True, slots=True)
class Heard:
    """When it last spoke, or was first expected. ``silent``: it was told that it does not."""

    at: datetime
    silent: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"at": self.at.isoformat(), "silent": self.silent}


def heard_from_record(record: Mapping[str, Any]) -> Heard:
    """Return what `to_record` wrote. Raise KeyError or ValueError on anything else."""
    return Heard(datetime.fromisoformat(record["at"]), bool(record["silent"]))


def silent_from(expected: Expected, heard: Heard) -> datetime:
    """Return from when on it counts as silent."""
    return heard.at + timedelta(seconds=expected.expect.every_s + expected.expect.grace_s)


def look(expected: Expected, heard: Heard, now: datetime, started: datetime) -> tuple[Event | None, Heard]:
    """Return what there is to tell of it now, and what to remember once that is told. Pure.

    After a start it has its grace to speak, whatever passed before: nobody listened meanwhile.
    """
    due = silent_from(expected, heard)
    if heard.silent and now < due:
        words = f"{expected.key} speaks again"
        return _event(expected, heard, EventStatus.RESOLVED, now, words), replace(heard, silent=False)
    if heard.silent or now < max(due, started + timedelta(seconds=expected.expect.grace_s)):
        return None, heard
    lasting = render_duration(round((now - heard.at).total_seconds()))
    words = f"{expected.key} has said nothing for {lasting}; it is expected every "
    words += render_duration(expected.expect.every_s)
    return _event(expected, heard, EventStatus.FIRING, now, words), replace(heard, silent=True)


def _event(expected: Expected, heard: Heard, status: EventStatus, now: datetime, text: str) -> Event:
    return Event(
        id=f"{expected.key} {heard.at.isoformat()} {status.value}",
        source=SOURCE,
        type=SILENT_TYPE,
        time=now,
        subject=expected.key,
        labels={"source": expected.source, "series": expected.key},
        status=status,
        severity=expected.expect.severity,
        value=max((now - heard.at).total_seconds(), 0.0),
        unit="seconds",
        text=text,
    )


def expected_of(sources: Sequence[SourceSettings]) -> list[Expected]:
    """Return all that is expected to speak: of a source that is off, nothing is."""
    return [
        Expected(source.name, expect)
        for source in sources
        if source.enabled and not isinstance(source, BuiltIn)
        for expect in source.expect
    ]


class Ear:
    """Hears what is delivered. ``sources`` returns the settings in force, the same object until changed."""

    def __init__(self, sources: Callable[[], Sequence[SourceSettings]], *, now: Now = utc_now) -> None:
        self._sources = sources
        self._now = now
        self._known: Sequence[SourceSettings] | None = None
        self._expected: list[Expected] = []
        self._heard: dict[str, datetime] = {}

    def beside(self, deliver: Deliver) -> Deliver:
        """Return a way to deliver that hears what was taken."""

        async def deliver_and_hear(events: Sequence[Event]) -> None:
            await deliver(events)
            self.hear(events)

        return deliver_and_hear

    def expected(self) -> list[Expected]:
        """Return what is expected now."""
        sources = self._sources()
        if sources is not self._known:
            self._known, self._expected = sources, expected_of(sources)
        return self._expected

    def hear(self, events: Sequence[Event]) -> None:
        """Note who spoke."""
        for one in self.expected():
            if any(event.source == one.source and one.is_spoken_by(event) for event in events):
                self._heard[one.key] = self._now()

    def take(self) -> dict[str, datetime]:
        """Return when each spoke last that spoke since this was asked before."""
        heard, self._heard = self._heard, {}
        return heard


class DeadManSource:
    """Looks at the clock for all that is expected. ``monotonic`` counts seconds that no setting changes."""

    name: str = SOURCE
    kind: str = SOURCE

    def __init__(
        self,
        ear: Ear,
        memory: Memory,
        *,
        now: Now = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._ear = ear
        self._memory = memory
        self._now = now
        self._monotonic = monotonic
        self._sleep = sleep
        self._known: dict[str, Heard] = {}
        self._saved: dict[str, Heard] = {}
        self._saved_at = self._looked_at = monotonic()
        self._started = self._looked = now()

    async def run(self, deliver: Deliver) -> None:
        """Tell silences until cancelled."""
        await self.begin()
        while True:
            try:
                await self.look_once(deliver)
            except InboxFull as full:
                await self._sleep(full.retry_after_seconds)
            await self._sleep(LONGEST_SLEEP_S)

    async def begin(self) -> None:
        """Take up what an earlier life heard. A time that lies ahead was a wrong clock's: it is now."""
        self._saved = {key: heard_from_record(one) for key, one in (await self._memory.recall()).items()}
        self._started = self._looked = self._now()
        self._known = {key: replace(one, at=min(one.at, self._started)) for key, one in self._saved.items()}

    async def look_once(self, deliver: Deliver) -> None:
        """Look at the clock once, deliver what came, remember it. Raise InboxFull, and nothing is lost."""
        now = self._now()
        since = self._follow_the_clock(now)
        expected = {one.key: one for one in self._ear.expected()}
        for key, at in self._ear.take().items():
            self._known[key] = replace(self._known.get(key, Heard(at)), at=min(max(at, since), now))
        events, fresh = [], {}
        for key, one in expected.items():
            event, fresh[key] = look(one, self._known.get(key) or Heard(now), now, self._started)
            events += [event] if event else []
        events += [
            _no_longer(key, one, now)
            for key, one in self._known.items()
            if one.silent and key not in expected
        ]
        if events:
            await deliver(events)
        self._known = fresh
        await self._save(urgent=bool(events))

    def _follow_the_clock(self, now: datetime) -> datetime:
        """Return when the last look was, as the clock is set now.

        What is known moves along when the clock was set, or the host slept: no time passed meanwhile.
        """
        at = self._monotonic()
        since = now - timedelta(seconds=at - self._looked_at)
        step = since - self._looked
        if abs(step) > _DRIFT:
            self._known = {key: replace(one, at=one.at + step) for key, one in self._known.items()}
            self._started += step
        self._looked, self._looked_at = now, at
        return since

    async def _save(self, *, urgent: bool) -> None:
        late = self._monotonic() - self._saved_at >= SAVE_EVERY_S
        if self._known == self._saved or not (urgent or late or self._known.keys() != self._saved.keys()):
            return
        await self._memory.remember({key: one.to_record() for key, one in self._known.items()})
        self._saved, self._saved_at = dict(self._known), self._monotonic()


def _no_longer(key: str, heard: Heard, now: datetime) -> Event:
    gone = Expected(key.partition("/")[0], Expect(name=key.partition("/")[2], every_s=1.0))
    return _event(gone, heard, EventStatus.RESOLVED, now, f"{key} is not expected any more")
