"""The agent's hands: requests to the executor, over its socket, with clocks around them.

The executor keeps its own clocks; those here only notice that it does not. A lost connection is asked
again under the same request id, which the executor never runs twice; an executor that restarts is
waited for; one that hangs is left, and the request ends with a status that says how far it may have
come.

This module must never send a second request id for the same wish, and must never call something
undone that may have been done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar, cast

from hermesd.clocks import SECOND, StageBudgets, StageTimeout
from hermesd.ipc.client import Unreachable, ask
from hermesd.ipc.messages import Kind
from hermesd.pipeline.call import Call, fault_of, given_up
from hermesd.protocol import (
    CatalogueView,
    CommandRequest,
    CommandResult,
    Envelope,
    Progress,
    ProtocolError,
    ResultStatus,
    Stage,
    Status,
    Word,
    decode_envelope,
    encode,
    payload_of,
    read_payload,
)

log = logging.getLogger("hermesd.hands")

W = TypeVar("W", bound=Word)
Envelopes = AsyncGenerator[Envelope, None]
OnProgress = Callable[[Progress], Awaitable[None]]


class Hands(Protocol):
    """What a run may do to the world: know the catalogue, ask for a command, withdraw it."""

    @property
    def anchor(self) -> str:
        """The head of the executor's audit log as it was last seen, empty before that."""
        ...

    @property
    def known(self) -> CatalogueView | None:
        """The catalogue as it was last seen."""
        ...

    async def catalogue(self, patience_seconds: float = 0.0, fresh_seconds: float = 0.0) -> CatalogueView:
        """Return what may be proposed; one that was seen so few seconds ago is asked for again by nobody.

        Raise Unreachable when nobody answers within the patience.
        """
        ...

    async def run(
        self,
        request: CommandRequest,
        on_progress: OnProgress,
        *,
        changing: bool = False,
        sent_before: bool = False,
    ) -> CommandResult:
        """Take the request to its end, once. Never raises for what is an ordinary end.

        ``changing``: the command changes something, so that losing sight of it leaves it `unknown`.
        ``sent_before``: the request may have reached the executor in an earlier life of this process.
        """
        ...

    async def cancel(self, request_id: str) -> bool:
        """Withdraw the request. False when it is not under way, or its change has begun."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the hands wait for an executor that does not answer, in seconds.

    ``restart_seconds``: until it is back after a lost connection. ``grace_seconds``: past the end of a
    stage, before it is asked whether it is alive; ``extensions``: how often a living one gets as much
    again. ``answer_seconds``: for what needs no container, the catalogue or a withdrawal.
    """

    restart_seconds: float = 20.0
    grace_seconds: float = 15.0
    first_pause_seconds: float = 0.1
    longest_pause_seconds: float = 2.0
    extensions: int = 8
    answer_seconds: float = 5.0


