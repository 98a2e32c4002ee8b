"""Lists files that were removed and still take space because a process holds them open.

Called as ``LIMIT`` where the host's processes can be seen. Only root may look into other users'
processes, so the last row says how many could not be looked into: no finding is not the same as nothing.
"""

from __future__ import annotations

import os
import stat

from .kernel import fields, pids, read_or
from .rows import path_fields, write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

_MARK = b" (deleted)"
_BLOCK = 512


def main(argv: list[str]) -> int:
    """Print one row a file, largest first, then a total row."""
    found: dict[tuple[int, int], dict[str, Value]] = {}
    looked = hidden = 0
    for pid in pids():
        try:
            held = list(_held(pid))
        except PermissionError:
            hidden += 1
            continue
        except OSError:  # it ended meanwhile
            continue
        looked += 1
        for key, row in held:
            found.setdefault(key, row)
    rows = sorted(found.values(), key=lambda row: -_number(row["disk_bytes"]))
    for row in rows[: int(argv[0])]:
        write_row(row)
    write_row(
        {
            "total": True,
            "files": len(rows),
            "disk_bytes": sum(int(_number(row["disk_bytes"])) for row in rows),
            "processes_seen": looked,
            "processes_hidden": hidden,
        }
    )
    return os.EX_OK


def _held(pid: int) -> list[tuple[tuple[int, int], dict[str, Value]]]:
    folder = f"/proc/{pid}/fd"
    rows = []
    for number in os.listdir(folder):  # noqa: PTH208 - see kernel
        try:
            target = os.readlink(f"{folder}/{number}".encode())  # noqa: PTH115 - see kernel
            status = os.stat(f"{folder}/{number}")  # noqa: PTH116 - see kernel
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and not status.st_nlink and target.startswith(b"/"):
            rows.append(((status.st_dev, status.st_ino), _row(pid, target.removesuffix(_MARK), status)))
    return rows


def _row(pid: int, path: bytes, status: os.stat_result) -> dict[str, Value]:
    return {
        **path_fields(path),
        "size_bytes": status.st_size,
        "disk_bytes": status.st_blocks * _BLOCK,
        "pid": pid,
        "process": fields(read_or(f"/proc/{pid}/status")).get("Name", ""),
    }


def _number(value: Value) -> float:
    return value if isinstance(value, int | float) else 0
