"""How a run ends: an outcome, and the reason in words for people.

This module must never decide that a run ends; it decides, purely, what an end that was reached
is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hermesd.agent.planner import Observation
from hermesd.incidents import Outcome, RunKind
from hermesd.pipeline.words import Words
from hermesd.protocol import ResultStatus


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of a run. ``reason`` is empty where the outcome says it all."""

    outcome: Outcome
    reason: str = ""


class RunEnds(Exception):  # noqa: N818 - an ordinary end on the way, carried to the one place that records it
    """The run ends here, before its planner said that nothing more is to be done."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.ending = Ending(outcome, reason)


_OUTCOMES: Final = {
    ResultStatus.DENIED: Outcome.DENIED,
    ResultStatus.EXPIRED: Outcome.EXPIRED,
    ResultStatus.PLAN_CHANGED: Outcome.PLAN_CHANGED,
    ResultStatus.UNDELIVERABLE: Outcome.HANDED_OVER,
    ResultStatus.TICKETED: Outcome.HANDED_OVER,
    ResultStatus.TAKEN_OVER: Outcome.HANDED_OVER,
    ResultStatus.CANCELLED: Outcome.CANCELLED,
    ResultStatus.TIMED_OUT: Outcome.TIMED_OUT,
    ResultStatus.UNKNOWN: Outcome.UNKNOWN,
}
"""What the last change that was asked for makes of the run, when it did not come to be."""

_BLIND: Final = {
    ResultStatus.UNAVAILABLE: Outcome.FAILED,
    ResultStatus.TIMED_OUT: Outcome.TIMED_OUT,
}
"""What a run ends as when it could look at nothing at all."""


def conclude(
    kind: RunKind,
    observations: Sequence[Observation],
    changes: Sequence[Observation],
    words: Words,
    *,
    cleared: bool,
) -> Ending:
    """Return how a run ends whose planner has finished.

    ``changes`` are the observations of commands that change something. ``cleared``: the incident was
    seen to end. Success is that, or that what a person or a schedule asked was answered; never an
    exit status alone.
    """
    last = changes[-1] if changes else None
    if last is not None and last.status in _OUTCOMES:
        reason = words.ticketed.format(reason=last.reason) if last.status in _TICKETS else last.reason
        return Ending(_OUTCOMES[last.status], reason)
    if cleared:
        return Ending(Outcome.RESOLVED)
    if observations and not any(seen.succeeded for seen in observations):
        blind = observations[-1]
        if blind.status in _BLIND:
            return Ending(_BLIND[blind.status], words.nothing_seen.format(reason=blind.reason))
    if kind is not RunKind.EVENT:
        return Ending(Outcome.ANSWERED)
    changed = last is not None and last.succeeded
    return Ending(Outcome.REPORTED, words.not_cleared if changed else "")


_TICKETS: Final = frozenset({ResultStatus.TICKETED, ResultStatus.UNDELIVERABLE, ResultStatus.TAKEN_OVER})
