"""The executor's two sockets: the agent asks on one, people decide on the other.

On `agent.sock` only the agent's uid may connect, and can neither list nor decide what waits for a
person. On `operator.sock` only people may connect, and never the agent's uid unless both run as one
user by the administrator's explicit choice. This module turns envelopes into calls of the gate and
answers into envelopes, and must never decide anything itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from hermesd.audit import AuditError, AuditLog, parse_anchor, read_records, verify
from hermesd.control.gate import Gate, NotPending
from hermesd.control.host import group_id, groups_of, user_id
from hermesd.control.ledger import LedgerError, Operation, OperationStatus
from hermesd.control.outcome import Stopped
from hermesd.control.sandbox.base import SelfTest
from hermesd.control.settings import Policy
from hermesd.ipc.messages import Code, Kind
from hermesd.ipc.server import Peer, Reply, RequestError
from hermesd.protocol import (
    CommandRequest,
    CommandResult,
    Envelope,
    Progress,
    ResultStatus,
    payload_of,
    read_payload,
)

log = logging.getLogger("hermesd.executor")

_MAX_TEXT: Final = 200
_ROOT_UID: Final = 0


Serve = Callable[[Peer, dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(slots=True)
class Engines:
    """What the self-tests said, for `status`: each engine's reason, and what the chosen one proved."""

    reasons: dict[str, str]
    chosen: SelfTest


def may_operate(policy: Policy, peer: Peer) -> bool:
    """Say whether the peer is one of the people who may approve."""
    settings, people = policy.settings, policy.permissions.people
    if peer.uid == user_id(settings.agent_user) and not settings.same_user:
        return False
    if peer.uid == _ROOT_UID or peer.uid in people.operator_uids:
        return True
    if settings.same_user and peer.uid == os.geteuid():
        return True
    wanted = {gid for name in people.operator_groups if (gid := group_id(name)) is not None}
    return bool(wanted & (groups_of(peer.uid, peer.gid) | {peer.gid}))


def is_agent(policy: Policy, peer: Peer) -> bool:
    """Say whether the peer is the agent process: its uid and nobody else's, root's neither."""
    settings = policy.settings
    if settings.same_user:
        return peer.uid == os.geteuid()
    return peer.uid == user_id(settings.agent_user)


class AgentDesk:
    """Answers the agent: the catalogue, and requests."""

    def __init__(self, gate: Gate, audit: AuditLog) -> None:
        self._gate = gate
        self._audit = audit
        self.peer_anchor = ""

    async def answer(self, _peer: Peer, request: Envelope, reply: Reply) -> dict[str, Any]:
        """Serve one request of the agent."""
        await self._keep_anchor(request)
        if request.kind == Kind.CATALOGUE:
            return payload_of(self._gate.view())
        if request.kind == Kind.COMMAND_REQUEST:
            return await self._command(request, reply)
        if request.kind == Kind.COMMAND_CANCEL:
            request_id = str(request.payload.get("request_id", ""))
            return {"cancelled": await self._gate.cancel(request_id)}
        raise RequestError(Code.BAD_REQUEST, f"{request.kind} is not answered here")

    async def _command(self, request: Envelope, reply: Reply) -> dict[str, Any]:
        command = read_payload(CommandRequest, request.payload)
        if command.task_id != request.task_id:
            raise RequestError(Code.BAD_REQUEST, "the envelope and its request name different tasks")
        heard: asyncio.Queue[Progress | None] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(_relay(heard, reply), name=f"progress-{command.request_id}")
            try:
                result = await self._gate.run(command, heard.put_nowait)
            finally:
                heard.put_nowait(None)
        return payload_of(result)

    async def _keep_anchor(self, request: Envelope) -> None:
        """Write the head of the agent's log into ours, when it is a new one and something is asked."""
        if request.kind == Kind.COMMAND_REQUEST and request.anchor and request.anchor != self.peer_anchor:
            self.peer_anchor = request.anchor
            self._audit.append("peer.anchor", request.task_id, agent=request.anchor)


async def _relay(heard: asyncio.Queue[Progress | None], reply: Reply) -> None:
    while (progress := await heard.get()) is not None:
        await reply.send(Kind.COMMAND_PROGRESS, payload_of(progress))


