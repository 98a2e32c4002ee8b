"""What an operation removed, file by file, from what was confirmed and what came of it. Pure.

A person may ask long afterwards, so this says no more than is known: a file of a removal whose end was not
seen is in doubt, and skipped files that the removal did not name are only counted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from hermesd.control.ledger import Operation, OperationStatus
from hermesd.control.manifest import Entry, read_manifest
from hermesd.protocol import CommandResult, ResultStatus
from hermesd.telemetry import visible

MOST_CHARACTERS: Final = 300_000
"""An answer is one line of at most a mebibyte; what does not fit comes with the next offset."""

_IN_DOUBT: Final = frozenset({ResultStatus.TIMED_OUT, ResultStatus.UNKNOWN})


def removed_by(
    operation: Operation, result: CommandResult | None, offset: int, limit: int
) -> dict[str, Any] | None:
    """Return the files from ``offset`` on, each with its fate; None when the operation removed nothing.

    A fate is `removed`, `skipped` or `in_doubt`. ``unnamed`` counts skipped files that are not known by name.
    """
    if operation.status is not OperationStatus.APPROVED or not operation.manifest or result is None:
        return None
    if "operation" in operation.request.args:  # it put back
        return None
    doubtful = result.status in _IN_DOUBT
    if not doubtful and not (result.gain and result.gain.files_removed):
        return None
    entries = read_manifest(operation.manifest)
    skipped = {_path_of(row) for row in result.rows[1:]}
    files: list[dict[str, Any]] = []
    room = MOST_CHARACTERS
    for entry in entries[offset : offset + limit]:
        fate = "in_doubt" if doubtful else "skipped" if entry.path in skipped else "removed"
        files.append({**_told(entry), "fate": fate})
        room -= 6 * len(entry.path) + 200
        if room < 0:
            break
    following = offset + len(files)
    named = sum(entry.path in skipped for entry in entries)
    return {
        "id": operation.id,
        "command": operation.request.command,
        "root": operation.impact.root,
        "total": len(entries),
        "unnamed": max(0, result.gain.files_skipped - named) if result.gain else 0,
        "files": files,
        "next_offset": following if following < len(entries) else None,
    }


def _told(entry: Entry) -> dict[str, Any]:
    text = entry.path.decode("utf-8", "backslashreplace")
    exact = {} if text.encode("utf-8", "surrogatepass") == entry.path else {"path_hex": entry.path.hex()}
    return {
        "path": visible(text),
        **exact,
        "size_bytes": entry.size_bytes,
        "mtime": datetime.fromtimestamp(entry.mtime_ns / 1e9, UTC).isoformat(timespec="seconds"),
        "mode": f"{entry.mode & 0o7777:04o}",
        "uid": entry.uid,
        "gid": entry.gid,
    }


def _path_of(row: dict[str, Any]) -> bytes:
    """Return the exact path of a row in which the removal told what it skipped."""
    exact = row.get("path_hex")
    if isinstance(exact, str):
        return bytes.fromhex(exact)
    return str(row.get("path", "")).encode("utf-8", "surrogatepass")
