"""The working clock: it bounds work, halts for people, and ends a run that is withdrawn."""

from __future__ import annotations

import asyncio

import pytest

from hermesd.pipeline.workclock import OutOfTime, WorkClock


class Time:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


async def test_work_past_the_budget_is_out_of_time():
    with pytest.raises(OutOfTime):
        async with WorkClock(20).running():
            await asyncio.sleep(5)


async def test_what_earlier_lives_used_up_counts():
    with pytest.raises(OutOfTime):
        async with WorkClock(60_000, spent_ms=59_990).running():
            await asyncio.sleep(5)


async def test_waiting_does_not_count_as_work():
    time = Time()
    clock = WorkClock(10_000, now=time)
    async with clock.running():
        time.seconds = 2
        with clock.halted():
            time.seconds = 500
            with clock.halted():
                time.seconds = 600
            time.seconds = 700
        time.seconds = 703
    time.seconds = 900
    assert clock.spent_ms == 5_000


async def test_a_halted_clock_never_runs_out():
    clock = WorkClock(20)
    async with clock.running():
        with clock.halted():
            await asyncio.sleep(0.05)


async def test_after_a_halt_only_what_is_left_may_be_used():
    clock = WorkClock(60)

    async def work():
        async with clock.running():
            with clock.halted():
                await asyncio.sleep(0.08)
            await asyncio.sleep(5)

    with pytest.raises(OutOfTime):
        await work()
    assert 50 <= clock.spent_ms < 200


async def test_a_withdrawn_run_is_ended_even_while_it_waits_for_a_person():
    clock = WorkClock(60_000)
    clock.withdraw("uid 7")
    clock.withdraw("uid 8")

    async def work():
        async with clock.running():
            with clock.halted():
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    clock.end_now()
    with pytest.raises(OutOfTime):
        await task
    assert clock.withdrawn_by == "uid 7"


async def test_ending_before_the_work_began_or_after_it_ended_does_no_harm():
    clock = WorkClock(60_000)
    clock.end_now()
    async with clock.running():
        pass
    clock.end_now()


async def test_a_timeout_of_the_work_itself_is_not_the_clocks():
    async def work():
        async with WorkClock(60_000).running(), asyncio.timeout(0.01):
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError):
        await work()