class OperatorDesk:
    """Answers people: what waits, what it would do, and their word on it."""

    def __init__(
        self,
        gate: Gate,
        agent: AgentDesk,
        audit: AuditLog,
        audit_folder: Path,
        engines: Callable[[], Engines],
    ) -> None:
        self._gate = gate
        self._agent = agent
        self._audit = audit
        self._audit_folder = audit_folder
        self._engines = engines
        self._served: dict[str, Serve] = {
            Kind.STATUS: self._status,
            Kind.COMMANDS: self._commands,
            Kind.APPROVALS: self._approvals,
            Kind.APPROVE_SHOW: self._show,
            Kind.APPROVE_REDEEM: self._redeem,
            Kind.DENY: self._deny,
            Kind.QUEUE: self._queue,
            Kind.QUEUE_TAKE: self._take,
            Kind.QUEUE_CLOSE: self._close,
            Kind.RELEASE: self._release,
            Kind.KEPT: self._kept,
            Kind.REMOVED: self._removed,
            Kind.AUDIT_VERIFY: self._verify,
        }

    async def answer(self, peer: Peer, request: Envelope, _reply: Reply) -> dict[str, Any]:
        """Serve one request of a person."""
        serve = self._served.get(request.kind)
        if serve is None:
            raise RequestError(Code.BAD_REQUEST, f"{request.kind} is not answered here")
        try:
            return await serve(peer, request.payload)
        except (LedgerError, AuditError) as error:
            raise RequestError(Code.NOT_NOW, self._gate.shut(error)) from None

    async def _commands(self, _peer: Peer, _payload: dict[str, Any]) -> dict[str, Any]:
        return payload_of(self._gate.view())

    async def _approvals(self, _peer: Peer, _payload: dict[str, Any]) -> dict[str, Any]:
        return {"operations": [_listed(item) for item in await self._gate.pending()]}

    async def _status(self, _peer: Peer, _payload: dict[str, Any]) -> dict[str, Any]:
        engines, settings = self._engines(), self._gate.policy.settings
        return {
            "sandbox": self._gate.sandbox.name if self._gate.sandbox else "",
            "usable": self._gate.sandbox is not None and not self._gate.shut_reason,
            "reason": self._gate.shut_reason or self._gate.sandbox_reason,
            "degraded": list(engines.chosen.degraded),
            "promises": engines.chosen.promises,
            "engines": engines.reasons,
            "policy_version": self._gate.policy.version,
            "commands": len(self._gate.policy.commands),
            "tools_unread": [file.shown_as for file in self._gate.policy.unread],
            "tool_faults": list(self._gate.policy.tool_faults),
            "pending": len(await self._gate.pending()),
            "tickets": len(await self._gate.queue()),
            "takeovers": [item.target for item in await self._gate.takeovers()],
            "audit": {"records": self._audit.head.seq, "head": str(self._audit.head)},
            "separation": "one user for both processes: the wall is the protocol alone"
            if settings.same_user
            else "agent and executor run as different users",
        }

    async def _show(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        operation_id = _text(payload, "id")
        try:
            operation, preview, minted = await self._gate.show(operation_id, peer.uid)
        except NotPending:
            raise _not_pending(operation_id) from None
        except Stopped as end:
            raise RequestError(Code.NOT_NOW, end.reason) from None
        seconds = self._gate.policy.stages.token_ms / 1000
        return {
            "id": operation.id,
            "command": operation.request.command,
            "intent": operation.request.intent,
            "task_id": operation.request.task_id,
            "args": dict(operation.request.args),
            "impact": payload_of(preview.impact),
            "text": preview.impact.text,
            "token": minted.token,
            "token_seconds": seconds,
            "token_expires_at": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(),
            "second_word": minted.second_word,
        }

    async def _redeem(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        operation_id = _text(payload, "id")
        token, second = _text(payload, "token"), _text(payload, "second", "")
        try:
            result = await self._gate.redeem(operation_id, peer.uid, token, second)
        except NotPending:
            raise _not_pending(operation_id) from None
        except Stopped as end:
            raise RequestError(Code.REFUSED, end.reason) from None
        return {
            "id": operation_id,
            "outcome": result.status.value,
            "text": _told(result),
            "result": payload_of(result),
        }

    async def _deny(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        operation_id, reason = _text(payload, "id"), _text(payload, "reason", "")
        try:
            await self._gate.deny(operation_id, peer.uid, reason)
        except NotPending:
            raise _not_pending(operation_id) from None
        return {"id": operation_id, "outcome": ResultStatus.DENIED.value, "text": "denied; nothing was done"}

    async def _queue(self, _peer: Peer, _payload: dict[str, Any]) -> dict[str, Any]:
        held = await self._gate.takeovers()
        return {
            "tickets": [
                {**_listed(item), "taken_by": item.decided_by, "note": item.note}
                for item in await self._gate.queue()
            ],
            "takeovers": [
                {"target": item.target, "reason": item.reason, "since": item.since.isoformat()}
                for item in held
            ],
        }

    async def _kept(self, _peer: Peer, _payload: dict[str, Any]) -> dict[str, Any]:
        return {"kept": [kept.model_dump(mode="json") for kept in self._gate.quarantine.all()]}

    async def _removed(self, _peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        operation_id = _text(payload, "id")
        offset, limit = _whole(payload, "offset", 0, 10_000_000), _whole(payload, "limit", 50, 1000)
        try:
            return await self._gate.removed(operation_id, offset, limit)
        except NotPending:
            raise RequestError(Code.NOT_FOUND, f"{operation_id} removed nothing") from None

    async def _take(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return await self._ticket(peer, payload, OperationStatus.TAKEN)

    async def _close(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return await self._ticket(peer, payload, OperationStatus.CLOSED)

    async def _ticket(self, peer: Peer, payload: dict[str, Any], to: OperationStatus) -> dict[str, Any]:
        operation_id, note = _text(payload, "id"), _text(payload, "note", "")
        try:
            await self._gate.move_ticket(operation_id, to, peer.uid, note)
        except NotPending:
            raise _not_pending(operation_id) from None
        return {"id": operation_id, "status": to.value}

    async def _release(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        target = _text(payload, "target")
        try:
            await self._gate.release(target, peer.uid)
        except NotPending:
            raise RequestError(Code.NOT_FOUND, f"nobody has {target}") from None
        return {"target": target, "status": "released"}

    async def _verify(self, _peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        anchor = _text(payload, "anchor", "")
        found = await asyncio.to_thread(verify, self._audit_folder, parse_anchor(anchor) if anchor else None)
        return {
            "ok": found.ok,
            "records": found.records,
            "head": str(found.head),
            "first_bad": found.first_bad,
            "reason": found.reason,
            "peer_anchor": self._agent.peer_anchor or await asyncio.to_thread(self._last_agent_head),
        }

    def _last_agent_head(self) -> str:
        """Return the agent's head as an earlier life of this process wrote it down."""
        heads = (str(record["agent"]) for record in read_records(self._audit_folder) if record.get("agent"))
        return next(iter(deque(heads, 1)), "")


def _listed(operation: Operation) -> dict[str, Any]:
    return {
        "id": operation.id,
        "command": operation.request.command,
        "task_id": operation.request.task_id,
        "intent": operation.request.intent,
        "text": operation.impact.text,
        "created_at": operation.created_at.isoformat(),
        "expires_at": operation.expires_at.isoformat(),
        "status": operation.status.value,
    }


def _told(result: CommandResult) -> str:
    if result.gain is None:
        return result.reason or result.summary
    gain = result.gain
    return f"{gain.files_removed} files removed, {gain.files_skipped} skipped, {gain.freed_bytes} bytes freed"


def _not_pending(operation_id: str) -> RequestError:
    return RequestError(Code.NOT_FOUND, f"{operation_id} does not wait for anybody")


def _whole(payload: dict[str, Any], name: str, default: int, most: int) -> int:
    value = payload.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise RequestError(Code.BAD_REQUEST, f"{name}: a whole number from 0 to {most} is needed")
    return value


def _text(payload: dict[str, Any], name: str, default: str | None = None) -> str:
    value = payload.get(name, default)
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise RequestError(Code.BAD_REQUEST, f"{name}: text of at most {_MAX_TEXT} characters is needed")
    return value
