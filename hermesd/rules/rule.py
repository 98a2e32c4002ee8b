"""Rule: which events matter and what they start, as `conf.d/rules/NAME.toml` says it.

Everything that can be settled when the file is read is settled here: matchers are compiled, durations
are seconds, titles are checked. This module must never judge an event.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property
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
from hermesd.rules.expression import Expression, parse_expression
from hermesd.rules.matcher import Matcher, parse_matcher, reader
from hermesd.rules.titles import parse_template

MAX_MATCHERS: Final = 32
MAX_GROUP_BY: Final = 16
MAX_COUNT: Final = 1000
MAX_REMEMBERED: Final = 8192

Duration = Annotated[float, BeforeValidator(parse_duration)]
Template = Annotated[str, BeforeValidator(parse_template), Field(min_length=1, max_length=500)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Span = Annotated[Duration, Field(gt=0)]
LabelName = Annotated[str, Field(pattern=r"\A[A-Za-z_][A-Za-z0-9_.]{0,63}\z")]
RuleName = Annotated[str, Field(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\z")]


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
_COMPARE: Final[dict[Comparison, Callable[[float, float], bool]]] = {
    Comparison.ABOVE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.BELOW: operator.lt,
    Comparison.AT_MOST: operator.le,
}
_UPWARD: Final = frozenset({Comparison.ABOVE, Comparison.AT_LEAST})


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Threshold(_File):
    """`[threshold]` or `[clear]`: a comparison of the event's value with a figure."""

    op: Comparison
    value: Number

    @cached_property
    def holds(self) -> Callable[[float], bool]:
        """Says whether a value meets the comparison."""
        compare, figure = _COMPARE[self.op], self.value
        return lambda value: compare(value, figure)

    def negation(self) -> Threshold:
        """Return the comparison that holds exactly where this one does not."""
        return Threshold(op=_NEGATIONS[self.op], value=self.value)

    @cached_property
    def words(self) -> str:
        """The comparison as people write it."""
        return f"{self.op} {self.value:g}"

    def __str__(self) -> str:
        return self.words


class Mode(StrEnum):
    """What a new run of a rule does while another run of the same rule has not ended."""

    PARALLEL = "parallel"  # both work; with a limit, no more than so many
    SINGLE = "single"  # it does not start
    QUEUED = "queued"  # it waits until the other has ended
    RESTART = "restart"  # the other is withdrawn, and it starts then


class RunSpec(_File):
    """`[run]`: what is started. An empty ``runbook`` leaves the choice to the planner.

    ``limit`` bounds the runs of the rule that have not ended: `parallel` at work, `queued` in the queue.
    """

    runbook: str = Field(default="", pattern=r"\A[A-Za-z0-9_.-]{0,64}\z")
    goal: Template
    mode: Mode = Mode.PARALLEL
    limit: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = None

    @property
    def one_at_a_time(self) -> bool:
        """Whether a run of the rule begins only when the others have ended."""
        return self.mode in {Mode.QUEUED, Mode.RESTART}

    @model_validator(mode="after")
    def _limit_has_a_meaning(self) -> Self:
        if self.limit is not None and self.mode in {Mode.SINGLE, Mode.RESTART}:
            raise ValueError(f"limit means nothing with mode {self.mode.value}: there is one run at most")
        return self


class Inhibition(_File):
    """`[[inhibit]]`: no run starts while an incident of rule ``by`` is open that agrees in ``equal``."""

    by: RuleName
    equal: tuple[LabelName, ...] = Field(default=(), max_length=MAX_GROUP_BY)


class Flapping(_File):
    """`[flap]`: ``high`` openings within ``window`` stop runs until no more than ``low`` are within it."""

    window: Span
    high: int = Field(strict=True, ge=2, le=50)
    low: int = Field(default=1, strict=True, ge=0)

    @model_validator(mode="after")
    def _the_two_differ(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low}) must be below high ({self.high})")
        return self


class Budget(_File):
    """`[budget]`: runs within ``window``, by rule, by target (one ``group_by``) and by host (all rules)."""

    window: Span = 3600.0
    per_rule: int = Field(default=100, strict=True, ge=0)
    per_target: int = Field(default=10, strict=True, ge=0)
    per_host: int = Field(default=30, strict=True, ge=0)


class Rule(_File):
    """One rule. ``for_seconds`` is how long its condition must hold; ``clear`` is what ends it.

    ``cooldown_seconds`` is the least time between the beginnings of two runs for one fingerprint.
    ``group_by`` must be written: it says what one problem is, and no default could know.
    """

    name: RuleName
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
    when: Annotated[InstanceOf[Expression], PlainValidator(parse_expression)] | None = None
    count: Annotated[int, Field(strict=True, ge=2, le=MAX_COUNT)] | None = None
    window_seconds: Span | None = Field(default=None, alias="window")
    absent_seconds: Span | None = Field(default=None, alias="absent")
    inhibit: tuple[Inhibition, ...] = Field(default=(), max_length=MAX_MATCHERS)
    flap: Flapping | None = None
    budget: Budget = Budget()
    priority: int = Field(default=0, strict=True, ge=-100, le=100)
    run: RunSpec | None = None

    @model_validator(mode="after")
    def _nothing_inhibits_itself(self) -> Self:
        if any(entry.by == self.name for entry in self.inhibit):
            raise ValueError("inhibit: a rule cannot inhibit itself")
        return self

    @model_validator(mode="after")
    def _timers_make_sense_together(self) -> Self:
        if (self.count is None) != (self.window_seconds is None):
            raise ValueError("count and window belong together: so many events within that time")
        if self.absent_seconds is not None and (self.threshold or self.count or self.for_seconds):
            raise ValueError("absent stands alone: it needs no threshold, count or for")
        if self.count is not None and self.for_seconds:
            raise ValueError("count has a window already; for beside it would mean two things")
        return self

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

    @cached_property
    def known_fingerprints(self) -> dict[tuple[str, ...], str]:
        """Fingerprints by the values of ``group_by``, worked out before; never more than are worth it."""
        return {}


def fingerprint_of(rule: Rule, event: Event) -> str:
    """Return the identity of the incident that the event belongs to under the rule."""
    values = tuple([read(event) for read in rule.group_readers])
    memo = rule.known_fingerprints
    known = memo.get(values)
    if known is None:
        if len(memo) >= MAX_REMEMBERED:
            memo.clear()
        known = memo[values] = fingerprint(
            rule.name, dict(zip(rule.group_by, values, strict=True)), rule.group_by
        )
    return known
