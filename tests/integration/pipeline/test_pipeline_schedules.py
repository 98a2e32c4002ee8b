"""From a slot of a schedule to its run, with a real store, dispatcher and runner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hermesd.incidents import Outcome, RunKind, RunStatus
from hermesd.sources.schedule import ScheduleSource
from hermesd.sources.schedule_file import Schedule
from hermesd.state.events import find_event
from hermesd.state.memory import StoredMemory


def schedule(**settings):
    return Schedule.model_validate(
        {"name": "hourly", "every": "1h", "task": "Look at /var/log, please", **settings}
    )


class Clock:
    def __init__(self):
        self.now = datetime.now(UTC).replace(minute=30)

    def __call__(self):
        return self.now


class Timekeeper:
    """The schedule source over a house, at a clock set by hand."""

    def __init__(self, house, *schedules):
        self.house, self.clock = house, Clock()
        memory = StoredMemory(house.kit.store, "schedule")
        self.source = ScheduleSource(lambda: schedules, memory, now=self.clock)

    async def begin(self):
        await self.source.look_once(self.house.inbox.accept)

    async def next_slot(self):
        """Let the next slot come; return its event's id once it is judged."""
        self.clock.now = (self.clock.now + timedelta(hours=1)).replace(minute=0)
        await self.source.look_once(self.house.inbox.accept)
        return f"hourly:{self.clock.now:%Y-%m-%dT%H}:00:00Z"

    async def verdicts(self, event_id):
        async def look():
            stored = await self.house.kit.store.read(lambda c: find_event(c, event_id))
            return stored and stored.verdicts

        return await self.house.until(look)


@pytest.fixture
def planner(parts):
    return parts.in_rounds(parts.acts(parts.action()), parts.finish())


async def test_a_slot_becomes_a_run_of_the_schedule_that_ends_answered(open_house, planner):
    one = schedule()
    async with open_house(planner, timed={"schedules": (one,)}) as house:
        keeper = Timekeeper(house, one)
        await keeper.begin()
        slot = await keeper.next_slot()
        [run] = await house.ended()
        assert (run.kind, run.goal, run.event_id) == (RunKind.SCHEDULE, one.goal, slot)
        assert run.outcome is Outcome.ANSWERED
        assert run.incident_id is None
        assert await house.incidents() == []
        assert planner.asked[0].briefing.facts["path"] == "/var/log"
        [verdict] = await keeper.verdicts(slot)
        assert (verdict["schedule"], verdict["kind"], verdict["run"]) == ("hourly", "started", run.task_id)
        [record] = [one for one in house.records("event.verdict") if one.get("schedule")]
        assert record["run"] == run.task_id


async def test_a_slot_delivered_twice_is_one_run(open_house, planner):
    one = schedule()
    async with open_house(planner, timed={"schedules": (one,)}) as house:
        keeper = Timekeeper(house, one)
        await keeper.begin()
        forgotten = await StoredMemory(house.kit.store, "schedule").recall()
        await keeper.next_slot()
        await house.ended()
        await StoredMemory(house.kit.store, "schedule").remember(forgotten)
        await keeper.source.look_once(house.inbox.accept)
        assert house.inbox.undecided == 0
        assert len(await house.runs()) == 1


async def test_a_slot_whose_last_run_has_not_ended_is_skipped_and_says_so(open_house, planner, world):
    one = schedule(overlap="skip")
    async with open_house(planner, timed={"schedules": (one,)}) as house:
        gate = world.hold("system:disk_usage")
        keeper = Timekeeper(house, one)
        await keeper.begin()
        await keeper.next_slot()
        first = await house.started()
        [verdict] = await keeper.verdicts(await keeper.next_slot())
        assert verdict["kind"] == "skipped"
        assert first.task_id in verdict["reason"]
        gate.set()
        await house.ended()
        assert len(await house.runs()) == 1


async def test_with_queue_one_run_waits_for_the_last_to_end_and_no_more_than_one(open_house, planner, world):
    one = schedule(overlap="queue")
    async with open_house(planner, timed={"schedules": (one,)}) as house:
        gate = world.hold("system:disk_usage")
        keeper = Timekeeper(house, one)
        await keeper.begin()
        kinds = []
        for _ in range(3):
            [verdict] = await keeper.verdicts(await keeper.next_slot())
            kinds.append(verdict["kind"])
        assert kinds == ["started", "queued", "skipped"]
        assert [run.status for run in await house.runs()] == [RunStatus.QUEUED, RunStatus.RUNNING]
        assert world.most_at_work <= 1
        gate.set()
        assert len(await house.ended(2)) == 2
        assert world.most_at_work == 1


async def test_a_slot_of_a_schedule_that_is_gone_runs_nothing(open_house, planner):
    async with open_house(planner, timed={"schedules": ()}) as house:
        keeper = Timekeeper(house, schedule())
        await keeper.begin()
        [verdict] = await keeper.verdicts(await keeper.next_slot())
        assert verdict["kind"] == "skipped"
        assert await house.runs() == []
