"""Timetables: at which instants a schedule is due, by cron's five fields or by an interval.

A cron line speaks of the wall clock. APScheduler's trigger finds the wall times, as if there were no
summer time; which instant a wall time is, is settled here: one that the spring skips is the next valid
instant, one that the autumn repeats is its first occurrence, and a line for every hour goes on through
both. Weekdays are cron's (0 and 7 are Sunday), and so is the rule that a day of the month and a weekday
given together mean either. An interval is counted from 1970 in UTC, so that a restart moves nothing.

Pure. This module must never read a clock, and never know what is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_FIELDS: Final = 5
_SUNDAY_AGAIN: Final = 7
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELD: Final = re.compile(r"[0-9a-z*,/-]+\Z", re.ASCII)
_DAY_PART: Final = re.compile(r"(?:\*|([a-z0-9]+)(?:-([a-z0-9]+))?)(?:/([0-9]+))?\Z", re.ASCII)

Next = Callable[[datetime], datetime | None]
"""Returns the first slot strictly after an aware moment, in UTC; None when there is none any more."""


def interval(seconds: float) -> Next:
    """Return the timetable of every so many seconds, counted from 1970 in UTC."""
    step = timedelta(seconds=seconds)

    def following(after: datetime) -> datetime:
        return _EPOCH + ((after - _EPOCH) // step + 1) * step

    return following


def cron(line: str, zone: ZoneInfo) -> Next:
    """Return the timetable of a cron line in a time zone. Raise ValueError when it is not one."""
    fields = _fields(line)
    triggers = tuple(_triggers(fields))
    if fields[1] == "*":
        readings: tuple[int, ...] = (0, 1)  # every hour: the repeated hour has its slots too
    else:
        readings = (0,)

    def following(after: datetime) -> datetime | None:
        found = [_first(triggers, zone, reading, after) for reading in readings]
        return min((slot for slot in found if slot is not None), default=None)

    return following


def _fields(line: str) -> list[str]:
    text = " ".join(line.lower().split())
    fields = _NICKNAMES.get(text, text).split(" ")
    if len(fields) != _FIELDS:
        raise ValueError("a cron line has five fields: minute, hour, day of month, month, weekday")
    wrong = next((field for field in fields if not _FIELD.match(field)), None)
    if wrong is not None:
        raise ValueError(f"{wrong[:40]!r} is not a field of a cron line")
    return fields


def _triggers(fields: Sequence[str]) -> Iterator[Any]:
    """Yield what finds the wall times: two triggers where a day of month and a weekday are both given."""
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415 - costs 100 ms, and few have a cron line

    minute, hour, day, month, weekday = fields
    either = not day.startswith("*") and not weekday.startswith("*")
    named = "*" if weekday == "*" else _weekdays(weekday)
    for day_field, weekday_field in ((day, "*"), ("*", named)) if either else ((day, named),):
        yield CronTrigger(
            minute=minute, hour=hour, day=day_field, month=month, day_of_week=weekday_field, timezone=UTC
        )


def _weekdays(field: str) -> str:
    """Return cron's weekdays as names, each by itself: a range may run over the week's end."""
    days: set[int] = set()
    for part in field.split(","):
        found = _DAY_PART.match(part)
        if found is None:
            raise ValueError(
                f"{part[:40]!r} is not a weekday: write 0 to 7 (0 and 7 are Sunday) or sun to sat"
            )
        first, last, step = found.groups()
        start = _weekday(first) if first else 0
        end = _weekday(last) if last else start if first and not step else len(_DAYS) - 1
        if end < start:
            end += len(_DAYS)
        if step and int(step) == 0:
            raise ValueError(f"{part!r} steps by nothing")
        days |= {day % len(_DAYS) for day in range(start, end + 1, int(step or 1))}
    return ",".join(_DAYS[day] for day in sorted(days))


def _weekday(text: str) -> int:
    if text in _DAYS:
        return _DAYS.index(text)
    if text.isdecimal() and int(text) <= _SUNDAY_AGAIN:
        return int(text)
    raise ValueError(f"{text[:40]!r} is not a weekday: write 0 to 7 (0 and 7 are Sunday) or sun to sat")


def _first(triggers: Sequence[Any], zone: ZoneInfo, reading: int, after: datetime) -> datetime | None:
    """Return the first instant after ``after``, reading a wall time that is repeated as ``reading`` says."""
    local = after.astimezone(zone)
    wall = local.replace(tzinfo=None)
    first, second = _offsets(wall, zone)
    if first != second and local.fold == 0:
        wall -= abs(first - second)  # wall times before this one come again
    while True:
        found = [trigger.get_next_fire_time(None, (wall + _TICK).replace(tzinfo=UTC)) for trigger in triggers]
        walls = [one.replace(tzinfo=None) for one in found if one is not None]
        if not walls:
            return None
        wall = min(walls)
        slot = _instant(wall, zone, reading)
        if slot > after:
            return slot


def _instant(wall: datetime, zone: ZoneInfo, reading: int) -> datetime:
    """Return the instant that a wall time means: of a repeated one the first (0) or second (1)."""
    first, second = _offsets(wall, zone)
    if first >= second:
        return (wall - (second if reading else first)).replace(tzinfo=UTC)
    return _end_of_gap(wall, zone, first, second)


def _end_of_gap(wall: datetime, zone: ZoneInfo, before: timedelta, behind: timedelta) -> datetime:
    """Return the instant at which the clock skipped the wall time."""
    early, late = (wall - behind).replace(tzinfo=UTC), (wall - before).replace(tzinfo=UTC)
    while late - early > _SECOND:
        middle = early + timedelta(seconds=(late - early) // _SECOND // 2)
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late


def _offsets(wall: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """Return the offsets from UTC that a wall time has at its first and at its second reading."""
    first = wall.replace(tzinfo=zone, fold=0).utcoffset() or timedelta(0)
    second = wall.replace(tzinfo=zone, fold=1).utcoffset() or timedelta(0)
    return first, second


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots in a span: how many (``count`` is a floor when ``more``), the first and the last."""

    count: int
    first: datetime
    last: datetime
    more: bool = False


MAX_COUNTED: Final = 500
_SPANS: Final = tuple(timedelta(hours=hours) for hours in (1, 24, 24 * 32, 24 * 367))


def slots_between(following: Next, after: datetime, until: datetime) -> Slots | None:
    """Return the slots in (``after``, ``until``]; of very many only the last is looked for. None: none."""
    first = slot = following(after)
    if first is None or first > until:
        return None
    count, last = 0, first
    while slot is not None and slot <= until and count < MAX_COUNTED:
        count, last = count + 1, slot
        slot = following(slot)
    if slot is None or slot > until:
        return Slots(count, first, last)
    return Slots(count, first, _last_before(following, last, until), more=True)


def _last_before(following: Next, known: datetime, until: datetime) -> datetime:
    """Return the last slot up to ``until``, sought from near its end."""
    for span in _SPANS:
        slot = following(max(known, until - span))
        if slot is not None and slot <= until:
            known = slot
            while (slot := following(known)) is not None and slot <= until:
                known = slot
            return known
    return known


@lru_cache(maxsize=256)
def timetable(line: str, seconds: float, zone: str) -> Next:
    """Return the timetable of a cron line, or without one of an interval. Raise ValueError."""
    return cron(line, ZoneInfo(zone)) if line else interval(seconds)
