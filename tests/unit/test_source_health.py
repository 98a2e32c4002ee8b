from datetime import UTC, datetime, timedelta

from hermesd.sources.base import InboxFull
from hermesd.sources.health import Condition, Found, HealthSource
from hermesd.sources.settings import Check, HealthSettings

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
