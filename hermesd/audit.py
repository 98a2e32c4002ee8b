"""The audit log: hash-chained, append-only, synced before the effect it speaks of.

One process writes one folder. A record is one line, ``HASH BODY``: BODY is JSON with sorted keys,
HASH is SHA-256 over the previous record's hash and BODY. A changed, deleted, inserted or swapped
record breaks the chain at its place; a tail that was cut off is found by comparing with an anchor,
the head that somebody else (the other process, journald) has written down.

Writers hand records in from any thread; one thread writes and syncs them in groups. When a write or
a sync fails, the log is closed for good and every append raises AuditError: nothing may happen that
could not be written down.

This module must never drop, reorder or rewrite a record, and must never be given a secret or a
person's words: callers pass digests of those.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

SEGMENT_BYTES: Final = 64 << 20
_GENESIS: Final = "0" * 64
_HEAD_DIGITS: Final = 64


class AuditError(Exception):
    """The log cannot be written. Whatever was to be recorded must not be done."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The head of a log at some moment, as somebody else keeps it: ``seq:hash``."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


def parse_anchor(text: str) -> Anchor | None:
    """Return the anchor that ``str(anchor)`` wrote; None when the text is not one."""
    seq, _, digest = text.partition(":")
    if not seq.isascii() or not seq.isdigit() or len(digest) != _HEAD_DIGITS:
        return None
    return Anchor(int(seq), digest)


@dataclass(frozen=True, slots=True)
class Verification:
    """What verify found. ``first_bad`` is the sequence number at which the chain breaks, if it does."""

    ok: bool
    records: int
    head: Anchor
    first_bad: int | None = None
    reason: str = ""


class AuditLog:
    """The writing end of a log folder. Open with :func:`open_log`, close with :meth:`close`."""

    def __init__(self, folder: Path, lock_fd: int, head: Anchor, now: Callable[[], datetime]) -> None:
        self._folder = folder
        self._lock_fd = lock_fd
        self._head = head
        self._now = now
        self._failed: str = ""
        self._file_fd = -1
        self._file_bytes = 0
        self._queue: queue.SimpleQueue[tuple[dict[str, Any], Future[Anchor]] | None] = queue.SimpleQueue()
        self._open_segment()
        self._thread = threading.Thread(target=self._write_loop, name="audit-writer", daemon=True)
        self._thread.start()

    @property
    def head(self) -> Anchor:
        """The last record that is on disk."""
        return self._head

    def append(self, kind: str, task_id: str = "", **fields: Any) -> Future[Anchor]:
        """Hand a record in. The future ends once it is synced, or raises AuditError."""
        done: Future[Anchor] = Future()
        body = {"kind": kind, "task_id": task_id, "time": self._now().astimezone(UTC).isoformat(), **fields}
        self._queue.put((body, done))
        return done

    async def record(self, kind: str, task_id: str = "", **fields: Any) -> Anchor:
        """Append and wait until the record is on disk. Raise AuditError when it cannot be."""
        return await asyncio.wrap_future(self.append(kind, task_id, **fields))

    def close(self) -> None:
        """Write what was handed in, then release the folder."""
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
                text = orjson.dumps({"seq": seq + 1, **body}, default=str, option=orjson.OPT_SORT_KEYS)
            except TypeError as error:
                done.set_exception(AuditError(f"a record cannot be written as JSON: {error}"))
                continue
            seq += 1
            digest = chain(digest, text)
            lines.append(b"%s %s\n" % (digest.encode(), text))
            receipts.append((done, Anchor(seq, digest)))
        try:
            self._sync(b"".join(lines))
        except OSError as error:
            self._failed = self._failed or f"audit log {self._folder}: {error.strerror or error}"
        for done, anchor in receipts:
            if self._failed:
                done.set_exception(AuditError(self._failed))
            else:
                self._head = anchor
                done.set_result(anchor)

    def _sync(self, text: bytes) -> None:
        if self._failed:
            return
        if self._file_bytes and self._file_bytes + len(text) > SEGMENT_BYTES:
            self._open_segment()
        view = memoryview(text)
        while view:
            view = view[os.write(self._file_fd, view) :]
        os.fdatasync(self._file_fd)
        self._file_bytes += len(text)

    def _open_segment(self) -> None:
        if self._file_fd >= 0:
            os.close(self._file_fd)
        existing = segments(self._folder)
        fresh = not existing or (existing[-1].stat().st_size > SEGMENT_BYTES // 2 and self._file_bytes > 0)
        path = self._folder / f"audit-{len(existing) + 1:08d}.log" if fresh else existing[-1]
        self._file_fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._file_bytes = os.fstat(self._file_fd).st_size
        folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder_fd)
        finally:
            os.close(folder_fd)


