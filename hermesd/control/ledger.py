"""The ledger: what became of every request, on disk before it happens.

A request id is run at most once, ever. A row is `accepted` before validation, `pending` while a
person is asked, `started` (synced) before the effect and `done` (synced) after it. After a crash a
row that was `started` is in doubt: it becomes `done` with the status `unknown`, and is never run
again by itself.

This module must never decide; and when it cannot write, nothing may be executed.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from hermesd.control.outcome import in_doubt
from hermesd.protocol import CommandRequest, CommandResult, Impact

R = TypeVar("R")

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS requests (
    request_id TEXT PRIMARY KEY, task_id TEXT NOT NULL, state TEXT NOT NULL,
    request TEXT NOT NULL, result TEXT, created_at TEXT NOT NULL, ended_at TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS operations (
    id TEXT PRIMARY KEY, request_id TEXT NOT NULL UNIQUE REFERENCES requests (request_id),
    status TEXT NOT NULL, impact TEXT NOT NULL, manifest BLOB NOT NULL, created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL, decided_at TEXT, decided_by INTEGER, reason TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE IF NOT EXISTS takeovers (
    target TEXT PRIMARY KEY, reason TEXT NOT NULL, since TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS releases (target TEXT PRIMARY KEY, released_at TEXT NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS requests_of_task ON requests (task_id);
CREATE TABLE IF NOT EXISTS kept (operation TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS operations_open ON operations (status) WHERE status IN ('pending', 'ticket');
"""
_OPERATIONS: Final = (
    "SELECT o.id, r.request, o.status, o.impact, o.manifest, o.created_at, o.expires_at, o.decided_by,"
    " o.reason, r.result FROM operations o JOIN requests r USING (request_id)"
)


class LedgerError(Exception):
    """The ledger cannot be read or written. Whatever was to be executed must not be."""


class RequestState(StrEnum):
    """How far a request came."""

    ACCEPTED = "accepted"
    PENDING = "pending"
    STARTED = "started"
    DONE = "done"


