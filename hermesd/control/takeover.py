"""Takeover: when a machine should stop trying, and a person has the target.

Two counts decide. Three requests in a row of one run that validation refused: whoever plans it does
not understand what is permitted, and goes on guessing. A third repair of one target within a day:
two did not last, and a third will not either. What was taken over is only looked at until a person
releases it, and then it is counted anew. Both counts are the ledger's, so that no restart forgets
them. This module must never release anything by itself.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from hermesd.audit import AuditLog
from hermesd.control.binding import Bound
from hermesd.control.ledger import Ledger, Takeover
from hermesd.control.roots import overlap
from hermesd.protocol import CommandRequest, CommandResult, Effect, ResultStatus

log = logging.getLogger("hermesd.gate")

REFUSALS: Final = 3
REPAIRS: Final = 2
REPAIR_HOURS: Final = 24


class Hands:
    """Counts refusals by run and repairs by target, and knows which targets a person has."""

    def __init__(self, ledger: Ledger, audit: AuditLog) -> None:
        self._ledger = ledger
        self._audit = audit

    async def count(self, result: CommandResult, now: datetime) -> None:
        """Take a request's end into account; the third refusal in a row hands the run to a person."""
        if result.status is not ResultStatus.REFUSED:
            return
        last = await self._ledger.last_results(result.task_id, REFUSALS)
        if last == [ResultStatus.REFUSED] * REFUSALS:
            await self._take_over(result.task_id, f"{REFUSALS} requests in a row were refused", now)

    async def fault(self, request: CommandRequest, bound: Bound, now: datetime) -> str:
        """Return why nothing may be changed here now, "" when it may be. Looking is always allowed."""
        if bound.command.spec.effect is Effect.READ:
            return ""
        held = await self._ledger.takeovers()
        if found := next((item for item in held if _covers(item, request, bound)), None):
            return f"a person has {found.target}: {found.reason}"
        since = now - timedelta(hours=REPAIR_HOURS)
        target = target_of(bound)
        if await self._ledger.repairs_since(target, request, since) < REPAIRS:
            return ""
        reason = f"it was repaired {REPAIRS} times within {REPAIR_HOURS} h and that did not last"
        await self._take_over(target, reason, now)
        return f"{reason}: a person has {target} from now on"

    async def _take_over(self, target: str, reason: str, now: datetime) -> None:
        """Put a target into a person's hands, evidence first; one that is there already stays as it is."""
        if target in {item.target for item in await self._ledger.takeovers()}:
            return
        log.warning("%s is a person's now, until `hermesctl release %s`: %s", target, target, reason)
        await self._audit.record("takeover.begun", target=target, reason=reason)
        await self._ledger.take_over(target, reason, now)


def target_of(bound: Bound) -> str:
    """Return what a change is about: its path, or the command where it has none."""
    return str(bound.values.get("path") or bound.values.get("unit") or bound.command.name)


def _covers(takeover: Takeover, request: CommandRequest, bound: Bound) -> bool:
    target = target_of(bound)
    if takeover.target in (request.task_id, target):
        return True
    paths = takeover.target.startswith("/") and target.startswith("/")
    return paths and overlap(takeover.target, target) is not None
