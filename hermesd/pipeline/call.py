"""A request on its way to the executor: how far it came, and what it ends as when nobody answers any more.

Pure but for the clock of its stage. This module must never call something undone that may have been
done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from hermesd.clocks import SECOND
from hermesd.ipc.messages import Code
from hermesd.protocol import (
    CommandRequest,
    CommandResult,
    Envelope,
    Progress,
    ResultStatus,
    Stage,
    StageOutcome,
    StageTiming,
)


@dataclass(slots=True)
class Call:
    """One request under way: how far it came, and how often its connection was lost since."""

    request: CommandRequest
    changing: bool
    delivered: bool
    stage: Stage = Stage.VALIDATE
    budget_ms: int = 0
    stage_began: float = field(default_factory=monotonic)
    lost: int = 0
    extended: int = 0
    silent_since: float | None = None

    def heard(self, progress: Progress) -> None:
        """Take in that a stage began: the executor is there, and the clock is the new stage's."""
        self.stage, self.budget_ms = progress.stage, progress.budget_ms
        self.stage_began = monotonic()
        self.lost = self.extended = 0
        self.silent_since = None


def fault_of(call: Call, envelope: Envelope) -> CommandResult:
    """A request that the executor could not serve: refused as malformed, or a fault of its own."""
    reason = str(envelope.payload.get("reason", ""))
    if envelope.payload.get("code") == Code.INTERNAL:
        return given_up(call, ResultStatus.FAILED, reason)
    return _result(call, ResultStatus.REFUSED, reason, ())


def given_up(call: Call, status: ResultStatus, reason: str) -> CommandResult:
    """The end of a request that was lost sight of. A change that may have happened is `unknown`."""
    if call.changing and call.delivered:
        status = ResultStatus.UNKNOWN
        reason = f"{reason}; whether it happened is not known"
    timing = StageTiming(
        name=call.stage,
        round=0,
        ms=round((monotonic() - call.stage_began) * SECOND, 3),
        budget_ms=call.budget_ms,
        outcome=StageOutcome.TIMEOUT if status is ResultStatus.TIMED_OUT else StageOutcome.FAILED,
    )
    return _result(call, status, reason, (timing,))


def _result(call: Call, status: ResultStatus, reason: str, stages: tuple[StageTiming, ...]) -> CommandResult:
    return CommandResult(
        request_id=call.request.request_id,
        task_id=call.request.task_id,
        command=call.request.command,
        status=status,
        reason=reason,
        stages=stages,
    )
