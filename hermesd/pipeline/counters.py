"""Why a run stops by itself: every counter that bounds it, and its limit, in one place.

The run's working time is the one bound that is not counted here: it is a clock (`workclock`), which
can run out in the middle of a stage. Pure; this module must never end a run, it says that one is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hermesd.agent.planner import Malformed, Spent
from hermesd.config import Limits
from hermesd.pipeline.words import Words

_NO_NEWS: Final = 2


@dataclass(frozen=True, slots=True)
class Counters:
    """What a run has used up. ``tokens`` are those of prompts and answers together.

    ``refused_in_a_row`` are plans that validation stopped, ``repeats`` those of them that wanted again
    what was done, ``same_thoughts`` how often the newest thought was thought in a row.
    """

    round: int = 1
    actions: int = 0
    malformed: int = 0
    refused_in_a_row: int = 0
    repeats: int = 0
    same_thoughts: int = 0
    tokens: int = 0
    cost: float = 0.0

    def heard(self, what: Malformed | Spent) -> Counters:
        """Return the counters after an answer of a model."""
        if isinstance(what, Malformed):
            return replace(self, malformed=self.malformed + 1)
        spent = what.prompt_tokens + what.answer_tokens
        return replace(self, tokens=self.tokens + spent, cost=self.cost + what.cost)


def over(counters: Counters, limits: Limits, words: Words, reason: str = "") -> str:
    """Return in words which bound has been reached, empty when none. ``reason`` is the last refusal's."""
    if counters.repeats >= limits.repeated_actions:
        return words.repeats.format(reason=reason)
    if counters.refused_in_a_row >= limits.refused_plans:
        return words.refused.format(count=counters.refused_in_a_row, reason=reason)
    if counters.same_thoughts >= limits.repeated_thoughts:
        return words.same_thought.format(count=counters.same_thoughts)
    if counters.round > limits.max_rounds:
        return words.rounds_over.format(count=limits.max_rounds)
    return ""


def model_over(counters: Counters, limits: Limits, words: Words) -> str:
    """Return why no model may be asked any more in this run; a runbook costs nothing and may go on."""
    if limits.max_tokens and counters.tokens >= limits.max_tokens:
        return words.tokens_over.format(count=limits.max_tokens)
    if limits.max_cost and counters.cost >= limits.max_cost:
        return words.cost_over.format(cost=limits.max_cost)
    return ""


def thoughts_in_a_row(thoughts: Sequence[str]) -> int:
    """Return how often the newest thought was thought without another in between; an empty one is none."""
    newest = _plain(thoughts[-1]) if thoughts else ""
    if not newest:
        return 0
    count = 0
    for thought in reversed(thoughts):
        if _plain(thought) != newest:
            break
        count += 1
    return count


def stands_still(counters: Counters) -> bool:
    """Say whether a planner must be told that its thought has not moved."""
    return counters.same_thoughts >= _NO_NEWS


def _plain(thought: str) -> str:
    return " ".join(thought.lower().split())
