"""The runner: carries runs, each in a task of its own, and answers for them while they are under way.

Runs begin when the dispatcher says so, when a place becomes free, or when the process starts and
finds some that were cut off. At a stop they are left as they are stored, and go on at the next start.
A fault inside a run ends that run, is recorded, and reaches nobody else: this is the border of a run.

This module must never start a run that is not stored, and never lets two tasks carry one.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from dataclasses import replace

from hermesd.audit import AuditError
from hermesd.incidents import Outcome, Run, RunStatus
from hermesd.pipeline.announcing import run_notice
from hermesd.pipeline.ending import Ending
from hermesd.pipeline.journey import end, travel, withdraw_all
from hermesd.pipeline.kit import Kit
from hermesd.pipeline.passage import Passage
from hermesd.pipeline.slots import PAUSED_SETTING, claim_queued, place_run
from hermesd.pipeline.words import words_of
from hermesd.state.runs import active_runs, find_run, update_run
from hermesd.state.settings import write_setting
from hermesd.state.store import StoreError

log = logging.getLogger("hermesd.runner")

RESULT_SECONDS = 1.0
"""How long a withdrawn run's requests get to answer before the run is cut off."""

RETRY_SECONDS = 1.0


class Runner:
    """Carries runs. :meth:`run` is its task; everything else may be called while that lasts."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._passages: dict[str, Passage] = {}
        self._group: asyncio.TaskGroup | None = None
        self._place_freed = asyncio.Event()
        self._early: list[Run] = []

    async def run(self) -> None:
        """Take up what was cut off, then carry runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            try:
                await self._resume(group)
                while True:
                    await self._place_freed.wait()
                    self._place_freed.clear()
                    await self._fill_places()
            finally:
                self._group = None

    async def _resume(self, group: asyncio.TaskGroup) -> None:
        left = await self._kit.store.read(active_runs)
        self._group = group  # until here starts were kept: a row read before its run ended would run twice
        for run in left:
            if run.status is not RunStatus.QUEUED:
                log.info("%s goes on", run.task_id)
                self.start(run)
        for run in self._early:
            self.start(run)
        self._early.clear()
        self._place_freed.set()

    def start(self, run: Run) -> None:
        """Begin, or go on with, a run that is stored and has a place."""
        if self._group is None:
            self._early.append(run)
            return
        if run.task_id in self._passages:
            return
        passage = Passage(run, self._kit, self._place_freed.set)
        if run.status is RunStatus.PAUSED:
            passage.pause()
        self._passages[run.task_id] = passage
        self._group.create_task(self._carry(passage), name=run.task_id)

    async def place(self, run: Run) -> Run:
        """Store a new run and begin it when there is a place; return it as it then stands."""
        places = self._kit.config().limits.parallel_runs
        now = self._kit.now()
        placed = await self._kit.store.write(lambda connection: place_run(connection, run, places, now))
        if placed is None:
            raise ValueError(f"{run.incident_id} has a run that has not ended")
        if placed.status is RunStatus.RUNNING:
            self.start(placed)
        return placed

    def live(self, task_id: str) -> Run | None:
        """Return a run that is under way as it stands now, fresher than its row."""
        passage = self._passages.get(task_id)
        return passage.run if passage else None

    @property
    def active(self) -> int:
        """How many runs are under way."""
        return len(self._passages)

    async def pause(self, task_id: str, who: str) -> str | None:
        """Have a run wait at its next stage, or with an empty id keep new ones from starting.

        Return the status that follows, None when there is no such run under way.
        """
        if not task_id:
            await self._set_paused(who, paused=True)
            return RunStatus.PAUSED.value
        passage = self._passages.get(task_id)
        if passage is None:
            return None
        passage.pause()
        passage.note("run.pause_asked", by=who)
        return RunStatus.PAUSED.value

    async def resume(self, task_id: str, who: str) -> str | None:
        """Let a paused run go on, or with an empty id let new ones start again. As :meth:`pause`."""
        if not task_id:
            await self._set_paused(who, paused=False)
            self._place_freed.set()
            return RunStatus.RUNNING.value
        passage = self._passages.get(task_id)
        if passage is None:
            return None
        passage.note("run.resume_asked", by=who)
        passage.go_on()
        return RunStatus.RUNNING.value

    async def cancel(self, task_id: str, who: str) -> str | None:
        """Withdraw a run, and what it asked of the executor. None: there is no such run."""
        passage = self._passages.get(task_id)
        if passage is None:
            return await self._cancel_queued(task_id, who)
        passage.note("run.cancel_asked", by=who)
        passage.work.withdraw(who)
        passage.go_on()
        if passage.in_flight:
            await withdraw_all(passage)
            await passage.all_landed(RESULT_SECONDS)
        # A change that has begun is waited for: its end must be known. All else is cut off here.
        if not any(passage.in_flight.values()):
            passage.work.end_now()
        return "cancelling"

    async def _cancel_queued(self, task_id: str, who: str) -> str | None:
        reason = words_of(self._kit.config().agent.language).cancelled.format(who=who)
        now = self._kit.now()

        def cancel(connection: sqlite3.Connection) -> Run | None:
            queued = find_run(connection, task_id)
            if queued is None or queued.status is not RunStatus.QUEUED:
                return None
            ended = replace(
                queued, status=RunStatus.ENDED, outcome=Outcome.CANCELLED, reason=reason, ended_at=now
            )
            update_run(connection, ended)
            return ended

        cancelled = await self._kit.store.write(cancel)
        if cancelled is None:
            return None
        await self._kit.audit.record("run.ended", task_id, outcome=Outcome.CANCELLED.value, reason=reason)
        self._kit.bulletin.tell(run_notice(cancelled))
        return RunStatus.ENDED.value

    async def _set_paused(self, who: str, *, paused: bool) -> None:
        await self._kit.audit.record("runs.paused" if paused else "runs.resumed", by=who)
        await self._kit.store.write(lambda connection: write_setting(connection, PAUSED_SETTING, paused))

    async def _fill_places(self) -> None:
        """Begin queued runs for which there is a place now."""
        config, now = self._kit.config(), self._kit.now()
        places = config.limits.parallel_runs
        try:
            claimed = await self._kit.store.write(
                lambda connection: claim_queued(connection, places, now, config.rules)
            )
        except StoreError as error:
            log.error("queued runs wait: %s", error)  # noqa: TRY400 - the disk's words are enough
            await asyncio.sleep(RETRY_SECONDS)
            self._place_freed.set()
            return
        for run in claimed:
            self.start(run)

    async def _carry(self, passage: Passage) -> None:
        """The border of a run: whatever happens inside, it ends as a recorded outcome."""
        try:
            await end(passage, await self._travel(passage))
        except (StoreError, AuditError) as error:
            # It could not be written that the run ended: it stays active and goes on at the next start.
            log.error("%s stays open: %s", passage.task_id, error)  # noqa: TRY400 - the disk's words
        except Exception:
            log.exception("%s stays open: a fault at its end", passage.task_id)
        finally:
            self._passages.pop(passage.task_id, None)
            self._place_freed.set()

    async def _travel(self, passage: Passage) -> Ending:
        try:
            return await travel(passage)
        except Exception as error:
            log.exception("%s: a fault inside the run", passage.task_id)
            passage.note("run.fault", fault=type(error).__name__)
            doubt = await withdraw_all(passage)
            outcome = Outcome.UNKNOWN if doubt else Outcome.FAILED
            return Ending(outcome, passage.words.fault)
