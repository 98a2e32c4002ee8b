"""A run under way: its present value, its clocks, its evidence, and those who listen.

The stages of a run read and move this, and nothing else of the run exists in memory. What must
outlive the process is in the store: the decision before it is acted on, the step before it is sent.

This module must never decide where a run goes next.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from hermesd.agent.planner import Malformed, Spent
from hermesd.audit import Anchor
from hermesd.clocks import StageClock, StageMark
from hermesd.incidents import Run, RunStatus
from hermesd.pipeline.counters import Counters, thoughts_in_a_row
from hermesd.pipeline.follow import Line
from hermesd.pipeline.kit import Kit
from hermesd.pipeline.trail import Trail
from hermesd.pipeline.words import stage_line, words_of
from hermesd.pipeline.workclock import WorkClock
from hermesd.protocol import Stage, StageOutcome, StageTiming
from hermesd.state.runs import update_run

log = logging.getLogger("hermesd.runs")

Work = Callable[[sqlite3.Connection], None]


class Passage:
    """One run on its way. ``config`` is what was in force when it began.

    ``freed`` is called when the run gives its place up, to wait for a person or because it is paused.
    """

    def __init__(self, run: Run, kit: Kit, freed: Callable[[], None] = lambda: None) -> None:
        self.kit = kit
        self.config = kit.config()
        self.words = words_of(self.config.agent.language)
        self.clock = StageClock(self._stage_ended)
        self.clock.timings.extend(run.stages)
        self.work = WorkClock(self.config.stages.run_ms, run.worked_ms)
        self.in_flight: dict[str, bool] = {}
        self._landed = asyncio.Event()
        self.trail = Trail()
        self._freed = freed
        self._asking = 0
        self._run = run
        self._written: list[Future[None]] = []
        self._receipt: Future[Anchor] | None = None
        self._go = asyncio.Event()
        self._go.set()

    @property
    def run(self) -> Run:
        """The run as it stands now."""
        return replace(self._run, stages=tuple(self.clock.timings), worked_ms=round(self.work.spent_ms))

    @property
    def task_id(self) -> str:
        """The run's id."""
        return self._run.task_id

    def move(self, **changes: Any) -> None:
        """Change fields of the run's value; it is stored with whatever is written next."""
        self._run = replace(self._run, **changes)

    async def write(self, work: Work | None = None) -> None:
        """Commit the work and the run's value together; what was written soon is then committed too."""
        self.write_soon(work)
        written, self._written = self._written, []
        for receipt in written:  # shielded: what was handed in stays so, whoever stops waiting
            await asyncio.shield(asyncio.wrap_future(receipt))

    def write_soon(self, work: Work | None = None) -> None:
        """Commit the work and the run's value without waiting. What cannot be fails the next write."""
        run = self.run

        def commit(connection: sqlite3.Connection) -> None:
            update_run(connection, run)
            if work is not None:
                work(connection)

        self._written.append(self.kit.store.hand_in(commit))

    def note(self, kind: str, **fields: Any) -> None:
        """Hand a record of this run to the audit log. :meth:`evidence` waits for all of them."""
        self._receipt = self.kit.audit.append(kind, self.task_id, **fields)

    async def evidence(self) -> None:
        """Wait until every record handed in so far is synced. Raise AuditError when one cannot be."""
        if self._receipt is not None:
            await asyncio.shield(asyncio.wrap_future(self._receipt))

    @property
    def counters(self) -> Counters:
        """What the run has used up so far."""
        trail, run = self.trail, self._run
        return Counters(
            round=trail.round,
            actions=len(trail.ended),
            malformed=run.malformed,
            refused_in_a_row=trail.refused_in_a_row,
            repeats=trail.repeats,
            same_thoughts=thoughts_in_a_row(trail.thoughts),
            tokens=run.tokens,
            cost=run.cost,
        )

    def hear(self, what: Malformed | Spent) -> None:
        """Count and record what a model's answer was worth. It is stored with whatever is written next."""
        after = self.counters.heard(what)
        self.move(malformed=after.malformed, tokens=after.tokens, cost=after.cost)
        if isinstance(what, Malformed):
            self.note("answer.malformed", round=self._run.round, reason=what.reason, count=after.malformed)
            self.write_soon()  # a run that goes on after a crash does not begin to count anew
        else:
            self.note("model.answered", round=self._run.round, **asdict(what))

    def take_off(self, request_id: str, *, changing: bool) -> None:
        """Take note that a request is under way, and whether it changes something."""
        self.in_flight[request_id] = changing
        self._landed.clear()

    def land(self, request_id: str) -> None:
        """Take note that a request has its result."""
        del self.in_flight[request_id]
        if not self.in_flight:
            self._landed.set()

    async def all_landed(self, seconds: float) -> None:
        """Wait until nothing is under way, for so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._landed.wait()

    @asynccontextmanager
    async def stage(self, stage: Stage, budget_ms: int | None = None) -> AsyncIterator[StageMark]:
        """Run the block as a stage of the present round. Raise StageTimeout."""
        self.move(stage=stage.value)
        budget = self.config.stages.of(stage) if budget_ms is None else budget_ms
        async with self.clock.stage(stage, budget, self._run.round) as mark:
            yield mark

    def add_stages(self, timings: tuple[StageTiming, ...], text: str) -> None:
        """Take over the stages that the executor timed; ``text`` says what came of the last."""
        for timing in timings:
            self.clock.add(timing.model_copy(update={"round": self._run.round}))
            if timing is timings[-1]:
                self.tell(text)
            elif timing.name is not Stage.VALIDATE:
                self.tell("")

    def tell(self, text: str) -> None:
        """Tell followers, and the log, what came of the stage that has just ended."""
        timing = self.clock.timings[-1]
        self.say(stage_line(timing, text), timing.name.value, timing.outcome.value)

    def say(self, line: str, stage: str = "", outcome: str = "", *, last: bool = False) -> None:
        """Tell followers, and the log, a line."""
        log.info("%s: %s", self.task_id, line)
        self.kit.followers.tell(Line(self.task_id, line, stage, outcome, last))

    async def border(self) -> None:
        """Stand between two stages: wait here while the run is paused."""
        if self._go.is_set():
            return
        with self.work.halted():
            self.move(status=RunStatus.PAUSED)
            await self.write()
            self._freed()
            await self._go.wait()
            self.move(status=RunStatus.RUNNING)
            await self.write()

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Wait for a person in the block: the working clock halts, and the place is given up."""
        with self.work.halted():
            self._asking += 1
            self.move(status=RunStatus.WAITING)
            await self.write()
            self._freed()
            try:
                yield
            finally:
                self._asking -= 1
        if not self._asking:
            self.move(status=RunStatus.RUNNING)
            await self.write()

    @property
    def paused(self) -> bool:
        """Whether the run is to wait at its next border."""
        return not self._go.is_set()

    def pause(self) -> None:
        """Have the run wait at its next border."""
        self._go.clear()

    def go_on(self) -> None:
        """Let a paused run go on."""
        self._go.set()

    def _stage_ended(self, timing: StageTiming) -> None:
        metrics = self.kit.metrics
        metrics.stage_seconds.labels(timing.name.value).observe(timing.ms / 1000)
        if timing.outcome is StageOutcome.TIMEOUT:
            metrics.stage_timeouts.labels(timing.name.value).inc()
        self.note(
            "stage.ended",
            stage=timing.name.value,
            round=timing.round,
            ms=timing.ms,
            budget_ms=timing.budget_ms,
            outcome=timing.outcome.value,
        )
