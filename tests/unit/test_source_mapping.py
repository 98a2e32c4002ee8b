import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermesd.confd import ConfigError, Document
from hermesd.sources.base import Unreadable
from hermesd.sources.mapping import Map, read_mapped
from hermesd.sources.plain import Defaults
from hermesd.sources.settings import read_source
from hermesd.sources.telegraf import read_telegraf

NOW = datetime(2026, 12, 1, tzinfo=UTC)
DEFAULTS = Defaults(source="s", type="sensor.x", id="own", now=NOW, labels={"topic": "t"}, fixed_type=True)


def test_what_an_expression_does_not_find_is_as_if_it_was_not_said():
    (event,) = read_mapped(Map(value="a.b", text="c", labels={"x": "d"}), {"c": "hello"}, DEFAULTS)
    assert (event.id, event.value, event.text, event.labels) == ("own", None, "hello", {"topic": "t"})


def test_items_without_an_id_get_different_ones():
    events = read_mapped(Map(each="[]", value="@"), [1, 2], DEFAULTS)
    assert [(one.id, one.value) for one in events] == [("own#0", 1.0), ("own#1", 2.0)]


@pytest.mark.parametrize(
    ("found", "data", "reason"),
    [
        (Map(each="items"), {"items": 5}, "each: there is no list where it looks"),
        (Map(each="items"), {}, "each: there is no list where it looks"),
        (Map(each="[]"), [{}] * 1001, "more than 1000 events"),
        (Map(value="length(a)"), {"a": 5}, "value: the expression does not fit what was sent"),
        (Map(value="a"), {"a": "5"}, "value is not a number"),
        (Map(labels={"x": "a"}), {"a": [1]}, "labels holds something nested"),
    ],
)
def test_data_that_an_expression_does_not_fit_is_unreadable_and_says_where(found, data, reason):
    with pytest.raises(Unreadable, match=reason):
        read_mapped(found, data, DEFAULTS)


def test_a_wrong_expression_is_a_fault_of_its_file_with_its_line():
    path = Path("/etc/hermesd/conf.d/sources/local.toml")
    text = 'kind = "mqtt"\n[[topic]]\nfilter = "a"\n[topic.map]\nid = "id"\nvalue = "a[["\n'
    with pytest.raises(ConfigError) as caught:
        read_source(Document("local", path, tomllib.loads(text), ((path, text),)))
    fault = caught.value.faults[0]
    assert (fault.file.name, fault.line) == ("local.toml", 6)
    assert "it is no JMESPath expression" in fault.reason


METRIC = {"name": "mem", "tags": {"host": "a"}, "fields": {"used": 1}, "timestamp": 1767225600}


@pytest.mark.parametrize(
    ("unit", "stamp"),
    [("s", 1767225600), ("ms", 1767225600000), ("us", 1767225600000000), ("ns", 1767225600000000000)],
)
def test_the_time_of_a_metric_is_read_in_the_unit_that_telegraf_was_told(unit, stamp):
    (event,) = read_telegraf({**METRIC, "timestamp": stamp}, DEFAULTS, (), unit)
    assert event.time == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_metric_that_was_sent_again_is_the_same_event_and_a_later_one_is_not():
    first, again = (read_telegraf(METRIC, DEFAULTS)[0].id for _ in range(2))
    later = read_telegraf({**METRIC, "timestamp": 1767225610}, DEFAULTS)[0].id
    other = read_telegraf({**METRIC, "tags": {"host": "b"}}, DEFAULTS)[0].id
    assert first == again
    assert len({first, later, other}) == 3


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ({**METRIC, "timestamp": None}, "a metric needs a timestamp"),
        ({**METRIC, "name": 5}, "name has a name that is empty"),
        ({**METRIC, "fields": []}, "want a JSON object"),
        ({"metrics": {}}, "metrics is not a list"),
        ({"metrics": [METRIC] * 1001}, "more than 1000 metrics"),
        ([METRIC], "want a JSON object"),
    ],
)
def test_a_metric_that_is_none_says_why(metric, reason):
    with pytest.raises(Unreadable, match=reason):
        read_telegraf(metric, DEFAULTS)
