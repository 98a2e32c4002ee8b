"""What a measurement says, and which of it is worth telling: pure decisions.

A reading is told when it moved enough or when its last telling has grown old, so that a quiet host
keeps a quiet store. This module must never measure, and never read a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from hermesd.events import EventStatus

PROBE_STUCK: Final = "host.probe_stuck"
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP: Final = 1000

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """What a probe answered, and when."""

    at: datetime
    facts: Facts


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of a series, in the unit of its measure, and the same in words."""

    value: float
    text: str


Read = Callable[[Sample, Sequence[Sample]], Reading | str | None]
"""Reads a sample, beside the earlier ones of its probe that are kept, oldest first.

Returns the reading, or why there is none, or None where there is nothing to measure.
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of reading: the type of its events, the unit of their value, how a sample is read.

    With ``keep_s`` it is read beside earlier samples: the last one, and those not older, ``every_s`` apart.
    """

    type: str
    unit: str
    read: Read
    keep_s: float = 0.0
    every_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Series:
    """One thing that is measured over and over: which probe is asked for it, and what its events carry.

    ``ask`` is the probe's name for what it measures; several series may be read from one answer.
    """

    measure: Measure
    ask: str
    subject: str
    labels: tuple[tuple[str, str], ...] = ()
    min_change: float = 0.0

    @property
    def type(self) -> str:
        """Return the type of its events."""
        return self.measure.type

    @property
    def name(self) -> str:
        """Return how the log calls it: `inodes of /srv`."""
        kind = self.type.partition(".")[2]
        return kind if kind == self.subject else f"{kind} of {self.subject}"


@dataclass(frozen=True, slots=True)
class Told:
    """What was last delivered of a series: when, with which value and status."""

    at: datetime
    status: EventStatus
    value: float | None = None


def keep(samples: Sequence[Sample], newest: Sample, keep_s: float, every_s: float) -> tuple[Sample, ...]:
    """Return what is kept for the samples to come: those not older than ``keep_s``, and the newest.

    The newest takes the last one's place when that lies nearer than ``every_s`` to the one before it.
    """
    kept = [one for one in samples if newest.at - one.at <= timedelta(seconds=keep_s)]
    if len(kept) > 1 and kept[-1].at - kept[-2].at < timedelta(seconds=every_s):
        kept.pop()
    return (*kept, newest)


def is_due(
    told: Told | None,
    status: EventStatus,
    value: float | None,
    now: datetime,
    min_change: float,
    refresh_s: float,
) -> bool:
    """Decide whether to tell: at first, when the status changed, the value moved enough, or time passed.

    What is resolved is told once; what fires or is read is told again each ``refresh_s``.
    """
    if told is None or told.status != status:
        return True
    if (
        value is not None
        and told.value is not None
        and abs(value - told.value) >= min_change
        and value != told.value
    ):
        return True
    return status != EventStatus.RESOLVED and now - told.at >= timedelta(seconds=refresh_s)


def bytes_in_words(size: float) -> str:
    """Return a size with a decimal unit, as storage is sold: `14.2 MB`."""
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            break
        size /= _STEP
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
