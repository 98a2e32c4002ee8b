"""Whether a rule's condition holds by one event, and what was found. Pure, and in words."""

from __future__ import annotations

from enum import Enum
from math import isfinite

from hermesd.events import Event, EventStatus
from hermesd.rules.rule import Rule


class Standing(Enum):
    """What an event says about a rule's condition."""

    HOLDS = 1
    BETWEEN = 2
    CLEARED = 3
    SILENT = 4  # nothing that this rule could judge


def stand(rule: Rule, event: Event) -> tuple[Standing, str]:
    """Say whether the rule's condition holds by this event, and what was found."""
    if event.status is EventStatus.RESOLVED:
        return Standing.CLEARED, "the sender says resolved"
    threshold = rule.threshold
    if threshold is None:
        if event.status is EventStatus.READING:
            return Standing.SILENT, "a reading is judged by a threshold, and the rule has none"
        return Standing.HOLDS, "the sender says firing"
    value, ends = event.value, rule.ends
    if value is None or not isfinite(value) or ends is None:
        return Standing.SILENT, "the rule has a threshold, and the event has no value to compare"
    shown = f"{value:g} {event.unit}" if event.unit else f"{value:g}"
    if threshold.holds(value):
        return Standing.HOLDS, f"{shown} is {threshold.words}"
    if ends.holds(value):
        return Standing.CLEARED, f"{shown} is {ends.words}"
    return Standing.BETWEEN, f"{shown} is neither {threshold.words} nor {ends.words}"
