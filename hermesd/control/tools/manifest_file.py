"""A record of a manifest: one file as it was seen, by numbers and by its exact name.

Nine decimal numbers and the path beneath the root, with blanks between, ended by NUL: a name may
hold anything else. The preview writes records, the removal reads them and compares.
"""

from __future__ import annotations

import os

MAX_ENTRIES = 1_000_000
FIELDS = 10


class BadManifestError(ValueError):
    """The bytes are not a manifest."""


class Record:
    """One file. ``blocks`` count 512 bytes each; ``mode`` is the whole st_mode."""

    def __init__(self, numbers: tuple[int, ...], path: bytes) -> None:
        self.numbers = numbers
        self.dev, self.ino, self.size, self.blocks, self.mtime_ns = numbers[:5]
        self.mode, self.uid, self.gid, self.nlink = numbers[5:]
        self.path = path


def record_of(path: bytes, status: os.stat_result) -> Record:
    """Return the record of a file's status."""
    numbers = (
        *(status.st_dev, status.st_ino, status.st_size, status.st_blocks, status.st_mtime_ns),
        *(status.st_mode, status.st_uid, status.st_gid, status.st_nlink),
    )
    return Record(numbers, path)


def write_record(record: Record) -> bytes:
    """Return the record as bytes."""
    return b" ".join(b"%d" % number for number in record.numbers) + b" " + record.path + b"\0"


def read_record(data: bytes) -> Record:
    """Read a record without its NUL. Raise BadManifestError."""
    fields = data.split(b" ", FIELDS - 1)
    if len(fields) != FIELDS or not all(field.isdigit() for field in fields[:-1]) or not fields[-1]:
        raise BadManifestError("a record cannot be read")
    return Record(tuple(int(field) for field in fields[:-1]), fields[-1])


def difference(record: Record, status: os.stat_result) -> str:
    """Return in which way a file no longer is what was recorded; "" when it is."""
    now = record_of(record.path, status)
    if (now.dev, now.ino) != (record.dev, record.ino):
        return "is another file now"
    if now.size != record.size:
        return f"had {record.size} bytes and has {now.size}"
    if now.mtime_ns != record.mtime_ns:
        return "was written since"
    if now.nlink != record.nlink or now.mode != record.mode:
        return "has other names or another mode now"
    return ""
