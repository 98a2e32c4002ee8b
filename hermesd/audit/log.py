"""The writing end of the log.

Writers hand records in from any thread; one thread writes and syncs them in groups. When a write or
a sync fails, the log is closed for good and every append raises AuditError: nothing may happen that
could not be written down. This module must never report a record as written before it is synced.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from hermesd.audit.chain import Anchor, chain, verify_last_segment
from hermesd.audit.files import (
    AuditError,
    first_segment,
    last_segment,
    lock,
    next_segment,
    set_torn_tail_aside,
    sync_folder,
)

SEGMENT_BYTES: Final = 32 << 20
"""A segment is full from here on. Opening costs at most one: about 0.1 s."""

_OWN_FIELDS: Final = frozenset({"seq", "time"})


class AuditLog:
    """The writing end of a log folder. Open with :func:`open_log`, close with :meth:`close`."""

    def __init__(
        self, folder: Path, lock_fd: int, head: Anchor, now: Callable[[], datetime], segment_bytes: int
    ) -> None:
        self._folder = folder
        self._lock_fd = lock_fd
        self._head = head
        self._now = now
        self._segment_bytes = segment_bytes
        self._failed: str = ""
        self._closed = False
        self._door = threading.Lock()
        self._file_fd = -1
        self._file_bytes = 0
        self._queue: queue.SimpleQueue[tuple[dict[str, Any], Future[Anchor]] | None] = queue.SimpleQueue()
        self._open_segment(last_segment(folder) or first_segment(folder))
        self._thread = threading.Thread(target=self._write_loop, name="audit-writer", daemon=True)
        self._thread.start()

    @property
    def head(self) -> Anchor:
        """The last record that is on disk."""
        return self._head

    def append(self, kind: str, task_id: str = "", **fields: Any) -> Future[Anchor]:
        """Hand a record in. The future ends once it is synced, or raises AuditError.

        ``fields`` are JSON values; what JSON cannot hold (an undecodable byte of a file name, a huge
        integer) is written in escapes. `seq` and `time` are the log's own.
        """
        if not _OWN_FIELDS.isdisjoint(fields):
            raise ValueError(f"a record's {' and '.join(sorted(_OWN_FIELDS))} are the log's own")
        done: Future[Anchor] = Future()
        body = {"kind": kind, "task_id": task_id, "time": self._now().astimezone(UTC).isoformat(), **fields}
        with self._door:
            if self._closed:
                done.set_exception(AuditError(f"audit log {self._folder}: closed"))
            else:
                self._queue.put((body, done))
        return done

    async def record(self, kind: str, task_id: str = "", **fields: Any) -> Anchor:
        """Append and wait until the record is on disk. Raise AuditError when it cannot be."""
        return await asyncio.wrap_future(self.append(kind, task_id, **fields))

    def close(self) -> None:
        """Write what was handed in, then release the folder. Closing twice is harmless."""
        with self._door:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        if self._file_fd >= 0:
            os.close(self._file_fd)
            self._file_fd = -1
        os.close(self._lock_fd)

    def _write_loop(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            last = False
            while not last and not self._queue.empty():
                item = self._queue.get()
                last = item is None
                if item is not None:
                    group.append(item)
            self._write_group(group)
            if last:
                return

    def _write_group(self, group: list[tuple[dict[str, Any], Future[Anchor]]]) -> None:
        lines, receipts = [], []
        seq, digest = self._head.seq, self._head.hash
        for body, done in group:
            if not done.set_running_or_notify_cancel():
                continue
            try:
                text = _json({"seq": seq + 1, **body})
            except (TypeError, ValueError, RecursionError) as error:
                done.set_exception(AuditError(f"a record cannot be written as JSON: {error}"))
                continue
            seq += 1
            digest = chain(digest, text)
            lines.append(b"%s %s\n" % (digest.encode(), text))
            receipts.append((done, Anchor(seq, digest)))
        try:
            self._sync(b"".join(lines))
        except OSError as error:
            self._failed = f"audit log {self._folder}: {error.strerror or error}"
        for done, anchor in receipts:
            if self._failed:
                done.set_exception(AuditError(self._failed))
            else:
                self._head = anchor
                done.set_result(anchor)

    def _sync(self, text: bytes) -> None:
        if self._failed or not text:
            return
        if self._file_bytes and self._file_bytes + len(text) > self._segment_bytes:
            self._open_segment(next_segment(self._folder))
        view = memoryview(text)
        while view:
            view = view[os.write(self._file_fd, view) :]
        os.fdatasync(self._file_fd)
        self._file_bytes += len(text)

    def _open_segment(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        old_fd, self._file_fd = self._file_fd, fd
        if old_fd >= 0:
            os.close(old_fd)
        self._file_bytes = os.fstat(fd).st_size
        sync_folder(self._folder)


def open_log(
    folder: Path,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    *,
    segment_bytes: int = SEGMENT_BYTES,
) -> AuditLog:
    """Open the log for writing; at most one writer per folder.

    Only the last segment is verified, from the last record of the one before it: opening costs at
    most one segment, however long the log is. A last line that a crash tore is moved to a file
    `torn-…` beside the segments and recorded. Raise AuditError when another process writes here,
    when the chain breaks in that segment, or when the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        lock_fd = lock(folder)
    except OSError as error:
        raise AuditError(f"audit log {folder}: {error.strerror or error}") from error
    try:
        torn = set_torn_tail_aside(folder)
        found = verify_last_segment(folder)
        log = AuditLog(folder, lock_fd, found.head, now, segment_bytes) if found.ok else None
    except OSError as error:
        os.close(lock_fd)
        raise AuditError(f"audit log {folder}: {error.strerror or error}") from error
    if log is None:
        os.close(lock_fd)
        raise AuditError(f"audit log {folder}: record {found.first_bad}: {found.reason}")
    if torn:
        _record_torn(log, torn, found.head)
    return log


def _record_torn(log: AuditLog, size: int, head: Anchor) -> None:
    try:
        log.append("audit.torn_tail", bytes=size, after=str(head)).result()
    except AuditError:
        log.close()
        raise


def _json(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return orjson.dumps(_writable(body), option=orjson.OPT_SORT_KEYS)


def _writable(value: Any) -> Any:
    """Return the value as JSON can hold it. Only what JSON cannot hold changes, into its escapes."""
    if isinstance(value, dict):
        return {_writable(str(key)): _writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    if isinstance(value, bool | float | None):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()
