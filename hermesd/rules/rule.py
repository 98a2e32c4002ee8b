"""Rule: which events matter and what they start, as `conf.d/rules/NAME.toml` says it.

Everything that can be settled when the file is read is settled here: matchers are compiled, durations
are seconds, titles are checked. This module must never judge an event.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainValidator,
    model_validator,
)

from hermesd.durations import parse_duration
from hermesd.events import Event, Severity
from hermesd.incidents import fingerprint
from hermesd.rules.matcher import Matcher, parse_matcher, reader
from hermesd.rules.titles import parse_template

MAX_MATCHERS: Final = 32
MAX_GROUP_BY: Final = 16

Duration = Annotated[float, BeforeValidator(parse_duration)]
Template = Annotated[str, BeforeValidator(parse_template), Field(min_length=1, max_length=500)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
LabelName = Annotated[str, Field(pattern=r"\A[A-Za-z_][A-Za-z0-9_.]{0,63}\z")]


class Comparison(StrEnum):
    """How a value is compared with a figure."""

    ABOVE = ">"
    AT_LEAST = ">="
    BELOW = "<"
    AT_MOST = "<="


_NEGATIONS: Final = {
    Comparison.ABOVE: Comparison.AT_MOST,
    Comparison.AT_LEAST: Comparison.BELOW,
    Comparison.BELOW: Comparison.AT_LEAST,
    Comparison.AT_MOST: Comparison.ABOVE,
}
_UPWARD: Final = frozenset({Comparison.ABOVE, Comparison.AT_LEAST})


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Threshold(_File):
    """`[threshold]` or `[clear]`: a comparison of the event's value with a figure."""

    op: Comparison
    value: Number

    def holds(self, value: float) -> bool:
        """Say whether ``value`` meets the comparison."""
        if self.op is Comparison.ABOVE:
            return value > self.value
        if self.op is Comparison.AT_LEAST:
            return value >= self.value
        if self.op is Comparison.BELOW:
            return value < self.value
        return value <= self.value

    def negation(self) -> Threshold:
        """Return the comparison that holds exactly where this one does not."""
        return Threshold(op=_NEGATIONS[self.op], value=self.value)

    def __str__(self) -> str:
        return f"{self.op} {self.value:g}"


class RunSpec(_File):
    """`[run]`: what is started. An empty ``runbook`` leaves the choice to the planner."""

    runbook: str = Field(default="", pattern=r"\A[A-Za-z0-9_.-]{0,64}\z")
    goal: Template


class Rule(_File):
    """One rule. ``for_seconds`` is how long its condition must hold; ``clear`` is what ends it.

    ``cooldown_seconds`` is the least time between the beginnings of two runs for one fingerprint.
    ``group_by`` must be written: it says what one problem is, and no default could know.
    """

    name: str = Field(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\z")
    description: str = Field(default="", max_length=1000)
    enabled: bool = Field(default=True, strict=True)
    match: tuple[Annotated[InstanceOf[Matcher], PlainValidator(parse_matcher)], ...] = Field(
        min_length=1, max_length=MAX_MATCHERS
    )
    title: Template = "{type} {subject}"
    group_by: tuple[LabelName, ...] = Field(max_length=MAX_GROUP_BY)
    severity: Severity | None = None
    for_seconds: Duration = Field(default=0.0, alias="for")
    cooldown_seconds: Duration = Field(default=900.0, alias="cooldown")
    threshold: Threshold | None = None
    clear: Threshold | None = None
    run: RunSpec | None = None

    @model_validator(mode="after")
    def _hysteresis_leaves_no_doubt(self) -> Self:
        if self.clear is None:
            return self
        if self.threshold is None:
            raise ValueError("clear without a threshold: there is no value to compare")
        upward = self.threshold.op in _UPWARD
        if upward == (self.clear.op in _UPWARD):
            raise ValueError(f"clear {self.clear} points the same way as threshold {self.threshold}")
        gap = self.threshold.value - self.clear.value if upward else self.clear.value - self.threshold.value
        touching = self.threshold.holds(self.threshold.value) and self.clear.holds(self.clear.value)
        if gap < 0 or (gap == 0 and touching):
            raise ValueError(f"a value can meet both threshold {self.threshold} and clear {self.clear}")
        return self

    @cached_property
    def ends(self) -> Threshold | None:
        """What resolves an incident by its value: ``clear``, or the threshold's negation."""
        if self.clear is None and self.threshold is not None:
            return self.threshold.negation()
        return self.clear

    @cached_property
    def group_readers(self) -> tuple[Callable[[Event], str], ...]:
        """How to read each label of ``group_by``."""
        return tuple(reader(name) for name in self.group_by)


def fingerprint_of(rule: Rule, event: Event) -> str:
    """Return the identity of the incident that the event belongs to under the rule."""
    return _fingerprint(rule.name, rule.group_by, tuple(read(event) for read in rule.group_readers))


@lru_cache(maxsize=8192)
def _fingerprint(rule: str, names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return fingerprint(rule, dict(zip(names, values, strict=True)), names)
