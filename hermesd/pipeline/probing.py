"""Health checks by command: the same door to the executor that runs use, for reads only.

The executor decides as it does about every request; here only what could ask a person is not even sent.
This module must never send a command that is not a public read, and never take a command that could not
be run for a target that is down.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Final

from hermesd.ipc.client import Unreachable
from hermesd.pipeline.hands import Hands
from hermesd.protocol import (
    CatalogueView,
    CommandRequest,
    CommandResult,
    Effect,
    Permission,
    Progress,
    ResultStatus,
    RunKind,
)
from hermesd.sources.health_found import Condition, Found
from hermesd.sources.settings_health import Check

FRESH_SECONDS: Final = 60.0
"""A catalogue that was seen so lately is not asked for again before each probe."""


class CommandProbe:
    """Runs the command that a check names. Called, it never raises for what is an ordinary end."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands

    async def __call__(self, check: Check) -> Found:
        """Return what the command's end says about its target."""
        name = check.url.removeprefix("command:")
        try:
            catalogue = await self._hands.catalogue(fresh_seconds=FRESH_SECONDS)
        except Unreachable as error:
            return Found(Condition.UNKNOWN, str(error))
        refused = why_not(catalogue, name)
        if refused:
            return Found(Condition.UNKNOWN, refused)
        return read_result(check, await self._run(check, name))

    async def _run(self, check: Check, name: str) -> CommandResult:
        """Have the command run; withdraw it when nobody waits for it any more."""
        mark = f"health-{check.name}-{secrets.token_hex(6)}"
        request = CommandRequest(
            request_id=mark,
            task_id=mark,
            intent=f"The health check {check.name} asks.",
            command=name,
            args=check.args,
            timeout_ms=int(1000 * check.timeout_s),
            origin=RunKind.SCHEDULE,
        )
        try:
            return await self._hands.run(request, _no_progress)
        except asyncio.CancelledError:
            await asyncio.shield(self._hands.cancel(mark))
            raise


def why_not(catalogue: CatalogueView, name: str) -> str:
    """Return why a health check may not run the command, empty when it may. Pure."""
    info = next((one for one in catalogue.commands if one.name == name), None)
    if info is None:
        return f"there is no command {name}"
    if info.effect is not Effect.READ or info.permission is not Permission.PUBLIC:
        return f"{name} is not a read that runs by itself: a health check may not ask for it"
    return "" if info.usable else f"{name} cannot be run: {info.unusable_reason}"


def read_result(check: Check, result: CommandResult) -> Found:
    """Return what an ended command says: its exit status, then whether its output has the ``body``. Pure."""
    if result.status is ResultStatus.FAILED:
        return Found(Condition.DOWN, result.summary or f"ended with status {result.exit_status}")
    if result.status is not ResultStatus.SUCCEEDED:
        return Found(Condition.UNKNOWN, result.reason or result.status.value)
    if check.body and not re.search(check.body, result.output):
        return Found(Condition.DOWN, f"its output is without {check.body!r}")
    return Found(Condition.UP, result.summary or "ended with status 0")


async def _no_progress(_progress: Progress) -> None:
    """A health check tells nobody how far its command is."""
