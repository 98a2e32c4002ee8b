"""Whatever strangers send, parsers either return events that any store takes, or refuse in words."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from hermesd.events import MAX_LABELS, MAX_TEXT, event_from_record
from hermesd.protocol import ProtocolError
from hermesd.sources.alertmanager import read_notification
from hermesd.sources.base import Unreadable
from hermesd.sources.cloudevents import read_cloudevent
from hermesd.sources.mounts import choose_mounts, parse_mountinfo
from hermesd.sources.plain import OWN_TYPES, Defaults, read_plain
from hermesd.sources.supervisor import FIRST_PAUSE_S, LONGEST_PAUSE_S, pause_after
from hermesd.sources.topics import read_payload

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULTS = Defaults(source="web", type="webhook.event", id="own", now=NOW, labels={"topic": "t"})

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
times = st.datetimes().map(lambda found: found.isoformat() + "Z") | st.sampled_from(
    ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999-23:59", "2026-02-30T00:00:00Z"]
)
plain = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text() | st.integers() | anything,
        "type": st.text() | st.sampled_from(["a.b", "host.filesystem"]),
        "time": times | anything,
        "labels": st.dictionaries(st.text(), anything, max_size=5) | anything,
        "status": st.sampled_from(["firing", "Resolved", "reading"]) | anything,
        "severity": st.sampled_from(["info", "critical"]) | anything,
        "value": st.floats() | st.integers() | anything,
        "text": st.text() | anything,
        "specversion": st.just("1.0"),
        "source": st.text(),
        "data": anything,
        "extra": anything,
    },
)
alerts = st.fixed_dictionaries(
    {"status": st.sampled_from(["firing", "resolved"]) | anything},
    optional={
        "labels": st.dictionaries(st.text(), st.text(), max_size=5) | anything,
        "annotations": st.dictionaries(st.text(), st.text(), max_size=3) | anything,
        "startsAt": times | anything,
        "endsAt": times | anything,
        "fingerprint": st.text() | anything,
    },
)


def check_event(event):
    record = event.to_record()
    text = json.dumps(record, allow_nan=False).encode().decode("ascii")
    assert event_from_record(json.loads(text)) == event
    for word in (event.id, event.type, event.subject, event.text, *event.labels, *event.labels.values()):
        word.encode("utf-8")
        assert "\x00" not in word
    assert len(event.labels) <= MAX_LABELS
    assert len(event.text) <= MAX_TEXT
    assert len(event.id) <= 256


@given(plain)
def test_a_plain_object_becomes_a_storable_event_or_a_refusal(data):
    for read in (read_plain, read_cloudevent):
        try:
            event = read(data, DEFAULTS)
        except Unreadable:
            continue
        check_event(event)
        assert not event.type.startswith(OWN_TYPES)
        assert event.labels["topic"] == "t"


@given(st.fixed_dictionaries({"alerts": st.lists(alerts | anything, max_size=4)}) | anything)
def test_a_notification_becomes_storable_events_or_a_refusal(body):
    try:
        found = read_notification(body, "am", NOW)
    except Unreadable:
        return
    assert len(found.events) + len(found.refused) == len(body["alerts"])
    for event in found.events:
        check_event(event)


@given(alerts)
def test_an_alert_read_twice_at_different_times_has_one_identity(alert):
    try:
        first = read_notification({"alerts": [alert]}, "am", NOW).events[0]
    except Unreadable:
        return
    assert read_notification({"alerts": [alert]}, "am", NOW.replace(year=2027)).events[0].id == first.id


@given(st.sampled_from(["json", "number", "text"]), st.binary() | st.text().map(str.encode))
def test_a_payload_of_any_bytes_is_an_object_or_a_refusal(mode, payload):
    try:
        event = read_plain(read_payload(mode, payload), DEFAULTS)
    except (Unreadable, ProtocolError):
        return
    check_event(event)


@given(st.text())
def test_any_text_in_place_of_mountinfo_yields_mounts_or_nothing(text):
    for mount in choose_mounts(parse_mountinfo(text), (), ()):
        assert mount.path


@given(st.integers(min_value=1), st.floats(min_value=0, max_value=1, exclude_max=True))
def test_a_pause_is_never_shorter_than_the_first_nor_longer_than_the_longest(deaths, chance):
    assert FIRST_PAUSE_S <= pause_after(deaths, chance) <= LONGEST_PAUSE_S
