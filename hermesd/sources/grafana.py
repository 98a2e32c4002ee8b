"""What Grafana's webhook contact points post, as events: unified alerting, and the legacy notifications.

Unified bodies are Alertmanager's with more around (`orgId`, `values`, a link to the panel); a legacy
body is one rule's state. This module must never conclude that an alert ended because a body lacks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from hermesd.events import MAX_LABELS, MAX_TEXT, Event, EventStatus
from hermesd.sources.alertmanager import Notification, read_alert, read_each, severity_of
from hermesd.sources.base import Unreadable
from hermesd.sources.fields import (
    MAX_LABEL_VALUE,
    as_object,
    cut,
    label_text,
    read_labels,
    read_number,
    read_text,
)

UNIFIED_TYPE: Final = "grafana.alert"
LEGACY_TYPE: Final = "grafana.legacy_alert"

_LEGACY_STATES: Final = {
    "alerting": EventStatus.FIRING,
    "no_data": EventStatus.FIRING,
    "ok": EventStatus.RESOLVED,
}
"""The legacy states that say something happened; `pending` and `paused` are between two of them."""


def read_grafana(body: Any, source: str, now: datetime, fresh_id: str) -> Notification:
    """Read a body of either kind. Raise Unreadable when it is none.

    ``fresh_id`` is the id of a legacy event: such a body carries none, and is sent once a state change.
    """
    data = as_object(body)
    if "alerts" in data:
        return read_each(data, lambda alert: _unified(alert, data, source, now))
    if "ruleId" not in data and "ruleName" not in data:
        raise Unreadable("it has neither alerts (unified alerting) nor ruleId (legacy)")
    event = _legacy(data, source, now, fresh_id)
    return Notification((event,) if event else (), (), 0)


def _unified(alert: Mapping[str, Any], body: Mapping[str, Any], source: str, now: datetime) -> Event:
    """Return an alert as Alertmanager's, with its organisation, and its value where it has just one."""
    event = read_alert(alert, source, now)
    labels = _with(event.labels, {"grafana_org": alert.get("orgId", body.get("orgId"))})
    return replace(event, type=UNIFIED_TYPE, labels=labels, value=_one_value(alert.get("values")))


def _one_value(values: Any) -> float | None:
    """Return the value of a query that stands alone; which of several is meant, nobody here knows."""
    if not isinstance(values, dict) or len(values) != 1:
        return None
    return read_number(next(iter(values.values())), "values")


def _legacy(data: Mapping[str, Any], source: str, now: datetime, fresh_id: str) -> Event | None:
    state = data.get("state")
    if state in ("pending", "paused"):
        return None
    if not isinstance(state, str) or state not in _LEGACY_STATES:
        raise Unreadable("state is none of alerting, ok, no_data, pending, paused")
    name = read_text(data.get("ruleName"), "ruleName", MAX_LABEL_VALUE)
    known = {"alertname": name, "rule_id": data.get("ruleId"), "grafana_org": data.get("orgId")}
    labels = _with(read_labels(data.get("tags"), "tags"), {**known, "state": state})
    said = (read_text(data.get(key), key) for key in ("title", "message"))
    return Event(
        id=fresh_id,
        source=source,
        type=LEGACY_TYPE,
        time=now,
        subject=cut(f"{name} {labels.get('rule_id', '')}".strip(), MAX_LABEL_VALUE),
        labels=labels,
        status=_LEGACY_STATES[state],
        severity=severity_of(labels),
        value=_one_match(data.get("evalMatches")),
        text=cut("\n".join(text for text in said if text), MAX_TEXT),
    )


def _one_match(matches: Any) -> float | None:
    if not isinstance(matches, list) or len(matches) != 1:
        return None
    return read_number(as_object(matches[0]).get("value"), "evalMatches.0.value")


def _with(labels: Mapping[str, str], more: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels with those of ``more`` that the body gave. Raise Unreadable."""
    whole = {**labels, **{name: label_text(value, name) for name, value in more.items() if value is not None}}
    if len(whole) > MAX_LABELS:
        raise Unreadable(f"more than {MAX_LABELS} labels")
    return whole
