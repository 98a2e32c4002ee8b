"""One message of a broker as events, as its topic's settings say: pure reading, no connection.

Identity of a message: the `id` in its payload, else topic, payload and the time in the payload,
else nothing. A message of the last kind is delivered at least once: sent again to the process that
took it in, it keeps its id; sent again to a successor of that process, it becomes a second event of
the same incident.

A retained message tells how things stood, not that something happens: unless its topic asks for
more it becomes a reading of RETAINED_TYPE, which updates what is known and which no rule judges.
This module must never drop what it can read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hermesd.events import RETAINED_TYPE, Event
from hermesd.protocol import check_json
from hermesd.sources.base import EventIds, Now, Unreadable
from hermesd.sources.cloudevents import from_binary, read_cloudevent
from hermesd.sources.fields import as_object, cut, digest, read_id
from hermesd.sources.mapping import read_mapped
from hermesd.sources.plain import Defaults, read_plain
from hermesd.sources.settings_mqtt import Topic
from hermesd.sources.telegraf import read_telegraf

MAX_PAYLOAD_BYTES: Final = 1 << 20
REMEMBERED: Final = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """What came. ``again``: the broker says that it sent it before. ``attributes``: user properties."""

    topic: str
    payload: bytes
    retained: bool = False
    again: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""


class MessageReader:
    """Reads the messages of one source. ``name`` is the source's."""

    def __init__(self, name: str, now: Now) -> None:
        self._name = name
        self._now = now
        self._ids = EventIds(name)
        self._given: OrderedDict[str, str] = OrderedDict()

    def read(self, topic: Topic, message: Message) -> Sequence[Event]:
        """Return the message's events, all or none. Raise Unreadable or ProtocolError."""
        if len(message.payload) > MAX_PAYLOAD_BYTES:
            raise Unreadable(f"longer than {MAX_PAYLOAD_BYTES} bytes")
        if message.retained and not message.payload:
            return ()
        events = self._read(topic, message)
        if not message.retained or topic.retained:
            return events
        return [replace(event, id=self._ids.next(), type=RETAINED_TYPE) for event in events]

    def _read(self, topic: Topic, message: Message) -> Sequence[Event]:
        if topic.mode == "cloudevents":
            return [self._cloudevent(topic, message)]
        if topic.mode == "telegraf":
            data = check_json(message.payload)
            defaults = self._defaults(topic, message, has_time=True)
            return read_telegraf(data, defaults, topic.fields, topic.timestamp_unit)
        if topic.map is not None:
            data = check_json(message.payload)
            events = read_mapped(
                topic.map, data, self._defaults(topic, message, has_time=bool(topic.map.time))
            )
            return [_under(message.topic, event) for event in events] if topic.map.id else events
        plain = read_payload(topic.mode, message.payload)
        sent_id = read_id(plain.get("id"))
        own_id = read_id(f"{message.topic} {sent_id}") if sent_id else ""
        has_time = "time" in plain or "timestamp" in plain
        return [read_plain({**plain, "id": None}, self._defaults(topic, message, own_id, has_time=has_time))]

    def _cloudevent(self, topic: Topic, message: Message) -> Event:
        if "specversion" in message.attributes:
            data = from_binary(message.attributes, message.content_type, message.payload)
        else:
            data = as_object(check_json(message.payload))
        defaults = self._defaults(topic, message, has_time=True)
        return read_cloudevent(data, replace(defaults, fixed_type=False))

    def _defaults(self, topic: Topic, message: Message, own_id: str = "", *, has_time: bool) -> Defaults:
        name = cut(message.topic, 1024)
        return Defaults(
            source=self._name,
            type=topic.type,
            fixed_type=True,
            id=own_id or self._own_id(message, has_time=has_time),
            now=self._now(),
            labels={**topic.labels, "topic": name},
            severity=topic.severity,
            unit=topic.unit,
            subject=name,
        )

    def _own_id(self, message: Message, *, has_time: bool) -> str:
        """Return the id of a message whose payload has none, as the module's first lines say."""
        content = digest(message.topic.encode(), message.payload)
        if has_time:
            return content
        if message.again and content in self._given:
            return self._given[content]
        self._given[content] = self._ids.next()
        self._given.move_to_end(content)
        if len(self._given) > REMEMBERED:
            self._given.popitem(last=False)
        return self._given[content]


def read_payload(mode: str, payload: bytes) -> Mapping[str, Any]:
    """Return a payload as the plain object that it stands for. Raise Unreadable or ProtocolError."""
    if mode == "json":
        found = check_json(payload)
        return {"value": found} if _is_number(found) else as_object(found)
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from None
    if mode == "text":
        return {"text": text}
    try:
        return {"value": float(text)}
    except ValueError:
        raise Unreadable("not a number") from None


def _under(topic: str, event: Event) -> Event:
    """Return the event with an id that is the topic's alone: senders number by themselves."""
    return replace(event, id=read_id(f"{topic} {event.id}"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
