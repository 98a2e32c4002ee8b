"""Lists the host's mounts as its first process sees them, without the kernel's own file systems.

Called as ``LIMIT`` where the host's processes can be seen. A mount that turned read-only by itself is
the usual finding, so every row says whether it is.
"""

from __future__ import annotations

import os
import sys

from .kernel import read, unescape
from .rows import write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

_OWN = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs",
    "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "securityfs", "sysfs", "tracefs",
})  # fmt: skip
_COLUMNS = 4


def main(argv: list[str]) -> int:
    """Print one row a mount, by mount point."""
    rows = parse(read("/proc/1/mounts"))
    for row in rows[: int(argv[0])]:
        write_row(row)
    if not rows:
        sys.stderr.write("no mounts of the host can be seen\n")
        return 1
    return os.EX_OK


def parse(table: str) -> list[dict[str, Value]]:
    """Return the rows of a mount table's text, the kernel's own file systems left out."""
    found = [line.split(" ") for line in table.splitlines()]
    rows = [_row(parts) for parts in found if len(parts) >= _COLUMNS and parts[2] not in _OWN]
    return sorted(rows, key=lambda row: str(row["mount_point"]))


def _row(parts: list[str]) -> dict[str, Value]:
    options = parts[3].split(",")
    return {
        "mount_point": unescape(parts[1]),
        "source": unescape(parts[0]),
        "fstype": parts[2],
        "read_only": "ro" in options,
        "options": parts[3],
    }