class ExecutorHands:
    """Hands over the executor's `agent.sock`. ``head`` gives the head of this process's audit log."""

    def __init__(
        self,
        socket: Path,
        budgets: StageBudgets,
        head: Callable[[], str],
        patience: Patience | None = None,
    ) -> None:
        self._socket = socket
        self._budgets = budgets
        self._head = head
        self._patience = patience or Patience()
        self._anchor = ""
        self._known: CatalogueView | None = None
        self._seen_at = 0.0

    @property
    def anchor(self) -> str:
        """The head of the executor's audit log as it was last seen."""
        return self._anchor

    @property
    def known(self) -> CatalogueView | None:
        """The catalogue as it was last seen."""
        return self._known

    async def catalogue(self, patience_seconds: float = 0.0, fresh_seconds: float = 0.0) -> CatalogueView:
        """Return what may be proposed. Raise Unreachable."""
        began = monotonic()
        if self._known is not None and began - self._seen_at < fresh_seconds:
            return self._known
        while True:
            try:
                payload = await self._ask_once(Kind.CATALOGUE, {}, "catalogue")
                self._known, self._seen_at = read_payload(CatalogueView, payload), monotonic()
            except ProtocolError as error:
                raise Unreachable(f"{self._socket}: {error}") from None
            except Unreachable:
                if monotonic() - began >= patience_seconds:
                    raise
                await asyncio.sleep(self._patience.first_pause_seconds)
            else:
                return self._known

    async def cancel(self, request_id: str) -> bool:
        """Withdraw the request. An executor that cannot be reached has withdrawn nothing."""
        try:
            payload = await self._ask_once(Kind.COMMAND_CANCEL, {"request_id": request_id}, request_id)
        except Unreachable as error:
            log.warning("%s could not be withdrawn: %s", request_id, error)
            return False
        return payload.get("cancelled") is True

    async def run(
        self,
        request: CommandRequest,
        on_progress: OnProgress,
        *,
        changing: bool = False,
        sent_before: bool = False,
    ) -> CommandResult:
        """Take the request to its end, once, over as many connections as that takes."""
        call = Call(request, changing, sent_before, budget_ms=self._budgets.of(Stage.VALIDATE))
        while True:
            try:
                async with asyncio.timeout(None) as clock:
                    return await self._converse(call, on_progress, clock)
            except Unreachable as error:
                pause = self._pause_after_loss(call)
                if pause is None:
                    return given_up(call, ResultStatus.UNAVAILABLE, str(error))
                await asyncio.sleep(pause)
            except TimeoutError:
                if call.extended >= self._patience.extensions or not await self._is_alive():
                    await self.cancel(request.request_id)
                    return given_up(
                        call, ResultStatus.TIMED_OUT, str(StageTimeout(call.stage, call.budget_ms))
                    )
                call.extended += 1

    async def _converse(self, call: Call, on_progress: OnProgress, clock: asyncio.Timeout) -> CommandResult:
        """Ask over one connection. Raise Unreachable when it is lost, TimeoutError when it is silent."""
        self._wind(clock, call)
        request = call.request
        envelopes = self._envelopes(Kind.COMMAND_REQUEST, payload_of(request), request.task_id)
        async with aclosing(envelopes):
            async for envelope in envelopes:
                call.delivered = True
                if envelope.status is Status.RUNNING:
                    progress = _read(Progress, envelope)
                    call.heard(progress)
                    self._wind(clock, call)
                    await on_progress(progress)
                elif envelope.status is Status.SUCCEEDED:
                    return _read(CommandResult, envelope)
                else:
                    return fault_of(call, envelope)
        raise Unreachable(f"{self._socket}: the connection was closed before an answer")

    def _wind(self, clock: asyncio.Timeout, call: Call) -> None:
        """Set the outer clock to the end of the stage plus the grace, or to one more grace."""
        budget = 0.0 if call.extended else call.budget_ms / SECOND
        clock.reschedule(asyncio.get_running_loop().time() + budget + self._patience.grace_seconds)

    def _pause_after_loss(self, call: Call) -> float | None:
        """Return how long to wait before asking again, None when it is enough."""
        now = monotonic()
        call.silent_since = call.silent_since or now
        call.lost += 1
        patience = self._patience
        if now - call.silent_since >= patience.restart_seconds:
            return None
        doubled = patience.first_pause_seconds * 2.0 ** min(call.lost - 1, 10)
        return min(patience.longest_pause_seconds, doubled)

    async def _is_alive(self) -> bool:
        """Tell an executor that is busy from one that hangs."""
        try:
            await self.catalogue()
        except Unreachable:
            return False
        return True

    async def _ask_once(self, kind: Kind, payload: dict[str, Any], task_id: str) -> dict[str, Any]:
        """Return the payload of the final answer. Raise Unreachable, for a refusal too."""
        seconds = self._patience.answer_seconds
        try:
            async with (
                asyncio.timeout(seconds),
                aclosing(self._envelopes(kind, payload, task_id)) as envelopes,
            ):
                async for envelope in envelopes:
                    if envelope.status is Status.SUCCEEDED:
                        return envelope.payload
                    if envelope.status is Status.FAILED:
                        raise Unreachable(f"{self._socket}: {envelope.payload.get('reason', 'refused')}")
        except TimeoutError:
            raise Unreachable(
                f"{self._socket}: no answer within {self._patience.answer_seconds:g} s"
            ) from None
        raise Unreachable(f"{self._socket}: closed the connection")

    async def _envelopes(
        self, kind: Kind, payload: dict[str, Any], task_id: str
    ) -> AsyncGenerator[Envelope, None]:
        envelope = Envelope(
            task_id=task_id,
            sender="hermesd",
            receiver="executor",
            kind=kind,
            payload=payload,
            anchor=self._head(),
        )
        lines = cast("AsyncGenerator[bytes, None]", ask(self._socket, encode(envelope)))
        async with aclosing(lines):
            async for line in lines:
                answer = _decode(line)
                self._anchor = answer.anchor or self._anchor
                yield answer


def _decode(line: bytes) -> Envelope:
    try:
        return decode_envelope(line)
    except ProtocolError as error:
        raise Unreachable(f"the executor's answer cannot be read: {error}") from None


def _read(kind: type[W], envelope: Envelope) -> W:
    try:
        return read_payload(kind, envelope.payload)
    except ProtocolError as error:
        raise Unreachable(f"the executor's answer cannot be read: {error}") from None
