"""Matchers, durations and titles."""

import time
from datetime import UTC, datetime

import pytest

from hermesd.durations import parse_duration, render_duration
from hermesd.events import Event, EventStatus, Severity
from hermesd.rules.matcher import parse_matcher
from hermesd.rules.titles import parse_template, render

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def event(**labels: str) -> Event:
    return Event(
        id="1",
        source="am",
        type="alertmanager.alert",
        time=NOW,
        subject="db1",
        labels=labels,
        status=EventStatus.FIRING,
        severity=Severity.CRITICAL,
        value=91.26,
        unit="percent",
    )


@pytest.mark.parametrize(
    ("text", "labels", "holds"),
    [
        ('job="api"', {"job": "api"}, True),
        ("job=api", {"job": "api"}, True),
        ("job = api", {"job": "api2"}, False),
        ('job!="api"', {"job": "db"}, True),
        ('job!="api"', {}, True),
        ('job=""', {}, True),
        ('job=~"api"', {"job": "api2"}, False),
        ('job=~"api|db"', {"job": "db"}, True),
        ('job=~"api|db"', {"job": "dbx"}, False),
        ('job=~"api.*"', {"job": "api\nmore"}, True),
        ('job!~"api.*"', {"job": "db"}, True),
        ('job!~"api.*"', {"job": "apix"}, False),
        ('job=~"a\\"b"', {"job": 'a"b'}, True),
        (r'job=~"a\.b"', {"job": "axb"}, False),
        (r'job="a\\b"', {"job": "a\\b"}, True),
        ('"odd name"="x"', {"odd name": "x"}, True),
        ('type="alertmanager.alert"', {}, True),
        ('status="firing"', {}, True),
        ('source=~"a."', {}, True),
        ('subject="db1"', {}, True),
        ('severity="critical"', {}, True),
        ('job=~".*"', {"job": "x\udcff"}, True),
    ],
)
def test_a_matcher_holds_as_alertmanager_means_it(text, labels, holds):
    assert parse_matcher(text).holds(event(**labels)) is holds


@pytest.mark.parametrize("name", ["type", "source", "status"])
def test_no_label_poses_as_what_the_event_itself_is(name):
    disguised = event(**{name: "host.filesystem"})
    assert not parse_matcher(f'{name}="host.filesystem"').holds(disguised)


def test_a_severity_label_of_the_sender_is_the_severity_that_matchers_see():
    assert parse_matcher('severity="page"').holds(event(severity="page"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job",
        'job=="x"',
        'job="x',
        'job="x" extra',
        'job="x",type="y"',
        '{job="x"}',
        '="x"',
        'job=~"("',
        'job=~"a)|(b"',
        r'job=~"(a)\\1"',
        'job=~"(?=a)"',
        'job=~"a{1000}{1000}{10}"',
        'job=~"' + "a" * 2000 + '"',
        5,
        None,
        ['job="x"'],
    ],
)
def test_what_is_not_one_matcher_is_refused_with_a_reason(text):
    with pytest.raises(ValueError, match=r"\S"):
        parse_matcher(text)


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|a)*", "(a|aa)+", ".*.*.*.*x", "([a-z]+)*-"])
def test_no_regex_makes_a_strangers_label_expensive(pattern):
    matcher = parse_matcher(f'job=~"{pattern}"')
    began = time.perf_counter()
    assert not matcher.holds(event(job="a" * 20_000 + "!"))
    assert time.perf_counter() - began < 1.0


def test_a_matcher_says_why_it_does_not_hold():
    assert parse_matcher('job = "api"').miss == 'does not match job="api"'


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("10s", 10), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("250ms", 0.25)],
)
def test_a_duration_is_read_in_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "m", "-5m", "5 m", "5m ", "30m1h", "5M", "1.5h", "٣m", "900d", 5, None]
)
def test_what_has_no_unit_or_no_sense_is_no_duration(text):
    with pytest.raises(ValueError, match=r"\S"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (1.26, "1.3s"), (59.6, "1m"), (90, "1m30s"), (5400, "1h30m"), (86400, "1d")],
)
def test_a_duration_is_told_in_the_words_in_which_it_is_written(seconds, text):
    assert render_duration(seconds) == text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Disk {path} is {value:.0f} % full", "Disk /var is 91 % full"),
        ("{value} {unit}", "91.26 percent"),
        ("{nothing} {subject} {severity}", "? db1 critical"),
        ("{value.real} {app.kubernetes.io}", "? ?"),
        ("{{plain}}", "{plain}"),
    ],
)
def test_a_title_is_filled_from_the_event_and_unknown_names_become_a_question_mark(template, text):
    assert render(parse_template(template), event(path="/var")) == text


def test_a_title_without_a_value_says_so():
    bare = Event(id="1", source="s", type="t", time=NOW)
    assert render("{value:.1f}", bare) == "?"


@pytest.mark.parametrize(
    "template",
    [
        "{labels[host]}",
        "{host!r}",
        "{0}",
        "{}",
        "{host:>10}",
        "{value:1000000}",
        "{value:{host}}",
        "{",
        "}",
    ],
)
def test_a_template_reaches_no_attribute_no_index_and_no_width(template):
    with pytest.raises(ValueError, match=r"\S"):
        parse_template(template)


def test_a_strangers_label_stays_on_one_line_and_in_bounds():
    text = render("on {path}", event(path="a\nb\x1b[31m" + "x" * 5000))
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 200
    assert len(render("{path}" * 10, event(path="y" * 500))) == 300
