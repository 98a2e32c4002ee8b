"""The log's folder on disk: its segments, its lock, and what a crash left at its end.

This module must never change a whole line.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

_BLOCK_BYTES: Final = 1 << 16


class AuditError(Exception):
    """The log cannot be written. Whatever was to be recorded must not be done."""


def segments(folder: Path) -> list[Path]:
    """Return the log's files, oldest first."""
    return sorted(folder.glob("audit-*.log"))


def _segment(folder: Path, number: int) -> Path:
    return folder / f"audit-{number:08d}.log"


def first_segment(folder: Path) -> Path:
    """Return where a new log begins."""
    return _segment(folder, 1)


def last_segment(folder: Path) -> Path | None:
    """Return the newest file, None when there is none."""
    return max(segments(folder), default=None)


def next_segment(folder: Path) -> Path:
    """Return the file that follows the newest."""
    last = last_segment(folder)
    return _segment(folder, int(last.stem.removeprefix("audit-")) + 1 if last else 1)


def lines_of(files: list[Path]) -> Iterator[bytes]:
    """Yield the lines of the files in order, newlines included."""
    for path in files:
        with path.open("rb", buffering=1 << 20) as file:
            yield from file


def line_start(file: BinaryIO, end: int) -> int:
    """Return the offset behind the last newline before ``end``, reading backwards in blocks."""
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def set_torn_tail_aside(folder: Path) -> int:
    """Move what follows the last newline out of the last segment. Return its size in bytes."""
    last = last_segment(folder)
    if last is None:
        return 0
    with last.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        keep = line_start(file, size)
        if keep < size:
            file.seek(keep)
            _keep_aside(folder / f"torn-{last.stem}-{keep}", file.read())
            file.truncate(keep)
            os.fsync(file.fileno())
    return size - keep


def _keep_aside(path: Path, torn: bytes) -> None:
    with path.open("wb") as file:
        file.write(torn)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def lock(folder: Path) -> int:
    """Return the descriptor that keeps other writers out for as long as it is open."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AuditError(f"audit log {folder}: another process is writing here") from None
    return fd


def is_being_written(folder: Path) -> bool:
    """Say whether a writer holds the folder."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def sync_folder(folder: Path) -> None:
    """Make the names in the folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
