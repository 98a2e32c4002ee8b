"""CloudEvents 1.0 as events: structured (one JSON object) and binary (attributes beside the body).

Over HTTP the attributes of the binary mode are headers (`ce-…`), over MQTT 5 user properties. This
module must never take an event for anything but its `source` and `id` say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from hermesd.events import Event
from hermesd.sources.base import Unreadable
from hermesd.sources.fields import MAX_LABEL_VALUE, as_object, label_text, read_id, read_text, short_id
from hermesd.sources.plain import Defaults, read_plain
from hermesd.strict_json import check_json

_ENVELOPE: Final = frozenset(
    {"specversion", "id", "source", "type", "time", "subject", "data", "data_base64"}
    | {"datacontenttype", "dataschema"}
)


def is_cloudevent(data: Mapping[str, Any]) -> bool:
    """Tell a structured CloudEvent from a plain object."""
    return "specversion" in data


def read_cloudevent(data: Mapping[str, Any], defaults: Defaults) -> Event:
    """Return the event of a structured CloudEvent 1.0. Raise Unreadable.

    Its identity is the sender's `source` and `id` together; `source` becomes the label `origin`.
    Extension attributes become labels; `data`, when it is an object, is read as a plain object.
    """
    if data.get("specversion") != "1.0":
        raise Unreadable("specversion: only CloudEvents 1.0 is understood")
    origin, sent_id = read_text(data.get("source"), "source", MAX_LABEL_VALUE), read_id(data.get("id"))
    if not origin or not sent_id or not data.get("type"):
        raise Unreadable("a CloudEvent needs id, source and type")
    content = data.get("data")
    inner = dict(as_object(content)) if isinstance(content, dict) else {"text": _as_text(content)}
    extensions = {name: item for name, item in data.items() if name not in _ENVELOPE}
    outer = {name: data[name] for name in ("time", "subject") if data.get(name) is not None}
    whole = {**extensions, **inner, **outer, "id": short_id(f"{origin} {sent_id}"), "type": data["type"]}
    return read_plain(whole, replace(defaults, labels={**defaults.labels, "origin": origin}))


def from_binary(attributes: Mapping[str, str], content_type: str, body: bytes) -> Mapping[str, Any]:
    """Return the structured form of an event whose attributes stand beside its body.

    Raise Unreadable, or ProtocolError for a body that says that it is JSON and is not.
    """
    kind = content_type.partition(";")[0].strip().lower()
    envelope = {name.lower(): value for name, value in attributes.items()}
    if not body:
        return envelope
    if not kind or kind == "application/json" or kind.endswith("+json"):
        return {**envelope, "data": check_json(body)}
    try:
        return {**envelope, "data": body.decode("utf-8")}
    except UnicodeDecodeError as error:
        raise Unreadable(f"the data is not UTF-8 at byte {error.start}") from None


def _as_text(content: Any) -> str | None:
    return content if isinstance(content, str) or content is None else label_text(content, "data")
