"""When a file system will be full, if it goes on as in the last hour: a straight line through its samples.

Pure. This module must never guess from less than ten minutes, and never call what shrinks growing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hermesd.sources.readings import Reading, Sample, bytes_in_words

WINDOW_S: Final = 3600.0
EVERY_S: Final = 60.0
LEAST_S: Final = 600.0
LONGEST_H: Final = 168.0
"""A week: what is full later, or never, has this value, so that a rule that asks for more clears."""

_HOUR_S: Final = 3600.0


def full_in(sample: Sample, earlier: Sequence[Sample]) -> Reading | None:
    """Return in how many hours nothing is left, LONGEST_H at most. None until enough was seen."""
    if not sample.facts["size_bytes"] or not earlier:
        return None
    points = [
        ((one.at - sample.at).total_seconds(), one.facts["available_bytes"]) for one in (*earlier, sample)
    ]
    if -points[0][0] < LEAST_S:
        return None
    lost_per_s, left = -slope(points), sample.facts["available_bytes"]
    if lost_per_s <= 0 or left >= points[0][1] or left / lost_per_s > LONGEST_H * _HOUR_S:
        return Reading(LONGEST_H, "not full within a week, as it went in the last hour")
    hours = float(f"{left / lost_per_s / _HOUR_S:.2g}")
    grows = f"{bytes_in_words(lost_per_s * _HOUR_S)} an hour"
    return Reading(hours, f"full in {hours:g} h: {bytes_in_words(left)} are left, and {grows} become used")


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line that fits best (least squares); 0 when all lie at one moment."""
    mean_x = sum(x for x, _y in points) / len(points)
    mean_y = sum(y for _x, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _y in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
