"""Decay for every mark and every moment."""

import sqlite3
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hermesd.state.marks import Mark, Mood, find_mark, is_current, mood_mark, set_mark, steering_mood
from hermesd.state.schema import migrate

moments = st.timedeltas(timedelta(0), timedelta(days=36500)).map(datetime(2000, 1, 1, tzinfo=UTC).__add__)
lives = st.timedeltas(timedelta(microseconds=1), timedelta(days=3650))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(moments, lives, moments, moments)
def test_a_mark_that_has_passed_never_comes_back(set_at, life, a, b):
    earlier, later = sorted((max(a, set_at), max(b, set_at)))
    mark = Mark("m", 1, set_at, life)
    assert is_current(mark, earlier) or not is_current(mark, later)


@given(moments, lives, moments)
def test_a_mark_is_current_less_than_its_life_from_when_it_was_set(set_at, life, now):
    assert is_current(Mark("m", 1, set_at, life), now) == (abs(now - set_at) < life)


@given(st.sampled_from(Mood), moments, moments)
def test_what_steers_is_the_mood_itself_or_neutral(mood, set_at, now):
    mark = mood_mark(mood, "p", set_at)
    assert steering_mood(mark, now) is (mood if is_current(mark, now) else Mood.NEUTRAL)


@given(st.text(), st.text(), values, moments, lives)
def test_a_mark_comes_back_from_the_store_as_it_went_in(name, scope, value, set_at, life):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(connection)
        mark = Mark(name, value, set_at, life, scope)
        set_mark(connection, mark)
        assert find_mark(connection, name, scope) == mark
    finally:
        connection.close()
