"""Schedule: what is looked at by the clock, as `conf.d/schedules/NAME.toml` says it.

All that can be settled when the file is read is settled here: the cron line is one that will be due some
day, the zone exists, durations are seconds. This module must never read a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hermesd.durations import parse_duration
from hermesd.sources.timetable import Next, timetable

Duration = Annotated[float, BeforeValidator(parse_duration)]

SHORTEST_S: Final = 10.0
_ANY_TIME: Final = datetime(2024, 1, 1, tzinfo=UTC)


class Missed(StrEnum):
    """What follows from slots that nobody was there for."""

    RUN_ONCE = "run_once"  # the newest of them runs, the others are only recorded
    SKIP = "skip"  # all of them are only recorded


class Overlap(StrEnum):
    """What follows when a slot comes and the run of the last one has not ended."""

    SKIP = "skip"  # no run for this slot
    QUEUE = "queue"  # it waits until the other has ended; one waits at most


class Schedule(BaseModel):
    """One schedule: ``cron`` or ``every``, and a ``runbook``, a ``task`` in a sentence, or both.

    ``jitter_s`` spreads hosts: each slot begins up to so much later, always the same for one slot.
    ``grace_seconds`` is how late a slot may be seen and still be in time; later it counts as missed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"\A[a-z0-9][a-z0-9_-]{0,47}\z")
    description: str = Field(default="", max_length=1000)
    enabled: bool = Field(default=True, strict=True)
    cron: str = Field(default="", max_length=200)
    every_seconds: Duration = Field(default=0.0, alias="every")
    timezone: str = Field(default="UTC", min_length=1, max_length=64)
    runbook: str = Field(default="", pattern=r"\A[A-Za-z0-9_.-]{0,64}\z")
    task: str = Field(default="", max_length=1000)
    jitter_s: float = Field(default=0.0, ge=0, le=86_400)
    missed: Missed = Missed.RUN_ONCE
    grace_seconds: Duration = Field(default=60.0, alias="grace")
    overlap: Overlap = Overlap.SKIP

    @model_validator(mode="after")
    def _can_be_due(self) -> Self:
        if bool(self.cron) == bool(self.every_seconds):
            raise ValueError('when it is due is missing: write either cron = "30 2 * * *" or every = "6h"')
        if self.every_seconds and self.every_seconds < SHORTEST_S:
            raise ValueError(f"every: at least {SHORTEST_S:g} s")
        if not self.runbook and not self.task.strip():
            raise ValueError("what is to be done is missing: write a runbook, or a task in a sentence")
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"timezone: {self.timezone!r} is not known; write for example Europe/Berlin"
            ) from None
        if self.next_slot(_ANY_TIME) is None:
            raise ValueError(f"cron: {self.cron!r} is never due")
        return self

    @cached_property
    def next_slot(self) -> Next:
        """The first slot after a moment."""
        return timetable(self.cron, self.every_seconds, self.timezone)

    @cached_property
    def table(self) -> str:
        """What its slots follow from, in one text."""
        return f"{self.cron or f'every {self.every_seconds:g} s'} {self.timezone}"

    @property
    def goal(self) -> str:
        """What its runs are to do, in words."""
        return self.task.strip() or self.description.strip() or f"{self.name}: {self.runbook}"
