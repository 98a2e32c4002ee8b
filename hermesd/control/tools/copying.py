"""Copying one open file into another, with the digest of what went over. Never follows a name.

Blocks of zeros are left out, so that a sparse file stays one. Whatever stops a copy is an OSError whose
words are for people.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time

_BLOCK_BYTES = 1 << 20


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
    return digest.hexdigest()


def _write(target: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(target, rest) :]
