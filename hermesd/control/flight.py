"""One request's way through the gate: validate, preview, confirm, prepare, execute.

A flight reads from top to bottom as what happens. It stops at the first thing that does not hold,
with a CommandResult that says which; it writes its intent down, synced, before the effect, and what
became of it after. It must never start a container that validation did not describe, and must never
execute a change without a confirmation of exactly that change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from hermesd.audit import AuditLog
from hermesd.clocks import StageClock, StageMark, StageTimeout
from hermesd.control import host
from hermesd.control.artifacts import Artifacts
from hermesd.control.binding import Bound, bind
from hermesd.control.helper_call import HelperCall
from hermesd.control.ledger import Ledger, Operation, OperationStatus
from hermesd.control.outcome import Stopped, verdict_of
from hermesd.control.output import read_output
from hermesd.control.preview import Preview, looked_at, read_preview, unpreviewed
from hermesd.control.quarantine import Quarantine
from hermesd.control.redaction import Redactor
from hermesd.control.sandbox.base import Container, Ended, Job, PathRefused, Sandbox, SandboxError
from hermesd.control.settings import Policy
from hermesd.control.takeover import Hands
from hermesd.protocol import (
    CommandRequest,
    CommandResult,
    Effect,
    Gain,
    Impact,
    Progress,
    ResultStatus,
    Stage,
    StageOutcome,
)

log = logging.getLogger("hermesd.gate")

GRACE_MS: Final = 4000
"""A container keeps its own deadline; this is how much longer its end may take before it is left alone."""


@dataclass(frozen=True, slots=True)
class Cockpit:
    """What every flight shares: policy and sandbox as they are now, the books, the clock.

    ``looked_at`` says when a person last saw what waits, None when nobody has in this life.
    """

    policy: Policy
    sandbox: Sandbox | None
    sandbox_reason: str
    places: asyncio.Semaphore
    writing: asyncio.Lock
    hands: Hands
    quarantine: Quarantine
    clear_away: Callable[[Container], None]
    ledger: Ledger
    audit: AuditLog
    redactor: Redactor
    artifacts: Artifacts | None
    now: Callable[[], datetime]
    shut_reason: Callable[[], str]
    looked_at: Callable[[], datetime | None]


class Flight:
    """One request under way. `fly` returns its result; listeners hear where it stands."""

    def __init__(self, request: CommandRequest, cockpit: Cockpit, operation: Operation | None = None) -> None:
        self.request = request
        self.operation = operation
        self.clock = StageClock()
        self.effect_begun = False
        self.withdrawn = False
        self.shown: Preview | None = None
        self.progress: Progress | None = None
        self._cockpit = cockpit
        self._decided: asyncio.Future[OperationStatus] = asyncio.get_running_loop().create_future()
        self._listeners: list[Callable[[Progress], None]] = []
        self._confirmed: tuple[Bound, Preview] | None = None
        self._reopened = operation is not None

    def listen(self, listener: Callable[[Progress], None]) -> None:
        """Tell ``listener`` of each stage from now on, beginning with the present one."""
        self._listeners.append(listener)
        if self.progress is not None:
            listener(self.progress)

    def renew(self, cockpit: Cockpit) -> None:
        """Go on with policy and sandbox as they are now: a person may come hours after the request."""
        self._cockpit = cockpit

    def decide(self, status: OperationStatus, confirmed: tuple[Bound, Preview] | None = None) -> None:
        """Bring a person's word. ``confirmed`` is what the token was bound to: that runs, exactly."""
        self._confirmed = confirmed
        if not self._decided.done():
            self._decided.set_result(status)

    async def fly(self) -> CommandResult:
        """Take the request to its end. Never raises for what is an ordinary end."""
        try:
            bound = await self._validate()
            if bound.is_ticket:
                raise await self._ticket(bound)
            preview = None
            if bound.confirmations(self.request.extra_confirmations):
                if self.operation is None:
                    preview = await self.preview(bound)
                    await self._ask(preview)
                bound, preview = await self._confirm()
            return await self._act(bound, preview)
        except Stopped as end:
            return self._result(end.status, end.reason, rejected=end.rejected, impact=end.impact)
        except StageTimeout as end:
            level = logging.ERROR if end.stage is Stage.VALIDATE else logging.WARNING
            log.log(level, "%s: %s", self.request.request_id, end)
            return self._result(ResultStatus.TIMED_OUT, str(end))

    async def _validate(self) -> Bound:
        policy = self._cockpit.policy
        async with self._stage(Stage.VALIDATE, policy.stages.validate_ms) as mark:
            bound = await asyncio.to_thread(bind, policy, self.request, host, self._cockpit.quarantine.find)
            if not isinstance(bound, Bound):
                mark.outcome = StageOutcome.REFUSED
                reasons = "; ".join(f"{item.field}: {item.reason}" for item in bound)
                raise Stopped(ResultStatus.REFUSED, reasons, bound)
            if fault := await self._cockpit.hands.fault(self.request, bound, self._cockpit.now()):
                mark.outcome = StageOutcome.REFUSED
                raise Stopped(ResultStatus.TAKEN_OVER, fault)
        if not self._reopened:  # what waits for a person may wait for a sandbox too
            self._sandbox()
        return bound

    def _sandbox(self) -> Sandbox:
        if self._cockpit.sandbox is None:
            raise Stopped(ResultStatus.UNAVAILABLE, f"no usable sandbox: {self._cockpit.sandbox_reason}")
        return self._cockpit.sandbox

    async def preview(self, bound: Bound) -> Preview:
        """Run the command's preview and return what it listed. Raise Stopped when there is nothing to do."""
        spec = bound.command.spec
        if not spec.preview:
            return unpreviewed(bound)
        policy, quarantine = self._cockpit.policy, self._cockpit.quarantine
        change: dict[str, object] = {"command": spec.preview, "timeout_ms": None}
        if bound.looks:
            known = policy.commands[spec.preview].spec.args if spec.preview in policy.commands else ()
            change["args"] = {name: value for name, value in bound.values.items() if name in known}
        request = self.request.model_copy(update=change)
        found = await asyncio.to_thread(bind, policy, request, host, quarantine.find)
        if bound.looks:
            look = (found, await self._run(found, found.job)) if isinstance(found, Bound) else None
            return looked_at(bound, look, self._cockpit.redactor)
        if not isinstance(found, Bound):
            raise Stopped(ResultStatus.REFUSED, "its preview is not permitted here", found)
        preview = read_preview(found, await self._run(found, found.job))
        return await quarantine.foresee(policy, bound, preview)

    async def _ask(self, preview: Preview) -> None:
        if self.request.dry_run:
            raise Stopped(ResultStatus.SUCCEEDED, f"dry run: {preview.impact.text}", impact=preview.impact)
        now = self._cockpit.now()
        self.operation = Operation(
            id=f"op-{self.request.request_id}",
            request=self.request,
            status=OperationStatus.PENDING,
            impact=preview.impact,
            manifest=preview.manifest,
            created_at=now,
            expires_at=now + timedelta(milliseconds=self._cockpit.policy.stages.confirm_ms),
        )
        await self._cockpit.audit.record(
            "operation.pending",
            self.request.task_id,
            operation=self.operation.id,
            command=self.request.command,
            impact=preview.impact.text,
            manifest=preview.impact.manifest_digest,
        )
        await self._cockpit.ledger.open_operation(self.operation)

    async def _confirm(self) -> tuple[Bound, Preview]:
        assert self.operation is not None  # noqa: S101 - set by _ask or given by the ledger
        left = self.operation.expires_at - self._cockpit.now()
        budget = max(1, int(left.total_seconds() * 1000))
        try:
            async with self._stage(Stage.CONFIRM, budget) as mark:
                status = await self._decided
                if status is not OperationStatus.APPROVED:
                    mark.outcome = StageOutcome.REFUSED
        except StageTimeout:
            await self._cockpit.ledger.decide(
                self.operation.id, OperationStatus.EXPIRED, self._cockpit.now(), None
            )
            await self._cockpit.audit.record(
                "operation.expired", self.request.task_id, operation=self.operation.id
            )
            raise self._undecided(self.operation) from None
        if status is OperationStatus.CANCELLED:
            raise Stopped(
                ResultStatus.CANCELLED, "withdrawn before anything happened", impact=self.operation.impact
            )
        if status is not OperationStatus.APPROVED or self._confirmed is None:
            raise Stopped(ResultStatus.DENIED, "a person said no", impact=self.operation.impact)
        return self._confirmed

    def _undecided(self, operation: Operation) -> Stopped:
        """Tell a person who did not decide from nobody who looked: then there was nobody to ask."""
        looked = self._cockpit.looked_at()
        if self._reopened or (looked is not None and looked >= operation.created_at):
            reason = "nobody decided in time; the default is no"
            return Stopped(ResultStatus.EXPIRED, reason, impact=operation.impact)
        reason = "nobody looked at what waits in all its time; nothing was done"
        return Stopped(ResultStatus.UNDELIVERABLE, reason, impact=operation.impact)

    async def _ticket(self, bound: Bound) -> Stopped:
        if self.operation is not None:
            reason = "its helper is not installed any more: only a person may do this"
            raise Stopped(ResultStatus.REFUSED, reason, impact=self.operation.impact)
        now = self._cockpit.now()
        text = f"{' '.join(bound.shown_argv)}"
        if self.request.dry_run:
            return Stopped(ResultStatus.SUCCEEDED, f"dry run: would wait for a person's own hands: {text}")
        impact = Impact(files=0, size_bytes=0, root="", text=f"for a person's own hands: {text}")
        operation = Operation(
            id=f"op-{self.request.request_id}",
            request=self.request,
            status=OperationStatus.TICKET,
            impact=impact,
            manifest=b"",
            created_at=now,
            expires_at=now,
        )
        await self._cockpit.audit.record("operation.ticket", self.request.task_id, operation=operation.id)
        await self._cockpit.ledger.open_operation(operation)
        return Stopped(
            ResultStatus.TICKETED, f"only a person may do this; it waits as {operation.id}", impact=impact
        )

    async def _act(self, bound: Bound, preview: Preview | None) -> CommandResult:
        if self.request.dry_run:
            raise Stopped(ResultStatus.SUCCEEDED, f"dry run: would run {' '.join(bound.shown_argv)}")
        reads = bound.command.spec.effect is Effect.READ
        # Roots may lie in one another, so writers go one after another whatever they write to.
        async with nullcontext() if reads else self._cockpit.writing:
            if preview is not None and self.operation is not None:
                bound = await self._cockpit.quarantine.reserve(
                    self._cockpit.policy, bound, preview.impact, self.operation.id, self._cockpit.now()
                )
            job = replace(bound.job, stdin=preview.manifest) if preview else bound.job
            ended = await self._run(bound, job, effect=True)
        return await self._read(bound, ended, preview)

    async def _run(self, bound: Bound, job: Job, *, effect: bool = False) -> Ended:
        """Start a container, compare what it resolved with what the host shows, and run the job in it."""
        sandbox = self._sandbox()
        stages = self._cockpit.policy.stages
        if bound.command.changed():
            reason = f"the program behind {bound.command.name} changed since the policy was read; reload it"
            raise Stopped(ResultStatus.REFUSED, reason)
        async with self._cockpit.places:
            container: Container | None = None
            try:
                async with self._stage(Stage.PREPARE, stages.prepare_ms) as mark:
                    try:
                        container = (
                            HelperCall(bound.helper)
                            if bound.helper is not None
                            else await sandbox.start(bound.profile)
                        )
                        await self._compare(container, job)
                    except PathRefused as refusal:
                        mark.outcome = StageOutcome.REFUSED
                        raise Stopped(ResultStatus.REFUSED, refusal.reason) from None
                if effect:
                    await self._write_intent(bound, job)
                budget = min(bound.command.timeout_ms, job.timeout_ms)
                async with self._stage(Stage.EXECUTE, budget, grace_ms=GRACE_MS) as mark:
                    ended = await container.run()
                    if ended.timed_out:
                        mark.outcome = StageOutcome.TIMEOUT
                    elif ended.exit_status not in bound.command.spec.output.ok_exits:
                        mark.outcome = StageOutcome.FAILED
            except SandboxError as error:
                raise Stopped(self._broken(), str(error)) from None
            else:
                return ended
            finally:
                if container is not None:
                    self._cockpit.clear_away(container)

    def _broken(self) -> ResultStatus:
        """A change whose container broke after the word to go is in doubt; anything else did not happen."""
        changing = self.effect_begun and self.operation is not None
        return ResultStatus.UNKNOWN if changing else ResultStatus.UNAVAILABLE

    async def _compare(self, container: Container, job: Job) -> None:
        resolved = await container.resolve(job)
        for index, (use, inside) in enumerate(zip(job.paths, resolved, strict=True)):
            outside = await asyncio.to_thread(host.look, use)
            if outside is None or (outside.dev, outside.ino) != (inside.dev, inside.ino):
                raise PathRefused(
                    index, "the path is not what it was a moment ago, or not reachable without a link"
                )

    async def _write_intent(self, bound: Bound, job: Job) -> None:
        if reason := self._cockpit.shut_reason():
            raise Stopped(ResultStatus.UNAVAILABLE, reason)
        evidence = self._cockpit.audit.record(
            "command.intent",
            self.request.task_id,
            request=self.request.request_id,
            command=bound.command.name,
            argv=list(bound.shown_argv),
            mounts=[f"{mount.root}:{mount.mode}" for mount in bound.profile.mounts],
            policy=self._cockpit.policy.version,
            stdin_bytes=len(job.stdin),
        )
        await asyncio.gather(evidence, self._cockpit.ledger.start(self.request.request_id))
        self.effect_begun = True

    async def _read(self, bound: Bound, ended: Ended, preview: Preview | None) -> CommandResult:
        spec, shelf = bound.command.spec, self._cockpit.artifacts
        kept = shelf is not None and spec.output.keep
        read = await asyncio.to_thread(
            read_output, spec.output, ended, bound.values, self._cockpit.redactor, kept=kept
        )
        if shelf is not None and kept:
            await asyncio.to_thread(shelf.keep, read.whole)
        status, reason = verdict_of(bound, ended)
        gain = None
        if spec.output.parser == "gain" and read.rows:
            gain = Gain.model_validate({key: read.rows[0].get(key, 0) for key in Gain.model_fields})
        return self._result(
            status,
            reason,
            exit_status=ended.exit_status,
            output=read.text,
            output_bytes=read.size_bytes,
            truncated=read.truncated,
            digest=read.digest,
            rows=read.rows,
            summary=read.summary,
            impact=preview.impact if preview else None,
            gain=gain,
        )

    def _result(self, status: ResultStatus, reason: str, **more: object) -> CommandResult:
        return CommandResult.model_validate(
            {
                "request_id": self.request.request_id,
                "task_id": self.request.task_id,
                "command": self.request.command,
                "status": status,
                "reason": self._cockpit.redactor.text(reason),
                "stages": tuple(self.clock.timings),
                **more,
            }
        )

    def _stage(
        self, stage: Stage, budget_ms: int, grace_ms: int = 0
    ) -> AbstractAsyncContextManager[StageMark]:
        self.progress = Progress(
            request_id=self.request.request_id,
            stage=stage,
            budget_ms=budget_ms,
            operation_id=self.operation.id if self.operation else "",
            impact=self.operation.impact if self.operation else None,
        )
        for listener in self._listeners:
            listener(self.progress)
        return self.clock.stage(stage, budget_ms, grace_ms=grace_ms)
