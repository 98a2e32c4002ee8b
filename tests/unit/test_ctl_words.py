"""hermesctl's two languages: complete, alike in what they name, and right in their figures."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.control.output import human_bytes
from hermesd.ctl import messages
from hermesd.ctl.messages import Text
from hermesd.ctl.speech import Speech, clock_time, language_of, millis, moment_of, size
from hermesd.incidents import IncidentStatus, Outcome, RunKind, RunStatus
from hermesd.protocol import Effect, Permission, ResultStatus, Stage, StageOutcome

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
EN, ZH = Speech("en"), Speech("zh")


def all_texts():
    for name, value in vars(messages).items():
        if isinstance(value, Text):
            yield name, value
        elif isinstance(value, dict) and name.isupper():
            yield from ((f"{name}.{key}", text) for key, text in value.items())


def fields(text):
    return {field for _literal, field, _spec, _conversion in string.Formatter().parse(text) if field}


def test_both_languages_of_every_text_name_the_same_values():
    texts = dict(all_texts())
    assert len(texts) > 200
    assert {name for name, text in texts.items() if fields(text.en) != fields(text.zh)} == set()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (messages.OUTCOMES, Outcome),
        (messages.RUN_STATUSES, RunStatus),
        (messages.INCIDENT_STATUSES, IncidentStatus),
        (messages.RUN_KINDS, RunKind),
        (messages.RESULTS, ResultStatus),
        (messages.EFFECTS, Effect),
        (messages.PERMISSIONS, Permission),
        (messages.STAGES, Stage),
        (messages.STAGE_OUTCOMES, StageOutcome),
    ],
)
def test_every_word_of_the_protocol_can_be_said(table, words):
    assert {word.value for word in words} <= set(table)


def test_a_word_of_a_later_version_is_said_as_it_came():
    assert ZH.word(messages.OUTCOMES, "half_done") == "half_done"
    assert ZH.word(messages.OUTCOMES, None) == ""


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "C"}, "zh"),
    ],
)
def test_the_language_follows_the_locale_in_the_order_of_posix(environ, language):
    assert language_of(environ) == language


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [
        (0.4, "0 s", "0 秒"),
        (59.9, "59 s", "59 秒"),
        (60, "1 min", "1 分钟"),
        (3600, "1 h", "1 小时"),
        (11_532, "3 h 12 min", "3 小时 12 分"),
        (86_400, "1 d", "1 天"),
        (183_600, "2 d 3 h", "2 天 3 小时"),
        (-5, "0 s", "0 秒"),
    ],
)
def test_spans_have_two_units_at_most(seconds, english, chinese):
    assert (EN.span(seconds), ZH.span(seconds)) == (english, chinese)


def test_times_are_told_from_now():
    assert EN.ago((NOW - timedelta(minutes=3)).isoformat(), NOW) == "3 min ago"
    assert ZH.ago((NOW - timedelta(minutes=3)).isoformat(), NOW) == "3 分钟前"
    assert EN.ago((NOW + timedelta(seconds=5)).isoformat(), NOW) == "just now"
    assert EN.left((NOW + timedelta(hours=4)).isoformat(), NOW) == "in 4 h"
    assert EN.left((NOW - timedelta(hours=4)).isoformat(), NOW) == "over"
    assert EN.ago(None, NOW) == EN.left("", NOW) == EN.when("yesterday", NOW) == "–"


def test_show_tells_the_absolute_time_with_its_zone():
    assert EN.when("2026-03-01T11:57:00+00:00", NOW).endswith("(3 min ago)")
    assert moment_of("2026-03-01T11:57:00Z") == moment_of("2026-03-01T11:57:00")
    assert clock_time("") == "–"


@pytest.mark.parametrize("number", [0, 999, 1000, 14_200_832, 1_200_000_000, 9e12, 9e15])
def test_sizes_read_like_the_executors_own(number):
    assert size(number) == human_bytes(number)


def test_what_is_no_number_reads_as_nothing_and_breaks_nothing():
    assert size(None) == "0 bytes"
    assert millis("x") == "0.0 ms"


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (0.42, "0.4 ms"),
        (12.3, "12 ms"),
        (45_000, "45 s"),
        (74_210, "74.2 s"),
        (900_000, "15 min"),
        (14_400_000, "4 h"),
    ],
)
def test_stage_times_read_as_people_write_them(number, told):
    assert millis(number) == told
