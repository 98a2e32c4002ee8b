"""The model planner: asks a model for the next decision, reads its answer strictly, and gives up in time.

A model that is late, down or talks nonsense is an ordinary thing: it ends as PlannerUnavailable, and
somebody else plans. A malformed answer goes back with its reason, a bounded number of times in a run.
This module must never act on anything that a model says: it returns a Decision, which others judge.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from hermesd.agent.parsing import parse_decision
from hermesd.agent.planner import (
    Hear,
    Malformed,
    PlannerKind,
    PlannerUnavailable,
    Situation,
    Unavailability,
    hear_nothing,
)
from hermesd.agent.prompts import Message, answer_back, write_messages
from hermesd.agent.references import named_in, rename_references
from hermesd.protocol import Action, Decision

log = logging.getLogger("hermesd.model")

PLAN_SECONDS: Final = 44.0
"""A second less than the stage's 45, so that the model's lateness is named before the stage's clock is."""

MALFORMED_ANSWERS: Final = 5


class ChatModel(Protocol):
    """Anything that continues a chat."""

    async def complete(self, messages: Sequence[Message]) -> str:
        """Return the model's answer as it stands. Raise PlannerUnavailable."""
        ...


class ModelPlanner:
    """A Planner that asks a ChatModel; make one for each run.

    ``malformed_answers`` bounds the unreadable answers of the run, ``budget_seconds`` one decision with
    all its answers. The count kept here only bounds: what a run stored of it (Situation.malformed) counts
    where it is higher, so a run that goes on after a crash does not begin anew.
    """

    def __init__(
        self,
        chat: ChatModel,
        malformed_answers: int = MALFORMED_ANSWERS,
        *,
        name: str = "model",
        budget_seconds: float = PLAN_SECONDS,
        hear: Hear = hear_nothing,
    ) -> None:
        self._chat = chat
        self._name = name
        self._budget_seconds = budget_seconds
        self._malformed_answers = malformed_answers
        self._malformed = 0
        self._hear = hear

    @property
    def name(self) -> str:
        """What records call it."""
        return self._name

    @property
    def kind(self) -> PlannerKind:
        """A model: what it proposes is doubted."""
        return PlannerKind.MODEL

    async def decide(self, situation: Situation) -> Decision:
        """Return the model's decision. Raise PlannerUnavailable: late, down or nonsense."""
        try:
            async with asyncio.timeout(self._budget_seconds) as clock:
                return await self._ask(situation)
        except TimeoutError as error:
            if not clock.expired():
                raise
            text = f"the model did not answer within {self._budget_seconds:g} s"
            raise PlannerUnavailable(Unavailability.LATE, text) from error

    async def _ask(self, situation: Situation) -> Decision:
        asked = write_messages(situation)
        messages, reason = asked, "no more malformed answers are allowed in this run"
        self._malformed = max(self._malformed, situation.malformed)
        while self._malformed < self._malformed_answers:
            answer = await self._chat.complete(messages)
            read = parse_decision(answer)
            if isinstance(read, Decision):
                return _signed(read, situation.round)
            reason = read.reason
            self._malformed += 1
            log.info("%s: an answer that cannot be read: %s", situation.briefing.task_id, reason)
            self._hear(Malformed(reason))
            messages = [*asked, *answer_back(answer, reason)]
        raise PlannerUnavailable(
            Unavailability.NONSENSE, f"the model's answers could not be read; the last one: {reason}"
        )


def _signed(decision: Decision, round_no: int) -> Decision:
    """Return the decision with its steps named after their round: no two of a run are called alike."""
    names = {action.step: f"m{round_no}_{action.step}"[:96] for action in decision.actions}
    if len(set(names.values())) != len(names):
        names = {step: f"m{round_no}_{number}" for number, step in enumerate(names, 1)}
    return decision.model_copy(
        update={"actions": tuple(_renamed(action, names) for action in decision.actions)}
    )


def _renamed(action: Action, names: dict[str, str]) -> Action:
    used = [names[step] for step in named_in(action.args) if step in names]
    needs = tuple(dict.fromkeys([*(names.get(step, step) for step in action.needs), *used]))
    changes = {
        "step": names[action.step],
        "needs": needs,
        "args": rename_references(action.args, names),
        "sources": {name: names.get(source, source) for name, source in action.sources.items()},
    }
    return action.model_copy(update=changes)
