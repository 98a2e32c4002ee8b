"""The composition root of the executor process: the only place that wires its parts together.

Read from top to bottom: configuration, books, gate, sockets, self-test, READY. Nothing is executed
before the self-test has found a sandbox whose promises hold; without one the process still serves
people, and says why. This module must never decide what may be run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

from hermesd.audit import AuditError, AuditLog, open_log
from hermesd.confd import ConfigError
from hermesd.control.artifacts import FOLDER, Artifacts
from hermesd.control.gate import Gate
from hermesd.control.ledger import Ledger, LedgerError
from hermesd.control.redaction import Redactor
from hermesd.control.sandbox.auto import choose
from hermesd.control.sandbox.base import Sandbox, SandboxError, SelfTest
from hermesd.control.sandbox.pool import Pool
from hermesd.control.server import AgentDesk, Engines, OperatorDesk, is_agent, may_operate
from hermesd.control.settings import load_policy
from hermesd.control.toolbox import Toolbox
from hermesd.ipc.server import SocketServer
from hermesd.lifecycle import Lifecycle
from hermesd.telemetry import Metrics, configure_logging

log = logging.getLogger("hermesd.executor")

_ANYONE_MAY_TRY: Final = 0o666
"""Mode of the sockets: the kernel names each peer, and the server turns strangers away unread."""
_TRY_AGAIN_SECONDS: Final = 30.0
"""How often a missing sandbox is looked for again: an engine may start after the executor did."""
_ENGINE_BACK_SECONDS: Final = 15.0
"""For so long an engine that ended is waited for before another kind of sandbox is taken."""
_ENGINE_LOOK_SECONDS: Final = 1.0
_EXPIRE_SECONDS: Final = 300.0
"""How often it is looked for what the quarantine has kept for its time."""


@dataclass(slots=True)
class _Found:
    """What the last look for a sandbox found, and what was read in it of the operators' tools."""

    engines: Engines = field(
        default_factory=lambda: Engines({}, SelfTest(usable=False, reason="the self-test has not run yet"))
    )
    toolbox: Toolbox = field(default_factory=Toolbox)


async def serve(layers: Sequence[Path]) -> None:
    """Run the executor until it is asked to stop. Raise ConfigError when the policy cannot be read."""
    policy = load_policy(layers)
    settings = policy.settings
    state_dir = Path(settings.state_dir)
    configure_logging(settings.log_level, journald=bool(os.environ.get("JOURNAL_STREAM")))
    async with Lifecycle() as life:
        audit = await life.enter("audit log", _audit_log(state_dir))
        ledger = await life.enter("ledger", _ledger(state_dir, audit))
        tasks = await life.enter("flights", _flights())
        gate = Gate(policy, ledger, audit, Metrics(), tasks)
        gate.redactor = Redactor(own_secrets(os.environ))
        gate.artifacts = Artifacts(
            state_dir / FOLDER, most=settings.artifacts_most, most_bytes=settings.artifacts_most_mb << 20
        )
        found = _Found()
        await life.enter("sandbox", _sandbox(gate, found, audit))
        await gate.reopen()
        tasks.create_task(_keep_looking(gate, found, audit), name="sandbox-watch")
        tasks.create_task(_expire(gate), name="quarantine-watch")
        agent = AgentDesk(gate, audit)
        people = OperatorDesk(gate, agent, audit, state_dir / "audit", lambda: found.engines)
        await life.enter("agent socket", _agent_socket(gate, agent, audit))
        await life.enter("operator socket", _operator_socket(gate, people, audit))

        async def reload() -> str:
            async with found.toolbox.turn:
                read = await found.toolbox.complete(
                    await asyncio.to_thread(load_policy, layers), gate.sandbox
                )
                if read.faults:
                    raise ConfigError(read.faults)
                gate.policy = read.policy
            await audit.record("policy.loaded", policy=read.policy.version, tools=read.policy.tool_digests())
            return f"policy {gate.policy.version}, {len(gate.policy.commands)} commands"

        life.on_reload(reload)
        await audit.record("executor.ready", policy=policy.version, sandbox=gate.sandbox_reason)
        life.ready(gate.sandbox_reason)
        await life.stop_requested()


@asynccontextmanager
async def _audit_log(state_dir: Path) -> AsyncIterator[AuditLog]:
    audit = await asyncio.to_thread(open_log, state_dir / "audit")
    try:
        yield audit
    finally:
        await asyncio.to_thread(audit.close)


@asynccontextmanager
async def _ledger(state_dir: Path, audit: AuditLog) -> AsyncIterator[Ledger]:
    ledger = Ledger(state_dir / "ledger.sqlite3")
    for request_id in await ledger.open(datetime.now(UTC)):
        log.warning(
            "%s was under way when the executor ended: whether it took effect is not known", request_id
        )
        await audit.record("command.in_doubt", request=request_id)
    try:
        yield ledger
    finally:
        await ledger.close()


@asynccontextmanager
async def _flights() -> AsyncIterator[asyncio.TaskGroup]:
    """The owner of every flight. Leaving it ends what still flies; the ledger says what was in doubt."""
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(asyncio.Event().wait(), name="flights-owner")
        try:
            yield group
        finally:
            ending.cancel()
            for task in asyncio.all_tasks():
                if task.get_name().startswith(("flight-", "sandbox-watch", "quarantine-watch")):
                    task.cancel()


