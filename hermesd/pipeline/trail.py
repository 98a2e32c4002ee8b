"""What a run has behind it, read back from its stored decisions and steps.

This is how a run goes on after a crash: planners get the same situation as if nothing had happened,
and what was under way is named, to be asked after under the same request ids. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hermesd.agent.planner import Observation, observe
from hermesd.pipeline.stages.check import is_repeat
from hermesd.protocol import Action, CommandRequest, Finish, RunKind
from hermesd.state.steps import Step, StepStatus, StoredDecision


@dataclass(slots=True)
class Trail:
    """The way so far. ``steps`` holds each place's newest attempt, in order of round and place.

    ``sent_before`` are the request ids that an earlier life of the process may have sent.
    """

    round: int = 1
    planner: str = ""
    finish: Finish | None = None
    steps: list[Step] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    refused_in_a_row: int = 0
    repeats: int = 0
    thoughts: list[str] = field(default_factory=list)
    unfinished: list[Step] = field(default_factory=list)
    sent_before: frozenset[str] = frozenset()

    @property
    def ended(self) -> list[Step]:
        """The steps that have their result."""
        return [step for step in self.steps if step.result is not None]

    @property
    def observations(self) -> tuple[Observation, ...]:
        """What planners may know of what was done."""
        return tuple(
            observe(step.round, step.action, step.result) for step in self.steps if step.result is not None
        )

    def refuse(self, reasons: Sequence[str]) -> None:
        """Count a decision that was not acted on."""
        self.refusals.extend(reasons)
        self.refused_in_a_row += 1
        self.repeats += any(is_repeat(reason) for reason in reasons)

    def accept(self, steps: Sequence[Step], finish: Finish | None) -> None:
        """Take in a decision that is acted on."""
        self.refused_in_a_row = 0
        self.finish = finish
        self.unfinished = list(steps)

    def take_in(self, steps: Sequence[Step]) -> None:
        """Take in a round's steps as they ended."""
        self.steps.extend(steps)
        self.unfinished = []


def read_trail(decisions: Sequence[StoredDecision], steps: Sequence[Step]) -> Trail:
    """Return where the run stands by what was stored of it."""
    sent = frozenset(step.request_id for step in steps if step.status is StepStatus.SENT)
    trail = Trail(sent_before=sent)
    newest = {(step.round, step.index): step for step in steps}  # attempts come in order
    for stored in decisions:
        trail.round, trail.planner = stored.round, stored.planner
        if stored.refused:
            trail.refuse(stored.refused.split("\n"))
            continue
        trail.thoughts.append(stored.decision.thought)
        mine = [step for (round_no, _index), step in newest.items() if round_no == stored.round]
        trail.accept(mine, stored.decision.finish)
        if all(step.status is StepStatus.ENDED for step in mine):
            trail.take_in(mine)
            trail.round += stored.decision.finish is None
    return trail


def plan_steps(task_id: str, round_no: int, actions: Sequence[Action]) -> list[Step]:
    """Return a round's steps, each under its own request id, none of them sent."""
    return [
        Step(task_id, round_no, index, 1, request_id(task_id, round_no, index, 1), action)
        for index, action in enumerate(actions)
    ]


def request_id(task_id: str, round_no: int, index: int, attempt: int) -> str:
    """Return the id under which one attempt is known for ever."""
    return f"{task_id}.{round_no}.{index}.{attempt}"


def request_of(step: Step, kind: RunKind, asked_by: int | None) -> CommandRequest:
    """Return the request of a step, the same one each time: the executor compares."""
    return CommandRequest(
        request_id=step.request_id,
        task_id=step.task_id,
        intent=step.action.intent,
        command=step.action.command,
        args=step.action.args,
        extra_confirmations=int(step.action.confirm),
        origin=kind,
        asked_by=asked_by,
    )
