"""Plan and validate: the next decision, from the first planner that can give one.

A planner that is late, down or talking nonsense is left for the rest of the run, and the next one
goes on where it stopped; the record says so. A decision that makes no sense goes back in words; the
third in a row, or the third wish for the same thing again, hands over to a person. What is to be
done is stored and recorded before anything of it is sent.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from hermesd.agent.planner import (
    Briefing,
    Planner,
    PlannerKind,
    PlannerUnavailable,
    Situation,
    Unavailability,
)
from hermesd.clocks import StageTimeout
from hermesd.incidents import Outcome
from hermesd.pipeline.counters import model_over, over, stands_still
from hermesd.pipeline.ending import RunEnds
from hermesd.pipeline.passage import Passage
from hermesd.pipeline.stages.act import note_sent, run_together
from hermesd.pipeline.stages.check import check, doubt, in_order
from hermesd.pipeline.trail import plan_steps
from hermesd.protocol import Decision, Stage, StageOutcome
from hermesd.state.steps import Step, StepStatus, insert_decision, insert_step, refuse_decision


class Planning:
    """The planners of one run, in the order in which they are asked."""

    def __init__(self, passage: Passage, planners: Sequence[Planner], briefing: Briefing) -> None:
        self._passage = passage
        self._briefing = briefing
        names = [planner.name for planner in planners]
        last = passage.trail.planner
        # After a crash, who had taken over goes on: the one before was given up for this run.
        self._planners = list(planners[names.index(last) :] if last in names else planners)

    async def plan(self) -> None:
        """Take the run's trail one decision further. Raise RunEnds, or StageTimeout of validation."""
        passage = self._passage
        self._end_if_over()
        passage.move(round=passage.trail.round)
        planner, decision = await self._decide()
        async with passage.stage(Stage.VALIDATE) as mark:
            decision, faults = self._validate(planner.kind, decision)
            if faults:
                mark.outcome = StageOutcome.REFUSED
        if faults:
            await self._refuse(planner.name, decision, faults)
            return
        passage.trail.thoughts.append("" if decision.finish else decision.thought)
        self._end_if_over()
        await self._accept(planner.name, decision)

    def _validate(self, kind: PlannerKind, decision: Decision) -> tuple[Decision, list[str]]:
        trail, limits = self._passage.trail, self._passage.config.limits
        actions_left = limits.max_actions - len(trail.ended)
        faults = check(decision, self._briefing.catalogue, trail.observations, actions_left)
        if faults or kind is not PlannerKind.MODEL:
            return decision, faults
        last_round = trail.round >= limits.max_rounds
        decision, faults = doubt(decision, self._briefing, trail.observations, last_round=last_round)
        # Only now is known what the references stand for: that, too, must fit and be new.
        return decision, faults or check(decision, self._briefing.catalogue, trail.observations, actions_left)

    def _end_if_over(self, reason: str = "") -> None:
        """Raise RunEnds when one of the run's counters has reached its bound."""
        words = self._passage.words
        text = over(self._passage.counters, self._passage.config.limits, words, reason)
        if text:
            raise RunEnds(Outcome.HANDED_OVER, words.hands_over.format(reason=text))

    async def _decide(self) -> tuple[Planner, Decision]:
        passage = self._passage
        while self._planners:
            planner = self._planners[0]
            spent = model_over(passage.counters, passage.config.limits, passage.words)
            if spent and planner.kind is PlannerKind.MODEL:
                await self._fall_back(planner.name, Unavailability.SPENT, spent)
                continue
            try:
                async with passage.stage(Stage.PLAN) as mark:
                    try:
                        decision = await planner.decide(self._situation())
                    except PlannerUnavailable as error:
                        late = error.reason is Unavailability.LATE
                        mark.outcome = StageOutcome.TIMEOUT if late else StageOutcome.FAILED
                        raise
            except StageTimeout as timeout:
                await self._fall_back(planner.name, Unavailability.LATE, str(timeout))
            except PlannerUnavailable as error:
                await self._fall_back(planner.name, error.reason, error.text)
            else:
                passage.tell(self._line(planner.name, decision))
                return planner, decision
        raise RunEnds(Outcome.HANDED_OVER, passage.words.no_planner.format(reason=passage.words.nobody))

    def _situation(self) -> Situation:
        passage, trail = self._passage, self._passage.trail
        limits = passage.config.limits
        hints = (passage.words.no_news,) if stands_still(passage.counters) else ()
        return Situation(
            briefing=self._briefing,
            round=trail.round,
            observations=trail.observations,
            refusals=(*trail.refusals, *hints),
            rounds_left=limits.max_rounds - trail.round,
            actions_left=limits.max_actions - len(trail.ended),
            malformed=passage.run.malformed,
        )

    async def _fall_back(self, planner: str, reason: Unavailability, text: str) -> None:
        """Leave a planner for good. Raise RunEnds when nobody comes after it."""
        passage = self._passage
        self._planners.pop(0)
        following = self._planners[0].name if self._planners else ""
        passage.kit.metrics.planner_fallbacks.labels(reason.value).inc()
        passage.note("planner.fallback", planner=planner, reason=reason.value, text=text, next=following)
        next_name = following or passage.words.nobody
        passage.tell(passage.words.takes_over.format(planner=planner, reason=text, next=next_name))
        if reason is Unavailability.HAND_OVER:
            raise RunEnds(Outcome.HANDED_OVER, passage.words.hands_over.format(reason=text))
        if not self._planners and reason is Unavailability.LATE:
            raise RunEnds(Outcome.TIMED_OUT, passage.words.slow)
        if not self._planners:
            raise RunEnds(Outcome.HANDED_OVER, passage.words.no_planner.format(reason=text))

    async def _refuse(self, planner: str, decision: Decision, faults: list[str]) -> None:
        passage, trail = self._passage, self._passage.trail
        trail.refuse(faults)
        reason = "; ".join(faults)
        passage.note("decision.refused", round=trail.round, planner=planner, reasons=faults)
        _note_decision(passage, planner, decision)
        passage.tell(reason)
        round_no, made_at = trail.round, passage.kit.now()

        def store(connection: sqlite3.Connection) -> None:
            seq = insert_decision(connection, passage.task_id, round_no, planner, decision, made_at)
            refuse_decision(connection, seq, "\n".join(faults))

        await passage.write(store)
        self._end_if_over(reason)

    async def _accept(self, planner: str, decision: Decision) -> None:
        """Store the decision and its steps, and record them, in one wait: then they may be acted on."""
        passage, trail = self._passage, self._passage.trail
        round_no, made_at = trail.round, passage.kit.now()
        steps = self._first_sent(plan_steps(passage.task_id, round_no, in_order(decision.actions)))
        _note_decision(passage, planner, decision)
        for step in steps:
            if step.status is StepStatus.SENT:
                note_sent(passage, step)

        def store(connection: sqlite3.Connection) -> None:
            insert_decision(connection, passage.task_id, round_no, planner, decision, made_at)
            for step in steps:
                insert_step(connection, step)

        if steps:
            await asyncio.gather(passage.write(store), passage.evidence())
        else:
            passage.write_soon(store)  # nothing is sent after a finish
        trail.accept(steps, decision.finish)

    def _first_sent(self, steps: list[Step]) -> list[Step]:
        """Mark what is sent at once as sent, so that one commit covers it."""
        together = run_together(steps, self._briefing.catalogue)
        return [
            replace(step, status=StepStatus.SENT) if together or number == 0 else step
            for number, step in enumerate(steps)
        ]

    def _line(self, planner: str, decision: Decision) -> str:
        if decision.finish is not None:
            return self._passage.words.finishes.format(planner=planner)
        actions = ", ".join(f"{action.command} ({action.intent})" for action in decision.actions)
        return self._passage.words.proposes.format(planner=planner, actions=actions)


def _note_decision(passage: Passage, planner: str, decision: Decision) -> None:
    """Record what the planner made of the situation, and what it wants."""
    passage.note(
        "decision.made",
        round=passage.trail.round,
        planner=planner,
        thought=decision.thought,
        actions=[action.model_dump(mode="json") for action in decision.actions],
        cause=decision.finish.cause if decision.finish else None,
    )
