"""Incident and Run: one problem over time, and one attempt to deal with it.

These are values: frozen, compared by content, changed with `dataclasses.replace`. Who may change
them, and when, is decided in `rules` and `pipeline`; this module must never touch the store.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from hermesd.protocol import RunKind, StageTiming

__all__ = ["Incident", "IncidentStatus", "Outcome", "Run", "RunKind", "RunStatus", "fingerprint"]


class IncidentStatus(StrEnum):
    """An incident is open, then perhaps acknowledged by a person, then resolved. It never reopens."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class RunStatus(StrEnum):
    """`waiting` is a run whose clock halts while a person is asked."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    ENDED = "ended"


class Outcome(StrEnum):
    """How a run ended. Only `resolved` and `answered` are success; exit status 0 alone is not."""

    RESOLVED = "resolved"  # the condition that opened the incident no longer holds
    ANSWERED = "answered"  # a person has what they asked for
    REPORTED = "reported"  # looked and told; the condition still holds
    DENIED = "denied"  # a person said no
    EXPIRED = "expired"  # nobody decided in time
    PLAN_CHANGED = "plan_changed"  # the world moved between showing and doing
    HANDED_OVER = "handed_over"  # a person takes over
    TIMED_OUT = "timed_out"  # a stage's or the run's clock ran out
    FAILED = "failed"  # something broke; the record says what
    CANCELLED = "cancelled"  # a person withdrew it
    UNKNOWN = "unknown"  # a crash left an effect in doubt; a person must look


@dataclass(frozen=True, slots=True)
class Incident:
    """One problem over time. ``fingerprint`` is fixed when it opens and never depends on a value.

    ``escalated`` says why a person must look at it, and is empty when nobody must.
    """

    id: str
    rule: str
    fingerprint: str
    title: str
    labels: dict[str, str]
    severity: str
    opened_at: datetime
    last_event_at: datetime
    status: IncidentStatus = IncidentStatus.OPEN
    resolved_at: datetime | None = None
    events: int = 1
    last_value: float | None = None
    unit: str = ""
    escalated: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt to deal with an incident or to answer a person; ``task_id`` is on every record of it."""

    task_id: str
    kind: RunKind
    goal: str
    created_at: datetime
    incident_id: str | None = None
    event_id: str | None = None
    runbook: str = ""
    asked_by: str = ""
    status: RunStatus = RunStatus.QUEUED
    outcome: Outcome | None = None
    reason: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    round: int = 0
    stage: str = ""
    report: str = ""
    worked_ms: int = 0
    malformed: int = 0
    tokens: int = 0
    cost: float = 0.0
    stages: tuple[StageTiming, ...] = field(default=())

    @property
    def asked_by_uid(self) -> int | None:
        """The uid of the person behind it, written into ``asked_by`` as `uid N ...`; None without one."""
        words = self.asked_by.split()
        known = len(words) > 1 and words[0] == "uid" and words[1].isascii() and words[1].isdigit()
        return int(words[1]) if known else None


def fingerprint(rule: str, labels: dict[str, str], group_by: tuple[str, ...]) -> str:
    """Return the identity of the incident that an event with these labels belongs to.

    It is made of the rule's name and the chosen labels alone: never of a value, a time or a text.
    A label that the event lacks counts as empty.
    """
    parts = [rule, *(f"{name}={labels.get(name, '')}" for name in sorted(group_by))]
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
