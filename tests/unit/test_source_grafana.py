import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermesd.sources.base import Unreadable
from hermesd.sources.grafana import read_grafana

BODIES = Path(__file__).parents[1] / "data" / "grafana"
NOW = datetime(2026, 8, 3, 12, tzinfo=UTC)


def read(name, **changes):
    body = json.loads((BODIES / f"{name}.json").read_text())
    return read_grafana({**body, **changes}, "grafana", NOW, "fresh-1")


def test_a_unified_body_is_an_event_for_each_alert_with_its_own_identity():
    firing, resolved = read("unified").events
    assert (firing.id, firing.status) == ("57c6d9296de2ad39:2026-08-03T09:14:20Z:firing", "firing")
    assert (firing.type, firing.severity, firing.value) == ("grafana.alert", "critical", 93.41)
    assert firing.time == datetime(2026, 8, 3, 9, 14, 20, tzinfo=UTC)
    assert firing.labels["grafana_org"] == "1"
    assert firing.labels["mountpoint"] == "/var"
    assert firing.text == "/var of db1 is 93 % full\nIt grows by 2 % an hour."
    assert (resolved.status, resolved.value) == ("resolved", None), "which of two values is meant?"
    assert resolved.time == datetime(2026, 8, 3, 9, 15, 20, tzinfo=UTC)


def test_a_body_that_was_cut_says_so_and_an_alert_without_values_is_read():
    found = read("unified-no-data")
    (event,) = found.events
    assert (found.truncated, event.value) == (3, None)
    assert event.labels["alertname"] == "DatasourceNoData"
    assert event.time.microsecond == 123456


@pytest.mark.parametrize(
    ("name", "status", "value", "severity"),
    [
        ("legacy-alerting", "firing", 100.5, "critical"),
        ("legacy-ok", "resolved", None, "critical"),
        ("legacy-no-data", "firing", None, "warning"),
    ],
)
def test_a_legacy_body_is_its_rules_state(name, status, value, severity):
    (event,) = read(name).events
    assert (event.status, event.value, event.severity) == (status, value, severity)
    assert (event.id, event.type, event.subject) == ("fresh-1", "grafana.legacy_alert", "Load alert 17")
    assert event.labels["alertname"] == "Load alert"
    assert event.labels["rule_id"] == "17"


@pytest.mark.parametrize("state", ["pending", "paused"])
def test_a_legacy_state_between_two_others_is_no_event(state):
    assert read("legacy-alerting", state=state).events == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": "burning"}, "state is none of alerting"),
        ({"state": ["alerting"]}, "state is none of alerting"),
        ({"tags": {"a": []}}, "tags holds something nested"),
        ({"evalMatches": [{"value": "high"}]}, "evalMatches.0.value is not a number"),
        ({"alerts": {}}, "alerts is not a list"),
        ({"ruleId": {}}, "rule_id holds something nested"),
    ],
)
def test_a_body_that_is_none_of_grafanas_says_why(changes, reason):
    with pytest.raises(Unreadable, match=reason):
        read("legacy-alerting", **changes)


def test_anything_else_is_refused():
    with pytest.raises(Unreadable, match="neither alerts"):
        read_grafana({"hello": 1}, "grafana", NOW, "fresh-1")
