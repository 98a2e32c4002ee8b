"""Slots of a timetable: cron's own meaning, and what summer time makes of it."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermesd.sources.timetable import MAX_COUNTED, cron, interval, slots_between

BERLIN = ZoneInfo("Europe/Berlin")
UTC_ZONE = ZoneInfo("UTC")


def slots(line, start, count, zone=BERLIN):
    following, slot, found = cron(line, zone), start, []
    for _ in range(count):
        slot = following(slot)
        found.append(slot)
    return found


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def test_a_wall_time_that_the_spring_skips_runs_once_at_the_next_valid_instant():
    found = slots("30 2 * * *", utc(2026, 3, 28, 12), 2)
    assert found == [utc(2026, 3, 29, 1, 0), utc(2026, 3, 30, 0, 30)]
    assert found[0].astimezone(BERLIN).strftime("%H:%M") == "03:00"


def test_two_wall_times_that_the_spring_skips_are_one_slot():
    assert slots("0,30 2 * * *", utc(2026, 3, 28, 12), 2) == [utc(2026, 3, 29, 1, 0), utc(2026, 3, 30, 0, 0)]


def test_a_wall_time_that_the_autumn_repeats_runs_once_at_its_first_occurrence():
    found = slots("30 2 * * *", utc(2026, 10, 24, 12), 2)
    assert found == [utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]


def test_asked_from_within_the_second_occurrence_the_next_slot_is_tomorrow():
    assert slots("30 2 * * *", utc(2026, 10, 25, 1, 10), 1) == [utc(2026, 10, 26, 1, 30)]


@pytest.mark.parametrize("begin", [utc(2026, 10, 24, 22), utc(2026, 3, 28, 23)])
def test_a_line_for_every_hour_has_no_hole_and_no_double_when_the_clock_changes(begin):
    found = slots("*/15 * * * *", begin, 24)
    assert found == [begin + timedelta(minutes=15) * (number + 1) for number in range(24)]


def test_a_day_that_a_zone_skipped_whole_is_made_up_at_its_end():
    apia = ZoneInfo("Pacific/Apia")
    [slot] = slots("30 12 30 12 *", utc(2011, 12, 28, 12), 1, apia)
    assert slot.astimezone(apia).strftime("%Y-%m-%d %H:%M") == "2011-12-31 00:00"


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("0", {"Sun"}),
        ("7", {"Sun"}),
        ("1", {"Mon"}),
        ("6", {"Sat"}),
        ("sun", {"Sun"}),
        ("MON-FRI", {"Mon", "Tue", "Wed", "Thu", "Fri"}),
        ("1-5", {"Mon", "Tue", "Wed", "Thu", "Fri"}),
        ("5-7", {"Fri", "Sat", "Sun"}),
        ("0-2", {"Sun", "Mon", "Tue"}),
        ("fri-mon", {"Fri", "Sat", "Sun", "Mon"}),
        ("*/3", {"Sun", "Wed", "Sat"}),
        ("1-5/2,0", {"Mon", "Wed", "Fri", "Sun"}),
    ],
)
def test_weekdays_are_counted_as_cron_counts_them(field, days):
    found = slots(f"0 12 * * {field}", utc(2026, 11, 1), 14, UTC_ZONE)
    assert {slot.strftime("%a") for slot in found} == days


def test_a_day_of_the_month_and_a_weekday_together_mean_either():
    found = slots("0 0 13 * 5", utc(2026, 11, 26), 4, UTC_ZONE)
    assert [slot.strftime("%a %d") for slot in found] == ["Fri 27", "Fri 04", "Fri 11", "Sun 13"]


@pytest.mark.parametrize(
    "line", ["", "* * * *", "* * * * * *", "60 * * * *", "0 24 * * *", "0 0 * * 8", "0 0 * * x", "0 0 ? * *"]
)
def test_what_is_no_cron_line_is_refused(line):
    with pytest.raises(ValueError):
        cron(line, UTC_ZONE)


def test_nicknames_are_understood():
    assert slots("@daily", utc(2026, 1, 1, 5), 1, UTC_ZONE) == [utc(2026, 1, 2)]


def test_an_interval_is_counted_from_a_fixed_point_so_that_a_restart_moves_nothing():
    following = interval(6 * 3600)
    assert following(utc(2026, 1, 1, 5)) == utc(2026, 1, 1, 6)
    assert following(utc(2026, 1, 1, 6)) == utc(2026, 1, 1, 12)


def test_of_very_many_slots_the_last_is_found_without_counting_them_all():
    found = slots_between(cron("* * * * *", BERLIN), utc(2025, 3, 28), utc(2026, 3, 28, 12, 0, 30))
    assert found is not None
    assert (found.count, found.more) == (MAX_COUNTED, True)
    assert found.first == utc(2025, 3, 28, 0, 1)
    assert found.last == utc(2026, 3, 28, 12)


def _numbers(field, low, high):
    if field == "*":
        return set(range(low, high + 1))
    if field.startswith("*/"):
        return set(range(low, high + 1, int(field[2:])))
    return {int(part) for part in field.split(",")}


def _is_due(line, moment):
    """Cron's man page, minute by minute."""
    minute, hour, day, month, weekday = line.split()
    at = moment.minute in _numbers(minute, 0, 59) and moment.hour in _numbers(hour, 0, 23)
    in_month = moment.month in _numbers(month, 1, 12)
    by_day = moment.day in _numbers(day, 1, 31)
    by_weekday = moment.isoweekday() % 7 in {number % 7 for number in _numbers(weekday, 0, 7)}
    either = day[0] != "*" and weekday[0] != "*"
    return at and in_month and (by_day or by_weekday if either else by_day and by_weekday)


def _field(low, high):
    numbers = st.lists(st.integers(low, high), min_size=1, max_size=3).map(
        lambda found: ",".join(map(str, found))
    )
    return st.one_of(st.just("*"), st.integers(2, 7).map("*/{}".format), numbers)


@settings(max_examples=60, deadline=None)
@given(
    minute=_field(0, 59),
    hour=_field(0, 23),
    day=_field(1, 28),
    weekday=_field(0, 7),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 1)),  # noqa: DTZ001 - hypothesis wants them naive
)
def test_the_next_slot_is_the_first_minute_that_crons_manual_calls_due(minute, hour, day, weekday, start):
    line = f"{minute} {hour} {day} * {weekday}"
    begin = start.replace(tzinfo=UTC)
    slot = cron(line, UTC_ZONE)(begin)
    assert slot is not None
    assert slot > begin
    assert _is_due(line, slot)
    moment = begin.replace(second=0, microsecond=0) + timedelta(minutes=1)
    limit = min(slot, moment + timedelta(days=3))
    while moment < limit:
        assert not _is_due(line, moment)
        moment += timedelta(minutes=1)
