"""The desk: answers people who ask at `control.sock`, through hermesctl or anything that speaks as it does.

It steers runs (ask, pause, resume, cancel), lets them be followed, and hands what is only looked up
to `lookups`. What a person says is kept in the store, and in the audit log only as a digest. This
module must never approve anything, and never let one asker hold up another or a run.
"""

from __future__ import annotations

import asyncio
import grp
import hashlib
import os
import pwd
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from hermesd.agent.choose import arguments_in, choose_runbook
from hermesd.confd import ConfigError
from hermesd.config import AgentSettings
from hermesd.incidents import Run, RunKind, RunStatus
from hermesd.ipc.messages import Code, Kind
from hermesd.ipc.server import Peer, Reply, RequestError
from hermesd.pipeline.asked import text_in
from hermesd.pipeline.emitted import read_emitted
from hermesd.pipeline.explaining import Explanations
from hermesd.pipeline.follow import Follower, Line
from hermesd.pipeline.inbox import Inbox
from hermesd.pipeline.kit import Kit
from hermesd.pipeline.lookups import Lookups, Sources
from hermesd.pipeline.runner import Runner
from hermesd.pipeline.silencing import Silencing
from hermesd.pipeline.slots import new_task_id
from hermesd.pipeline.words import stage_line
from hermesd.protocol import Envelope
from hermesd.sources.base import InboxFull

MAX_WORDS: Final = 1000
UNDO: Final = "undo"
"""The runbook that undoes an operation."""
GONE_SECONDS: Final = 15.0
"""How often a desk that has nothing to tell looks whether its follower is still there."""

_ROOT_UID: Final = 0

Lookup = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
Steering = Callable[[Peer, dict[str, Any]], Awaitable[dict[str, Any]]]


def may_steer(settings: AgentSettings, peer: Peer) -> bool:
    """Say whether the peer may ask here: root, this process's own user, and the operators."""
    if peer.uid in {_ROOT_UID, os.geteuid(), *settings.operator_uids}:
        return True
    try:
        wanted = grp.getgrnam(settings.operator_group).gr_gid
        name = pwd.getpwuid(peer.uid).pw_name
    except KeyError:
        return False
    return wanted in {peer.gid, *os.getgrouplist(name, peer.gid)}


