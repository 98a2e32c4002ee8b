"""The chain: how one record follows from another, and what shows that it does not.

This module only reads. It must never say "ok" of a record that it has not followed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from hermesd.audit.files import is_being_written, line_start, lines_of, segments

_GENESIS: Final = "0" * 64
_HEAD_DIGITS: Final = 64
_TORN: Final = "torn record"
_BROKEN: Final = "does not follow from the record before it (changed, deleted, inserted or moved)"


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


def verify(folder: Path, expected: Anchor | None = None) -> Verification:
    """Walk the whole chain. With an anchor, also prove that the log still contains it. Reads only.

    A last line without its end is a fault, unless a writer is at work here: then it is being written.
    """
    walk = _Walk(Anchor(0, _GENESIS), expected)
    fault = walk.over(segments(folder))
    if fault == _TORN and is_being_written(folder):
        fault = ""
    if fault:
        return walk.found(walk.head.seq + 1, fault)
    if expected is not None and not walk.anchored:
        missing = min(expected.seq, walk.head.seq + 1)
        reason = f"record {expected.seq} was seen by another and is not here (tail cut, or rewritten)"
        return walk.found(missing, reason)
    return walk.found()


def read_records(folder: Path, task_id: str = "") -> Iterator[dict[str, Any]]:
    """Yield the records in order, optionally only those of one task. Does not verify."""
    wanted = task_id.encode()
    for line in lines_of(segments(folder)):
        if line[-1:] != b"\n":
            return  # it is being written, or a crash tore it
        if wanted and wanted not in line:
            continue
        record = orjson.loads(line.partition(b" ")[2])
        if not task_id or record["task_id"] == task_id:
            yield record


def chain(previous: str, body: bytes) -> str:
    """Return the hash of a record that follows ``previous``, as 64 hexadecimal digits."""
    return hashlib.sha256(previous.encode() + body).hexdigest()


class _Walk:
    """Follows the chain record by record, and notices when it passes an anchor."""

    def __init__(self, start: Anchor, expected: Anchor | None = None) -> None:
        self.head = start
        self._start = start
        self._expected = expected
        self.anchored = expected is None or expected == start

    def over(self, files: list[Path]) -> str:
        """Walk over the files. Return the fault that the walk ended at, empty when there is none."""
        wanted = self._expected.hash.encode() if self._expected else b""
        seq, digest = self.head.seq, self.head.hash.encode()
        fault = ""
        for line in lines_of(files):
            if line[-1:] != b"\n":
                fault = _TORN
                break
            here = hashlib.sha256(digest + line[_HEAD_DIGITS + 1 : -1]).hexdigest().encode()
            if line[: _HEAD_DIGITS + 1] != here + b" ":
                fault = _BROKEN
                break
            seq, digest = seq + 1, here
            if here == wanted and self._expected is not None and self._expected.seq == seq:
                self.anchored = True
        self.head = Anchor(seq, digest.decode())
        return fault

    def found(self, first_bad: int | None = None, reason: str = "") -> Verification:
        """Return what the walk amounts to."""
        return Verification(
            ok=first_bad is None,
            records=self.head.seq - self._start.seq,
            head=self.head,
            first_bad=first_bad,
            reason=reason,
        )


def verify_last_segment(folder: Path) -> Verification:
    """Verify the newest segment that holds records, from the end of the segment before it."""
    files = [file for file in segments(folder) if file.stat().st_size]
    start = _end_of(files[-2]) if len(files) > 1 else Anchor(0, _GENESIS)
    walk = _Walk(start or Anchor(0, _GENESIS))
    fault = _BROKEN if start is None else walk.over(files[-1:])
    return walk.found(walk.head.seq + 1, fault) if fault else walk.found()


def _end_of(segment: Path) -> Anchor | None:
    """Return the last record of a segment as it stands there, None when that is no record."""
    with segment.open("rb") as file:
        file.seek(line_start(file, file.seek(0, os.SEEK_END) - 1))
        line = file.read()
    try:
        return Anchor(int(orjson.loads(line[_HEAD_DIGITS + 1 :])["seq"]), line[:_HEAD_DIGITS].decode("ascii"))
    except (ValueError, KeyError, TypeError):
        return None
