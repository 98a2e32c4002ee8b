"""Copying open files into others, with the digest of what went over. Never follows a name.

Blocks of zeros are left out, so that a sparse file stays one. Whatever stops a copy is an OSError whose
words are for people.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .manifest_file import Record

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a file to be copied is opened, and how its copy is made."""

_BLOCK_BYTES = 1 << 20
_TOGETHER = 50
_TOGETHER_BYTES = 64 << 20
"""So much shares a wait for the disk; each file holds three descriptors meanwhile."""


def batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield records in lists that may share their waits for the disk: not many files, not many bytes."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += record.size
        if len(batch) >= _TOGETHER or size >= _TOGETHER_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def copy(source: int, target: int, size: int, until: float) -> str:
    """Copy ``size`` bytes and return their SHA-256. Raise OSError: another size, no room, no time left."""
    digest = hashlib.sha256()
    copied = 0
    while block := os.read(source, _BLOCK_BYTES):
        if time.monotonic() > until:
            raise OSError(errno.ETIMEDOUT, "there was no time left for it")
        digest.update(block)
        copied += len(block)
        if copied > size:
            break
        if block.count(0) == len(block):
            os.lseek(target, len(block), os.SEEK_CUR)
        else:
            _write(target, block)
    if copied != size:
        raise OSError(errno.EIO, f"had {size} bytes and gave {'more' if copied > size else copied}")
    os.ftruncate(target, size)
    os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)  # it begins to be written: a later sync waits less
    return digest.hexdigest()


def _write(target: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(target, rest) :]
