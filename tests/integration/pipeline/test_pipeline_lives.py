"""Runs over several lives of the process: what was decided is done once, whatever ends in between."""

from __future__ import annotations

import asyncio

from hermesd.incidents import Outcome, RunStatus
from hermesd.protocol import ResultStatus


async def test_a_run_killed_while_its_command_runs_asks_after_it_and_goes_on(open_house, world, parts):
    gate = world.hold("log:stats")
    planner = parts.in_rounds(
        parts.acts(parts.action("a", path="/a")),
        parts.acts(parts.action("b", "log:stats", "/b"), parts.action("c", "log:stats", "/c")),
        parts.finish(),
    )
    async with open_house(planner) as house:
        await house.reading(93.0)
        await house.until(lambda: _asked(world, "log:stats"))
        # A kill: nothing can be written from here on, and what the executor does goes on without us.
        await asyncio.to_thread(house.kit.store.close)
        first = list(world.asked)
    request = first[-1][0]
    assert request.request_id.endswith(".2.0.1")
    world.results[request.request_id] = parts.result(request, summary="done meanwhile")
    world.executed[request.request_id] += 1
    gate.set()
    async with open_house(planner) as house:
        [run] = await house.ended()
        resumed = house.records("run.resumed")
    assert run.outcome is Outcome.REPORTED
    assert len(resumed) == 1
    assert set(world.executed.values()) == {1}, "nothing is executed twice"
    assert len(world.executed) == 3
    again = [item for item in world.asked if item[0].request_id == request.request_id]
    assert again[0][0] == again[1][0], "the same request, to the letter"
    assert [item[2] for item in again] == [False, True], "the hands are told that it may have been sent"
    assert [seen.summary for seen in planner.asked[-1].observations][1] == "done meanwhile"


async def test_a_stop_leaves_runs_open_and_the_next_start_goes_on(open_house, world, parts):
    world.hold("fs:cleanup")
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner, stages={"review_ms": 10}) as house:
        await house.reading(93.0)
        waiting = await house.waiting()
    assert not world.cancelled, "a stop withdraws nothing"
    world.gates.clear()
    async with open_house(planner, stages={"review_ms": 10}) as house:
        [run] = await house.ended()
    assert run.task_id == waiting.task_id
    assert run.outcome is Outcome.REPORTED
    assert sum(world.executed.values()) == 1


async def test_a_change_in_doubt_after_a_crash_ends_the_run_as_unknown(open_house, world, parts):
    world.hold("fs:cleanup")
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        await house.waiting()
    [(request, changing, _sent)] = world.asked
    assert changing
    world.results[request.request_id] = parts.result(request, ResultStatus.UNKNOWN, summary="")
    async with open_house(planner) as house:
        [run] = await house.ended()
    assert run.outcome is Outcome.UNKNOWN
    assert "a person must look" in run.report
    assert not world.executed


async def test_who_took_over_before_the_crash_goes_on_after_it(open_house, world, parts):
    world.hold("log:stats")
    model = parts.Planner(lambda _: parts.late(), "model")
    runbook = parts.in_rounds(parts.acts(parts.action("a", "log:stats")), parts.finish(), name="runbook")
    async with open_house(model, runbook) as house:
        await house.reading(93.0)
        await house.until(lambda: _asked(world, "log:stats"))
    world.gates.clear()
    async with open_house(model, runbook) as house:
        [run] = await house.ended()
    assert run.outcome is Outcome.REPORTED
    assert len(model.asked) == 1


async def test_refusals_are_counted_over_a_crash(open_house, world, parts):
    stuck = asyncio.Event()

    async def think(situation):
        if len(situation.refusals) == 2:
            await stuck.wait()
        return parts.acts(parts.action(name="fs:unheard"))

    planner = parts.Planner(think)
    async with open_house(planner) as house:
        await house.reading(93.0)
        await house.until(lambda: _came_to(planner, 3))
    stuck.set()
    async with open_house(planner) as house:
        [run] = await house.ended()
    assert run.outcome is Outcome.HANDED_OVER
    assert len(planner.asked) == 4, "one more after the crash, not three"


async def test_a_finish_that_was_stored_is_not_planned_again(open_house, parts):
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        await house.until(lambda: _in_stage(house, "review"))
    async with open_house(planner, stages={"review_ms": 10}) as house:
        [run] = await house.ended()
    assert run.outcome is Outcome.REPORTED
    assert len(planner.asked) == 2


async def test_working_time_is_counted_over_lives(open_house, world, parts):
    world.hold("log:stats")
    planner = parts.in_rounds(
        parts.acts(parts.action("a", "system:disk_usage")), parts.acts(parts.action("b", "log:stats"))
    )
    slow = parts.Planner(lambda situation: _after(0.2, planner, situation))
    async with open_house(slow) as house:
        await house.reading(93.0)
        await house.until(lambda: _asked(world, "log:stats"))
    async with open_house(planner, stages={"run_ms": 300}) as house:
        [run] = await house.ended()
    assert run.outcome is Outcome.TIMED_OUT
    assert run.worked_ms >= 300


async def test_events_that_were_accepted_before_a_kill_are_judged_after_it(open_house, parts):
    async with open_house(serve=False) as house:
        event = await house.reading(93.0)
    async with open_house(parts.in_rounds(parts.finish())) as house:
        [run] = await house.ended()
        assert house.inbox.undecided == 0
    assert run.event_id == event.id


async def test_a_queued_run_starts_after_a_restart(open_house, world, parts):
    world.hold("log:stats")
    planner = parts.in_rounds(parts.acts(parts.action("look", "log:stats")), parts.finish())
    limits = {"parallel_runs": 1}
    async with open_house(planner, limits=limits) as house:
        await house.reading(93.0, "/a")
        await house.reading(93.0, "/b")
        await house.until(lambda: _has(house, RunStatus.QUEUED))
    world.gates.clear()
    async with open_house(planner, limits=limits) as house:
        runs = await house.ended(2)
    assert {run.outcome for run in runs} == {Outcome.REPORTED}


async def _after(seconds, planner, situation):
    await asyncio.sleep(seconds)
    return await planner.decide(situation)


async def _asked(world, name):
    return any(request.command == name for request, *_ in world.asked)


async def _came_to(planner, number):
    return len(planner.asked) >= number


async def _in_stage(house, stage):
    runs = await house.runs()
    live = house.runner.live(runs[0].task_id) if runs else None
    return live is not None and live.stage == stage


async def _has(house, status):
    return any(run.status is status for run in await house.runs())
