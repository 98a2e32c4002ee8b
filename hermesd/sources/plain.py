"""Plain JSON objects as events: what a person writes with `mosquitto_pub` or `curl`.

Known keys are `id, type, time, subject, labels, status, severity, value, unit, text` (or
`message`); any other key with a plain value becomes a label. This module must never
let a stranger speak in the name of hermesd's own sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hermesd.events import MAX_LABELS, Event, Severity
from hermesd.sources.base import Unreadable
from hermesd.sources.fields import (
    MAX_LABEL_VALUE,
    label_text,
    read_id,
    read_labels,
    read_name,
    read_number,
    read_severity,
    read_status,
    read_text,
    read_time,
)

OWN_TYPES: Final = (*("host.", "health.", "alertmanager.", "grafana.", "hermesd.", "schedule.", "source."),)
"""What hermesd says itself: an event of such a type from outside is refused."""

_KNOWN: Final = frozenset(
    {"id", "type", "time", "timestamp", "subject", "labels", "status", "severity"}
    | {"value", "unit", "text", "message"}
)
_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
_MAX_UNIT: Final = 32


@dataclass(frozen=True, slots=True)
class Defaults:
    """What an event is where its sender does not say: by configuration, and for this one message.

    ``id`` is used when the sender gives none. ``fixed_type`` means that the sender has no say in it.
    """

    source: str
    type: str
    id: str
    now: datetime
    labels: Mapping[str, str]
    severity: Severity = Severity.WARNING
    unit: str = ""
    subject: str = ""
    fixed_type: bool = False


def read_plain(data: Mapping[str, Any], defaults: Defaults) -> Event:
    """Return the event that a plain object describes. Raise Unreadable."""
    value = read_number(data.get("value"), "value")
    labels = {
        **{
            read_name(name, "the object"): label_text(item, name[:40])
            for name, item in data.items()
            if name not in _KNOWN and item is not None and not isinstance(item, dict | list)
        },
        **read_labels(data.get("labels"), "labels"),
        **defaults.labels,
    }
    if len(labels) > MAX_LABELS:
        raise Unreadable(f"more than {MAX_LABELS} labels")
    return Event(
        id=read_id(data.get("id")) or defaults.id,
        source=defaults.source,
        type=defaults.type if defaults.fixed_type else read_type(data.get("type"), defaults.type),
        time=read_time(data.get("time", data.get("timestamp")), "time") or defaults.now,
        subject=read_text(data.get("subject"), "subject", MAX_LABEL_VALUE) or defaults.subject,
        labels=labels,
        status=read_status(data.get("status"), value),
        severity=read_severity(data.get("severity"), defaults.severity),
        value=value,
        unit=read_text(data.get("unit"), "unit", _MAX_UNIT) or defaults.unit,
        text=read_text(data.get("text", data.get("message")), "text"),
    )


def read_type(value: Any, default: str) -> str:
    """Return the event's type, the default when absent. Raise Unreadable for one that is not the sender's."""
    if value is None:
        return default
    if not isinstance(value, str) or not _TYPE.fullmatch(value):
        raise Unreadable("type: want letters, digits and . _ / - , 128 at most")
    if value.startswith(OWN_TYPES):
        raise Unreadable("type: events of this type come from hermesd's own sources alone")
    return value
