"""Every stage has a clock, its own words, and a record."""

import asyncio

import pytest
from pydantic import ValidationError

from hermesd.clocks import TIMEOUT_TEXTS, StageBudgets, StageClock, StageTimeout
from hermesd.protocol import Stage, StageOutcome, StageTiming


class Ticks:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_budgets_are_the_designs_figures():
    budgets = StageBudgets()
    assert {stage.value: budgets.of(stage) for stage in Stage} == {
        "receive": 2_000,
        "brief": 5_000,
        "plan": 45_000,
        "validate": 5_000,
        "confirm": 4 * 3_600_000,
        "prepare": 30_000,
        "execute": 60_000,
        "review": 45_000,
        "report": 10_000,
    }
    assert (budgets.token_ms, budgets.execute_read_ms, budgets.run_ms) == (120_000, 10_000, 900_000)


@pytest.mark.parametrize("change", [{"plan_ms": 0}, {"plan_ms": -1}, {"plan": 5}, {"plan_ms": "soon"}])
def test_a_budget_is_a_positive_figure_with_a_known_name(change):
    with pytest.raises(ValidationError):
        StageBudgets(**change)


def test_every_stage_has_its_own_words_for_running_out():
    texts = {str(StageTimeout(stage, 1500)) for stage in Stage}
    assert len(texts) == len(Stage) == len(set(TIMEOUT_TEXTS.values()))
    assert all("limit 1.5 s" in text for text in texts)
    assert "fault inside hermesd" in str(StageTimeout(Stage.VALIDATE, 1))


async def test_a_stage_that_ends_is_timed_and_told():
    ticks, told = Ticks(), []
    clock = StageClock(told.append, ticks)
    async with clock.stage(Stage.BRIEF, 5_000, 3):
        ticks.now += 0.25
    expected = StageTiming(name=Stage.BRIEF, round=3, ms=250.0, budget_ms=5_000, outcome=StageOutcome.OK)
    assert clock.timings == told == [expected]


async def test_a_stage_may_end_in_an_ordinary_refusal():
    clock = StageClock()
    async with clock.stage(Stage.VALIDATE, 5_000) as mark:
        mark.outcome = StageOutcome.REFUSED
    assert clock.timings[0].outcome is StageOutcome.REFUSED


async def test_a_clock_that_runs_out_is_a_timeout_of_its_stage():
    clock = StageClock()
    with pytest.raises(StageTimeout) as caught:
        async with clock.stage(Stage.PLAN, 20):
            await asyncio.sleep(5)
    assert (caught.value.stage, caught.value.budget_ms) == (Stage.PLAN, 20)
    assert clock.timings[0].outcome is StageOutcome.TIMEOUT
    assert 15 <= clock.timings[0].ms < 2_000


async def test_a_timeout_of_something_inside_is_a_failure_and_not_the_stages_timeout():
    clock = StageClock()
    with pytest.raises(TimeoutError) as caught:
        async with clock.stage(Stage.PLAN, 60_000):
            raise TimeoutError("a socket's own")
    assert not isinstance(caught.value, StageTimeout)
    assert clock.timings[0].outcome is StageOutcome.FAILED


async def nested(clock, execute_ms, prepare_ms):
    async with clock.stage(Stage.EXECUTE, execute_ms), clock.stage(Stage.PREPARE, prepare_ms):
        await asyncio.sleep(5)


async def test_of_two_nested_clocks_the_one_that_ran_out_is_named():
    clock = StageClock()
    with pytest.raises(StageTimeout) as caught:
        await nested(clock, execute_ms=60_000, prepare_ms=20)
    assert caught.value.stage is Stage.PREPARE
    assert [(timing.name, timing.outcome) for timing in clock.timings] == [
        (Stage.PREPARE, StageOutcome.TIMEOUT),
        (Stage.EXECUTE, StageOutcome.FAILED),
    ]


async def test_of_two_nested_clocks_an_outer_one_that_ran_out_is_named_too():
    clock = StageClock()
    with pytest.raises(StageTimeout) as caught:
        await nested(clock, execute_ms=20, prepare_ms=60_000)
    assert caught.value.stage is Stage.EXECUTE
    assert [(timing.name, timing.outcome) for timing in clock.timings] == [
        (Stage.PREPARE, StageOutcome.CANCELLED),
        (Stage.EXECUTE, StageOutcome.TIMEOUT),
    ]


async def test_a_failure_is_timed_and_passed_on():
    clock = StageClock()
    with pytest.raises(LookupError):
        async with clock.stage(Stage.REVIEW, 1_000):
            raise LookupError
    assert clock.timings[0].outcome is StageOutcome.FAILED


async def test_a_cancelled_stage_is_timed_as_cancelled_and_stays_cancelled():
    clock, begun = StageClock(), asyncio.Event()

    async def work():
        async with clock.stage(Stage.CONFIRM, 60_000):
            begun.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.timings[0].outcome is StageOutcome.CANCELLED


async def test_stages_timed_elsewhere_take_their_place_in_the_list():
    told = []
    clock = StageClock(told.append)
    other = StageTiming(name=Stage.EXECUTE, round=1, ms=5, budget_ms=10_000, outcome=StageOutcome.OK)
    clock.add(other)
    async with clock.stage(Stage.REVIEW, 1_000, 1):
        pass
    assert [timing.name for timing in clock.timings] == [Stage.EXECUTE, Stage.REVIEW]
    assert told == clock.timings
