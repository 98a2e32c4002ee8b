"""What Alertmanager posts to a webhook (version 4), as events: one for each alert.

The identity of an alert is fingerprint, start and status: the same alert sent again, or by the
other peer of a pair, is the same event. Nothing is concluded from an alert that is not in the body:
a body may be cut (`truncatedAlerts`), and then absence does not mean that anything ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hermesd.events import MAX_TEXT, Event, EventStatus, Severity
from hermesd.sources.base import Unreadable
from hermesd.sources.fields import (
    MAX_LABEL_VALUE,
    as_object,
    cut,
    digest,
    read_labels,
    read_text,
    read_time,
    short_id,
)

ALERT_TYPE: Final = "alertmanager.alert"

_SEVERITIES: Final = {
    **dict.fromkeys(("critical", "page", "error", "emergency", "disaster", "high"), Severity.CRITICAL),
    **dict.fromkeys(("info", "information", "informational", "none", "low"), Severity.INFO),
}
"""What rules out there put into the label; anything else is a warning."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One body: its alerts as events, why others could not be read, and how many were cut off."""

    events: tuple[Event, ...]
    refused: tuple[str, ...]
    truncated: int


def read_notification(body: Any, source: str, now: datetime) -> Notification:
    """Read a body. Raise Unreadable when it is none, or when none of its alerts can be read.

    One alert that cannot be read does not cost the others: Alertmanager sends a body again only as a
    whole, and a refused one never.
    """
    data = as_object(body)
    if data.get("version") not in ("4", None):
        raise Unreadable("version: only Alertmanager's version 4 is understood")
    return read_each(data, lambda alert: read_alert(alert, source, now))


def read_each(data: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Event]) -> Notification:
    """Read the alerts of a body one by one. Raise Unreadable when there are some and none can be read."""
    alerts = data.get("alerts")
    if not isinstance(alerts, list):
        raise Unreadable("alerts is not a list")
    events: list[Event] = []
    refused: list[str] = []
    for number, alert in enumerate(alerts):
        try:
            events.append(read(as_object(alert)))
        except Unreadable as error:
            refused.append(f"alerts.{number}: {error}")
    if refused and not events:
        raise Unreadable("; ".join(refused[:8]))
    return Notification(tuple(events), tuple(refused), _count(data.get("truncatedAlerts")))


def read_alert(alert: Mapping[str, Any], source: str, now: datetime) -> Event:
    """Return one alert as an event. Raise Unreadable."""
    labels = read_labels(alert.get("labels"), "labels")
    status = alert.get("status")
    if status not in (EventStatus.FIRING, EventStatus.RESOLVED):
        raise Unreadable("status is neither firing nor resolved")
    starts = read_time(alert.get("startsAt"), "startsAt")
    ends = read_time(alert.get("endsAt"), "endsAt")
    sent_print = read_text(alert.get("fingerprint"), "fingerprint", MAX_LABEL_VALUE)
    fingerprint = sent_print or digest(json.dumps(labels, sort_keys=True).encode())
    happened = (ends if status == EventStatus.RESOLVED else starts) or now
    return Event(
        id=short_id(f"{fingerprint}:{alert.get('startsAt', '') if starts else ''}:{status}"),
        source=source,
        type=ALERT_TYPE,
        time=happened,
        # The name alone would make one thing of alerts that only labels tell apart.
        subject=f"{labels.get('alertname', '')} {fingerprint}".strip(),
        labels=labels,
        status=EventStatus(status),
        severity=severity_of(labels),
        text=_words(as_object(alert.get("annotations") or {})),
    )


def severity_of(labels: Mapping[str, str]) -> Severity:
    """Return how bad a `severity` label says it is."""
    return _SEVERITIES.get(labels.get("severity", "").lower(), Severity.WARNING)


def _words(annotations: Mapping[str, Any]) -> str:
    """Return what the alert says for people: its summary, then its description."""
    said = (annotations.get(name) for name in ("summary", "description", "message"))
    return cut("\n".join(text for text in said if isinstance(text, str) and text), MAX_TEXT)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
