"""Confirm, prepare, execute: the steps of a round, through the hands, each under its request id.

A round whose commands are all safe side by side runs together, else in order, and a step whose need
did not succeed is not sent. Each step is stored as sent before it is, and with its result after. A
reading whose fate is unknown may be asked again under a new id; a change never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from hermesd.agent.dependencies import settle
from hermesd.agent.planner import observe
from hermesd.incidents import Outcome
from hermesd.pipeline.ending import RunEnds
from hermesd.pipeline.passage import Passage
from hermesd.pipeline.trail import request_id, request_of
from hermesd.protocol import (
    CatalogueView,
    CommandInfo,
    CommandResult,
    Effect,
    Progress,
    ResultStatus,
    Stage,
)
from hermesd.state.steps import Step, StepStatus, insert_step, update_step

_MAX_LINE: Final = 300


def run_together(steps: Sequence[Step], catalogue: CatalogueView) -> bool:
    """Say whether the steps may run side by side: all are safe so, and none waits for another."""
    safe = {info.name for info in catalogue.commands if info.concurrency_safe}
    return all(step.action.command in safe and not step.action.needs for step in steps)


def note_sent(passage: Passage, step: Step) -> None:
    """Record that a step is about to be sent."""
    passage.note(
        "action.sent",
        request=step.request_id,
        step=step.action.step,
        command=step.action.command,
        args=step.action.args,
        intent=step.action.intent,
    )


async def act(passage: Passage, catalogue: CatalogueView) -> None:
    """Take the round's unfinished steps to their ends. Raise RunEnds when one leaves a doubt."""
    trail = passage.trail
    infos = {info.name: info for info in catalogue.commands}
    steps = trail.unfinished
    if run_together(steps, catalogue):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_perform(passage, step, infos), name=f"step-{step.request_id}")
                for step in steps
            ]
        ended = [task.result() for task in tasks]
    else:
        ended = await _one_by_one(passage, steps, infos)
    trail.take_in(ended)
    trail.round += 1
    for step in ended:
        if step.result and step.result.status is ResultStatus.UNKNOWN and changes(step, infos):
            reason = passage.words.in_doubt.format(command=step.action.command)
            raise RunEnds(Outcome.UNKNOWN, reason)


def changes(step: Step, infos: dict[str, CommandInfo]) -> bool:
    """Say whether a step changes something; of a command that is no longer known, assume it."""
    info = infos.get(step.action.command)
    return info is None or info.effect is not Effect.READ


async def _one_by_one(passage: Passage, steps: Sequence[Step], infos: dict[str, CommandInfo]) -> list[Step]:
    ended: list[Step] = []
    succeeded: set[str] = set()
    for step in steps:
        missing = [need for need in step.action.needs if need not in succeeded]
        await passage.border()
        # What may have been sent in an earlier life is asked after, whatever became of its needs.
        unsent = step.request_id not in passage.trail.sent_before
        if unsent and (missing or passage.work.withdrawn_by):
            done = _skip(passage, step, missing)
        else:
            done = await _perform_settled(passage, step, ended, infos)
        ended.append(done)
        if done.result is not None and done.result.status is ResultStatus.SUCCEEDED:
            succeeded.add(done.action.step)
    return ended


async def _perform_settled(
    passage: Passage, step: Step, ended: Sequence[Step], infos: dict[str, CommandInfo]
) -> Step:
    """Perform a step once what it refers to in the steps before it stands in its arguments."""
    needs = step.action.needs
    seen = {
        done.action.step: observe(done.round, done.action, done.result).as_scope()
        for done in ended
        if done.result is not None and done.action.step in needs
    }
    settled = settle(step.action, seen) if step.status is StepStatus.PLANNED and seen else step.action
    if isinstance(settled, str):
        return _end(passage, step, _local(step, ResultStatus.REFUSED, settled))
    return await _perform(passage, replace(step, action=settled), infos)


