"""The store: one SQLite file, one writer thread, commits in groups.

Whoever waits for a write is told once it is on disk, and not before. Writes that arrive together
share one commit; each stands in a savepoint of its own, so that one that fails takes no other with
it. When the commit itself fails (a full disk), every writer of the group is told, nothing of it
stays, and the next group may try again.

This module must never say that something is durable before SQLite has synced it, and must never
know what the rows mean.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from hermesd.state.schema import SchemaError, check_version, migrate

MAX_GROUP: Final = 512
"""Writes per commit: enough to share a sync, few enough that the first does not wait for long."""

BUSY_MS: Final = 5_000
_SYNCED_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    f"PRAGMA busy_timeout = {BUSY_MS}",
    "PRAGMA journal_size_limit = 67108864",
)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
_Item = tuple[Work[Any], "Future[Any]"]


class StoreError(Exception):
    """The store cannot be opened, or a group of writes could not be made durable. Nothing of it stays."""


class Store:
    """The state of the agent process. Open with :func:`open_store`, close with :meth:`close`."""

    def __init__(self, path: Path, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._closed = False
        self._door = threading.Lock()
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._thread = threading.Thread(target=self._write_loop, name="store-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Work[T]) -> T:
        """Run ``work(connection)`` in the writer thread and return its value once it is committed.

        ``work`` runs inside a transaction and must neither commit nor keep the connection. What it
        raises is raised here, and its changes are undone. Raise StoreError when the commit failed
        or the store is closed. A caller that is cancelled while waiting may find the write done.
        """
        return await asyncio.wrap_future(self.hand_in(work))

    async def read(self, work: Work[T]) -> T:
        """Run ``work(connection)`` on a connection that sees the last commit and cannot write."""
        with self._door:
            self._refuse_when_closed()
            found = self._reads.submit(self._read, work)
        return await asyncio.wrap_future(found)

    def close(self) -> None:
        """Commit what was handed in, then close the file. Blocks until then; closing twice is harmless."""
        with self._door:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        self._reads.shutdown()
        self._reader.close()
        self._writer.close()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreError(f"store {self._path}: closed")

    def hand_in(self, work: Work[T]) -> Future[T]:
        """Hand ``work`` in as :meth:`write` does, without waiting: it is done in the order of handing in.

        The future ends once it is committed, or with what was raised. Raise StoreError when closed.
        """
        done: Future[T] = Future()
        with self._door:
            self._refuse_when_closed()
            self._queue.put((work, done))
        return done

    def _read(self, work: Work[T]) -> T:
        self._reader.execute("BEGIN")  # one snapshot for all that the work asks
        try:
            return work(self._reader)
        finally:
            if self._reader.in_transaction:
                self._reader.execute("ROLLBACK")

    def _write_loop(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            last = False
            while not last and len(group) < MAX_GROUP and not self._queue.empty():
                item = self._queue.get()
                last = item is None
                if item is not None:
                    group.append(item)
            self._write_group([item for item in group if item[1].set_running_or_notify_cancel()])
            if last:
                return

    def _write_group(self, group: list[_Item]) -> None:
        """Run and commit a group; tell each waiting writer how it ended, after the commit."""
        endings: list[tuple[Any, BaseException | None]] = []
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for work, _done in group:
                endings.append(self._attempt(work))
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo()
            failure = StoreError(f"store {self._path}: {error}")
            endings = [(None, failure)] * len(group)
        for (_work, done), (value, fault) in zip(group, endings, strict=True):
            if fault is not None:
                done.set_exception(fault)
            else:
                done.set_result(value)

    def _attempt(self, work: Work[Any]) -> tuple[Any, BaseException | None]:
        """Run one piece of work in its savepoint. Raise sqlite3.Error when the whole group is lost."""
        self._writer.execute("SAVEPOINT work")
        try:
            value = work(self._writer)
        except BaseException as error:  # whatever it is, it belongs to the caller who waits
            if _spoils_the_group(error) or not self._writer.in_transaction:
                raise sqlite3.OperationalError(str(error)) from error
            self._writer.execute("ROLLBACK TO work")
            self._writer.execute("RELEASE work")
            return None, error
        self._writer.execute("RELEASE work")
        return value, None

    def _undo(self) -> None:
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error:
            # SQLite has rolled back by itself, or does at the next BEGIN: nothing was committed.
            return


def open_store(path: Path) -> Store:
    """Open the store at ``path``, make or migrate its tables. Raise StoreError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        _make_private(path)
        writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"store {path}: {error}") from error
    try:
        for pragma in _SYNCED_PRAGMAS:
            writer.execute(pragma)
        migrate(writer)
        return Store(path, writer, _open_reader(path))
    except (sqlite3.Error, SchemaError) as error:
        writer.close()
        raise StoreError(f"store {path}: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the store of a daemon, which may be running, to read one snapshot of it. Raise StoreError."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        with closing(connection):
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            check_version(connection)
            connection.execute("BEGIN")
            yield connection
    except (sqlite3.Error, SchemaError) as error:
        raise StoreError(f"store {path}: {error}") from error


def scratch() -> sqlite3.Connection:
    """Return an empty store in memory, gone when it is closed: to try out what is never to be kept."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    return connection


def _make_private(path: Path) -> None:
    """Create the file with its mode before SQLite does; the files beside it inherit that mode."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
    try:
        os.fchmod(fd, 0o640)
    finally:
        os.close(fd)


def _open_reader(path: Path) -> sqlite3.Connection:
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    reader.execute("PRAGMA query_only = ON")
    return reader


def _spoils_the_group(error: BaseException) -> bool:
    """Say whether SQLite met trouble (full disk, I/O) that the other writes of the group share."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorname", "").startswith(
        ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOMEM", "SQLITE_NOTADB", "SQLITE_READONLY")
    )