class Desk:
    """Answers requests. ``reload`` reads the configuration again and raises ConfigError when it cannot."""

    def __init__(
        self,
        kit: Kit,
        runner: Runner,
        inbox: Inbox,
        sources: Sources,
        audit_folder: Path,
        reload: Callable[[], Awaitable[object]],
    ) -> None:
        self._kit = kit
        self._runner = runner
        self._reload = reload
        self._inbox = inbox
        self._lookups = Lookups(kit, runner, inbox, sources, audit_folder)
        explanations = Explanations(kit)
        silencing = Silencing(kit)
        self._looked_up: dict[str, Lookup] = {
            Kind.STATUS: self._lookups.status,
            Kind.INCIDENTS: self._lookups.incidents,
            Kind.RUNS: self._lookups.runs,
            Kind.SHOW: self._lookups.show,
            Kind.AUDIT_VERIFY: self._lookups.verify,
            Kind.EXPLAIN: explanations.explain,
            Kind.SCHEDULES: explanations.schedules,
            Kind.SILENCES: silencing.list,
        }
        self._steered: dict[str, Steering] = {
            Kind.ASK: self._ask,
            Kind.UNDO: self._undo,
            Kind.PAUSE: self._pause,
            Kind.RESUME: self._resume,
            Kind.CANCEL: self._cancel,
            Kind.RELOAD: self._reload_config,
            Kind.EMIT: self._emit,
            Kind.SILENCE_ADD: silencing.add,
            Kind.SILENCE_END: silencing.end,
        }

    async def answer(self, peer: Peer, request: Envelope, reply: Reply) -> dict[str, Any]:
        """Serve one request of a person. Raise RequestError."""
        kind, payload = request.kind, request.payload
        if kind in self._looked_up:
            return await self._looked_up[kind](payload)
        if kind in self._steered:
            return await self._steered[kind](peer, payload)
        if kind == Kind.FOLLOW:
            return await self._follow(payload, reply)
        raise RequestError(Code.BAD_REQUEST, f"{kind} is not answered here")

    async def _ask(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """Start a run that answers a person. The log gets a digest of the words, not the words."""
        words = text_in(payload, "text", longest=MAX_WORDS).strip()
        if not words:
            raise RequestError(Code.BAD_REQUEST, "text: something to ask is needed")
        choice = choose_runbook(words, self._kit.config().runbooks.values())
        return await self._begin(peer, words, choice.runbook if choice else "")

    async def _undo(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """Start a run that proposes to undo an operation; it is confirmed as any other change."""
        operation = text_in(payload, "operation")
        if UNDO not in self._kit.config().runbooks:
            raise RequestError(Code.NOT_NOW, f"there is no runbook {UNDO}: nothing can be undone here")
        if arguments_in(operation).get("operation") != operation:
            raise RequestError(Code.BAD_REQUEST, "operation: an id such as op-run-1.1.0.1 is needed")
        return await self._begin(peer, f"undo {operation}", UNDO)

    async def _begin(self, peer: Peer, words: str, runbook: str) -> dict[str, Any]:
        run = Run(
            task_id=new_task_id(),
            kind=RunKind.PERSON,
            goal=words,
            created_at=self._kit.now(),
            runbook=runbook,
            asked_by=_who(peer),
        )
        await self._kit.audit.record(
            "person.asked",
            run.task_id,
            uid=peer.uid,
            words_sha256=hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest(),
            characters=len(words),
            runbook=run.runbook,
        )
        await self._runner.place(run)
        return {"task_id": run.task_id}

    async def _emit(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """Put an event of a person into the inbox; answer once it is durable."""
        event = read_emitted(payload, peer.uid, self._kit.now())
        try:
            await self._inbox.accept([event])
        except InboxFull as full:
            raise RequestError(Code.NOT_NOW, str(full)) from None
        return {"id": event.id, "type": event.type, "status": event.status.value}

    async def _pause(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        task_id = text_in(payload, "task_id", "")
        return _standing(task_id, await self._runner.pause(task_id, _who(peer)))

    async def _resume(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        task_id = text_in(payload, "task_id", "")
        return _standing(task_id, await self._runner.resume(task_id, _who(peer)))

    async def _cancel(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        task_id = text_in(payload, "task_id")
        return _standing(task_id, await self._runner.cancel(task_id, _who(peer)))

    async def _reload_config(self, peer: Peer, _payload: dict[str, Any]) -> dict[str, Any]:
        await self._kit.audit.record("config.reload_asked", by=_who(peer))
        try:
            await self._reload()
        except ConfigError as error:
            raise RequestError(Code.REFUSED, str(error)) from None
        return {"digest": self._kit.config().digest}

    async def _follow(self, payload: dict[str, Any], reply: Reply) -> dict[str, Any]:
        task_id = text_in(payload, "task_id")
        with self._kit.followers.following(task_id) as follower:
            run = await self._lookups.run(task_id)
            if run.status is not RunStatus.ENDED:
                for timing in run.stages:
                    line = Line(task_id, stage_line(timing), timing.name.value, timing.outcome.value)
                    await _tell(reply, line)
                now = f"{run.status} {run.stage}".strip()
                await _tell(reply, Line(task_id, f"({now})", run.stage))
                await _relay(follower, reply)
        run = await self._lookups.run(task_id)
        outcome = run.outcome.value if run.outcome else ""
        return {"task_id": task_id, "outcome": outcome, "report": run.report}


async def _relay(follower: Follower, reply: Reply) -> None:
    """Pass lines on until the run ends or nobody listens any more."""
    while not reply.gone:
        try:
            async with asyncio.timeout(GONE_SECONDS):
                line = await follower.next_line()
        except TimeoutError:
            continue
        await _tell(reply, line)
        if line.last:
            return


async def _tell(reply: Reply, line: Line) -> None:
    await reply.send(Kind.FOLLOW, {"line": line.line, "stage": line.stage, "outcome": line.outcome})


def _who(peer: Peer) -> str:
    return f"uid {peer.uid}"


def _standing(task_id: str, status: str | None) -> dict[str, Any]:
    if status is None:
        raise RequestError(Code.NOT_FOUND, f"there is no run {task_id} under way")
    return {"task_id": task_id, "status": status}
