from datetime import UTC, datetime

import pytest

from hermesd.events import EventStatus, Severity
from hermesd.protocol import ProtocolError
from hermesd.sources.base import Unreadable
from hermesd.sources.cloudevents import read_cloudevent
from hermesd.sources.plain import Defaults, read_plain
from hermesd.sources.topics import read_payload

NOW = datetime(2026, 12, 1, tzinfo=UTC)
DEFAULTS = Defaults(source="web", type="webhook.event", id="own-1", now=NOW, labels={})


def cloudevent(**more):
    return {"specversion": "1.0", "id": "7", "source": "/backup", "type": "org.backup.failed", **more}


def test_an_object_becomes_an_event_by_its_known_keys():
    event = read_plain(
        {
            "id": 12,
            "type": "backup.late",
            "time": "2026-11-30T10:00:00Z",
            "subject": "nightly",
            "labels": {"host": "db1", "size": 3, "ok": True},
            "severity": "Critical",
            "value": 81,
            "unit": "percent",
            "message": "late",
        },
        DEFAULTS,
    )
    assert (event.id, event.source, event.type) == ("12", "web", "backup.late")
    assert event.labels == {"host": "db1", "size": "3", "ok": "true"}
    assert event.time == datetime(2026, 11, 30, 10, tzinfo=UTC)
    assert (event.value, event.unit, event.text) == (81.0, "percent", "late")
    assert event.severity is Severity.CRITICAL


def test_what_is_not_said_comes_from_the_defaults():
    event = read_plain({}, DEFAULTS)
    assert (event.id, event.type, event.time) == ("own-1", "webhook.event", NOW)
    assert event.severity is Severity.WARNING


def test_other_keys_with_plain_values_become_labels_and_nested_ones_are_left_out():
    event = read_plain({"host": "db1", "port": 5432, "extra": {"a": 1}, "none": None}, DEFAULTS)
    assert event.labels == {"host": "db1", "port": "5432"}


def test_a_value_without_a_status_is_a_reading_and_anything_else_fires():
    assert read_plain({"value": 1}, DEFAULTS).status is EventStatus.READING
    assert read_plain({}, DEFAULTS).status is EventStatus.FIRING
    assert read_plain({"value": 1, "status": "resolved"}, DEFAULTS).status is EventStatus.RESOLVED


def test_a_sender_cannot_overwrite_the_labels_that_are_configured():
    defaults = Defaults(source="m", type="t", id="i", now=NOW, labels={"topic": "a/b"})
    assert read_plain({"topic": "other", "labels": {"topic": "x"}}, defaults).labels["topic"] == "a/b"


@pytest.mark.parametrize("kind", ["host.filesystem", "health.check", "alertmanager.alert", "hermesd.x"])
def test_a_stranger_cannot_speak_as_one_of_the_own_sources(kind):
    with pytest.raises(Unreadable, match="own sources alone"):
        read_plain({"type": kind}, DEFAULTS)
    with pytest.raises(Unreadable, match="own sources alone"):
        read_cloudevent(cloudevent(type=kind), DEFAULTS)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"value": "12"}, "value is not a number"),
        ({"value": True}, "value is not a number"),
        ({"value": 10**400}, "finite"),
        ({"status": "broken"}, "status is none of"),
        ({"severity": 5}, "severity is none of"),
        ({"time": "yesterday"}, "time is not a time"),
        ({"time": 1e18}, "time is not a time"),
        ({"id": ["x"]}, "id is not"),
        ({"labels": {"": "x"}}, "a name that is empty"),
        ({"text": 5}, "text is not a text"),
        ({f"k{number}": 1 for number in range(65)}, "more than 64 labels"),
    ],
)
def test_a_field_that_cannot_be_meant_is_refused_by_its_name(data, reason):
    with pytest.raises(Unreadable, match=reason):
        read_plain(data, DEFAULTS)


def test_long_texts_are_cut_with_a_mark_and_long_ids_digested():
    event = read_plain({"id": "x" * 1000, "text": "y" * 10_000, "long": "z" * 5000}, DEFAULTS)
    assert len(event.id) == 32
    assert len(event.text) == 4096
    assert event.text.endswith("…")
    assert len(event.labels["long"]) == 1024


def test_text_that_no_store_takes_is_made_visible():
    event = read_plain({"text": "a\ud800b\x00c"}, DEFAULTS)
    assert event.text == "a\\ud800b\\x00c"


def test_seconds_since_1970_are_a_time():
    assert read_plain({"timestamp": 1_000_000_000.5}, DEFAULTS).time.year == 2001


def test_a_cloudevent_is_known_by_source_and_id_together():
    first, other = read_cloudevent(cloudevent(), DEFAULTS), read_cloudevent(cloudevent(source="/x"), DEFAULTS)
    assert first.id == "/backup 7"
    assert first.id != other.id
    assert first.type == "org.backup.failed"
    assert first.labels == {"origin": "/backup"}


def test_a_cloudevents_data_is_read_like_a_plain_object_and_cannot_change_its_envelope():
    event = read_cloudevent(
        cloudevent(
            subject="job",
            time="2026-11-30T10:00:00Z",
            tenant="a",
            data={"value": 3, "id": "else", "type": "host.filesystem", "labels": {"origin": "fake"}},
        ),
        DEFAULTS,
    )
    assert (event.id, event.type, event.subject) == ("/backup 7", "org.backup.failed", "job")
    assert event.value == 3
    assert event.labels == {"tenant": "a", "origin": "/backup"}


def test_a_cloudevents_plain_data_becomes_its_text():
    assert read_cloudevent(cloudevent(data="it broke"), DEFAULTS).text == "it broke"
    assert read_cloudevent(cloudevent(data=5), DEFAULTS).text == "5"


@pytest.mark.parametrize("missing", ["id", "source", "type"])
def test_a_cloudevent_without_its_required_attributes_is_refused(missing):
    with pytest.raises(Unreadable, match="needs id, source and type"):
        read_cloudevent(cloudevent(**{missing: None}), DEFAULTS)


def test_a_cloudevent_of_another_version_is_refused():
    with pytest.raises(Unreadable, match=r"1\.0"):
        read_cloudevent(cloudevent(specversion="0.3"), DEFAULTS)


def test_an_mqtt_payload_is_read_by_the_mode_of_its_topic():
    assert read_payload("json", b'{"value": 3}') == {"value": 3}
    assert read_payload("json", b"3.5") == {"value": 3.5}
    assert read_payload("number", b" 21.5\n") == {"value": 21.5}
    assert read_payload("text", "磁盘满了".encode()) == {"text": "磁盘满了"}


@pytest.mark.parametrize(
    ("mode", "payload"),
    [
        ("json", b"{"),
        ("json", b'{"a":1,"a":2}'),
        ("json", b"NaN"),
        ("json", b"[" * 100),
        ("json", b"[1]"),
        ("json", b""),
        ("number", b"warm"),
        ("number", b"\xff"),
        ("text", b"\xff\xfe"),
    ],
)
def test_a_payload_that_cannot_be_read_is_refused_with_a_reason(mode, payload):
    with pytest.raises((Unreadable, ProtocolError)):
        read_payload(mode, payload)


def test_a_number_that_is_not_finite_never_becomes_a_value():
    with pytest.raises(Unreadable, match="finite"):
        read_plain(read_payload("number", b"nan"), DEFAULTS)
