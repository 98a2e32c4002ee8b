"""The runbook file: `conf.d/runbooks/NAME.toml` as a frozen, strict value.

A file that can be read is complete in itself: its references point to something that can be known by
then, its steps have names of their own. What only the catalogue knows is left to `check_runbook`.
This module must never judge a situation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from hermesd.agent.arguments import unfit_arguments
from hermesd.agent.conditions import Condition
from hermesd.agent.references import Reference, parse_template, references_in
from hermesd.protocol import ArgumentName, CatalogueView, CommandName

MAX_STEPS: Final = 32
RESERVED: Final = frozenset({"event", "incident", "facts", "inputs", "catalogue", "row"})
_INPUT_SOURCES: Final = frozenset({"event", "incident", "facts", "catalogue"})

StepId = Annotated[str, Field(pattern=r"\A[a-z][a-z0-9_]{0,31}\z")]


def _well_formed(text: str) -> str:
    parse_template(text)
    return text


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _as_words(value: Any) -> Any:
    return {"en": value} if isinstance(value, str) else value


Template = Annotated[str, Field(max_length=2000)]
Keyword = Annotated[str, Field(min_length=1, max_length=40)]
Listed = BeforeValidator(_as_tuple)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Words(_File):
    """A text for people in English and, where it is given, in Chinese."""

    en: Template
    zh: Template = ""

    @field_validator("en", "zh")
    @classmethod
    def _references(cls, text: str) -> str:
        return _well_formed(text)

    def of(self, language: str) -> str:
        """Return the text in that language, in English where it has no other."""
        return self.zh if language == "zh" and self.zh else self.en


class Line(Words):
    """A line of a report; with ``each`` one for every row (`${row.field}`), at most ``limit`` of them."""

    when: Annotated[tuple[Condition, ...], Listed] = ()
    each: str = ""
    limit: int = Field(default=5, ge=1, le=50)

    @field_validator("each")
    @classmethod
    def _one_reference(cls, text: str) -> str:
        parts = parse_template(text)
        if text and (len(parts) != 1 or not isinstance(parts[0], Reference)):
            raise ValueError("`each` is exactly one reference to rows, such as ${largest.rows}")
        return text


class Report(_File):
    """`[report]`: the first cause whose conditions hold, and every line whose conditions hold."""

    cause: Annotated[tuple[Line, ...], Listed] = ()
    text: Annotated[tuple[Line, ...], Listed] = ()


class Step(_File):
    """One step: a command with its arguments and intent, or a text that goes into the report."""

    id: StepId
    command: CommandName | None = None
    args: dict[ArgumentName, JsonValue] = Field(default_factory=dict, max_length=32)
    intent: Annotated[Words | None, BeforeValidator(_as_words)] = None
    text: Annotated[Words | None, BeforeValidator(_as_words)] = None
    when: Annotated[tuple[Condition, ...], Listed] = ()
    needs: Annotated[tuple[StepId, ...], Listed] = ()
    on_failure: Literal["continue", "finish", "hand_over"] = "continue"
    confirm: bool = False

    @field_validator("args")
    @classmethod
    def _references(cls, args: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for reference in references_in(args):
            if reference.form:
                raise ValueError(f"{reference}: a form is for texts, an argument takes the value as it is")
        return args

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.command is None) == (self.text is None):
            raise ValueError(f"step {self.id!r} has either a command or a text")
        if self.command is not None and self.intent is None:
            raise ValueError(f"step {self.id!r} needs an intent: why is the command run?")
        if self.text is not None and (self.args or self.intent or self.confirm):
            raise ValueError(f"step {self.id!r} is a text: it has no args, intent or confirm")
        return self


class Runbook(_File):
    """`conf.d/runbooks/NAME.toml`.

    ``inputs`` are named values, each a list of candidates of which the first that can be looked up counts.
    ``keywords`` are words of a person's sentence for which this runbook is meant; where the sentence has
    keywords of several runbooks, the one of the highest ``priority`` is meant. Without ``model`` it is
    followed as it is written: no model plans in its place.
    """

    name: Annotated[str, Field(pattern=r"\A(?:[a-z0-9][a-z0-9_-]{0,63})?\z")] = ""
    description: str = Field(default="", max_length=500)
    keywords: Annotated[tuple[Keyword, ...], Listed] = Field(default=(), max_length=64)
    priority: int = Field(default=0, ge=-9, le=9)
    model: bool = True
    inputs: dict[StepId, Annotated[tuple[JsonValue, ...], Listed]] = Field(default_factory=dict)
    steps: Annotated[tuple[Step, ...], Listed] = Field(min_length=1, max_length=MAX_STEPS)
    report: Report = Report()

    @field_validator("inputs")
    @classmethod
    def _inputs_come_from_outside(cls, inputs: dict[str, Any]) -> dict[str, Any]:
        for reference in references_in(inputs):
            if reference.path[0] not in _INPUT_SOURCES:
                raise ValueError(f"{reference}: an input comes from {', '.join(sorted(_INPUT_SOURCES))}")
        return inputs

    @model_validator(mode="after")
    def _steps_know_what_they_refer_to(self) -> Self:
        known: set[str] = set()
        for step in self.steps:
            if step.id in RESERVED or step.id in known:
                raise ValueError(
                    f"step {step.id!r}: the name is {'reserved' if step.id in RESERVED else 'taken'}"
                )
            for name in step.needs:
                if name not in known:
                    raise ValueError(f"step {step.id!r} needs {name!r}, which is no earlier step")
            self._check(f"step {step.id!r}", refers(step), known)
            known.add(step.id)
        for line in (*self.report.cause, *self.report.text):
            self._check("report", references_of(line), known | {"row"} if line.each else known)
        return self

    def _check(self, where: str, references: Iterator[Reference], known: set[str]) -> None:
        for reference in references:
            root = reference.path[0]
            if root not in known and root not in RESERVED - {"row"}:
                raise ValueError(
                    f"{where}: {reference} refers to no earlier step, nor to anything else known"
                )
            if root == "inputs" and reference.path[1:2] and reference.path[1] not in self.inputs:
                raise ValueError(f"{where}: {reference}: there is no input {reference.path[1]!r}")


def refers(step: Step) -> Iterator[Reference]:
    """Yield every reference of a step: in its arguments, its conditions and its texts."""
    yield from references_in(step.args)
    for words in (step.intent, step.text):
        if words is not None:
            yield from references_in([words.en, words.zh])
    yield from _in_conditions(step.when)


def references_of(line: Line) -> Iterator[Reference]:
    """Yield every reference of a report's line."""
    yield from references_in([line.en, line.zh, line.each])
    yield from _in_conditions(line.when)


def _in_conditions(conditions: Sequence[Condition]) -> Iterator[Reference]:
    for condition in conditions:
        yield from references_in([condition.value, condition.than])


def check_runbook(runbook: Runbook, view: CatalogueView) -> list[str]:
    """Return what in the runbook does not fit the catalogue, in words; empty when all of it does."""
    commands = {info.name: info for info in view.commands}
    faults: list[str] = []
    for step in runbook.steps:
        if step.command is None:
            continue
        info = commands.get(step.command)
        found = (
            unfit_arguments(step.command, step.args, info.args_schema)
            if info
            else [f"there is no command {step.command}"]
        )
        faults += [f"step {step.id!r}: {fault}" for fault in found]
    return faults
