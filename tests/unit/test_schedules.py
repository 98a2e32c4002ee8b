"""What a schedule has to tell at a look at the clock: due slots, missed ones, and nothing twice."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from hermesd.events import Event
from hermesd.sources.base import InboxFull
from hermesd.sources.schedule import (
    LONGEST_SLEEP_S,
    ScheduleSource,
    Seen,
    begins_at,
    look,
    seen_from_record,
)
from hermesd.sources.schedule_file import Schedule


def schedule(**settings):
    return Schedule.model_validate(
        {"name": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "task": "look", **settings}
    )


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


class Book:
    """A memory that outlives a source."""

    def __init__(self):
        self.state = {}

    async def recall(self):
        return self.state

    async def remember(self, state):
        self.state = dict(state)


class Listener:
    """Takes events as the inbox does: one of an id, ever."""

    def __init__(self, *, full=False):
        self.taken: dict[str, Event] = {}
        self.full = full

    async def __call__(self, events):
        if self.full:
            raise InboxFull(1.0)
        for event in events:
            self.taken.setdefault(event.id, event)

    @property
    def due(self):
        return [event.labels["slot"] for event in self.taken.values() if event.type == "schedule.due"]

    @property
    def missed(self):
        return [event for event in self.taken.values() if event.type == "schedule.missed"]


class Bench:
    """A source over one schedule, with a clock set by hand; `restart` keeps only the memory."""

    def __init__(self, one, begin):
        self.schedules, self.clock, self.book, self.listener = [one], Clock(begin), Book(), Listener()
        self.restart()

    def restart(self):
        self.source = ScheduleSource(lambda: self.schedules, self.book, now=self.clock)

    async def at(self, moment):
        self.clock.now = moment
        return await self.source.look_once(self.listener)

    async def walk(self, until, step=timedelta(minutes=10)):
        while self.clock.now < until:
            await self.at(self.clock.now + step)


async def test_a_schedule_that_is_new_begins_with_now():
    bench = Bench(schedule(), utc(2026, 6, 1, 12))
    await bench.at(utc(2026, 6, 1, 12))
    assert bench.listener.taken == {}


async def test_a_slot_is_told_when_it_comes_and_names_itself():
    bench = Bench(schedule(), utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1, 0, 0))
    await bench.at(utc(2026, 6, 1, 0, 29, 59))
    assert bench.listener.due == []
    await bench.at(utc(2026, 6, 1, 0, 30))
    [event] = bench.listener.taken.values()
    assert (event.id, event.source, event.type) == (
        "nightly:2026-06-01T00:30:00Z",
        "schedule",
        "schedule.due",
    )
    assert event.labels["local"] == "2026-06-01T02:30+02:00"


@pytest.mark.parametrize(
    ("begin", "slots"),
    [
        (utc(2026, 3, 28, 12), ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        (utc(2026, 10, 24, 12), ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
    ],
)
async def test_a_nightly_run_is_neither_lost_nor_doubled_when_the_clock_changes(begin, slots):
    bench = Bench(schedule(), begin)
    await bench.at(begin)
    await bench.walk(begin + timedelta(days=1, hours=20))
    assert bench.listener.due == slots
    assert bench.listener.missed == []


async def test_a_restart_tells_no_slot_again():
    bench = Bench(schedule(), utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1, 0, 30, 1))
    bench.listener = Listener()
    bench.restart()
    await bench.at(utc(2026, 6, 1, 0, 30, 2))
    assert bench.listener.taken == {}


async def test_a_crash_between_delivery_and_memory_gives_the_same_event_again():
    bench = Bench(schedule(), utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1))
    kept = dict(bench.book.state)
    await bench.at(utc(2026, 6, 1, 0, 30, 1))
    bench.book.state = kept
    bench.restart()
    await bench.at(utc(2026, 6, 1, 0, 30, 5))
    assert bench.listener.due == ["2026-06-01T00:30:00Z"]


async def test_slots_that_passed_while_nobody_ran_are_run_once_and_the_others_recorded():
    bench = Bench(schedule(missed="run_once"), utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1))
    bench.restart()
    await bench.at(utc(2026, 6, 4, 12))
    assert bench.listener.due == ["2026-06-04T00:30:00Z"]
    [missed] = bench.listener.missed
    assert (missed.value, missed.labels["first"], missed.labels["last"]) == (
        3.0,
        "2026-06-01T00:30:00Z",
        "2026-06-03T00:30:00Z",
    )
    await bench.at(utc(2026, 6, 4, 13))
    assert len(bench.listener.taken) == 2


async def test_with_skip_slots_that_passed_are_only_recorded():
    bench = Bench(schedule(missed="skip"), utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 4, 12))
    assert bench.listener.due == []
    [missed] = bench.listener.missed
    assert missed.value == 4.0
    assert seen_from_record(bench.book.state["nightly"]).missed == 4


async def test_a_slot_seen_within_its_grace_is_in_time():
    bench = Bench(schedule(missed="skip", grace="2h"), utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1, 2, 29))
    assert bench.listener.due == ["2026-06-01T00:30:00Z"]
    assert bench.listener.missed == []


async def test_a_clock_that_jumps_ahead_makes_the_slots_between_missed_ones():
    bench = Bench(schedule(missed="skip", cron="", every="1h"), utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1, 0, 10))
    await bench.at(utc(2026, 6, 1, 5, 30))
    assert bench.listener.due == []
    assert bench.listener.missed[0].value == 5.0


async def test_a_clock_set_back_runs_no_slot_a_second_time():
    bench = Bench(schedule(cron="", every="1h"), utc(2026, 6, 1, 0, 10))
    await bench.at(utc(2026, 6, 1, 0, 10))
    await bench.at(utc(2026, 6, 1, 1, 0, 1))
    bench.listener = Listener()  # forgets the ids: the schedule alone must know
    await bench.at(utc(2026, 6, 1, 0, 50))
    await bench.at(utc(2026, 6, 1, 1, 0, 1))
    assert bench.listener.due == []
    await bench.at(utc(2026, 6, 1, 2, 0, 1))
    assert bench.listener.due == ["2026-06-01T02:00:00Z"]


async def test_a_clock_that_was_years_ahead_does_not_silence_a_schedule_for_years():
    bench = Bench(schedule(), utc(2030, 6, 1))
    await bench.at(utc(2030, 6, 1))
    await bench.at(utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 2, 0, 30, 1))
    assert bench.listener.due == ["2026-06-02T00:30:00Z"]


async def test_a_changed_timetable_makes_no_slots_of_the_past():
    bench = Bench(schedule(cron="0 0 1 * *"), utc(2026, 6, 10))
    await bench.at(utc(2026, 6, 10))
    bench.schedules = [schedule(cron="", every="10m", missed="skip")]
    await bench.at(utc(2026, 6, 20, 0, 5))
    assert bench.listener.taken == {}
    await bench.at(utc(2026, 6, 20, 0, 10, 1))
    assert bench.listener.due == ["2026-06-20T00:10:00Z"]


async def test_a_schedule_that_is_switched_off_and_on_again_missed_nothing():
    bench = Bench(schedule(), utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1))
    bench.schedules = [schedule(enabled=False)]
    await bench.at(utc(2026, 6, 2))
    bench.schedules = [schedule()]
    await bench.at(utc(2026, 6, 9))
    assert bench.listener.taken == {}


async def test_a_full_inbox_loses_no_slot():
    bench = Bench(schedule(grace="10m"), utc(2026, 6, 1))
    await bench.at(utc(2026, 6, 1))
    bench.listener.full = True
    with pytest.raises(InboxFull):
        await bench.at(utc(2026, 6, 1, 0, 30, 1))
    bench.listener.full = False
    await bench.at(utc(2026, 6, 1, 0, 30, 3))
    assert bench.listener.due == ["2026-06-01T00:30:00Z"]


async def test_it_sleeps_until_the_next_slot_and_never_long():
    bench = Bench(schedule(), utc(2026, 6, 1))
    assert await bench.at(utc(2026, 6, 1)) == LONGEST_SLEEP_S
    assert await bench.at(utc(2026, 6, 1, 0, 29, 57)) == pytest.approx(3.0)


def test_jitter_moves_a_slots_beginning_always_alike_and_not_its_id():
    one, slot = schedule(jitter_s=600), utc(2026, 6, 1, 0, 30)
    begin = begins_at(one, slot)
    assert slot <= begin < slot + timedelta(seconds=600)
    assert begin == begins_at(schedule(jitter_s=600), slot)
    assert begins_at(schedule(jitter_s=600, name="other"), slot) != begin
    seen = Seen(utc(2026, 6, 1), one.table)
    assert look(one, seen, begin - timedelta(seconds=1)).events == ()
    [event] = look(one, seen, begin).events
    assert event.labels["slot"] == "2026-06-01T00:30:00Z"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"cron": ""}, "cron"),
        ({"every": "6h"}, "either"),
        ({"cron": "0 0 31 2 *"}, "never due"),
        ({"cron": "0 0 * *"}, "five fields"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timezone": "../../etc/passwd"}, "timezone"),
        ({"task": ""}, "what is to be done"),
        ({"cron": "", "every": "1s"}, "at least"),
        ({"missed": "perhaps"}, "run_once"),
        ({"name": "Night Watch"}, "name"),
    ],
)
def test_a_wrong_schedule_is_refused_with_its_reason(settings, word):
    with pytest.raises(ValidationError, match=word):
        schedule(**settings)
