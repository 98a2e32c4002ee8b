"""Failed units and restart loops: what is wrong is told, and its end too, over restarts of hermesd."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.confd import named, read_folder, shipped
from hermesd.events import Event, EventStatus
from hermesd.rules.engine import judge
from hermesd.rules.rule import Rule
from hermesd.sources.base import InboxFull
from hermesd.sources.bus import BusFailed, Unit
from hermesd.sources.health_asking import judge_unit
from hermesd.sources.sessions import Forgetful
from hermesd.sources.settings_units import UnitsSettings
from hermesd.sources.units import UnitsSource, note

START = datetime(2026, 1, 1, tzinfo=UTC)


def unit(name, active="active", sub="running", load="loaded"):
    return Unit(name, f"the {name}", load, active, sub, f"/unit/{name}")


class Systemd:
    """A systemd whose units are set by hand."""

    def __init__(self):
        self.states, self.counts, self.away, self.kept = {}, {}, False, True
        self.asked = 0

    async def units(self, states, patterns):
        if self.away:
            raise BusFailed("nobody is there")
        return [unit(name, active) for name, active in self.states.items() if not states or active in states]

    async def restarts(self, one):
        return self.counts.get(one.name, 0)

    async def clock_is_kept(self):
        self.asked += 1
        if self.kept is None:
            raise BusFailed("there is no timedated")
        return self.kept


class Bench:
    """A units source over a systemd set by hand. `restart` keeps only what is remembered."""

    def __init__(self, **settings):
        self.systemd, self.memory, self.now = Systemd(), Forgetful(), START
        self.settings = UnitsSettings(kind="units", name="units", **settings)
        self.delivered, self.full = [], False
        self.restart()

    def restart(self):
        self.source = UnitsSource(
            self.settings, "web1", self.connect, self.memory, now=lambda: self.now, sleep=self.sleep
        )

    @asynccontextmanager
    async def connect(self):
        yield self.systemd

    async def sleep(self, seconds):
        self.now += timedelta(seconds=seconds)
        raise SleepingError

    async def deliver(self, events):
        if self.full:
            raise InboxFull
        self.delivered += events

    async def look(self, after=30, **counts):
        """Look once, some seconds later; return what was told as (type, unit, value)."""
        self.now += timedelta(seconds=after)
        self.systemd.counts |= {f"{name}.service": count for name, count in counts.items()}
        before = len(self.delivered)
        await self.source.round(self.systemd, self.deliver)
        return [(one.type.partition(".")[2], one.subject, one.value) for one in self.delivered[before:]]


class SleepingError(Exception):
    pass


async def test_a_unit_that_fails_is_told_again_each_refresh_and_its_end_once():
    bench = Bench()
    bench.systemd.states = {"a.service": "active", "data.mount": "failed"}
    assert await bench.look() == [("unit_failed", "data.mount", 1)]
    assert await bench.look() == []
    assert await bench.look(300) == [("unit_failed", "data.mount", 1)]
    bench.systemd.states["data.mount"] = "inactive"
    assert await bench.look() == [("unit_failed", "data.mount", 0)]
    assert await bench.look(1000) == []


async def test_an_event_names_the_unit_and_its_host_and_is_a_reading_in_its_unit():
    bench = Bench()
    bench.systemd.states = {"a.service": "failed"}
    await bench.look()
    (event,) = bench.delivered
    assert event.labels == {"host": "web1", "unit_name": "a.service"}
    assert (event.status, event.unit) == (EventStatus.READING, "flag")
    assert event.text.startswith("a.service failed: the a.service")


async def test_a_unit_that_was_mended_while_hermesd_was_away_is_told_at_the_next_start():
    bench = Bench()
    bench.systemd.states = {"a.service": "failed"}
    await bench.look()
    bench.systemd.states = {}
    bench.restart()
    await bench.source.begin()
    assert await bench.look() == [("unit_failed", "a.service", 0)]
    bench.restart()
    await bench.source.begin()
    assert await bench.look() == []


async def test_what_a_full_inbox_refused_is_told_in_the_next_round():
    bench = Bench()
    bench.systemd.states = {"a.service": "failed"}
    bench.full = True
    assert await bench.look() == []
    bench.full = False
    assert await bench.look() == [("unit_failed", "a.service", 1)]


async def test_restarts_are_counted_from_when_hermesd_looked_first_and_end_with_the_window():
    bench = Bench()
    bench.systemd.states = {"a.service": "active"}
    assert await bench.look(a=40) == []
    assert await bench.look(a=42) == [("unit_restarts", "a.service", 2)]
    assert await bench.look(a=45) == [("unit_restarts", "a.service", 5)]
    assert await bench.look(540, a=45) == [("unit_restarts", "a.service", 5)]
    assert await bench.look(40, a=45) == [("unit_restarts", "a.service", 3)]
    assert await bench.look(30, a=45) == [("unit_restarts", "a.service", 0)]
    assert await bench.look(30, a=45) == []


async def test_a_service_between_two_starts_keeps_its_count():
    bench = Bench()
    bench.systemd.states = {"a.service": "active"}
    await bench.look(a=0)
    await bench.look(a=4)
    bench.systemd.states = {}
    assert await bench.look() == []
    bench.systemd.states = {"a.service": "activating"}
    assert await bench.look(a=6) == [("unit_restarts", "a.service", 6)]


def test_a_count_that_a_person_set_back_begins_anew():
    points = note(((START, 3),), START + timedelta(minutes=1), 9)
    assert note(points, START + timedelta(minutes=2), 1) == ((START + timedelta(minutes=2), 1),)


async def test_a_thousand_quiet_services_take_one_remembered_count_each():
    bench = Bench()
    bench.systemd.states = {f"{number}.service": "active" for number in range(1000)}
    for _ in range(3):
        assert await bench.look() == []
    assert sum(len(points) for points in bench.source._points.values()) == 1000


async def test_only_and_exclude_choose_units_and_exclude_wins():
    bench = Bench(only=("*.service",), exclude=("b.*",))
    bench.systemd.states = {"a.service": "failed", "b.service": "failed", "c.mount": "failed"}
    assert await bench.look() == [("unit_failed", "a.service", 1)]


async def test_a_clock_that_nothing_keeps_is_told_and_its_end_and_asked_for_every_five_minutes():
    bench = Bench()
    bench.systemd.kept = False
    assert await bench.look() == [("clock_lost", "clock", 1)]
    bench.systemd.kept = True
    assert await bench.look(299) == []
    assert await bench.look(1) == [("clock_lost", "clock", 0)]
    assert bench.systemd.asked == 2
    assert bench.delivered[-1].labels == {"host": "web1"}


@pytest.mark.parametrize("settings", [{}, {"clock": False}])
async def test_a_host_that_cannot_say_or_is_not_asked_for_its_clock_tells_its_units_all_the_same(settings):
    bench = Bench(**settings)
    bench.systemd.kept = None if not settings else False
    bench.systemd.states = {"a.service": "failed"}
    assert await bench.look() == [("unit_failed", "a.service", 1)]


async def test_a_host_without_a_bus_is_said_once_and_asked_again(caplog):
    bench = Bench()
    bench.systemd.away = True
    for _ in range(2):
        with pytest.raises(SleepingError):
            await bench.source.run(bench.deliver)
    assert [record.getMessage() for record in caplog.records] == ["units: nobody is there"]


@pytest.mark.parametrize(
    ("found", "condition"),
    [
        (unit("a", "active"), "up"),
        (unit("a", "reloading"), "up"),
        (unit("a", "activating"), "unknown"),
        (unit("a", "inactive", "dead"), "down"),
        (unit("a", "failed", "failed"), "down"),
        (unit("a", "inactive", "dead", "not-found"), "down"),
    ],
)
def test_a_health_check_of_a_unit_is_up_when_it_is_active_and_unknown_while_it_starts(found, condition):
    assert judge_unit(found).condition == condition


@pytest.mark.parametrize(
    ("rule", "kind", "values", "verdicts"),
    [
        ("unit-failed", "host.unit_failed", [1, 1, 0], ["opened", "absorbed", "resolved"]),
        (
            "unit-restarting",
            "host.unit_restarts",
            [4, 5, 2, 0],
            ["below", "opened", "absorbed", "resolved"],
        ),
    ],
)
def test_the_shipped_rules_open_hold_and_clear(rule, kind, values, verdicts):
    rules = (named(one).read(Rule) for one in read_folder([shipped()], "rules"))
    (judged,) = [one for one in rules if one.name == rule]
    state, found = None, []
    for value in values:
        labels = {"host": "h", "unit_name": "a.service"}
        event = Event("1", "units", kind, START, labels=labels, status=EventStatus.READING, value=value)
        verdict, state = judge(judged, event, state, START)
        found.append(verdict.kind.value)
    assert found == verdicts
