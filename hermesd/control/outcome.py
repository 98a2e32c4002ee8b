"""How a request ends: early, with a reason, or with what its container's end means. Pure.

A flight stops at the first thing that does not hold by raising `Stopped`; what a container did is
turned into a status and words here. This module must never call a success what was not seen.
"""

from __future__ import annotations

from typing import Final

from hermesd.clocks import StageTimeout
from hermesd.control.binding import Bound
from hermesd.control.output import first_line
from hermesd.control.sandbox.base import Ended
from hermesd.protocol import CommandRequest, CommandResult, Effect, Impact, Rejection, ResultStatus, Stage

WORLD_DIFFERS: Final = 3
"""Exit status of a removal whose world is not the manifest's; it stopped before its first effect."""


class Stopped(Exception):  # noqa: N818 - an ordinary end on the way, carried to the one place that records it
    """The request ends here, with this result's status and reason."""

    def __init__(
        self,
        status: ResultStatus,
        reason: str,
        rejected: tuple[Rejection, ...] = (),
        impact: Impact | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.rejected = rejected
        self.impact = impact


def refusal(
    request: CommandRequest, status: ResultStatus, reason: str, rejected: tuple[Rejection, ...] = ()
) -> CommandResult:
    """Return the result of a request that ended before its command ran."""
    return CommandResult(
        request_id=request.request_id,
        task_id=request.task_id,
        command=request.command,
        status=status,
        reason=reason,
        rejected=rejected,
    )


def in_doubt(request: CommandRequest) -> CommandResult:
    """Return the result of a request whose effect a crash left in doubt."""
    return CommandResult(
        request_id=request.request_id,
        task_id=request.task_id,
        command=request.command,
        status=ResultStatus.UNKNOWN,
        reason="the executor ended while this was running: whether it took effect is not known",
    )


def verdict_of(bound: Bound, ended: Ended) -> tuple[ResultStatus, str]:
    """Return the status of a job that ran, and why in words."""
    if ended.timed_out:
        limit = min(bound.job.timeout_ms, bound.command.timeout_ms)
        doubt = bound.command.spec.effect is not Effect.READ
        words = f"{StageTimeout(Stage.EXECUTE, limit)}"
        return ResultStatus.TIMED_OUT, f"{words}; part of it may have happened" if doubt else words
    if ended.exit_status in bound.command.spec.output.ok_exits:
        return ResultStatus.SUCCEEDED, ""
    if ended.exit_status == WORLD_DIFFERS and bound.command.compares:
        text = first_line(ended.stderr) or "the files are not what was shown"
        word = "done" if bound.command.code else "removed"
        return ResultStatus.PLAN_CHANGED, f"nothing was {word}: {text}"
    if ended.truncated and bound.command.spec.effect is Effect.READ:
        return ResultStatus.SUCCEEDED, "its output was cut"
    words = first_line(ended.stderr) or first_line(ended.stdout)
    return ResultStatus.FAILED, f"exit status {ended.exit_status}: {words}".rstrip(": ")
