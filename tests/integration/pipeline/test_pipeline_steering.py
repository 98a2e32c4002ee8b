"""What people may do to runs: pause, resume, cancel."""

from __future__ import annotations

import asyncio

from hermesd.incidents import Outcome, RunStatus


async def test_a_paused_run_waits_at_its_next_stage_and_its_clock_halts(open_house, world, parts):
    gate = world.hold("log:stats")
    planner = parts.in_rounds(parts.acts(parts.action("look", "log:stats")), parts.finish())
    async with open_house(planner, stages={"run_ms": 400}) as house:
        await house.reading(93.0)
        run = await house.started()
        await house.until(lambda: _busy(world))
        assert await house.runner.pause(run.task_id, "uid 0") == "paused"
        gate.set()
        await house.until(lambda: _is(house, run.task_id, RunStatus.PAUSED))
        await asyncio.sleep(0.5)
        assert len(planner.asked) == 1
        await house.runner.resume(run.task_id, "uid 0")
        [run] = await house.ended()
    assert run.outcome is Outcome.REPORTED


async def test_a_paused_run_is_still_paused_after_a_restart(open_house, world, parts):
    world.hold("log:stats")
    planner = parts.in_rounds(parts.acts(parts.action("look", "log:stats")), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        run = await house.started()
        await house.until(lambda: _busy(world))
        await house.runner.pause(run.task_id, "uid 0")
        world.gates["log:stats"].set()
        await house.until(lambda: _is(house, run.task_id, RunStatus.PAUSED))
    async with open_house(planner) as house:
        await asyncio.sleep(0.05)
        assert await _is(house, run.task_id, RunStatus.PAUSED)
        await house.runner.resume(run.task_id, "uid 0")
        await house.ended()


async def test_while_starting_is_paused_events_are_judged_and_runs_wait(open_house, parts):
    async with open_house(parts.in_rounds(parts.finish())) as house:
        await house.runner.pause("", "uid 0")
        await house.reading(93.0)
        await house.until(lambda: _has_incident(house))
        assert [run.status for run in await house.runs()] == [RunStatus.QUEUED]
        await house.runner.resume("", "uid 0")
        await house.ended()
    assert [record["kind"] for record in house.records() if record["kind"].startswith("runs.")] == [
        "runs.paused",
        "runs.resumed",
    ]


async def test_cancelling_withdraws_what_waits_for_a_person(open_house, world, parts):
    world.hold("fs:cleanup")
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        run = await house.waiting()
        await house.runner.cancel(run.task_id, "uid 1000")
        [run] = await house.ended()
    assert run.outcome is Outcome.CANCELLED
    assert "uid 1000" in run.reason
    assert world.cancelled == [f"{run.task_id}.1.0.1"]
    assert not world.executed


async def test_a_paused_run_can_be_cancelled(open_house, world, parts):
    gate = world.hold("log:stats")
    planner = parts.in_rounds(parts.acts(parts.action("look", "log:stats")), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        run = await house.started()
        await house.until(lambda: _busy(world))
        await house.runner.pause(run.task_id, "uid 0")
        gate.set()
        await house.until(lambda: _is(house, run.task_id, RunStatus.PAUSED))
        await house.runner.cancel(run.task_id, "uid 0")
        [run] = await house.ended()
    assert run.outcome is Outcome.CANCELLED
    assert len(planner.asked) == 1


async def test_cancelling_cuts_a_thinking_planner_off(open_house, parts):
    planner = parts.Planner(lambda _: asyncio.sleep(60))
    async with open_house(planner) as house:
        await house.reading(93.0)
        run = await house.started()
        await house.until(lambda: _thinking(planner))
        await house.runner.cancel(run.task_id, "uid 1000")
        [run] = await house.ended(seconds=2.0)
    assert run.outcome is Outcome.CANCELLED
    assert [timing.outcome.value for timing in run.stages if timing.name == "plan"] == ["cancelled"]


async def test_a_change_that_has_begun_is_waited_for_when_its_run_is_cancelled(open_house, world, parts):
    begun, finish = asyncio.Event(), asyncio.Event()

    async def clean(request):
        begun.set()
        await finish.wait()
        return parts.result(request, gain=parts.GAIN)

    async def refuse(request_id):
        world.cancelled.append(request_id)
        return False

    world.answers["fs:cleanup"] = clean
    world.cancel = refuse
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        run = await house.started()
        await begun.wait()
        await house.runner.cancel(run.task_id, "uid 1000")
        assert house.runner.live(run.task_id)
        finish.set()
        [run] = await house.ended()
    assert run.outcome is Outcome.CANCELLED
    assert "37 removed files" in run.report, "what it did is reported"


async def test_a_queued_run_can_be_cancelled_and_an_ended_one_cannot(open_house, world, parts):
    async with open_house(parts.in_rounds(parts.finish())) as house:
        await house.runner.pause("", "uid 0")
        await house.reading(93.0)
        run = await house.started()
        assert await house.runner.cancel(run.task_id, "uid 1000") == "ended"
        [run] = await house.ended()
        assert await house.runner.cancel(run.task_id, "uid 1000") is None
        assert await house.runner.pause("run-unheard", "uid 0") is None
    assert run.outcome is Outcome.CANCELLED


async def _busy(world):
    return world.at_work


async def _thinking(planner):
    return planner.asked


async def _is(house, task_id, status):
    return (await house.find(task_id)).status is status


async def _has_incident(house):
    return await house.incidents()
