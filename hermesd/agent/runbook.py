"""The runbook planner: the deterministic mind, which works when no model does.

It follows a runbook's steps in order, takes together what may run together, and ends with the report
that the file describes. This module must never remember anything between two decisions.
"""

from __future__ import annotations

from dataclasses import replace

from hermesd.agent.planner import PlannerKind, PlannerUnavailable, Situation, Unavailability
from hermesd.agent.position import locate
from hermesd.agent.report import finish, hand_over_text, stopped
from hermesd.agent.runbook_file import Runbook, check_runbook
from hermesd.protocol import Decision

__all__ = ["Runbook", "RunbookPlanner", "check_runbook", "follow"]


class RunbookPlanner:
    """A Planner over one runbook."""

    def __init__(self, runbook: Runbook) -> None:
        self.runbook = runbook

    @property
    def name(self) -> str:
        """What records call it."""
        return f"runbook {self.runbook.name}".strip()

    @property
    def kind(self) -> PlannerKind:
        """A runbook."""
        return PlannerKind.RUNBOOK

    async def decide(self, situation: Situation) -> Decision:
        """Return the next steps or the finish. Raise PlannerUnavailable where the file hands over."""
        return follow(self.runbook, situation)


def follow(runbook: Runbook, situation: Situation) -> Decision:
    """Return the decision that the runbook gives for the situation. Raise PlannerUnavailable(hand_over)."""
    position = locate(runbook, situation)
    if position.hands_over is not None:
        raise PlannerUnavailable(Unavailability.HAND_OVER, hand_over_text(position))
    if position.next and situation.rounds_left > 0 and situation.actions_left > 0:
        steps = ", ".join(action.step for action in position.next)
        return Decision(thought=f"{runbook.name}: next {steps}", actions=tuple(position.next))
    if position.next:
        position = replace(position, notes=[*position.notes, stopped(position)])
    return Decision(thought=f"{runbook.name}: nothing left to do", finish=finish(runbook, position))
