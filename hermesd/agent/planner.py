"""What a planner is given, what it returns, and how it says that it cannot.

A planner holds nothing between two calls: everything that a run knows is in its Situation, so a run
that was interrupted anywhere goes on as if nothing had happened. This module must never hold the
state of a run, and never reach for anything that its caller did not hand in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from hermesd.protocol import Action, CatalogueView, CommandResult, Decision, Gain, Impact, ResultStatus

MAX_EXCERPT: Final = 4000
"""Characters of a command's output that an observation keeps; the whole is the executor's."""

CUT: Final = " …[cut]"


@dataclass(frozen=True, slots=True)
class Briefing:
    """What is known when a run begins. It does not change while the run lasts.

    ``event`` and ``incident`` are plain records, empty when a person asked. ``facts`` are named values
    (what a person's sentence named, such as a path, belongs here). ``past_runs`` are lines for reading.
    ``language`` is ``en`` or ``zh``.
    """

    task_id: str
    goal: str
    catalogue: CatalogueView
    language: str = "en"
    event: Mapping[str, Any] = field(default_factory=dict)
    incident: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    past_runs: tuple[str, ...] = ()
    runbook: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """One action and what came of it. ``output`` is an excerpt; ``reason`` says why it did not succeed."""

    round: int
    step: str
    command: str
    args: Mapping[str, Any]
    status: ResultStatus
    summary: str = ""
    rows: tuple[dict[str, Any], ...] = ()
    output: str = ""
    reason: str = ""
    impact: Impact | None = None
    gain: Gain | None = None
    digest: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether the command did what it was asked to."""
        return self.status is ResultStatus.SUCCEEDED

    def as_scope(self) -> dict[str, Any]:
        """Return what references to this step may speak of: `${step.rows.0.path}`, `${step.summary}`."""
        return {
            "status": self.status.value,
            "summary": self.summary,
            "reason": self.reason,
            "rows": self.rows,
            "output": self.output,
            "command": self.command,
            "args": self.args,
            "impact": self.impact.model_dump() if self.impact else None,
            "gain": self.gain.model_dump() if self.gain else None,
        }


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a run stands: the briefing, everything seen since, everything refused, and what is left.

    ``refusals`` are made by :func:`refusal`. ``rounds_left`` counts the rounds after this one, so at 0 a
    planner had better finish. ``malformed`` counts the answers of this run that could not be read.
    """

    briefing: Briefing
    round: int = 1
    observations: tuple[Observation, ...] = ()
    refusals: tuple[str, ...] = ()
    rounds_left: int = 9
    actions_left: int = 15
    malformed: int = 0


class PlannerKind(StrEnum):
    """How far a decision is to be doubted before it is acted on."""

    RUNBOOK = "runbook"  # written by an administrator, and checked against the catalogue
    MODEL = "model"  # made up a moment ago: where each value comes from is looked up


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer that could not be read, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What one answer of a model cost: tokens in and out, and money in the currency of its prices.

    ``estimated``: the server did not say, so the tokens were counted from the texts.
    """

    model: str
    prompt_tokens: int
    answer_tokens: int
    cost: float = 0.0
    estimated: bool = False


Hear = Callable[[Malformed | Spent], None]
"""Called by a planner with what happened on the way to its decision, for the record and the counters."""


def hear_nothing(_heard: Malformed | Spent) -> None:
    """Stand in for whoever keeps the record."""


class Unavailability(StrEnum):
    """Why a planner gives no decision; who comes next is the caller's to say."""

    LATE = "late"  # its clock ran out
    DOWN = "down"  # it cannot be reached, or says that it is out of order
    NONSENSE = "nonsense"  # it answers, and nothing in it can be used
    SPENT = "spent"  # its tokens or its money are used up in this run
    HAND_OVER = "hand_over"  # it knows that a person must take over from here


class PlannerUnavailable(Exception):  # noqa: N818 - an answer with a name, not somebody's error
    """No decision comes from this planner. ``text`` is for people and for the record."""

    def __init__(self, reason: Unavailability, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class Planner(Protocol):
    """Proposes what to do next from what is known."""

    @property
    def name(self) -> str:
        """What records call it."""
        ...

    @property
    def kind(self) -> PlannerKind:
        """How far its decisions are to be doubted."""
        ...

    async def decide(self, situation: Situation) -> Decision:
        """Return the next few actions, or a finish. Raise PlannerUnavailable."""
        ...


def observe(round_no: int, action: Action, result: CommandResult) -> Observation:
    """Return what a planner may know of an action and its result."""
    return Observation(
        round=round_no,
        step=action.step,
        command=action.command,
        args=action.args,
        status=result.status,
        summary=result.summary,
        rows=result.rows,
        output=cut(result.output, MAX_EXCERPT),
        reason=result.reason or "; ".join(f"{item.field}: {item.reason}" for item in result.rejected),
        impact=result.impact,
        gain=result.gain,
        digest=result.digest,
    )


def refusal(step: str, reason: str) -> str:
    """Return the line that tells planners why a step was refused; ``step`` is empty for a whole decision."""
    return f"{step}: {reason}" if step else reason


def refused_because(step: str, refusals: tuple[str, ...]) -> str:
    """Return why that step was refused, empty when it was not."""
    return next((line.removeprefix(f"{step}: ") for line in refusals if line.startswith(f"{step}: ")), "")


def cut(text: str, limit: int) -> str:
    """Return at most ``limit`` characters of the text, the last of them a mark when something is missing."""
    return text if len(text) <= limit else text[: max(0, limit - len(CUT))] + CUT


def visible(text: str) -> str:
    """Return the text on one line, every character that does not print made visible or harmless."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    if char == "\n":
        return "\\n"
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
