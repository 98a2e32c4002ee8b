"""What Telegraf's JSON serializer writes, single and batch, as readings: one for each number.

A metric is `{name, tags, fields, timestamp}`; a batch is `{"metrics": [...]}`. Each field with a
number is a reading of its own, since rules judge one value. This module must never make a reading
of what is not a number, and never lose a metric because of another one's texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from hermesd.events import MAX_LABELS, Event, EventStatus
from hermesd.sources.base import Unreadable
from hermesd.sources.fields import (
    MAX_LABEL_VALUE,
    as_object,
    cut,
    digest,
    read_labels,
    read_name,
    read_number,
    read_time,
)
from hermesd.sources.plain import Defaults

MAX_METRICS: Final = 1000

TimestampUnit = Literal["s", "ms", "us", "ns"]
PER_SECOND: Final[Mapping[str, int]] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Telegraf's `json_timestamp_units`: seconds unless its file says another."""


def read_telegraf(
    payload: Any, defaults: Defaults, only: Sequence[str] = (), unit: TimestampUnit = "s"
) -> list[Event]:
    """Return the readings of a payload, all or none. Raise Unreadable.

    ``only`` names fields (`used_percent`) or metric and field (`disk.used_percent`); empty means
    every number. The id is made of name, tags, field and time: a metric sent again is the same event.
    """
    data = as_object(payload)
    metrics = data.get("metrics", [data])
    if not isinstance(metrics, list):
        raise Unreadable("metrics is not a list")
    if len(metrics) > MAX_METRICS:
        raise Unreadable(f"more than {MAX_METRICS} metrics in one payload")
    return [event for metric in metrics for event in _readings(as_object(metric), defaults, only, unit)]


def _readings(
    metric: Mapping[str, Any], defaults: Defaults, only: Sequence[str], unit: str
) -> Iterator[Event]:
    name, stamp = read_name(metric.get("name"), "name"), read_number(metric.get("timestamp"), "timestamp")
    if stamp is None:
        raise Unreadable("a metric needs a timestamp")
    tags = read_labels(metric.get("tags"), "tags")
    happened = read_time(stamp / PER_SECOND[unit], "timestamp")
    for field, value in as_object(metric.get("fields")).items():
        if not _is_wanted(name, field, value, only):
            continue
        labels = {**tags, "metric": name, "field": read_name(field, "fields"), **defaults.labels}
        if len(labels) > MAX_LABELS:
            raise Unreadable(f"more than {MAX_LABELS} labels")
        yield Event(
            id=digest(name.encode(), json.dumps(tags, sort_keys=True).encode(), field.encode(), _key(stamp)),
            source=defaults.source,
            type=defaults.type,
            time=happened or defaults.now,
            subject=cut(f"{name}.{field}", MAX_LABEL_VALUE),
            labels=labels,
            status=EventStatus.READING,
            severity=defaults.severity,
            value=read_number(value, f"fields.{field[:40]}"),
            unit=defaults.unit,
        )


def _is_wanted(name: str, field: str, value: Any, only: Sequence[str]) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (not only or field in only or f"{name}.{field}" in only)


def _key(stamp: float) -> bytes:
    return repr(stamp).encode()
