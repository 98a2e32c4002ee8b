"""What a health check's probe found: the words that asking and deciding share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from hermesd.sources.settings_health import Check


class Condition(StrEnum):
    """What one probe found, and what a check is believed to be."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of one probe, with the reason in words.

    ``latency_ms`` is how long the answer took; ``certificate_days`` how long the target's certificate is
    still valid, where it was looked at this time.
    """

    condition: Condition
    reason: str
    latency_ms: float | None = None
    certificate_days: float | None = None


RunCommand = Callable[[Check], Awaitable[Found]]
"""Runs the read command that a check names, through the gate. Never raises."""


async def no_commands(_check: Check) -> Found:
    """Answer a check by command where there is no executor."""
    return Found(Condition.UNKNOWN, "there is no executor to run it")
