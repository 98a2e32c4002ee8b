"""Whatever is written in a rule file is read or refused, never anything else."""

import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from hermesd.durations import parse_duration, render_duration
from hermesd.events import Event
from hermesd.rules.matcher import parse_matcher
from hermesd.rules.titles import parse_template, render

EVENT = Event(id="1", source="s", type="t", time=datetime(2026, 3, 1, tzinfo=UTC), labels={"a": "b"})

plain = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30)


@given(st.text() | st.sampled_from(["a=b", 'a=~"(', 'a!="\\']).flatmap(lambda t: st.text().map(t.__add__)))
def test_any_text_is_a_matcher_or_a_value_error(text):
    try:
        matcher = parse_matcher(text)
    except ValueError:
        return
    assert matcher.holds(EVENT) in (True, False)


@given(plain, plain)
def test_equality_is_equality_for_every_value(wanted, found):
    quoted = wanted.replace("\\", "\\\\").replace('"', '\\"')
    event = Event(id="1", source="s", type="t", time=EVENT.time, labels={"x": found})
    assert parse_matcher(f'x="{quoted}"').holds(event) is (wanted == found)
    assert parse_matcher(f'x!="{quoted}"').holds(event) is (wanted != found)


@given(st.text(st.sampled_from("abc.*+?|()[]"), max_size=8), st.text(st.sampled_from("abc"), max_size=6))
def test_a_regex_agrees_with_pythons_full_match_where_both_read_it(pattern, text):
    try:
        expected = re.fullmatch(pattern, text) is not None
        matcher = parse_matcher(f'x=~"{pattern}"')
    except (re.error, ValueError, FutureWarning):
        return
    event = Event(id="1", source="s", type="t", time=EVENT.time, labels={"x": text})
    assert matcher.holds(event) is expected


@given(st.text() | st.from_regex(r"([0-9]{1,4}[wdhms]{1,2}){1,4}", fullmatch=True))
def test_any_text_is_a_duration_or_a_value_error(text):
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert seconds >= 0


@given(st.integers(0, 366 * 86_400))
def test_a_duration_comes_back_from_its_own_words(seconds):
    assert parse_duration(render_duration(seconds)) == seconds


@given(st.text() | st.text(st.sampled_from("{}abvalue:.0f!r[]")))
def test_any_text_is_a_template_that_fills_or_a_value_error(text):
    try:
        template = parse_template(text)
    except ValueError:
        return
    assert len(render(template, EVENT)) <= 300
