from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.confd import named, read_folder, shipped
from hermesd.events import Event, EventStatus
from hermesd.rules.engine import judge
from hermesd.rules.rule import Rule
from hermesd.sources.base import InboxFull
from hermesd.sources.health import HealthSource
from hermesd.sources.health_found import Condition, Found
from hermesd.sources.settings_health import Check, HealthSettings

START = datetime(2026, 1, 1, tzinfo=UTC)
UP = Found(Condition.UP, "answered 200")
DOWN = Found(Condition.DOWN, "answered 503")
FAILED = Found(Condition.UNKNOWN, "no answer within 5 s")


class Bench:
    """One check whose answers are given; yields what each look delivers."""

    def __init__(self, times=3, refresh_s=300.0):
        self.now = START
        self.delivered = []
        self.full = False
        self.check = Check(name="web", url="http://127.0.0.1/", times=times, labels={"team": "shop"})
        settings = HealthSettings(kind="health", name="health", check=(self.check,), refresh_s=refresh_s)
        self.source = HealthSource(settings, "web1", now=lambda: self.now)

    async def deliver(self, events):
        if self.full:
            raise InboxFull
        self.delivered += events

    async def look(self, *found, seconds=15):
        before = len(self.delivered)
        for one in found:
            await self.source._look(self.check, one, self.deliver)
            self.now += timedelta(seconds=seconds)
        return [(one.type, one.status.value) for one in self.delivered[before:]]


async def test_a_target_that_is_up_is_said_to_be_so_once():
    bench = Bench()
    assert await bench.look(UP, UP, UP, seconds=1000) == [("health.check", "resolved")]


async def test_down_fires_at_once_and_up_resolves():
    bench = Bench()
    assert await bench.look(UP, DOWN, DOWN, UP) == [
        ("health.check", "resolved"),
        ("health.check", "firing"),
        ("health.check", "resolved"),
    ]


async def test_what_stays_down_is_told_again_after_the_refresh():
    bench = Bench(refresh_s=60)
    assert await bench.look(DOWN, DOWN, seconds=59) == [("health.check", "firing")]
    assert await bench.look(DOWN) == [("health.check", "firing")]


async def test_a_failed_probe_is_unknown_and_not_down_until_patience_ends():
    bench = Bench(times=3)
    assert await bench.look(UP, FAILED, FAILED) == [
        ("health.check", "resolved"),
        ("health.unknown", "reading"),
    ]
    assert await bench.look(FAILED) == [("health.check", "firing")]
    assert "3 times in a row" in bench.delivered[-1].text


async def test_an_answer_in_between_starts_the_count_of_failed_probes_anew():
    bench = Bench(times=2)
    found = await bench.look(UP, FAILED, UP, FAILED, UP)
    assert ("health.check", "firing") not in found


async def test_a_failed_probe_does_not_resolve_what_is_down():
    bench = Bench(times=3)
    assert await bench.look(DOWN, FAILED) == [("health.check", "firing"), ("health.unknown", "reading")]
    assert await bench.look(FAILED, FAILED) == [("health.check", "firing")]


async def test_what_a_full_inbox_refused_is_told_in_the_next_round():
    bench = Bench()
    bench.full = True
    assert await bench.look(DOWN) == []
    bench.full = False
    assert await bench.look(DOWN) == [("health.check", "firing")]


async def test_an_event_says_which_check_of_which_target_and_why():
    bench = Bench()
    await bench.look(DOWN)
    (event,) = bench.delivered
    assert event.labels == {"host": "web1", "check": "web", "target": "http://127.0.0.1/", "team": "shop"}
    assert event.text == "http://127.0.0.1/ is down: answered 503"


async def test_an_unknown_answer_carries_how_many_probes_failed_in_a_row():
    bench = Bench(times=3)
    await bench.look(FAILED)
    (event,) = bench.delivered
    assert (event.value, event.unit) == (1.0, "failures")


async def test_a_latency_is_a_reading_that_is_told_when_it_changed_by_a_tenth():
    bench = Bench()
    quick, slower, slow = (replace(UP, latency_ms=ms) for ms in (100.0, 105.0, 112.0))
    await bench.look(quick, slower, slow)
    found = [one for one in bench.delivered if one.type == "health.latency"]
    assert [(one.value, one.unit, one.status.value) for one in found] == [
        (100.0, "ms", "reading"),
        (112.0, "ms", "reading"),
    ]
    assert found[0].labels["check"] == "web"


async def test_a_certificate_is_a_reading_in_days_also_while_the_check_is_down():
    bench = Bench()
    await bench.look(replace(DOWN, certificate_days=12.5))
    (found,) = [one for one in bench.delivered if one.type == "health.certificate"]
    assert (found.value, found.unit) == (12.5, "days")


async def test_a_probe_that_failed_tells_no_latency():
    bench = Bench()
    await bench.look(replace(FAILED, latency_ms=5000.0))
    assert [one.type for one in bench.delivered] == ["health.unknown"]


@pytest.mark.parametrize(
    ("rule", "kind", "wrong", "between", "right"),
    [
        ("certificate", "health.certificate", 13.0, 17.0, 80.0),
        ("health-slow", "health.latency", 2500.0, 1500.0, 90.0),
    ],
)
def test_the_shipped_rules_open_hold_and_clear(rule, kind, wrong, between, right):
    (judged,) = [
        found for found in (named(one).read(Rule) for one in read_folder([shipped()], "rules"))
        if found.name == rule
    ]  # fmt: skip
    state, now, kinds = None, START, []
    for value in (right, wrong, wrong, between, right):
        labels = {"host": "h", "check": "web", "target": "https://shop.example"}
        event = Event("1", "health", kind, now, labels=labels, status=EventStatus.READING, value=value)
        verdict, state = judge(judged, event, state, now)
        kinds.append(verdict.kind.value)
        now += timedelta(seconds=judged.for_seconds + 1)
    assert kinds[0] == "below"
    assert kinds[2] in {"opened", "absorbed"}
    assert kinds[3:] == ["absorbed", "resolved"]
