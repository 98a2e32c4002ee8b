"""What the rule engine answers and what it remembers, as values that survive the store.

This module must never decide anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

MAX_SUBJECTS: Final = 256
"""How many wrong subjects of one group are told apart; of more, the newest."""


class VerdictKind(StrEnum):
    """What a rule made of an event."""

    IGNORED = "ignored"  # not this rule's business, or not to be judged by it
    BELOW = "below"  # this rule's business, and nothing is wrong
    PENDING = "pending"  # wrong, but not yet for long enough
    OPENED = "opened"  # an incident begins
    ABSORBED = "absorbed"  # counts to the incident that is open
    RESOLVED = "resolved"  # the incident ends


@dataclass(frozen=True, slots=True)
class RuleState:
    """What a rule remembers of one fingerprint. An incident is open while ``opened_at`` is set.

    ``last_run_at`` is the moment a run was granted, stamped before it was attempted. ``subjects`` are
    those of the group for which the condition holds: the incident ends with the last of them.
    """

    pending_since: datetime | None = None
    opened_at: datetime | None = None
    incident_id: str = ""
    last_run_at: datetime | None = None
    subjects: tuple[str, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            "pending_since": self.pending_since and self.pending_since.isoformat(),
            "opened_at": self.opened_at and self.opened_at.isoformat(),
            "incident_id": self.incident_id,
            "last_run_at": self.last_run_at and self.last_run_at.isoformat(),
            "subjects": list(self.subjects),
        }


def state_from_record(record: dict[str, Any]) -> RuleState:
    """Return the state that `to_record` wrote. Raise KeyError or ValueError on anything else."""
    return RuleState(
        pending_since=_moment(record["pending_since"]),
        opened_at=_moment(record["opened_at"]),
        incident_id=str(record["incident_id"]),
        last_run_at=_moment(record["last_run_at"]),
        subjects=tuple(record["subjects"]),
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rule made of one event, and why. ``incident_id`` is empty where there is no incident."""

    rule: str
    fingerprint: str
    kind: VerdictKind
    reason: str
    start_run: bool = False
    title: str = ""
    incident_id: str = ""

    def to_record(self) -> dict[str, Any]:
        """Return the verdict as plain JSON values."""
        return {
            "rule": self.rule,
            "fingerprint": self.fingerprint,
            "kind": self.kind.value,
            "reason": self.reason,
            "start_run": self.start_run,
            "title": self.title,
            "incident_id": self.incident_id,
        }


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