def _skip(passage: Passage, step: Step, missing: Sequence[str]) -> Step:
    """End a step without sending it."""
    if step.result is not None:
        return step
    reason = f"not run: {', '.join(missing)} did not succeed" if missing else "not run: withdrawn"
    return _end(passage, step, _local(step, ResultStatus.CANCELLED, reason))


def _local(step: Step, status: ResultStatus, reason: str) -> CommandResult:
    """Return the result of a step that was never sent."""
    return CommandResult(
        request_id=step.request_id,
        task_id=step.task_id,
        command=step.action.command,
        status=status,
        reason=reason,
    )


async def _perform(passage: Passage, step: Step, infos: dict[str, CommandInfo]) -> Step:
    """Send a step and return it with its result; a doubtful reading is tried again."""
    retries = passage.config.limits.network_retries
    while True:
        if step.result is None:
            step = await _send(passage, step, changing=changes(step, infos))
        assert step.result is not None  # noqa: S101 - _send gives it one
        info = infos.get(step.action.command)
        doubtful = step.result.status is ResultStatus.UNKNOWN and not changes(step, infos)
        if not (doubtful and info and info.retryable and step.attempt <= retries):
            return step
        step = await _try_again(passage, step)


async def _try_again(passage: Passage, step: Step) -> Step:
    attempt = step.attempt + 1
    again = replace(
        step,
        attempt=attempt,
        request_id=request_id(step.task_id, step.round, step.index, attempt),
        status=StepStatus.PLANNED,
        result=None,
    )
    await passage.write(lambda connection: insert_step(connection, again))
    return again


async def _send(passage: Passage, step: Step, *, changing: bool) -> Step:
    resent = step.request_id in passage.trail.sent_before
    if step.status is StepStatus.PLANNED:
        step = replace(step, status=StepStatus.SENT)
        note_sent(passage, step)
        sent = step
        await asyncio.gather(
            passage.write(lambda connection: update_step(connection, sent)), passage.evidence()
        )
    passage.take_off(step.request_id, changing=changing)  # and there it stays when this is cut off
    async with _Listener(passage) as listener:
        request = request_of(step, passage.run.kind, passage.run.asked_by_uid)
        result = await passage.kit.hands.run(request, listener.hear, changing=changing, sent_before=resent)
    passage.land(step.request_id)
    return _end(passage, step, result)


def _end(passage: Passage, step: Step, result: CommandResult) -> Step:
    """Store and record what became of a step. Nobody waits for it: lost in a crash, it is asked for again."""
    done = replace(step, status=StepStatus.ENDED, result=result)
    passage.add_stages(result.stages, f"{result.command}: {_said(result)}")
    passage.note(
        "action.ended",
        request=result.request_id,
        command=result.command,
        status=result.status.value,
        reason=result.reason,
        summary=result.summary[:_MAX_LINE],
        digest=result.digest,
        gain=result.gain.model_dump() if result.gain else None,
        executor=passage.kit.hands.anchor,
    )
    passage.kit.metrics.commands.labels(result.command, result.status.value).inc()
    passage.write_soon(lambda connection: update_step(connection, done))
    return done


def _said(result: CommandResult) -> str:
    text = result.summary if result.status is ResultStatus.SUCCEEDED else result.reason
    return f"{result.status.value}{text and ': '}{text[:_MAX_LINE]}"


class _Listener:
    """Hears where a request stands, and lets the run wait while a person is asked."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._waiting = AsyncExitStack()
        self._asking = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._waiting.__aexit__(kind, error, trace)

    async def hear(self, progress: Progress) -> None:
        """Take in that a stage began."""
        self._passage.move(stage=progress.stage.value)
        if progress.stage is Stage.CONFIRM and not self._asking:
            self._asking = True
            await self._waiting.enter_async_context(self._passage.waiting())
            text = progress.impact.text if progress.impact else ""
            line = self._passage.words.asks.format(text=text, operation=progress.operation_id)
            self._passage.say(line, Stage.CONFIRM.value)
        elif progress.stage is not Stage.CONFIRM and self._asking:
            self._asking = False
            await self._waiting.aclose()
