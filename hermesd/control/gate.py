"""The gate: the one door through which anything is done.

It claims each request in the ledger before looking at it, lets one flight per request go, and holds
the desk at which people approve. Whatever goes wrong inside a flight becomes a recorded result.
There is no other caller of a sandbox in the program.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hermesd.audit import AuditError, AuditLog
from hermesd.control import host
from hermesd.control.artifacts import Artifacts
from hermesd.control.binding import Bound, bind
from hermesd.control.confirm import Minted, Tokens
from hermesd.control.flight import Cockpit, Flight
from hermesd.control.ledger import Ledger, LedgerError, Operation, OperationStatus, Takeover
from hermesd.control.outcome import Stopped, in_doubt, refusal
from hermesd.control.permits import approval_fault
from hermesd.control.preview import Preview
from hermesd.control.quarantine import Quarantine
from hermesd.control.redaction import Redactor
from hermesd.control.removed import removed_by
from hermesd.control.sandbox.base import Container, Sandbox
from hermesd.control.settings import Policy
from hermesd.control.takeover import Hands
from hermesd.protocol import (
    CatalogueView,
    CommandRequest,
    CommandResult,
    Effect,
    Progress,
    ResultStatus,
)
from hermesd.telemetry import Metrics

log = logging.getLogger("hermesd.gate")

_RESULT_FIRST_SECONDS: Final = 0.02

HURRIED_APPROVALS: Final = 3
HURRY: Final = timedelta(minutes=10)
"""Whoever approved so often within so short a time is asked for one confirmation more."""

Listener = Callable[[Progress], None]


class NotPending(Exception):  # noqa: N818 - an ordinary answer
    """The operation does not wait for anybody: unknown, decided, or its life is over."""


class Gate:
    """The door. Run it inside a TaskGroup that outlives every flight."""

    def __init__(
        self,
        policy: Policy,
        ledger: Ledger,
        audit: AuditLog,
        metrics: Metrics,
        tasks: asyncio.TaskGroup,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.policy = policy
        self.sandbox: Sandbox | None = None
        self.sandbox_reason = "the self-test has not run yet"
        self.degraded: tuple[str, ...] = ()
        self.redactor = Redactor()
        self.artifacts: Artifacts | None = None
        self._ledger = ledger
        self._audit = audit
        self._metrics = metrics
        self._tasks = tasks
        self._now = now
        self._writing = asyncio.Lock()
        self._hands = Hands(ledger, audit)
        self.quarantine = Quarantine(ledger)
        self._places = asyncio.Semaphore(policy.settings.parallel_containers)
        self._tokens = Tokens(policy.stages.token_ms / 1000)
        self._flights: dict[str, tuple[Flight, asyncio.Task[CommandResult]]] = {}
        self._entering = asyncio.Lock()
        self._looked_at: datetime | None = None
        self._failed = ""

    async def reopen(self) -> None:
        """Take up what is kept, and the operations that waited for a person when the executor ended."""
        await self.quarantine.load()
        for operation in await self._ledger.operations(OperationStatus.PENDING):
            self._launch(Flight(operation.request, self._cockpit(), operation))

    def view(self) -> CatalogueView:
        """Return what a planner may know of the catalogue and its reach."""
        return self.policy.view(self.sandbox.name if self.sandbox else "", self.sandbox_reason, self.degraded)

    async def run(self, request: CommandRequest, listen: Listener) -> CommandResult:
        """Answer a request: run it once, join it when it is under way, or say what became of it."""
        try:
            async with self._entering:  # two askers of one request must not both find it fresh
                flight, task = await self._enter(request)
        except _Answered as answer:
            return answer.result
        except (LedgerError, AuditError) as error:
            return self._cannot_write(request, error)
        flight.listen(listen)
        return await asyncio.shield(task)

    async def _enter(self, request: CommandRequest) -> tuple[Flight, asyncio.Task[CommandResult]]:
        under_way = self._flights.get(request.request_id)
        if under_way is not None and under_way[0].request == request:
            return under_way
        if self._failed:
            raise _Answered(refusal(request, ResultStatus.UNAVAILABLE, self._failed))
        claim = await self._ledger.claim(request, self._now())
        if claim.other:
            reason = "this request id was used for another request"
            await self._audit.record(
                "command.refused", request.task_id, request=request.request_id, reason=reason
            )
            raise _Answered(refusal(request, ResultStatus.REFUSED, reason))
        if claim.result is not None:
            raise _Answered(claim.result)
        if not claim.fresh:  # a row without a flight and without a result: its effect is in doubt
            raise _Answered(in_doubt(request))
        return self._launch(Flight(request, self._cockpit()))

    def _launch(self, flight: Flight) -> tuple[Flight, asyncio.Task[CommandResult]]:
        request_id = flight.request.request_id
        task = self._tasks.create_task(self._fly(flight), name=f"flight-{request_id}")
        self._flights[request_id] = (flight, task)
        task.add_done_callback(lambda _done: self._flights.pop(request_id, None))
        return flight, task

    async def _fly(self, flight: Flight) -> CommandResult:
        """The border of a request: whatever happens inside becomes a recorded result."""
        request = flight.request
        try:
            result = await flight.fly()
        except (LedgerError, AuditError) as error:
            return self._cannot_write(request, error, begun=flight.effect_begun)
        except asyncio.CancelledError:
            if not flight.withdrawn:
                raise
            result = refusal(request, ResultStatus.CANCELLED, "withdrawn before anything happened")
        except Exception:
            log.exception("%s: a fault inside the gate", request.request_id)
            status = ResultStatus.UNKNOWN if flight.effect_begun else ResultStatus.FAILED
            result = refusal(request, status, "a fault inside the executor; its log says more")
        return await self._record(flight, result)

    async def _record(self, flight: Flight, result: CommandResult) -> CommandResult:
        try:
            evidence = self._audit.record(
                "command.result",
                result.task_id,
                request=result.request_id,
                command=result.command,
                intent=flight.request.intent,
                args=dict(flight.request.args),
                status=result.status,
                reason=result.reason,
                exit_status=result.exit_status,
                digest=result.digest,
                summary=result.summary,
                gain=result.gain.model_dump() if result.gain else None,
            )
            await asyncio.gather(evidence, self._ledger.finish(result, self._now()))
            await self._hands.count(result, self._now())
            operation = flight.operation.id if flight.operation else ""
            if operation:  # whatever ended it without a person's word: it waits for nobody any more
                ended = OperationStatus.CANCELLED
                await self._ledger.decide(operation, ended, self._now(), None, result.reason)
            await self.quarantine.settle(flight.request, operation, result)
        except (LedgerError, AuditError) as error:
            return self._cannot_write(flight.request, error, begun=flight.effect_begun)
        command = result.command if result.command in self.policy.commands else "unknown"
        self._metrics.commands.labels(command, result.status).inc()
        return result

    def _cannot_write(
        self, request: CommandRequest, error: Exception, *, begun: bool = False
    ) -> CommandResult:
        """What cannot be written down is not done: from here on the gate stays shut."""
        reason = self.shut(error)
        return in_doubt(request) if begun else refusal(request, ResultStatus.UNAVAILABLE, reason)

    @property
    def shut_reason(self) -> str:
        """Why nothing is executed any more, "" while the gate is open."""
        return self._failed

    def shut(self, error: Exception) -> str:
        """Execute nothing more in this life; return why, for people."""
        self._failed = f"nothing is executed, since it could not be written down: {error}"
        log.error("%s", self._failed)
        return self._failed

    async def cancel(self, request_id: str) -> bool:
        """Withdraw a request. Return False when it is not under way, or a change has begun."""
        under_way = self._flights.get(request_id)
        if under_way is None:
            return False
        flight, task = under_way
        if flight.operation is not None and not flight.effect_begun:
            if not await self._close(
                flight.operation, OperationStatus.CANCELLED, None, "withdrawn by the run"
            ):
                return False
            flight.decide(OperationStatus.CANCELLED)
            return True
        command = self.policy.commands.get(flight.request.command)
        if flight.effect_begun and (command is None or command.spec.effect is not Effect.READ):
            return False
        flight.withdrawn = True
        task.cancel()
        return True

    async def pending(self) -> list[Operation]:
        """Return to a person the operations that wait for one, oldest first. Mints nothing."""
        self._looked_at = self._now()
        return await self._ledger.operations(OperationStatus.PENDING)

    async def show(self, operation_id: str, uid: int) -> tuple[Operation, Preview, Minted]:
        """Preview the operation again and mint its token for ``uid``. Raise NotPending or Stopped."""
        flight, operation = self._approvable(operation_id, uid)
        bound = await self._bind_free(operation.request)
        preview = await flight.preview(bound)
        await self._ledger.show_operation(operation.id, preview.impact, preview.manifest)
        hurried = await self._ledger.approvals_since(uid, self._now() - HURRY) >= HURRIED_APPROVALS
        words = bound.confirmations(operation.request.extra_confirmations) + hurried - 1
        minted = self._tokens.mint(operation_id, uid, self._binding(bound, preview), words=words)
        await self._audit.record(
            "approval.shown",
            operation.request.task_id,
            operation=operation_id,
            uid=uid,
            impact=preview.impact.text,
            manifest=preview.impact.manifest_digest,
        )
        flight.shown = preview
        return operation, preview, minted

    async def redeem(self, operation_id: str, uid: int, token: str, second: str) -> CommandResult:
        """Confirm with the shown token; return how the operation ended. Raise NotPending or Stopped."""
        flight, operation = self._approvable(operation_id, uid)
        shown, bound = flight.shown, await self._bind_free(operation.request)
        binding = self._binding(bound, shown) if shown else ""
        fault = self._tokens.redeem(operation_id, uid, token, second, binding)
        if fault or shown is None:
            await self._audit.record(
                "approval.refused", operation.request.task_id, operation=operation_id, uid=uid, reason=fault
            )
            raise Stopped(ResultStatus.REFUSED, fault)
        if not await self._close(operation, OperationStatus.APPROVED, uid, ""):
            raise NotPending(operation_id)
        task = self._flights[operation.request.request_id][1]
        flight.decide(OperationStatus.APPROVED, (bound, shown))
        return await asyncio.shield(task)

    async def deny(self, operation_id: str, uid: int, reason: str) -> None:
        """Say no. Raise NotPending."""
        flight, operation = self._waiting(operation_id)
        self._tokens.void(operation_id)
        if not await self._close(operation, OperationStatus.DENIED, uid, reason):
            raise NotPending(operation_id)
        flight.decide(OperationStatus.DENIED)

    async def removed(self, operation_id: str, offset: int, limit: int) -> dict[str, Any]:
        """Return what an operation removed, file by file. Raise NotPending when it removed nothing."""
        found = await self._ledger.ended(operation_id)
        told = removed_by(*found, offset, limit) if found else None
        if told is None:
            raise NotPending(operation_id)
        return told

    async def queue(self) -> list[Operation]:
        """Return the tickets that wait for a person's own hands, oldest first."""
        return await self._ledger.operations(OperationStatus.TICKET, OperationStatus.TAKEN)

    async def move_ticket(self, operation_id: str, to: OperationStatus, uid: int, note: str) -> None:
        """Take or close a ticket. Raise NotPending."""
        await self._audit.record(f"ticket.{to}", operation=operation_id, uid=uid, note=note)
        if not await self._ledger.move_ticket(operation_id, to, self._now(), uid, note):
            raise NotPending(operation_id)

    async def takeovers(self) -> list[Takeover]:
        """Return what is in a person's hands."""
        return await self._ledger.takeovers()

    async def release(self, target: str, uid: int) -> None:
        """Give a target back to the machine. Raise NotPending when nobody had it."""
        await self._audit.record("takeover.released", target=target, uid=uid)
        if not await self._ledger.release(target, self._now()):
            raise NotPending(target)

    def _approvable(self, operation_id: str, uid: int) -> tuple[Flight, Operation]:
        """Return what this person may be shown and may confirm now. Raise NotPending or Stopped."""
        if self._failed:
            raise Stopped(ResultStatus.UNAVAILABLE, self._failed)
        flight, operation = self._waiting(operation_id)
        request = operation.request
        fault = approval_fault(
            self.policy.permissions, uid, request.command, request.asked_by, host.group_names
        )
        if fault:
            raise Stopped(ResultStatus.REFUSED, fault)
        if self.sandbox is None:
            raise Stopped(ResultStatus.UNAVAILABLE, f"no usable sandbox: {self.sandbox_reason}")
        flight.renew(self._cockpit())
        return flight, operation

    async def _close(
        self, operation: Operation, status: OperationStatus, uid: int | None, reason: str
    ) -> bool:
        """Write a person's decision down, evidence first."""
        await self._audit.record(
            f"operation.{status}", operation.request.task_id, operation=operation.id, uid=uid, reason=reason
        )
        closed = await self._ledger.decide(operation.id, status, self._now(), uid, reason)
        if closed:
            self._metrics.approvals.labels(status).inc()
        return closed

    def _waiting(self, operation_id: str) -> tuple[Flight, Operation]:
        for flight, _task in self._flights.values():
            operation = flight.operation
            if operation is None or operation.id != operation_id or flight.effect_begun:
                continue
            if self._now() < operation.expires_at:
                return flight, operation
        raise NotPending(operation_id)

    async def _bind_free(self, request: CommandRequest) -> Bound:
        """Bind a request as the policy is now, and only what is in nobody's hands. Raise Stopped."""
        bound = bind(self.policy, request, host, self.quarantine.find)
        if not isinstance(bound, Bound):
            reasons = "; ".join(f"{item.field}: {item.reason}" for item in bound)
            raise Stopped(ResultStatus.REFUSED, f"no longer permitted: {reasons}", bound)
        if bound.is_ticket:
            raise Stopped(ResultStatus.REFUSED, "its helper is not installed any more: a person must do it")
        if fault := await self._hands.fault(request, bound, self._now()):
            raise Stopped(ResultStatus.REFUSED, fault)
        return bound

    def _binding(self, bound: Bound, preview: Preview) -> str:
        return bound.digest(
            manifest=preview.impact.manifest_digest,
            undo=preview.impact.undo_h if preview.impact.reversible else preview.impact.undo,
            policy=self.policy.version,
            timeout_ms=bound.job.timeout_ms,
        )

    async def expire(self) -> None:
        """Let go of what the quarantine has kept for its time. Nothing is put back or removed meanwhile."""
        async with self._writing:
            for kept in await self.quarantine.expire(self._now()):
                await self._audit.record("quarantine.expired", operation=kept.operation, files=kept.files)

    def _clear_away(self, container: Container) -> None:
        self._tasks.create_task(_destroy_behind(container), name="clear-away")

    def _cockpit(self) -> Cockpit:
        return Cockpit(
            policy=self.policy,
            sandbox=self.sandbox,
            sandbox_reason=self.sandbox_reason,
            places=self._places,
            writing=self._writing,
            hands=self._hands,
            quarantine=self.quarantine,
            clear_away=self._clear_away,
            ledger=self._ledger,
            audit=self._audit,
            redactor=self.redactor,
            artifacts=self.artifacts,
            now=self._now,
            shut_reason=lambda: self._failed,
            looked_at=lambda: self._looked_at,
        )


async def _destroy_behind(container: Container) -> None:
    """End a container after its result is on its way: on a small machine the two compete for a processor."""
    try:
        await asyncio.sleep(_RESULT_FIRST_SECONDS)
    finally:
        await container.destroy()


class _Answered(Exception):  # noqa: N818 - carries an answer past the rest of a function
    def __init__(self, result: CommandResult) -> None:
        super().__init__(result.status)
        self.result = result
