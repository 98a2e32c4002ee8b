"""What came of a batch of events: what was opened, resolved and started, and the evidence of each verdict.

Values that the dispatcher records before it lets anything act. This module must never touch the store.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from hermesd.events import Event
from hermesd.incidents import Incident, Run
from hermesd.rules.verdict import Verdict, VerdictKind

UNREMARKABLE: Final = frozenset({VerdictKind.IGNORED, VerdictKind.BELOW})


@dataclass(slots=True)
class Judged:
    """What came of a batch. ``started`` have a place and may start once all this is recorded.

    ``withdrawn`` are runs that give way to another of their rule; ``escalated`` incidents that a
    person must look at from now on. ``next_due`` is when time alone will change something.
    """

    events: int = 0
    timers: int = 0
    next_due: datetime | None = None
    opened: list[Incident] = field(default_factory=list)
    resolved: list[Incident] = field(default_factory=list)
    escalated: list[Incident] = field(default_factory=list)
    started: list[Run] = field(default_factory=list)
    queued: list[Run] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    evidence: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)

    def take_run(self, run: Run) -> None:
        """Add a run that was stored, by whether it has a place."""
        (self.started if run.started_at else self.queued).append(run)

    def note(self, verdict: Verdict, event: Event, run: Run | None) -> None:
        """Add to the batch's evidence: one entry for what happened alike, with its count."""
        kind, held = verdict.kind.value, verdict.held.value if verdict.held else ""
        self.verdicts[verdict.rule, kind] += 1
        if held:
            self.verdicts[verdict.rule, held] += 1
        if verdict.kind in UNREMARKABLE:
            return
        entry = self.evidence.setdefault(
            (verdict.rule, verdict.fingerprint, kind, held), _entry(verdict, event.id)
        )
        entry |= {
            "count": entry["count"] + 1,
            "source": event.source,
            "last_event": event.id,
            "reason": verdict.reason,
            "incident": verdict.incident_id,
        }
        if verdict.start_run:
            entry["runs"].append(run.task_id if run else "none: a run of this incident is under way")


def _entry(verdict: Verdict, event_id: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "rule": verdict.rule,
        "fingerprint": verdict.fingerprint,
        "verdict": verdict.kind.value,
        "count": 0,
        "first_event": event_id,
        "runs": [],
    }
    return {**entry, "held": verdict.held.value} if verdict.held else entry
