"""A run's journey, from what is stored of it to its ended row: this reads from top to bottom as it goes.

    receive, brief, then round after round plan, validate and act, until a planner has nothing more
    to do; then review and report.

A journey that is cut off anywhere can be travelled again: it goes on from what is stored. This
module holds the order of things and nothing else; what each stage does is in `stages`.
"""

from __future__ import annotations

import asyncio
import logging

from hermesd.clocks import StageTimeout
from hermesd.incidents import Outcome, RunStatus
from hermesd.pipeline.announcing import run_notice
from hermesd.pipeline.ending import Ending, RunEnds, conclude
from hermesd.pipeline.passage import Passage
from hermesd.pipeline.stages.act import act
from hermesd.pipeline.stages.brief import brief
from hermesd.pipeline.stages.plan import Planning
from hermesd.pipeline.stages.receive import receive
from hermesd.pipeline.stages.report import render_report
from hermesd.pipeline.stages.review import review
from hermesd.pipeline.workclock import OutOfTime
from hermesd.protocol import CatalogueView, Effect, ResultStatus, Stage

log = logging.getLogger("hermesd.runs")

WITHDRAW_SECONDS = 6.0


async def travel(passage: Passage) -> Ending:
    """Take the run as far as it goes and return how it ended. Does not write that down."""
    try:
        async with passage.work.running():
            return await _stages(passage)
    except RunEnds as end:
        return end.ending
    except OutOfTime:
        return await _cut_off(passage)
    except StageTimeout as timeout:
        level = logging.ERROR if timeout.stage is Stage.VALIDATE else logging.WARNING
        log.log(level, "%s: %s", passage.task_id, timeout)
        return Ending(Outcome.TIMED_OUT, str(timeout))


async def _stages(passage: Passage) -> Ending:
    received = await receive(passage)
    briefing = await brief(passage, received)
    catalogue, trail = briefing.catalogue, passage.trail
    planners = passage.kit.planners(passage.run, passage.config, passage.hear)
    planning = Planning(passage, planners, briefing)
    if trail.unfinished:
        passage.move(round=trail.round)
        await act(passage, catalogue)
    while trail.finish is None:
        await _border(passage)
        await planning.plan()
        if trail.unfinished:
            await act(passage, catalogue)
    await _border(passage)
    changes = [seen for seen in trail.observations if seen.command in _changing(catalogue)]
    cleared = await review(passage, changed=any(seen.succeeded for seen in changes))
    return conclude(passage.run.kind, trail.observations, changes, passage.words, cleared=cleared)


def _changing(catalogue: CatalogueView) -> set[str]:
    return {info.name for info in catalogue.commands if info.effect is not Effect.READ}


async def _border(passage: Passage) -> None:
    """Stand between two stages: a paused run waits here, a withdrawn one ends."""
    await passage.border()
    who = passage.work.withdrawn_by
    if who:
        raise RunEnds(Outcome.CANCELLED, passage.words.cancelled.format(who=who))


async def _cut_off(passage: Passage) -> Ending:
    """The run's time ended in the middle of a stage: withdraw what is under way, and say what is in doubt."""
    doubt = await withdraw_all(passage)
    words = passage.words
    if doubt:
        return Ending(Outcome.UNKNOWN, words.time_over_in_doubt)
    if passage.work.withdrawn_by:
        return Ending(Outcome.CANCELLED, words.cancelled.format(who=passage.work.withdrawn_by))
    return Ending(Outcome.TIMED_OUT, words.time_over.format(minutes=passage.work.budget_ms / 60_000))


async def withdraw_all(passage: Passage) -> bool:
    """Withdraw every request under way. Return whether a change among them could not be."""
    doubt = False
    for request_id, changing in list(passage.in_flight.items()):
        try:
            async with asyncio.timeout(WITHDRAW_SECONDS):
                withdrawn = await passage.kit.hands.cancel(request_id)
        except TimeoutError:
            withdrawn = False
        doubt = doubt or (changing and not withdrawn)
    return doubt


async def end(passage: Passage, ending: Ending) -> None:
    """Report, and write the run's end down, in the store and in the log. Raise StoreError, AuditError."""
    try:
        async with passage.stage(Stage.REPORT):
            text = _report(passage, ending)
    except StageTimeout as timeout:
        text = str(timeout)
    passage.move(
        status=RunStatus.ENDED,
        outcome=ending.outcome,
        reason=ending.reason,
        ended_at=passage.kit.now(),
        stage="",
        report=text,
    )
    trail = passage.trail
    passage.note(
        "run.ended",
        outcome=ending.outcome.value,
        reason=ending.reason,
        rounds=trail.round,
        actions=len(trail.ended),
        refused=len(trail.refusals),
        worked_ms=passage.run.worked_ms,
        malformed=passage.run.malformed,
        tokens=passage.run.tokens,
        cost=passage.run.cost,
        gains=[seen.gain.model_dump() for seen in trail.observations if seen.gain],
        unknown=[
            step.request_id
            for step in trail.ended
            if step.result and step.result.status is ResultStatus.UNKNOWN
        ],
    )
    await passage.evidence()
    await passage.write()
    passage.kit.metrics.runs.labels(ending.outcome.value).inc()
    passage.kit.bulletin.tell(run_notice(passage.run))
    passage.tell("")
    outcome = ending.outcome.value
    passage.say(f"{outcome}{ending.reason and ': '}{ending.reason}", "", outcome, last=True)


def _report(passage: Passage, ending: Ending) -> str:
    trail, run = passage.trail, passage.run
    return render_report(ending, trail.finish, trail.observations, run.stages, run.kind, passage.words)
