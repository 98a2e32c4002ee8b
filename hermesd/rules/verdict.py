"""What the rule engine answers and what it remembers, as values that survive the store.

They are tuples by name, since one of each is made for every event. This module must never decide
anything.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from hermesd.events import Event
from hermesd.rules.rule import Rule

MAX_SUBJECTS: Final = 256
"""How many wrong subjects of one group are told apart; of more, the newest."""


class VerdictKind(StrEnum):
    """What a rule made of an event."""

    IGNORED = "ignored"  # not this rule's business, or not to be judged by it
    BELOW = "below"  # this rule's business, and nothing is wrong
    PENDING = "pending"  # wrong, but not yet for long or often enough
    OPENED = "opened"  # an incident begins
    ABSORBED = "absorbed"  # counts to the incident that is open
    RESOLVED = "resolved"  # the incident ends


class HoldKind(StrEnum):
    """Why no run starts although the condition holds and the rule has one. The event counts all the same."""

    COOLING_DOWN = "cooling_down"  # a run began less than `cooldown` ago
    LOOPING = "looping"  # the event was caused by what it would start
    FLAPPING = "flapping"  # incidents of it open and end too often
    SILENCED = "silenced"  # a person said so
    MAINTENANCE = "maintenance"  # a maintenance window is open
    INHIBITED = "inhibited"  # an incident of another rule explains it
    BUSY = "busy"  # the rule's mode lets no further run start now
    OVER_BUDGET = "over_budget"  # too many runs: a person must look


class Hold(NamedTuple):
    """One reason to start nothing."""

    kind: HoldKind
    reason: str


Brake = Callable[[Rule, Event, str, datetime], Hold | None]
"""Asked before a run is granted, with the fingerprint: what beyond event and state speaks against it."""


def no_brake(_rule: Rule, _event: Event, _fingerprint: str, _now: datetime) -> Hold | None:
    """Hold nothing."""
    return None


class RuleState(NamedTuple):
    """What a rule remembers of one fingerprint. An incident is open while ``opened_at`` is set.

    ``last_run_at`` is the moment a run was granted, stamped before it was attempted. ``subjects`` are
    those of the group for which the condition holds: the incident ends with the last of them.
    ``seen_at`` is for `absent`, ``hits`` for `count`, ``flips`` (openings) and ``flapping`` for `flap`.
    """

    pending_since: datetime | None = None
    opened_at: datetime | None = None
    incident_id: str = ""
    last_run_at: datetime | None = None
    subjects: tuple[str, ...] = ()
    seen_at: datetime | None = None
    hits: tuple[datetime, ...] = ()
    flips: tuple[datetime, ...] = ()
    flapping: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            "pending_since": _text(self.pending_since),
            "opened_at": _text(self.opened_at),
            "incident_id": self.incident_id,
            "last_run_at": _text(self.last_run_at),
            "subjects": list(self.subjects),
            "seen_at": _text(self.seen_at),
            "hits": [moment.isoformat() for moment in self.hits],
            "flips": [moment.isoformat() for moment in self.flips],
            "flapping": self.flapping,
        }


def state_from_record(record: dict[str, Any]) -> RuleState:
    """Return the state that `to_record` wrote, of an earlier version too. Raise KeyError or ValueError."""
    return RuleState(
        pending_since=_moment(record["pending_since"]),
        opened_at=_moment(record["opened_at"]),
        incident_id=str(record["incident_id"]),
        last_run_at=_moment(record["last_run_at"]),
        subjects=tuple(record["subjects"]),
        seen_at=_moment(record.get("seen_at")),
        hits=tuple(datetime.fromisoformat(text) for text in record.get("hits", ())),
        flips=tuple(datetime.fromisoformat(text) for text in record.get("flips", ())),
        flapping=bool(record.get("flapping", False)),
    )


class Verdict(NamedTuple):
    """What one rule made of one event, and why. ``incident_id`` is empty where there is no incident.

    ``held`` says what kept a run from starting, where the condition holds and the rule has a run.
    """

    rule: str
    fingerprint: str
    kind: VerdictKind
    reason: str
    start_run: bool = False
    title: str = ""
    incident_id: str = ""
    held: HoldKind | None = None

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
            "held": self.held.value if self.held else "",
        }


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