class OperationStatus(StrEnum):
    """What became of an operation that a person was to decide."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    TICKET = "ticket"
    TAKEN = "taken"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that waits for a person: the request, what its preview counted, and how long it lives."""

    id: str
    request: CommandRequest
    status: OperationStatus
    impact: Impact
    manifest: bytes
    created_at: datetime
    expires_at: datetime
    decided_by: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Takeover:
    """A target that is in a person's hands: nothing is changed there until it is released."""

    target: str
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to a claim: `fresh` may go on; else the stored state, and the result if there is one."""

    fresh: bool
    state: RequestState
    result: CommandResult | None = None
    other: bool = False
    """The id was used before for a request that is not this one."""


class Ledger:
    """The ledger's file. Every call runs on one thread of its own, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._db: sqlite3.Connection | None = None

    async def open(self, now: datetime) -> list[str]:
        """Open the file and settle what a crash left. Return the request ids that are in doubt now."""
        return await self._do(lambda: self._open(now))

    async def close(self) -> None:
        """Finish what was asked and let go of the file."""
        await self._do(lambda: self._connection().close())
        self._thread.shutdown()

    async def claim(self, request: CommandRequest, now: datetime) -> Claim:
        """Write the request down as accepted, unless its id is known already."""
        return await self._do(lambda: self._claim(request, now))

    async def open_operation(self, operation: Operation) -> None:
        """Write down that the request waits for a person."""
        await self._do(lambda: self._open_operation(operation))

    async def show_operation(self, operation_id: str, impact: Impact, manifest: bytes) -> None:
        """Write down what a person is shown now; the effect is bound to it."""
        await self._do(
            lambda: self._write(
                "UPDATE operations SET impact = ?, manifest = ? WHERE id = ? AND status = 'pending'",
                (impact.model_dump_json(), manifest, operation_id),
            )
        )

    async def decide(
        self, operation_id: str, status: OperationStatus, now: datetime, uid: int | None, reason: str = ""
    ) -> bool:
        """Close a pending operation. Return False when it was not pending any more."""
        return await self._changed(
            "UPDATE operations SET status = ?, decided_at = ?, decided_by = ?, reason = ?"
            " WHERE id = ? AND status = 'pending'",
            (status, now.isoformat(), uid, reason, operation_id),
        )

    async def move_ticket(
        self, operation_id: str, to: OperationStatus, now: datetime, uid: int, note: str = ""
    ) -> bool:
        """Take or close a ticket. Return False when there is no such open ticket."""
        return await self._changed(
            "UPDATE operations SET status = ?, decided_at = ?, decided_by = ?, reason = ?"
            " WHERE id = ? AND status IN ('ticket', 'taken')",
            (to, now.isoformat(), uid, note, operation_id),
        )

    async def take_over(self, target: str, reason: str, now: datetime) -> None:
        """Put a target into a person's hands; one that is there already stays as it is."""
        await self._do(
            lambda: self._write(
                "INSERT OR IGNORE INTO takeovers (target, reason, since) VALUES (?, ?, ?)",
                (target, reason, now.isoformat()),
            )
        )

    async def release(self, target: str, now: datetime) -> bool:
        """Give a target back; what was counted for it begins anew. Return False when nobody had it."""
        await self._changed(
            "REPLACE INTO releases SELECT target, ? FROM takeovers WHERE target = ?",
            (now.isoformat(), target),
        )
        return await self._changed("DELETE FROM takeovers WHERE target = ?", (target,))

    async def takeovers(self) -> list[Takeover]:
        """Return what is in a person's hands, oldest first."""
        return await self._do(
            lambda: [
                Takeover(target, reason, datetime.fromisoformat(since))
                for target, reason, since in self._connection().execute(
                    "SELECT target, reason, since FROM takeovers ORDER BY since"
                )
            ]
        )

    async def repairs_since(self, target: str, request: CommandRequest, since: datetime) -> int:
        """Return how many changes of ``target`` succeeded since then and since it was released.

        They are known by the path or unit that they name, and where ``request`` names neither, by the same
        command and arguments.
        """
        named = request.args.get("path") or request.args.get("unit")
        return await self._number(
            "SELECT count(*) FROM requests JOIN operations USING (request_id)"
            " LEFT JOIN releases ON target = ?1 WHERE state = 'done' AND ended_at >= ?4"
            " AND ended_at > coalesce(released_at, '')"
            " AND CASE WHEN ?2 THEN coalesce(request ->> '$.args.path', request ->> '$.args.unit') = ?1"
            " ELSE request ->> '$.command' = ?3 AND request -> '$.args' = json(?5) END"
            " AND result ->> '$.status' = 'succeeded'",
            (target, named is not None, request.command, since.isoformat(), json.dumps(dict(request.args))),
        )

    async def last_results(self, task_id: str, most: int) -> list[str]:
        """Return how the last requests of a run ended, newest first, since it was last released."""
        return await self._do(
            lambda: [
                status
                for (status,) in self._connection().execute(
                    "SELECT result ->> '$.status' FROM requests LEFT JOIN releases ON target = task_id"
                    " WHERE task_id = ? AND state = 'done' AND ended_at > coalesce(released_at, '')"
                    " ORDER BY ended_at DESC, requests.rowid DESC LIMIT ?",
                    (task_id, most),
                )
            ]
        )

    async def approvals_since(self, uid: int, since: datetime) -> int:
        """Return how many operations this person approved since then."""
        return await self._number(
            "SELECT count(*) FROM operations WHERE status = 'approved' AND decided_by = ?"
            " AND decided_at >= ?",
            (uid, since.isoformat()),
        )

    async def start(self, request_id: str) -> None:
        """Write down, synced, that the effect may happen from now on."""
        await self._do(
            lambda: self._write("UPDATE requests SET state = 'started' WHERE request_id = ?", (request_id,))
        )

    async def finish(self, result: CommandResult, now: datetime) -> None:
        """Write down how the request ended."""
        await self._do(
            lambda: self._write(
                "UPDATE requests SET state = 'done', result = ?, ended_at = ? WHERE request_id = ?",
                (result.model_dump_json(), now.isoformat(), result.request_id),
            )
        )

    async def operations(self, *statuses: OperationStatus) -> list[Operation]:
        """Return the operations of these statuses, oldest first."""
        return await self._do(lambda: self._operations(statuses))

    async def kept(self) -> list[str]:
        """Return the records of what the quarantine holds."""
        return await self._do(
            lambda: [text for (text,) in self._connection().execute("SELECT record FROM kept")]
        )

    async def keep(self, operation: str, record: str) -> None:
        """Write down what the quarantine holds of an operation, in place of what was known."""
        await self._do(lambda: self._write("REPLACE INTO kept VALUES (?, ?)", (operation, record)))

    async def forget(self, operation: str) -> None:
        """Nothing is held of an operation any more."""
        await self._do(lambda: self._write("DELETE FROM kept WHERE operation = ?", (operation,)))

    async def ended(self, operation_id: str) -> tuple[Operation, CommandResult | None] | None:
        """Return an operation whatever became of it, and its request's result if there is one."""
        return await self._do(lambda: self._ended(operation_id))

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise LedgerError("the ledger is not open")
        return self._db

    def _open(self, now: datetime) -> list[str]:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._db = db
        self._path.chmod(0o640)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        db.executescript(_SCHEMA)
        doubtful = [
            CommandRequest.model_validate_json(text)
            for (text,) in db.execute("SELECT request FROM requests WHERE state = 'started'")
        ]
        for request in doubtful:
            result = in_doubt(request)
            self._write(
                "UPDATE requests SET state = 'done', result = ?, ended_at = ? WHERE request_id = ?",
                (result.model_dump_json(), now.isoformat(), request.request_id),
            )
        # An approval belongs to the life in which it was given: what had not started must be asked again.
        db.execute(
            "UPDATE operations SET status = 'pending', decided_at = NULL, decided_by = NULL"
            " WHERE status = 'approved'"
            " AND request_id IN (SELECT request_id FROM requests WHERE state = 'pending')"
        )
        return [request.request_id for request in doubtful]

    def _claim(self, request: CommandRequest, now: datetime) -> Claim:
        text = request.model_dump_json()
        row = (
            self._connection()
            .execute(
                "SELECT state, result, request FROM requests WHERE request_id = ?", (request.request_id,)
            )
            .fetchone()
        )
        if row is None:
            self._write(
                "INSERT INTO requests (request_id, task_id, state, request, created_at)"
                " VALUES (?, ?, ?, ?, ?)",
                (request.request_id, request.task_id, RequestState.ACCEPTED, text, now.isoformat()),
            )
            return Claim(fresh=True, state=RequestState.ACCEPTED)
        state, result, stored = RequestState(row[0]), row[1], row[2]
        return Claim(
            fresh=state is RequestState.ACCEPTED and stored == text,
            state=state,
            result=CommandResult.model_validate_json(result) if result else None,
            other=stored != text,
        )

    def _open_operation(self, operation: Operation) -> None:
        db = self._connection()
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute(
                "INSERT INTO operations (id, request_id, status, impact, manifest, created_at, expires_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    operation.id,
                    operation.request.request_id,
                    operation.status,
                    operation.impact.model_dump_json(),
                    operation.manifest,
                    operation.created_at.isoformat(),
                    operation.expires_at.isoformat(),
                ),
            )
            db.execute(
                "UPDATE requests SET state = 'pending' WHERE request_id = ?",
                (operation.request.request_id,),
            )
            db.execute("COMMIT")
        except sqlite3.Error:
            db.rollback()
            raise

    def _operations(self, statuses: tuple[OperationStatus, ...]) -> list[Operation]:
        marks = ", ".join("?" * len(statuses))
        query = f"{_OPERATIONS} WHERE o.status IN ({marks}) ORDER BY o.created_at"
        return [_operation(row) for row in self._connection().execute(query, statuses)]

    def _ended(self, operation_id: str) -> tuple[Operation, CommandResult | None] | None:
        row = self._connection().execute(f"{_OPERATIONS} WHERE o.id = ?", (operation_id,)).fetchone()
        if row is None:
            return None
        return _operation(row), CommandResult.model_validate_json(row[9]) if row[9] else None

    def _write(self, statement: str, values: tuple[Any, ...]) -> int:
        return self._connection().execute(statement, values).rowcount

    async def _changed(self, statement: str, values: tuple[Any, ...]) -> bool:
        """Say whether a statement changed exactly one row."""
        return await self._do(lambda: self._write(statement, values) == 1)

    async def _number(self, statement: str, values: tuple[Any, ...]) -> int:
        """Return the one number that a query asks for."""
        return await self._do(lambda: int(self._connection().execute(statement, values).fetchone()[0]))

    async def _do(self, work: Callable[[], R]) -> R:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise LedgerError(f"{self._path}: {error}") from error


def _operation(row: tuple[Any, ...]) -> Operation:
    return Operation(
        id=row[0],
        request=CommandRequest.model_validate_json(row[1]),
        status=OperationStatus(row[2]),
        impact=Impact.model_validate_json(row[3]),
        manifest=row[4],
        created_at=datetime.fromisoformat(row[5]),
        expires_at=datetime.fromisoformat(row[6]),
        decided_by=row[7],
        note=row[8],
    )
