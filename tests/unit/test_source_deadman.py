"""Who is expected to speak and stays silent: told once, over restarts too, and told again when they speak."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from hermesd.confd import named, read_folder, shipped
from hermesd.events import Event, EventStatus
from hermesd.rules.engine import judge
from hermesd.rules.rule import Rule
from hermesd.sources.base import InboxFull, Unreadable
from hermesd.sources.deadman import DeadManSource, Ear
from hermesd.sources.plain import Defaults, read_plain
from hermesd.sources.settings import WebhookSettings
from hermesd.sources.settings_base import Expect
from hermesd.state.memory import StoredMemory
from hermesd.state.store import open_store

START = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = Expect(every_s=600, grace_s=60)
BOILER = Expect(name="boiler", subject="plant/boiler", every_s=60, grace_s=10)


class Book:
    """A memory that outlives a source."""

    def __init__(self):
        self.state = {}
        self.writes = 0

    async def recall(self):
        return self.state

    async def remember(self, state):
        self.state = dict(state)
        self.writes += 1


class Bench:
    """A dead-man over one webhook source, with clocks set by hand."""

    def __init__(self, *expect):
        self.now, self.mono = START, 0.0
        self.book, self.taken, self.full = Book(), {}, False
        self.expect(*expect)
        self.start()

    def expect(self, *expect, enabled=True):
        self.sources = (WebhookSettings(kind="webhook", name="alerts", expect=expect, enabled=enabled),)

    def start(self):
        self.ear = Ear(lambda: self.sources, now=lambda: self.now)
        self.source = DeadManSource(self.ear, self.book, now=lambda: self.now, monotonic=lambda: self.mono)

    async def begin(self):
        await self.source.begin()
        await self.look()
        return self

    async def deliver(self, events):
        if self.full:
            raise InboxFull
        for event in events:
            self.taken.setdefault(event.id, event)

    async def say(self, kind="plant.beat", **more):
        event = Event(f"e{self.mono}{more}", "alerts", kind, self.now, **more)
        await self.ear.beside(self.deliver)([event])

    async def look(self, after=0.0):
        """Let time pass and look; return what was told as (series, status)."""
        self.now += timedelta(seconds=after)
        self.mono += after
        before = set(self.taken)
        await self.source.look_once(self.deliver)
        found = [event for key, event in self.taken.items() if key not in before]
        return [(event.subject, event.status.value) for event in found if event.type == "source.silent"]

    async def restart(self, after):
        """The process ends and begins again some seconds later."""
        self.now += timedelta(seconds=after)
        self.mono = 0.0
        self.start()
        await self.begin()


async def test_a_source_that_stays_silent_for_longer_than_expected_is_told_once():
    bench = await Bench(EVERY).begin()
    await bench.say()
    assert await bench.look(659) == []
    assert await bench.look(2) == [("alerts", "firing")]
    assert await bench.look(5000) == []
    (event,) = [one for one in bench.taken.values() if one.type == "source.silent"]
    assert (event.source, event.labels) == ("deadman", {"source": "alerts", "series": "alerts"})
    assert event.text == "alerts has said nothing for 11m1s; it is expected every 10m"
    assert (event.value, event.unit) == (661, "seconds")


async def test_a_source_that_never_spoke_is_silent_too():
    bench = await Bench(EVERY).begin()
    assert await bench.look(661) == [("alerts", "firing")]


async def test_who_speaks_again_is_told_as_resolved():
    bench = await Bench(EVERY).begin()
    await bench.look(700)
    await bench.say()
    assert await bench.look(1) == [("alerts", "resolved")]
    assert await bench.look(661) == [("alerts", "firing")]


async def test_a_series_is_heard_by_its_subject_and_not_by_another():
    bench = await Bench(BOILER).begin()
    for _ in range(3):
        await bench.say(subject="plant/pump")
        found = await bench.look(25)
    assert found == [("alerts/boiler", "firing")]
    await bench.say(subject="plant/boiler")
    assert await bench.look(1) == [("alerts/boiler", "resolved")]


async def test_what_hermesd_says_about_a_source_is_not_the_sources_word():
    bench = await Bench(EVERY).begin()
    bench.now += timedelta(seconds=600)
    bench.mono += 600
    await bench.say("hermesd.source_halted")
    assert await bench.look(61) == [("alerts", "firing")]


async def test_the_timer_goes_on_over_a_restart():
    bench = await Bench(EVERY).begin()
    await bench.say()
    await bench.look(16)
    await bench.restart(600)
    assert await bench.look(59) == []
    assert await bench.look(2) == [("alerts", "firing")]


async def test_what_was_heard_is_in_the_state_store_and_read_from_it_by_the_next_life(tmp_path):
    bench = Bench(EVERY)
    for life, (after, told) in enumerate([(700, "firing"), (700, None), (20, "resolved")]):
        store = open_store(tmp_path / "state.sqlite3")
        try:
            bench.book = StoredMemory(store, "deadman")
            bench.start()
            await bench.begin()
            if life == 2:
                await bench.say()
            found = await bench.look(after)
        finally:
            store.close()
        assert found == ([("alerts", told)] if told else [])


def test_nobody_outside_can_say_that_a_source_is_silent():
    with pytest.raises(Unreadable):
        read_plain({"type": "source.silent"}, Defaults("alerts", "webhook.event", "e1", START, {}))


async def test_after_a_start_there_is_the_grace_to_speak_however_long_nobody_listened():
    bench = await Bench(EVERY).begin()
    await bench.say()
    await bench.look(16)
    await bench.restart(86_400)
    assert await bench.look(59) == []
    await bench.say()
    assert await bench.look(600) == []


async def test_a_silence_that_was_told_before_a_restart_is_not_told_again_and_still_ends():
    bench = await Bench(EVERY).begin()
    await bench.look(700)
    await bench.restart(100)
    assert await bench.look(700) == []
    await bench.say()
    assert await bench.look(1) == [("alerts", "resolved")]


async def test_what_a_full_inbox_refused_is_told_at_the_next_look():
    bench = await Bench(EVERY).begin()
    bench.full = True
    with pytest.raises(InboxFull):
        await bench.look(700)
    bench.full = False
    assert await bench.look(1) == [("alerts", "firing")]


async def test_a_clock_that_is_set_makes_nobody_silent():
    bench = await Bench(EVERY).begin()
    await bench.say()
    await bench.look(10)
    bench.now += timedelta(days=1)
    assert await bench.look(5) == []
    bench.now -= timedelta(days=2)
    assert await bench.look(5) == []
    assert await bench.look(650) == [("alerts", "firing")]


@pytest.mark.parametrize("enabled", [True, False])
async def test_who_is_no_longer_expected_is_told_as_resolved(enabled):
    bench = await Bench(EVERY).begin()
    await bench.look(700)
    bench.expect(*([] if enabled else [EVERY]), enabled=enabled)
    assert await bench.look(1) == [("alerts", "resolved")]
    assert bench.book.state == {}


async def test_a_busy_source_is_written_down_a_few_times_a_minute_and_not_with_each_word():
    bench = await Bench(EVERY).begin()
    for _ in range(60):
        await bench.say()
        await bench.look(1)
    assert bench.book.writes <= 1 + 60 / 15


def test_a_series_needs_a_name_and_no_two_have_the_same():
    with pytest.raises(ValidationError, match="a series needs a name"):
        Expect(every_s=60, subject="a")
    with pytest.raises(ValidationError, match="two have the same name"):
        WebhookSettings(kind="webhook", name="a", expect=(EVERY, EVERY))


def test_the_shipped_rule_opens_by_the_silence_and_ends_with_it():
    rule = next(
        rule
        for rule in (named(one).read(Rule) for one in read_folder([shipped()], "rules"))
        if rule.name == "source-silent"
    )
    state, found = None, []
    for status in (EventStatus.FIRING, EventStatus.RESOLVED):
        labels = {"source": "alerts", "series": "alerts"}
        event = Event(status, "deadman", "source.silent", START, labels=labels, status=status)
        verdict, state = judge(rule, event, state, START)
        found.append(verdict.kind.value)
    assert found == ["opened", "resolved"]
