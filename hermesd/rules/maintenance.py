"""Maintenance windows: when what happens starts no run, because people know. Pure.

A window is matched over the event as a rule is, and over one more pseudo label, `rule`: the name of the
rule that would start a run. This module must never make an incident vanish: it opens and counts as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, time, timedelta
from enum import IntEnum
from typing import Annotated, Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainValidator,
    model_validator,
)

from hermesd.durations import parse_duration
from hermesd.events import Event
from hermesd.rules.matcher import Matcher, parse_matcher
from hermesd.rules.rule import Rule
from hermesd.rules.verdict import Hold, HoldKind

_RULE: Final = "rule"
_WEEK: Final = 7
MAX_WINDOW_SECONDS: Final = 7 * 86_400.0


class Day(IntEnum):
    """Days by name, since numbers begin on Sunday for some and on Monday for others."""

    MON = 0
    TUE = 1
    WED = 2
    THU = 3
    FRI = 4
    SAT = 5
    SUN = 6


def _day(text: object) -> Day:
    try:
        return Day[str(text).upper()]
    except KeyError:
        raise ValueError(f"{text!r} is no day: mon, tue, wed, thu, fri, sat or sun") from None


def _clock(text: object) -> time:
    try:
        found = time.fromisoformat(str(text))
    except ValueError:
        raise ValueError(f'{text!r} is no time of day, as "02:30"') from None
    if found.tzinfo is not None:
        raise ValueError("the zone of a time of day is said by timezone")
    return found


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone, as Europe/Berlin") from None
    return name


class Maintenance(BaseModel):
    """`[[window]]` of maintenance.toml: once (`from`, `to`), or weekly (`days`, `at`, `for`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str = Field(min_length=1, max_length=500)
    match: tuple[Annotated[InstanceOf[Matcher], PlainValidator(parse_matcher)], ...] = Field(
        default=(), max_length=32
    )
    begins: AwareDatetime | None = Field(default=None, alias="from")
    ends: AwareDatetime | None = Field(default=None, alias="to")
    days: tuple[Annotated[Day, PlainValidator(_day)], ...] = tuple(Day)
    at: Annotated[time, PlainValidator(_clock)] | None = None
    seconds: Annotated[float, BeforeValidator(parse_duration), Field(gt=0, le=MAX_WINDOW_SECONDS)] | None = (
        Field(default=None, alias="for")
    )
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"

    @model_validator(mode="after")
    def _once_or_weekly(self) -> Self:
        once = self.begins is not None and self.ends is not None
        weekly = self.at is not None and self.seconds is not None
        if once == weekly or (once and (self.at or self.seconds)) or (weekly and (self.begins or self.ends)):
            raise ValueError("a window has either from and to, or at and for (with days and timezone)")
        if self.begins is not None and self.ends is not None and self.ends <= self.begins:
            raise ValueError("to must be after from")
        return self

    def is_open(self, now: datetime) -> bool:
        """Say whether the window is open. Its length is real time: a changed clock makes it no shorter."""
        if self.begins is not None and self.ends is not None:
            return self.begins <= now < self.ends
        if self.at is None or self.seconds is None:
            return False
        zone, length = ZoneInfo(self.timezone), timedelta(seconds=self.seconds)
        today = now.astimezone(zone).date()
        for back in range(_WEEK + 1):
            day = today - timedelta(days=back)
            begin = datetime.combine(day, self.at, zone).astimezone(now.tzinfo)
            if day.weekday() in self.days and begin <= now < begin + length:
                return True
        return False


class MaintenanceFile(BaseModel):
    """maintenance.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window: tuple[Maintenance, ...] = Field(default=(), max_length=200)


def match_maintenance(windows: Iterable[Maintenance], rule: Rule, event: Event, now: datetime) -> Hold | None:
    """Return the first open maintenance window that the event falls into."""
    for window in windows:
        if window.is_open(now) and concerns(window.match, rule, event):
            return Hold(HoldKind.MAINTENANCE, window.reason)
    return None


def concerns(matchers: Sequence[Matcher], rule: Rule, event: Event) -> bool:
    """Say whether all matchers hold of the event and of the rule that would start a run."""
    return all(
        matcher.test(rule.name if matcher.name == _RULE else matcher.read(event)) for matcher in matchers
    )
