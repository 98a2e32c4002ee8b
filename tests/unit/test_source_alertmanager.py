import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermesd.events import EventStatus, Severity
from hermesd.sources.alertmanager import read_notification
from hermesd.sources.base import Unreadable

NOW = datetime(2026, 12, 1, tzinfo=UTC)
BODIES = Path(__file__).parents[1] / "data" / "alertmanager" / "webhooks-0.25.jsonl"


def bodies():
    return [json.loads(line) for line in BODIES.read_text().splitlines()]


def notification(*alerts, **more):
    return {"version": "4", "status": "firing", "alerts": list(alerts), **more}


def alert(**more):
    return {
        "status": "firing",
        "labels": {"alertname": "A"},
        "annotations": {},
        "startsAt": "2026-11-30T19:56:57.309Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": "0cc1aadb50b0173f",
        **more,
    }


def read_one(**more):
    (event,) = read_notification(notification(alert(**more)), "am", NOW).events
    return event


def test_every_real_body_is_read_and_every_alert_in_it_becomes_an_event():
    found = [read_notification(body, "am", NOW) for body in bodies()]
    assert [len(one.events) for one in found] == [1, 1, 1, 2]
    assert not any(one.refused for one in found)
    assert [one.events[0].status.value for one in found] == ["firing", "firing", "resolved", "firing"]


def test_a_real_alert_keeps_its_labels_and_its_words():
    event = read_notification(bodies()[0], "am", NOW).events[0]
    assert event.type == "alertmanager.alert"
    assert event.subject.startswith("HostOutOfDiskSpace ")
    assert event.labels["mountpoint"] == "/"
    assert event.severity is Severity.CRITICAL
    assert event.time == datetime(2026, 11, 30, 19, 56, 57, 309000, tzinfo=UTC)
    assert event.text.startswith("Host out of disk space (instance 127.0.0.1:19100)\nDisk is almost full")


def test_alerts_of_one_name_that_only_labels_tell_apart_are_two_subjects_and_one_alert_stays_one():
    one = read_one(fingerprint="aaaa")
    other = read_one(fingerprint="bbbb")
    ended = read_one(fingerprint="aaaa", status="resolved", endsAt="2026-11-30T20:00:00Z")
    assert one.subject != other.subject
    assert ended.subject == one.subject


def test_an_alert_sent_again_has_the_same_id_also_inside_another_group():
    second, fourth = bodies()[1], bodies()[3]
    again = read_notification(second, "am", NOW).events[0]
    grouped = read_notification(fourth, "am", NOW).events
    assert again.id == grouped[0].id == "fb46247c610256fb:2026-11-30T19:56:57.309Z:firing"
    assert grouped[1].id != again.id


def test_the_end_of_an_alert_is_another_event_than_its_start():
    first, third = bodies()[0], bodies()[2]
    fired = read_notification(first, "am", NOW).events[0]
    resolved = read_notification(third, "am", NOW).events[0]
    assert fired.id != resolved.id
    assert resolved.time == datetime(2026, 11, 30, 19, 57, 4, 309000, tzinfo=UTC)


def test_the_same_alert_that_begins_anew_is_another_event():
    assert read_one().id != read_one(startsAt="2026-11-30T20:00:00Z").id


def test_nanoseconds_are_read():
    event = read_one(startsAt="2026-11-30T19:56:57.309123456+02:00")
    assert event.time == datetime(2026, 11, 30, 17, 56, 57, 309123, tzinfo=UTC)


@pytest.mark.parametrize("ends", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "", None])
def test_an_end_in_year_one_is_no_end(ends):
    assert read_one(status="resolved", endsAt=ends).time == NOW


def test_a_time_at_the_edge_of_the_calendar_is_refused_and_not_a_crash():
    with pytest.raises(Unreadable, match="endsAt is not a time"):
        read_one(endsAt="9999-12-31T23:59:59-10:00")


def test_unknown_fields_are_tolerated():
    assert read_one(values={"A": 1}, silenceURL="x", dashboardURL=None).subject == "A 0cc1aadb50b0173f"


def test_an_alert_without_a_fingerprint_gets_one_from_its_labels():
    first = read_one(fingerprint=None, labels={"a": "1", "b": "2"})
    same = read_one(fingerprint=None, labels={"b": "2", "a": "1"})
    other = read_one(fingerprint=None, labels={"a": "1", "b": "3"})
    assert first.id == same.id != other.id


def test_one_alert_that_cannot_be_read_does_not_cost_the_others():
    found = read_notification(notification(alert(), alert(status="odd"), "x"), "am", NOW)
    assert len(found.events) == 1
    assert found.refused == (
        "alerts.1: status is neither firing nor resolved",
        "alerts.2: want a JSON object",
    )


def test_alerts_that_were_cut_off_are_counted_and_never_taken_for_resolved():
    found = read_notification(notification(alert(), truncatedAlerts=7), "am", NOW)
    assert found.truncated == 7
    assert [event.status for event in found.events] == [EventStatus.FIRING]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([], "want a JSON object"),
        ({}, "alerts is not a list"),
        ({"version": "3", "alerts": []}, "version 4"),
        (notification(alert(labels=[])), "labels is not an object"),
        (notification(alert(labels={"a": {"b": 1}})), "something nested"),
        (notification(alert(labels={f"l{n}": "x" for n in range(65)})), "more than 64"),
        (notification(alert(startsAt="soon")), "startsAt is not a time"),
        (notification(alert(startsAt=True)), "startsAt is not a time"),
        (notification(alert(annotations=["x"])), "want a JSON object"),
    ],
)
def test_a_body_that_is_none_is_refused_with_a_reason(body, reason):
    with pytest.raises(Unreadable, match=reason):
        read_notification(body, "am", NOW)


def test_a_body_without_alerts_is_fine_and_says_nothing():
    assert read_notification(notification(), "am", NOW).events == ()


@pytest.mark.parametrize(("label", "severity"), [("page", "critical"), ("none", "info"), ("odd", "warning")])
def test_severities_that_rules_out_there_use_are_understood(label, severity):
    assert read_one(labels={"severity": label}).severity == severity
