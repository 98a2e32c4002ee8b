"""What a round of measurements says, and which of it is worth telling: pure decisions.

A reading is told when it moved enough or when its last telling has grown old, so that a quiet host
keeps a quiet store. This module must never measure, and never read a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from hermesd.events import EventStatus
from hermesd.sources.mounts import Mount
from hermesd.sources.probe import Answer
from hermesd.sources.settings import HostSettings

PROBE_STUCK: Final = "host.probe_stuck"
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP: Final = 1000


@dataclass(frozen=True, slots=True)
class Series:
    """One thing that is measured over and over: the probe's name for it, and what its events carry."""

    name: str
    type: str
    subject: str
    labels: tuple[tuple[str, str], ...] = ()
    min_change: float = 0.0
    budget_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of a series, in percent, and the same in words."""

    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """What was last delivered of a series: when, with which value and status."""

    at: datetime
    status: EventStatus
    value: float | None = None


def series_of(settings: HostSettings, mounts: Sequence[Mount]) -> list[Series]:
    """Return everything that a round measures, quick ones first."""
    levels = {"memory": settings.memory, "swap": settings.swap, "load": settings.load}
    found = [
        Series(name, f"host.{name}", name, min_change=level.min_change)
        for name, level in levels.items()
        if level.enabled
    ]
    found += [
        Series(
            name=f"filesystem:{mount.path}",
            type="host.filesystem",
            subject=_clean(mount.path),
            labels=(("path", _clean(mount.path)), ("device", _clean(mount.device)), ("fstype", mount.fstype)),
            min_change=settings.filesystems.min_change,
        )
        for mount in mounts
    ]
    return found + [
        Series(
            name=f"folder:{folder.path}",
            type="host.folder",
            subject=folder.path,
            labels=(("path", folder.path),),
            min_change=folder.min_change,
            budget_bytes=folder.budget_bytes,
        )
        for folder in settings.folder
    ]


def read_answer(series: Series, answer: Answer) -> Reading | str | None:
    """Return the reading that an answer gives, why there is none, or None when there is nothing to measure.

    A folder that was not walked to its end is a lower bound: above its budget that is a reading,
    below it nothing is known.
    """
    facts = answer.facts
    if answer.stuck or answer.error:
        return "no answer in time" if answer.stuck else answer.error
    if series.budget_bytes:
        return _read_folder(series, facts)
    if series.type == "host.load":
        words = f"load {facts['one']:.2f} over one minute on {facts['processors']} processors"
        return Reading(facts["percent"], words)
    if not facts["size_bytes"]:
        return None
    used, size = bytes_in_words(facts["used_bytes"]), bytes_in_words(facts["size_bytes"])
    free = bytes_in_words(facts["available_bytes"])
    return Reading(facts["percent"], f"{used} of {size} in use, {free} available")


def _read_folder(series: Series, facts: dict[str, Any]) -> Reading | str:
    used: int = facts["used_bytes"]
    if not facts["complete"] and used < series.budget_bytes:
        return f"too large to measure: stopped after {facts['entries']} entries"
    words = f"{bytes_in_words(used)} of a budget of {bytes_in_words(series.budget_bytes)} in use"
    if not facts["complete"]:
        words = f"at least {words}"
    if facts["unreadable"]:
        words += f"; {facts['unreadable']} folders could not be read"
    return Reading(100.0 * used / series.budget_bytes, words)


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


def _clean(path: str) -> str:
    """Return a path that any store takes: bytes that are no UTF-8 become visible escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
