import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.events import Event
from hermesd.sources.base import InboxFull, SourceFailed, SourceHalted
from hermesd.sources.settings import HostSettings
from hermesd.sources.supervisor import Supervisor, pause_after
from hermesd.telemetry import Metrics

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A wall clock that moves only when a pause is slept or a test says so."""

    def __init__(self):
        self.now = START
        self.pauses = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += timedelta(seconds=seconds)
        await asyncio.sleep(0)


class Scripted:
    """A source whose lives are given: an exception to raise, or a function of deliver."""

    kind = "host"

    def __init__(self, name, lives):
        self.name = name
        self.lives = list(lives)
        self.began = 0
        self.stopped = asyncio.Event()
        self.idle = asyncio.Event()

    async def run(self, deliver):
        self.began += 1
        try:
            if self.lives:
                life = self.lives.pop(0)
                if isinstance(life, Exception):
                    raise life
                await life(deliver)
                return
            self.idle.set()
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


def settings(name, **more):
    return HostSettings(kind="host", name=name, **more)


def event(number=1):
    return Event(id=f"e{number}", source="s", type="t", time=START)


async def keep_events(_events):
    return None


@asynccontextmanager
async def supervised(sources, wanted, *, clock=None, deliver=keep_events, chance=lambda: 0.0):
    clock = clock or Clock()
    metrics = Metrics()
    made = {source.name: source for source in sources}
    supervisor = Supervisor(lambda one: made[one.name], metrics, now=clock, sleep=clock.sleep, chance=chance)
    task = asyncio.create_task(supervisor.run(wanted, deliver))
    try:
        await asyncio.sleep(0)
        yield supervisor, metrics
    finally:
        task.cancel()
        await asyncio.wait({task})


async def wait_idle(source):
    async with asyncio.timeout(5):
        await source.idle.wait()


async def test_a_source_that_dies_is_started_again_after_growing_pauses():
    clock = Clock()
    source = Scripted("a", [ValueError("no")] * 8)
    async with supervised([source], [settings("a")], clock=clock) as (supervisor, metrics):
        await wait_idle(source)
        assert clock.pauses == [1, 2, 4, 8, 16, 30, 30, 30]
        assert supervisor.states()[0].restarts == 8
        assert metrics.registry.get_sample_value("hermesd_source_restarts_total", {"source": "a"}) == 8


def test_pauses_stay_between_one_and_sixty_seconds_and_are_drawn_within_their_upper_half():
    assert [pause_after(deaths, 0.0) for deaths in (1, 2, 6, 60)] == [1, 2, 30, 30]
    assert [round(pause_after(deaths, 0.999999)) for deaths in (1, 2, 6, 10_000)] == [2, 4, 60, 60]


async def test_a_source_that_lived_long_starts_with_the_first_pause_again():
    clock = Clock()

    async def live_a_minute(_deliver):
        clock.now += timedelta(seconds=61)
        raise SourceFailed("gone")

    source = Scripted("a", [SourceFailed("gone")] * 4 + [live_a_minute, SourceFailed("gone")])
    async with supervised([source], [settings("a")], clock=clock):
        await wait_idle(source)
        assert clock.pauses == [1, 2, 4, 8, 1, 2]


async def test_one_death_does_not_touch_the_other_sources():
    dying, living = Scripted("a", [RuntimeError("x")]), Scripted("b", [])
    async with supervised([dying, living], [settings("a"), settings("b")]) as (supervisor, _):
        await wait_idle(dying)
        assert living.began == 1
        assert [state.restarts for state in supervisor.states()] == [1, 0]


async def test_a_source_that_ends_by_itself_counts_as_dead():
    async def end(_deliver):
        return None

    source = Scripted("a", [end])
    async with supervised([source], [settings("a")]) as (supervisor, _):
        await wait_idle(source)
        assert supervisor.states()[0].error == "it ended by itself"


async def test_a_death_is_logged_once_for_each_new_reason(caplog):
    lives = [SourceFailed("down"), SourceFailed("down"), SourceFailed("refused"), SourceFailed("refused")]
    source = Scripted("a", lives)
    with caplog.at_level(logging.WARNING, "hermesd.sources"):
        async with supervised([source], [settings("a")]):
            await wait_idle(source)
    assert [record.getMessage() for record in caplog.records] == [
        "source a died: down",
        "source a died: refused",
    ]


async def test_an_unexpected_death_is_logged_with_its_trace_and_an_expected_one_without(caplog):
    source = Scripted("a", [SourceFailed("down"), KeyError("bug")])
    with caplog.at_level(logging.WARNING, "hermesd.sources"):
        async with supervised([source], [settings("a")]):
            await wait_idle(source)
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]


async def test_a_group_of_faults_is_told_by_its_first_leaf():
    source = Scripted("a", [ExceptionGroup("x", [ExceptionGroup("y", [SourceFailed("down")])])])
    async with supervised([source], [settings("a")]) as (supervisor, _):
        await wait_idle(source)
        assert supervisor.states()[0].error == "down"


async def test_status_shows_why_a_source_waits_and_forgets_it_once_it_delivers():
    clock, states = Clock(), []

    async def deliver_one(deliver):
        states.append(supervisor.states()[0])
        await deliver([event()])
        states.append(supervisor.states()[0])
        raise SourceFailed("second")

    source = Scripted("a", [SourceFailed("first"), deliver_one])
    async with supervised([source], [settings("a")], clock=clock) as (supervisor, _):
        await wait_idle(source)
        assert [(state.state, state.error) for state in states] == [("running", "first"), ("running", "")]
        assert states[0].last_event_at is None
        assert states[1].last_event_at is not None
        assert supervisor.states()[0].error == "second"
        clock.now += timedelta(seconds=61)
        assert supervisor.states()[0].error == ""


async def test_an_event_that_was_not_taken_is_not_shown_as_delivered():
    async def refuse(_events):
        raise RuntimeError("store gone")

    async def deliver_one(deliver):
        await deliver([event()])

    source = Scripted("a", [deliver_one])
    async with supervised([source], [settings("a")], deliver=refuse) as (supervisor, _):
        await wait_idle(source)
        assert supervisor.states()[0].last_event_at is None
        assert "store gone" in supervisor.states()[0].error


async def test_a_source_that_cannot_be_built_is_tried_again_like_a_dead_one():
    clock = Clock()
    source = Scripted("a", [])
    attempts = iter([ImportError("no library"), source])

    def make(_settings):
        found = next(attempts)
        if isinstance(found, Exception):
            raise found
        return found

    supervisor = Supervisor(make, Metrics(), now=clock, sleep=clock.sleep, chance=lambda: 0.0)
    task = asyncio.create_task(supervisor.run([settings("a")], keep_events))
    await wait_idle(source)
    assert "no library" in supervisor.states()[0].error
    task.cancel()
    await asyncio.wait({task})


async def test_a_disabled_source_is_shown_as_off_and_does_not_run():
    source = Scripted("a", [])
    async with supervised([source], [settings("a", enabled=False)]) as (supervisor, _):
        await asyncio.sleep(0.01)
        assert [state.state for state in supervisor.states()] == ["off"]
        assert source.began == 0


async def test_a_reload_keeps_what_did_not_change_and_starts_and_stops_the_rest():
    kept, gone, new = Scripted("kept", []), Scripted("gone", []), Scripted("new", [])
    async with supervised([kept, gone, new], [settings("kept"), settings("gone")]) as (supervisor, _):
        await wait_idle(gone)
        await supervisor.apply([settings("kept"), settings("new")])
        await wait_idle(new)
        assert (kept.began, kept.stopped.is_set(), gone.stopped.is_set()) == (1, False, True)
        assert [state.name for state in supervisor.states()] == ["kept", "new"]


async def test_a_reload_restarts_a_source_whose_settings_changed():
    source = Scripted("a", [])
    async with supervised([source], [settings("a")]) as (supervisor, _):
        await wait_idle(source)
        await supervisor.apply([settings("a", interval_s=1.0)])
        await asyncio.sleep(0.01)
        assert source.began == 2
        await supervisor.apply([settings("a", enabled=False)])
        assert supervisor.states()[0].state == "off"


async def test_a_reload_with_a_name_given_twice_changes_nothing():
    source = Scripted("a", [])
    async with supervised([source], [settings("a")]) as (supervisor, _):
        await wait_idle(source)
        with pytest.raises(ValueError, match="same name"):
            await supervisor.apply([settings("b"), settings("b")])
        assert [state.name for state in supervisor.states()] == ["a"]


async def test_every_source_has_stopped_when_the_supervisor_ends():
    first, second = Scripted("a", []), Scripted("b", [])
    async with supervised([first, second], [settings("a"), settings("b")]):
        await wait_idle(second)
    assert first.stopped.is_set()
    assert second.stopped.is_set()


async def test_a_source_that_must_not_go_on_is_halted_with_an_alarm_until_a_reload(caplog):
    clock, told = Clock(), []
    sources = [Scripted("twin", [SourceHalted("a twin")]), Scripted("twin", [])]
    faults = [InboxFull(3.0)]

    async def deliver(events):
        if faults:
            raise faults.pop()
        told.extend(events)

    supervisor = Supervisor(lambda _settings: sources.pop(0), Metrics(), now=clock, sleep=clock.sleep)
    task = asyncio.create_task(supervisor.run([settings("twin")], deliver))
    async with asyncio.timeout(5):
        while not told:
            await asyncio.sleep(0)
    (state,) = supervisor.states()
    assert (state.state, state.error) == ("halted", "a twin")
    assert "source twin died: a twin" in caplog.text
    assert clock.pauses == [3.0], "the inbox was waited for, and no second life was planned"
    second = sources[0]
    await supervisor.apply([settings("twin")])
    async with asyncio.timeout(5):
        await second.idle.wait()
    assert supervisor.states()[0].state == "running"
    assert [(one.type, one.status, one.labels["source"]) for one in told] == [
        ("hermesd.source_halted", "firing", "twin"),
        ("hermesd.source_halted", "resolved", "twin"),
    ]
    task.cancel()
    await asyncio.wait({task})
