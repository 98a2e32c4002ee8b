"""Marks steer for their life, and afterwards are only read."""

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.state.marks import (
    Mark,
    Mood,
    find_mark,
    is_current,
    is_reference,
    list_marks,
    mood_mark,
    reading_mark,
    set_mark,
    steering_mood,
)
from hermesd.state.schema import migrate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TICK = timedelta(microseconds=1)


@pytest.fixture
def db():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    yield connection
    connection.close()


@pytest.mark.parametrize(("mood", "hours"), [(Mood.CALM, 24), (Mood.NEUTRAL, 72), (Mood.URGENT, 2)])
def test_a_mood_steers_to_the_last_instant_of_its_life_and_no_longer(mood, hours):
    mark = mood_mark(mood, "alice", NOW)
    end = NOW + timedelta(hours=hours)
    assert is_current(mark, end - TICK)
    assert not is_current(mark, end)
    assert is_reference(mark, end)
    assert mark.value == mood.value


def test_a_mood_past_its_life_steers_as_neutral_and_so_does_none():
    mark = mood_mark(Mood.URGENT, "alice", NOW)
    assert steering_mood(mark, NOW) is Mood.URGENT
    assert steering_mood(mark, NOW + timedelta(hours=2)) is Mood.NEUTRAL
    assert steering_mood(None, NOW) is Mood.NEUTRAL


def test_a_host_reading_lives_ten_minutes():
    mark = reading_mark("disk", {"percent": 91.5}, NOW, "/")
    assert is_current(mark, NOW + timedelta(minutes=9, seconds=59))
    assert not is_current(mark, NOW + timedelta(minutes=10))


def test_a_clock_that_was_set_back_makes_no_mark_immortal():
    mark = reading_mark("disk", 1, NOW)
    assert not is_current(mark, NOW - timedelta(days=365))


def test_a_mark_past_its_life_is_still_readable(db):
    mark = mood_mark(Mood.CALM, "alice", NOW)
    set_mark(db, mark)
    found = find_mark(db, "mood", "alice")
    assert found == mark
    assert is_reference(found, NOW + timedelta(days=30))
    assert find_mark(db, "mood", "bob") is None


def test_a_newer_mark_stands_in_place_of_the_one_before(db):
    set_mark(db, mood_mark(Mood.CALM, "alice", NOW))
    newer = mood_mark(Mood.URGENT, "alice", NOW + timedelta(hours=1))
    set_mark(db, newer)
    set_mark(db, reading_mark("disk", [1, 2], NOW, "/"))
    assert find_mark(db, "mood", "alice") == newer
    assert [mark.name for mark in list_marks(db)] == ["disk", "mood"]
    assert list_marks(db, "mood") == [newer]


def test_a_mark_of_something_whose_name_is_no_text_is_found_again(db):
    set_mark(db, reading_mark("disk", {"path": "\udcff"}, NOW, "/mnt/\udcff"))
    found = find_mark(db, "disk", "/mnt/\udcff")
    assert found is not None
    assert found.value == {"path": "\udcff"}


@pytest.mark.parametrize("life", [timedelta(0), timedelta(seconds=-1)])
def test_a_mark_without_a_life_is_refused(life):
    with pytest.raises(ValueError, match="life"):
        Mark("a", 1, NOW, life)


def test_a_mark_needs_an_aware_time():
    with pytest.raises(ValueError, match="aware"):
        Mark("a", 1, NOW.replace(tzinfo=None), timedelta(1))