def open_log(folder: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> AuditLog:
    """Open the log for writing; at most one writer per folder.

    A last line that a crash tore is moved to ``torn-SEQ`` beside the segments and recorded. Raise
    AuditError when another process writes here or when the chain on disk is broken.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    lock_fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock_fd)
        raise AuditError(f"audit log {folder}: another process is writing here") from None
    torn = _set_torn_tail_aside(folder)
    found = verify(folder)
    if not found.ok:
        os.close(lock_fd)
        raise AuditError(f"audit log {folder}: record {found.first_bad}: {found.reason}")
    log = AuditLog(folder, lock_fd, found.head, now)
    if torn:
        log.append("audit.torn_tail", bytes=torn, after=str(found.head)).result()
    return log


def verify(folder: Path, expected: Anchor | None = None) -> Verification:
    """Walk the chain. With an anchor, also prove that the log still contains it. Reads only."""
    seq, digest, records = 0, _GENESIS, 0
    anchored = expected is None or expected.seq == 0
    for line in _lines(folder):
        head, _, body = line.partition(b" ")
        if not line.endswith(b"\n"):
            return Verification(
                ok=False, records=records, head=Anchor(seq, digest), first_bad=seq + 1, reason="torn record"
            )
        body = body[:-1]
        digest_here = chain(digest, body)
        if digest_here.encode() != head:
            return Verification(
                ok=False,
                records=records,
                head=Anchor(seq, digest),
                first_bad=seq + 1,
                reason="does not follow from the record before it (changed, deleted, inserted or moved)",
            )
        seq, digest, records = seq + 1, digest_here, records + 1
        anchored = anchored or (expected is not None and expected == Anchor(seq, digest))
    if not anchored and expected is not None:
        missing = seq + 1 if expected.seq > seq else expected.seq
        reason = (
            f"the other process has seen record {expected.seq}, which is not here (tail cut, or rewritten)"
        )
        return Verification(
            ok=False, records=records, head=Anchor(seq, digest), first_bad=missing, reason=reason
        )
    return Verification(ok=True, records=records, head=Anchor(seq, digest))


def read_records(folder: Path, task_id: str = "") -> Iterator[dict[str, Any]]:
    """Yield the records in order, optionally only those of one task. Does not verify."""
    wanted = task_id.encode()
    for line in _lines(folder):
        if wanted and wanted not in line:
            continue
        record = orjson.loads(line.partition(b" ")[2])
        if not task_id or record["task_id"] == task_id:
            yield record


def chain(previous: str, body: bytes) -> str:
    """Return the hash of a record that follows ``previous``, as 64 hexadecimal digits."""
    return hashlib.sha256(previous.encode() + body).hexdigest()


def segments(folder: Path) -> list[Path]:
    """Return the log's files, oldest first."""
    return sorted(folder.glob("audit-*.log"))


def _lines(folder: Path) -> Iterator[bytes]:
    for segment in segments(folder):
        with segment.open("rb") as file:
            yield from file


def _set_torn_tail_aside(folder: Path) -> int:
    """Move what follows the last newline out of the last segment. Return its size in bytes."""
    files = segments(folder)
    if not files:
        return 0
    data = files[-1].read_bytes()
    keep = data.rfind(b"\n") + 1
    torn = data[keep:]
    if torn:
        (folder / f"torn-{files[-1].stem}-{keep}").write_bytes(torn)
        with files[-1].open("rb+") as file:
            file.truncate(keep)
            os.fsync(file.fileno())
    return len(torn)
