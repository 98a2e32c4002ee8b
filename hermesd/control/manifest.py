"""The manifest: exactly which files a confirmed removal is about, as its preview listed them.

The preview tool writes it inside a container, a person confirms its digest, and the removal tool is
given the same bytes. Between them it is only counted and shown: this module must never change it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from hermesd.control.output import human_bytes
from hermesd.protocol import Impact
from hermesd.telemetry import visible

SAMPLE: Final = 12
_FIELDS: Final = 10


class ManifestError(ValueError):
    """The preview's output is not a manifest; nothing may be removed by it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a manifest: its path beneath the root as bytes, and what it was (``mode``: st_mode)."""

    path: bytes
    size_bytes: int
    mtime_ns: int
    mode: int
    uid: int
    gid: int


def read_manifest(data: bytes) -> tuple[Entry, ...]:
    """Return the entries of a manifest: NUL-ended records of nine numbers and a path. Raise ManifestError."""
    if not data:
        return ()
    if not data.endswith(b"\0"):
        raise ManifestError("the preview's list is cut off")
    return tuple(_entry(record) for record in data[:-1].split(b"\0"))


def _entry(record: bytes) -> Entry:
    fields = record.split(b" ", _FIELDS - 1)
    if len(fields) != _FIELDS or not all(field.isdigit() for field in fields[:-1]) or not fields[-1]:
        raise ManifestError("the preview's list holds a record that cannot be read")
    size, mtime_ns, mode, uid, gid = (int(fields[place]) for place in (2, 4, 5, 6, 7))
    return Entry(fields[-1], size, mtime_ns, mode, uid, gid)


def impact_of(data: bytes, root: str) -> Impact:
    """Return what removing the manifest would mean, counted from the manifest alone."""
    entries = read_manifest(data)
    largest = sorted(entries, key=lambda entry: -entry.size_bytes)[:SAMPLE]
    size = sum(entry.size_bytes for entry in entries)
    noun = "file" if len(entries) == 1 else "files"
    return Impact(
        files=len(entries),
        size_bytes=size,
        root=root,
        sample=tuple(
            f"{visible(entry.path.decode('utf-8', 'backslashreplace'))} ({human_bytes(entry.size_bytes)})"
            for entry in largest
        ),
        manifest_digest=hashlib.sha256(data).hexdigest(),
        text=f"{len(entries)} {noun} under {root}, {human_bytes(size)}",
    )
