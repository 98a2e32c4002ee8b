"""What people look up at the desk: how hermesd stands, its incidents and runs, what was recorded of them.

Everything here reads; nothing here steers. A run that is under way is shown as it stands, ahead of its
row.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from hermesd import __version__
from hermesd.audit import parse_anchor, read_records, verify
from hermesd.incidents import Incident, Run
from hermesd.ipc.client import Unreachable
from hermesd.ipc.messages import Code
from hermesd.ipc.server import RequestError
from hermesd.pipeline.asked import flag_in, limit_in, text_in
from hermesd.pipeline.inbox import Inbox
from hermesd.pipeline.kit import Kit
from hermesd.pipeline.runner import Runner
from hermesd.pipeline.slots import PAUSED_SETTING
from hermesd.pipeline.views import (
    MAX_RECORDS,
    incident_view,
    record_view,
    run_view,
    source_view,
    whole_run_view,
)
from hermesd.sources.supervisor import SourceState
from hermesd.state.incidents import count_open_incidents, find_incident, list_incidents
from hermesd.state.runs import find_run, list_runs, runs_of_incident
from hermesd.state.settings import read_setting
from hermesd.state.steps import Step, steps_of


class Sources(Protocol):
    """Who knows how the sources stand."""

    def states(self) -> tuple[SourceState, ...]:
        """Return each source's state."""
        ...


class Lookups:
    """Answers what can be looked up. Payload in, payload out, as the wire has them."""

    def __init__(self, kit: Kit, runner: Runner, inbox: Inbox, sources: Sources, audit_folder: Path) -> None:
        self._kit = kit
        self._runner = runner
        self._inbox = inbox
        self._sources = sources
        self._audit_folder = audit_folder
        self._began = kit.now()

    async def status(self, _payload: dict[str, Any]) -> dict[str, Any]:
        """Return how hermesd stands."""
        kit = self._kit
        config, head = kit.config(), kit.audit.head
        executor, (open_incidents, paused) = await asyncio.gather(
            self._executor(),
            kit.store.read(
                lambda connection: (
                    count_open_incidents(connection),
                    read_setting(connection, PAUSED_SETTING, default=False),
                )
            ),
        )
        return {
            "version": __version__,
            "pid": os.getpid(),
            "ready": True,
            "started_at": self._began.isoformat(),
            "uptime_s": round((kit.now() - self._began).total_seconds(), 1),
            "config": config.digest,
            "paused": bool(paused),
            "sources": [source_view(state) for state in self._sources.states()],
            "inbox": {"undecided": self._inbox.undecided, "accepted": self._inbox.accepted},
            "incidents_open": open_incidents,
            "runs_active": self._runner.active,
            "model": {"configured": config.model.enabled, "name": config.model.model_name, "state": ""},
            "executor": executor,
            "audit": {"records": head.seq, "head": str(head)},
        }

    async def _executor(self) -> dict[str, Any]:
        try:
            view = await self._kit.hands.catalogue()
        except Unreachable as error:
            return {
                "reachable": False,
                "sandbox": "",
                "sandbox_reason": str(error),
                "degraded": [],
                "commands": 0,
                "policy_version": "",
            }
        return {
            "reachable": True,
            "sandbox": view.sandbox,
            "sandbox_reason": view.sandbox_reason,
            "degraded": list(view.degraded),
            "commands": len(view.commands),
            "policy_version": view.policy_version,
        }

    async def incidents(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return incidents, newest first: those not resolved, or all."""
        limit, everything = limit_in(payload), flag_in(payload, "all")
        found = await self._kit.store.read(
            lambda connection: [
                incident_view(incident, runs_of_incident(connection, incident.id))
                for incident in list_incidents(connection, limit, include_resolved=everything)
            ]
        )
        return {"incidents": found}

    async def runs(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return runs, newest first, of one incident when it is named."""
        limit, incident_id = limit_in(payload), text_in(payload, "incident", "")
        found = await self._kit.store.read(lambda connection: list_runs(connection, limit, incident_id))
        return {"runs": [run_view(self._present(run)) for run in found]}

    async def show(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return all that is known of an incident or a run. Raise RequestError."""
        wanted = text_in(payload, "id")
        incident, runs, steps = await self._look_up(wanted)
        run = self._present(runs[-1]) if runs else None
        incident_id = incident.id if incident and incident.id == wanted else ""
        records = await asyncio.to_thread(self._records, run.task_id if run else "", incident_id)
        return {
            "incident": incident_view(incident, runs) if incident else None,
            "run": whole_run_view(run, steps) if run else None,
            "records": records,
        }

    async def run(self, task_id: str) -> Run:
        """Return a run as it stands. Raise RequestError when there is none."""
        run = await self._kit.store.read(lambda connection: find_run(connection, task_id))
        if run is None:
            raise RequestError(Code.NOT_FOUND, f"there is no run {task_id}")
        return self._present(run)

    async def _look_up(self, wanted: str) -> tuple[Incident | None, list[Run], list[Step]]:
        """Return what an id names: an incident with all its runs, or one run with its incident."""

        def look(connection: sqlite3.Connection) -> tuple[Incident | None, list[Run], list[Step]]:
            run = find_run(connection, wanted)
            if run is not None:
                incident = find_incident(connection, run.incident_id) if run.incident_id else None
                return incident, [run], steps_of(connection, wanted)
            incident = find_incident(connection, wanted)
            runs = runs_of_incident(connection, wanted) if incident else []
            return incident, runs, steps_of(connection, runs[-1].task_id) if runs else []

        incident, runs, steps = await self._kit.store.read(look)
        if incident is None and not runs:
            raise RequestError(Code.NOT_FOUND, f"there is no incident and no run {wanted}")
        return incident, runs, steps

    def _records(self, task_id: str, incident_id: str) -> list[dict[str, Any]]:
        """Return the newest audit records of a run, and of an incident when that was asked for."""
        if not incident_id:
            found = read_records(self._audit_folder, task_id)
        else:
            found = (
                record
                for record in read_records(self._audit_folder)
                if record.get("incident") == incident_id or (task_id and record["task_id"] == task_id)
            )
        return [record_view(record) for record in deque(found, MAX_RECORDS)]

    def _present(self, run: Run) -> Run:
        """Return a run as it stands now: what is under way is ahead of its row."""
        return self._runner.live(run.task_id) or run

    async def verify(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Walk the audit log's chain, against an anchor when one is given. Raise RequestError."""
        text = text_in(payload, "anchor", "")
        anchor = parse_anchor(text) if text else None
        if text and anchor is None:
            raise RequestError(Code.BAD_REQUEST, "anchor: it is written as NUMBER:HASH")
        found = await asyncio.to_thread(verify, self._audit_folder, anchor)
        peer_anchor = self._kit.hands.anchor or await asyncio.to_thread(self._last_executor_head)
        return {
            "ok": found.ok,
            "records": found.records,
            "head": str(found.head),
            "first_bad": found.first_bad,
            "reason": found.reason,
            "peer_anchor": peer_anchor,
        }

    def _last_executor_head(self) -> str:
        """Return the executor's head as an earlier life of this process wrote it down."""
        heads = (record.get("executor") for record in read_records(self._audit_folder))
        return next(iter(deque((str(head) for head in heads if head), 1)), "")