@asynccontextmanager
async def _sandbox(gate: Gate, found: _Found, audit: AuditLog) -> AsyncIterator[None]:
    await _look(gate, found, audit)
    try:
        yield
    finally:
        if gate.sandbox is not None:
            await gate.sandbox.close()


async def _look(gate: Gate, found: _Found, audit: AuditLog, wanted: str = "") -> None:
    """Choose a sandbox by its self-test and hand it to the gate, with its reasons."""
    settings = gate.policy.settings
    instance = await asyncio.to_thread(instance_of, Path(settings.state_dir))
    choice = await choose(
        wanted or settings.sandbox, docker_sockets=settings.docker_sockets, instance=instance
    )
    found.engines = Engines(choice.reasons, choice.self_test)
    gate.sandbox_reason = choice.self_test.reason
    if choice.sandbox is None:
        log.error("no usable sandbox, nothing will be executed: %s", choice.self_test.reason)
        return
    reaped = await _reaped(choice.sandbox)
    gate.degraded = choice.self_test.degraded
    gate.sandbox = Pool(choice.sandbox) if settings.prestart else choice.sandbox
    gate.sandbox_reason = f"{choice.sandbox.name} passed its self-test"
    await audit.record(
        "sandbox.chosen", sandbox=choice.sandbox.name, degraded=list(choice.self_test.degraded), reaped=reaped
    )
    if gate.policy.unread:
        await _read_tools(gate, found.toolbox, audit)


async def _read_tools(gate: Gate, toolbox: Toolbox, audit: AuditLog) -> None:
    """Add to the catalogue what operators' files register. One that is wrong takes no other down."""
    async with toolbox.turn:
        read = await toolbox.complete(gate.policy, gate.sandbox)
        gate.policy = read.policy
    for fault in read.faults:
        log.error("%s", fault)
    await audit.record(
        "tools.read",
        policy=read.policy.version,
        tools=read.policy.tool_digests(),
        faults=list(read.policy.tool_faults),
    )


async def _reaped(sandbox: Sandbox) -> int:
    try:
        return await sandbox.reap()
    except SandboxError as error:
        log.warning("what a former life left behind could not be removed: %s", error)
        return 0


def own_secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the credentials that the unit gives this process, to keep them out of outputs."""
    folder = Path(environ.get("CREDENTIALS_DIRECTORY") or "/nonexistent")
    if not folder.is_dir():
        return []
    files = (path for path in folder.iterdir() if path.is_file())
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]


def instance_of(state_dir: Path) -> str:
    """Return this executor's own name on the host, made once: by it a later life finds its containers."""
    path = state_dir / "instance"
    if not path.exists():
        path.write_text(secrets.token_hex(8), encoding="ascii")
    return path.read_text(encoding="ascii").strip()


async def _expire(gate: Gate) -> None:
    """Let go of what was kept for its time, as long as the books can be written."""
    while True:
        try:
            await gate.expire()
        except (LedgerError, AuditError) as error:
            gate.shut(error)
            return
        await asyncio.sleep(_EXPIRE_SECONDS)


async def _keep_looking(gate: Gate, found: _Found, audit: AuditLog) -> None:
    while True:
        if gate.sandbox is None:
            await asyncio.sleep(_TRY_AGAIN_SECONDS)
            await _look(gate, found, audit)
        else:
            await gate.sandbox.ended()
            await _prove_again(gate, gate.sandbox, found, audit)


async def _prove_again(gate: Gate, lost: Sandbox, found: _Found, audit: AuditLog) -> None:
    """Take a sandbox whose engine ended from the gate, and give it back after a new self-test alone."""
    reason = "the container engine ended; nothing is executed before the self-test holds again"
    gate.sandbox, gate.sandbox_reason = None, reason
    found.engines = Engines({lost.name: reason}, SelfTest(usable=False, reason=reason))
    log.warning("%s: %s", lost.name, reason)
    await audit.record("sandbox.lost", sandbox=lost.name)
    with contextlib.suppress(SandboxError):
        await lost.close()
    until = monotonic() + _ENGINE_BACK_SECONDS
    while gate.sandbox is None and monotonic() < until:
        await asyncio.sleep(_ENGINE_LOOK_SECONDS)
        await _look(gate, found, audit, wanted=lost.name)
    if gate.sandbox is None:
        await _look(gate, found, audit)


def _agent_socket(gate: Gate, desk: AgentDesk, audit: AuditLog) -> SocketServer:
    return SocketServer(
        Path(gate.policy.settings.agent_socket),
        name="agent.sock",
        allow=lambda peer: is_agent(gate.policy, peer),
        answer=desk.answer,
        anchor=lambda: str(audit.head),
        mode=_ANYONE_MAY_TRY,
    )


def _operator_socket(gate: Gate, desk: OperatorDesk, audit: AuditLog) -> SocketServer:
    return SocketServer(
        Path(gate.policy.settings.operator_socket),
        name="operator.sock",
        allow=lambda peer: may_operate(gate.policy, peer),
        answer=desk.answer,
        anchor=lambda: str(audit.head),
        mode=_ANYONE_MAY_TRY,
    )
