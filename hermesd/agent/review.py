"""Review: whether a planner's finish is a success, or only an end.

An exit status of 0 is not success, and neither is a planner's word. A run over a condition succeeds when
the condition, measured again by its source, no longer holds; an answer to a person succeeds when it rests
on something that was seen. Pure: what is measured again is handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hermesd.agent.planner import Observation
from hermesd.agent.references import human_bytes
from hermesd.protocol import Finish, ResultStatus


@dataclass(frozen=True, slots=True)
class Review:
    """Whether the goal is met, and why one may say so or not."""

    satisfied: bool
    reason: str


def review_finish(
    goal: str, observations: Sequence[Observation], finish: Finish, *, condition_holds: bool | None
) -> Review:
    """Return the review of a finish.

    ``condition_holds`` is True or False where the run has a condition that was measured again, None where
    there is none (a person asked) or nobody could measure it.
    """
    doubtful = [seen for seen in observations if seen.status is ResultStatus.UNKNOWN]
    if doubtful:
        return Review(
            satisfied=False,
            reason=f"it is not known whether {doubtful[-1].step} happened; a person must look",
        )
    if condition_holds is not None:
        return _by_condition(observations, holds=condition_holds)
    return _by_evidence(goal, observations, finish)


def _by_condition(observations: Sequence[Observation], *, holds: bool) -> Review:
    freed = sum(seen.gain.freed_bytes for seen in observations if seen.gain is not None)
    repaired = any(seen.gain is not None for seen in observations)
    effect = f" after {human_bytes(freed)} were freed" if repaired else ""
    if holds:
        return Review(satisfied=False, reason=f"the condition still holds{effect}")
    return Review(satisfied=True, reason=f"the condition no longer holds{effect}")


def _by_evidence(goal: str, observations: Sequence[Observation], finish: Finish) -> Review:
    seen = sum(1 for observation in observations if observation.succeeded)
    if seen == 0:
        return Review(satisfied=False, reason="nothing was seen that the answer could rest on")
    if not finish.report.strip():
        return Review(satisfied=False, reason="the report says nothing")
    return Review(satisfied=True, reason=f"answered from {seen} observations: {goal}"[:500])
