"""Takeover: when a machine should stop trying, and a person has the target.

Two counts decide. Three requests in a row of one run that validation refused: whoever plans it does
not understand what is permitted, and goes on guessing. A third repair of one target within a day:
two did not last, and a third will not either. What was taken over is only looked at until a person
releases it. The counts of a run live in memory (a run that begins anew may begin anew); takeovers
are in the ledger. This module must never release anything by itself.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final

from hermesd.control.binding import Bound
from hermesd.control.ledger import Ledger, Takeover
from hermesd.control.roots import overlap
from hermesd.protocol import CommandRequest, CommandResult, Effect, ResultStatus

REFUSALS: Final = 3
REPAIRS: Final = 2
REPAIR_HOURS: Final = 24
_MAX_RUNS: Final = 1000


class Hands:
    """Counts refusals by run, and knows which targets a person has."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._refusals: OrderedDict[str, int] = OrderedDict()

    async def count(self, result: CommandResult, now: datetime) -> None:
        """Take a request's end into account; the third refusal in a row hands the run to a person."""
        if result.status is not ResultStatus.REFUSED:
            self._refusals.pop(result.task_id, None)
            return
        refused = self._refusals[result.task_id] = self._refusals.pop(result.task_id, 0) + 1
        while len(self._refusals) > _MAX_RUNS:
            self._refusals.popitem(last=False)
        if refused >= REFUSALS:
            reason = f"{REFUSALS} requests in a row were refused"
            await self._ledger.take_over(result.task_id, reason, now)

    async def fault(self, request: CommandRequest, bound: Bound, now: datetime) -> str:
        """Return why nothing may be changed here now, "" when it may be. Looking is always allowed."""
        if bound.command.spec.effect is Effect.READ:
            return ""
        held = await self._ledger.takeovers()
        if found := next((item for item in held if _covers(item, request, bound)), None):
            return f"a person has {found.target}: {found.reason}"
        since = now - timedelta(hours=REPAIR_HOURS)
        args = json.dumps(dict(request.args))
        if await self._ledger.repairs_since(request.command, args, since) < REPAIRS:
            return ""
        target = target_of(bound)
        reason = f"{request.command} was done {REPAIRS} times within {REPAIR_HOURS} h and did not last"
        await self._ledger.take_over(target, reason, now)
        return f"{reason}: a person has {target} from now on"


def target_of(bound: Bound) -> str:
    """Return what a change is about: its path, or the command where it has none."""
    return str(bound.values.get("path") or bound.values.get("unit") or bound.command.name)


def _covers(takeover: Takeover, request: CommandRequest, bound: Bound) -> bool:
    target = target_of(bound)
    if takeover.target in (request.task_id, target):
        return True
    paths = takeover.target.startswith("/") and target.startswith("/")
    return paths and overlap(takeover.target, target) is not None
