"""Stage clocks: every stage of a run has a budget, a name for running out of it, and a record.

Both processes use this module, so that a stage that times out says the same words on either side
of the wall. It must never decide what happens after a timeout: it measures, stops and tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from hermesd.protocol import Stage, StageOutcome, StageTiming

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

TIMEOUT_TEXTS: Final[dict[Stage, str]] = {
    Stage.RECEIVE: "taking the event in took too long: the state store is slow or stuck",
    Stage.BRIEF: "gathering what is known took too long: the state store or the executor is slow",
    Stage.PLAN: "the planner did not answer in time",
    Stage.VALIDATE: "validation ran out of time: this is a fault inside hermesd, please report it",
    Stage.CONFIRM: "nobody decided in time; the default is no",
    Stage.PREPARE: "the container did not start in time",
    Stage.EXECUTE: "the command did not finish in time and was ended",
    Stage.REVIEW: "the condition was not measured again in time",
    Stage.REPORT: "the report could not be delivered in time",
}


class StageBudgets(BaseModel):
    """`[stages]` of daemon.toml. Milliseconds; defaults are the design's figures."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    receive_ms: int = Field(default=2 * SECOND, ge=1)
    brief_ms: int = Field(default=5 * SECOND, ge=1)
    plan_ms: int = Field(default=45 * SECOND, ge=1)
    validate_ms: int = Field(default=5 * SECOND, ge=1)
    confirm_ms: int = Field(default=4 * HOUR, ge=1)
    token_ms: int = Field(default=2 * MINUTE, ge=1)
    prepare_ms: int = Field(default=30 * SECOND, ge=1)
    execute_read_ms: int = Field(default=10 * SECOND, ge=1)
    execute_change_ms: int = Field(default=60 * SECOND, ge=1)
    review_ms: int = Field(default=45 * SECOND, ge=1)
    report_ms: int = Field(default=10 * SECOND, ge=1)
    run_ms: int = Field(default=15 * MINUTE, ge=1)

    def of(self, stage: Stage) -> int:
        """Return the stage's budget in ms. `execute` is its longest; a command's own limit is shorter."""
        if stage is Stage.EXECUTE:
            return max(self.execute_read_ms, self.execute_change_ms)
        budget: int = getattr(self, f"{stage}_ms")
        return budget


class StageTimeout(Exception):  # noqa: N818 - it is an outcome with a name, not somebody's error
    """A stage's clock ran out. ``str()`` is the message for people."""

    def __init__(self, stage: Stage, budget_ms: int) -> None:
        super().__init__(f"{stage}: {TIMEOUT_TEXTS[stage]} (limit {budget_ms / SECOND:g} s)")
        self.stage = stage
        self.budget_ms = budget_ms


class StageClock:
    """Times the stages of one run or one request, in order of their ends.

    ``on_end`` is called with each StageTiming: that is where records and counters hang.
    ``timings`` are all occurrences so far.
    """

    def __init__(
        self,
        on_end: Callable[[StageTiming], None] | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.timings: list[StageTiming] = []
        self._on_end = on_end
        self._now = now

    @asynccontextmanager
    async def stage(
        self, name: Stage, budget_ms: int, round_no: int = 0, *, grace_ms: int = 0
    ) -> AsyncIterator[StageMark]:
        """Run the block under the stage's clock.

        Raise StageTimeout when it runs out; ``grace_ms`` more is allowed to a block that keeps the
        budget itself and needs time to end what ran out of it. Set ``mark.outcome`` inside the block
        to say that the stage ended in an ordinary refusal or failure.
        """
        mark = StageMark()
        began = self._now()
        try:
            async with asyncio.timeout((budget_ms + grace_ms) / SECOND) as scope:
                yield mark
        except TimeoutError as error:
            if not scope.expired():
                mark.outcome = StageOutcome.FAILED
                raise
            mark.outcome = StageOutcome.TIMEOUT
            raise StageTimeout(name, budget_ms) from error
        except asyncio.CancelledError:
            mark.outcome = StageOutcome.CANCELLED
            raise
        except Exception:
            mark.outcome = StageOutcome.FAILED
            raise
        finally:
            self.add(
                StageTiming(
                    name=name,
                    round=round_no,
                    ms=round((self._now() - began) * SECOND, 3),
                    budget_ms=budget_ms,
                    outcome=mark.outcome,
                )
            )

    def add(self, timing: StageTiming) -> None:
        """Record a stage that was timed elsewhere (the executor's, by the runner)."""
        self.timings.append(timing)
        if self._on_end is not None:
            self._on_end(timing)


class StageMark:
    """What the block inside a stage may set: how the stage ended, when it did not raise."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome = StageOutcome.OK
