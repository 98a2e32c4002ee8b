"""Event: what a source says happened.

The attributes are CloudEvents' (`id`, `source`, `type`, `subject`, `time`), plus what an operator
steers by: labels, value, severity, status. An event never carries an identity made from its value:
two readings of one thing are two events of one incident.

This module must never know where an event came from or what follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

MAX_LABELS: Final = 64
MAX_TEXT: Final = 4096


RETAINED_TYPE: Final = "hermesd.retained"
"""How something stood before hermesd listened: it updates what is known, and no rule judges it."""


class EventStatus(StrEnum):
    """`firing` and `resolved` are a sender's judgement; `reading` is a measure that rules judge."""

    FIRING = "firing"
    RESOLVED = "resolved"
    READING = "reading"


class Severity(StrEnum):
    """How bad the sender says it is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a source says happened.

    ``id`` with ``source`` is the key of idempotency: the same pair delivered twice is one event.
    ``time`` is aware and in UTC. ``value`` is in ``unit`` (percent, bytes, seconds, or empty).
    ``cause`` holds ids of what led to it, oldest first.
    """

    id: str
    source: str
    type: str
    time: datetime
    subject: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    status: EventStatus = EventStatus.FIRING
    severity: Severity = Severity.WARNING
    value: float | None = None
    unit: str = ""
    text: str = ""
    cause: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.time.tzinfo is None:
            raise ValueError("an event's time must be aware")
        if not self.id or not self.source or not self.type:
            raise ValueError("an event needs an id, a source and a type")
        if len(self.labels) > MAX_LABELS:
            raise ValueError(f"an event has at most {MAX_LABELS} labels")

    def to_record(self) -> dict[str, Any]:
        """Return the event as plain JSON values, for the store and the audit log."""
        return {
            "id": self.id,
            "source": self.source,
            "type": self.type,
            "time": self.time.astimezone(UTC).isoformat(),
            "subject": self.subject,
            "labels": self.labels,
            "status": self.status.value,
            "severity": self.severity.value,
            "value": self.value,
            "unit": self.unit,
            "text": self.text,
            "cause": list(self.cause),
        }


def event_from_record(record: dict[str, Any]) -> Event:
    """Return the event that `to_record` wrote. Raise KeyError or ValueError on anything else."""
    return Event(
        id=record["id"],
        source=record["source"],
        type=record["type"],
        time=datetime.fromisoformat(record["time"]),
        subject=record["subject"],
        labels=dict(record["labels"]),
        status=_STATUSES[record["status"]],
        severity=_SEVERITIES[record["severity"]],
        value=record["value"],
        unit=record["unit"],
        text=record["text"],
        cause=tuple(record["cause"]),
    )


# Looked up for each event that is read: calling the enumeration costs ten times as much.
_STATUSES: Final = {one.value: one for one in EventStatus}
_SEVERITIES: Final = {one.value: one for one in Severity}
