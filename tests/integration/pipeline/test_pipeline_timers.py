"""Rules over time and beside one another, with a real store: timers, budgets, modes, inhibition, windows."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.incidents import IncidentStatus, Outcome, RunStatus
from hermesd.rules.maintenance import Maintenance
from hermesd.state.events import find_event

MINUTE = timedelta(minutes=1)


class Clock:
    """Time that goes when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def go(self, minutes: float) -> None:
        self.now += minutes * MINUTE


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def quiet_house(open_house, clock):
    """A house in which nothing is judged but when it is told to, by a clock that is moved by hand."""

    def open_it(*rules, **more):
        return open_house(rules=rules, now=clock, serve=False, **more)

    return open_it


@pytest.fixture
def slow(parts):
    return parts.disk_rule(**{"for": "5m", "run": None})


async def test_a_condition_that_lasts_opens_without_a_second_reading(quiet_house, clock, slow):
    async with quiet_house(slow) as house:
        event = await house.reading(90)
        await house.dispatcher.judge_once()
        clock.go(4)
        await house.dispatcher.judge_once()
        assert await house.incidents() == []
        clock.go(1)
        await house.dispatcher.judge_once()
        [incident] = await house.incidents()
        stored = await house.kit.store.read(lambda c: find_event(c, event.id))
    assert incident.events == 1
    assert [verdict["kind"] for verdict in stored.verdicts] == ["pending", "opened"]
    assert stored.verdicts[-1]["by"] == "time"


async def test_a_timer_goes_on_over_a_restart(quiet_house, clock, slow):
    async with quiet_house(slow) as house:
        await house.reading(90)
        await house.dispatcher.judge_once()
    clock.go(5)
    async with quiet_house(slow) as house:
        await house.dispatcher.judge_once()
        assert len(await house.incidents()) == 1


async def test_a_timer_follows_the_rule_that_is_in_force_now(quiet_house, clock, parts, slow):
    async with quiet_house(slow) as house:
        await house.reading(90)
        await house.dispatcher.judge_once()
    clock.go(2)
    shorter = parts.disk_rule(**{"for": "1m", "run": None})
    async with quiet_house(shorter) as house:
        await house.dispatcher.judge_once()
        assert len(await house.incidents()) == 1


async def test_what_was_said_in_time_counts_before_what_its_silence_would_have_meant(
    quiet_house, clock, parts
):
    series = parts.disk_rule(threshold=None, clear=None, absent="5m", run=None)
    async with quiet_house(series) as house:
        await house.reading(1)
        await house.dispatcher.judge_once()
        clock.go(6)
        await house.reading(1)
        await house.dispatcher.judge_once()
        assert await house.incidents() == []
        clock.go(5)
        await house.dispatcher.judge_once()
        [incident] = await house.incidents()
        assert incident.status is IncidentStatus.OPEN
        clock.go(60 * 24 * 365)
        await house.dispatcher.judge_once()
        [incident] = await house.incidents()
        assert incident.status is IncidentStatus.OPEN, "an open incident is never aged out"
        await house.reading(1)
        await house.dispatcher.judge_once()
        [incident] = await house.incidents()
        assert incident.status is IncidentStatus.RESOLVED


async def test_the_dispatcher_wakes_by_itself_when_a_timer_is_due(open_house, parts):
    soon = parts.disk_rule(**{"for": "1s", "run": None})
    async with open_house(rules=[soon]) as house:
        await house.reading(90)
        [incident] = await house.until(house.incidents, seconds=10)
    assert incident.last_value == 90


async def _again(house, incidents):
    """Open, and resolve: the condition comes and goes. Return all incidents, the newest first."""
    await house.reading(90)

    async def opened():
        found = await house.incidents()
        return found if len(found) > incidents else None

    await house.until(opened)
    await house.reading(10)

    async def resolved():
        found = await house.incidents()
        return found if all(item.status is IncidentStatus.RESOLVED for item in found) else None

    return await house.until(resolved)


async def test_a_spent_budget_starts_nothing_and_says_that_a_person_must_look(open_house, parts):
    rule = parts.disk_rule(cooldown="0s", budget={"per_target": 1})
    async with open_house(parts.in_rounds(parts.finish()), rules=[rule]) as house:
        await _again(house, 0)
        await house.ended()
        incidents = await _again(house, 1)
        assert len(await house.runs()) == 1
        [escalated] = house.records("incident.escalated")
    held = [incident for incident in incidents if incident.escalated]
    assert [incident.id for incident in held] == [escalated["incident"]]
    assert "a person must look" in held[0].escalated


