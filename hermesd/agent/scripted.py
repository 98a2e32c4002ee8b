"""A model that says what it was told to: the real planner runs over it, without a network and without luck.

It ships with the program so that tests and demonstrations drive the same loop as a real model does.
This module must never be wired in where a model was configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hermesd.agent.planner import PlannerUnavailable, Unavailability
from hermesd.agent.prompts import Message
from hermesd.protocol import Decision

Answer = str | Decision | Exception


class ScriptedModel:
    """A ChatModel over a list of answers; an exception among them is raised. ``asked`` keeps every prompt."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._answers = list(answers)
        self.asked: list[list[Message]] = []

    async def complete(self, messages: Sequence[Message]) -> str:
        """Return the next answer. Raise what the script says, PlannerUnavailable(down) after its end."""
        self.asked.append(list(messages))
        if len(self.asked) > len(self._answers):
            raise PlannerUnavailable(Unavailability.DOWN, "the script has no further answer")
        answer = self._answers[len(self.asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer.model_dump_json() if isinstance(answer, Decision) else answer