async def test_while_an_incident_explains_another_only_the_first_has_a_run(open_house, parts):
    cause = parts.disk_rule(name="cause", match=["path=/root"], run=None)
    effect = parts.disk_rule(
        name="effect", match=["path!=/root"], cooldown="0s", inhibit=[{"by": "cause", "equal": ["host"]}]
    )
    async with open_house(parts.in_rounds(parts.finish()), rules=[cause, effect]) as house:
        await house.reading(90, "/root")
        held = await house.reading(90, "/var")

        async def both():
            return len(await house.incidents()) == 2

        await house.until(both)
        assert await house.runs() == []
        stored = await house.kit.store.read(lambda c: find_event(c, held.id))
        assert stored.verdicts[0]["held"] == "inhibited"
        await house.reading(10, "/root")
        await house.reading(91, "/var")
        [run] = await house.ended()
    assert run.goal == "Find what fills /var"


@pytest.fixture
def busy_house(open_house, parts, world):
    """A house whose runs look once, and stay at it until the gate is opened."""

    def open_it(**run):
        planner = parts.in_rounds(parts.acts(parts.action()), parts.finish())
        rule = parts.disk_rule(run={"goal": "Find what fills {path}", **run})
        return open_house(planner, rules=[rule])

    return open_it


async def _looking(house):
    async def at_work():
        return house.world.at_work

    return await house.until(at_work)


async def test_mode_single_starts_nothing_beside_a_run_that_has_not_ended(busy_house, world):
    gate = world.hold("system:disk_usage")
    async with busy_house(mode="single") as house:
        await house.reading(90, "/a")
        await _looking(house)
        event = await house.reading(90, "/b")

        async def judged():
            stored = await house.kit.store.read(lambda c: find_event(c, event.id))
            return stored.verdicts

        [verdict] = await house.until(judged)
        gate.set()
        await house.ended()
        assert len(await house.runs()) == 1
    assert verdict["kind"] == "opened"
    assert verdict["held"] == "busy"


async def test_mode_queued_starts_the_next_run_when_the_first_has_ended(busy_house, world):
    gate = world.hold("system:disk_usage")
    async with busy_house(mode="queued") as house:
        await house.reading(90, "/a")
        await _looking(house)
        await house.reading(90, "/b")

        async def waits():
            return [run for run in await house.runs() if run.status is RunStatus.QUEUED]

        [waiting] = await house.until(waits)
        gate.set()
        ended = await house.ended(2)
    assert waiting.goal == "Find what fills /b"
    assert world.most_at_work == 1
    assert {run.outcome for run in ended} == {ended[0].outcome}


async def test_mode_restart_withdraws_the_run_at_work_for_the_new_one(busy_house, world):
    world.hold("system:disk_usage")
    async with busy_house(mode="restart") as house:
        await house.reading(90, "/a")
        await _looking(house)
        await house.reading(90, "/b")
        newest, first = await house.ended(2)
    assert first.outcome is Outcome.CANCELLED
    assert newest.goal == "Find what fills /b"
    assert newest.outcome is not Outcome.CANCELLED


async def test_of_runs_that_wait_for_a_place_the_higher_priority_goes_first(open_house, parts, world):
    gate = world.hold("system:disk_usage")
    planner = parts.in_rounds(parts.acts(parts.action()), parts.finish())
    rules = [
        parts.disk_rule(name=name, match=[f"path=/{name}"], priority=priority)
        for name, priority in (("first", 0), ("low", -5), ("high", 5))
    ]
    async with open_house(planner, rules=rules, limits={"parallel_runs": 1}) as house:
        await house.reading(90, "/first")
        await _looking(house)
        await house.reading(90, "/low")
        await house.reading(90, "/high")

        async def three():
            return len(await house.runs()) == 3

        await house.until(three)
        gate.set()
        ended = await house.ended(3)
    order = [run.goal.rpartition("/")[2] for run in sorted(ended, key=lambda run: run.started_at)]
    assert order == ["first", "high", "low"]


async def test_in_a_maintenance_window_an_incident_opens_and_no_run_starts(open_house, parts):
    begin = datetime.now(UTC) - timedelta(hours=1)
    window = Maintenance.model_validate(
        {"reason": "disks are moved", "from": begin, "to": begin + timedelta(hours=2)}
    )
    async with open_house(timed={"maintenance": (window,)}) as house:
        event = await house.reading(90)
        [_incident] = await house.until(house.incidents)
        await asyncio.sleep(0)
        assert await house.runs() == []
        stored = await house.kit.store.read(lambda c: find_event(c, event.id))
    assert stored.verdicts[0]["held"] == "maintenance"
    assert "disks are moved" in stored.verdicts[0]["reason"]
