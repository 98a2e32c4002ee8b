"""Lists logs that were rotated away and are older than asked, oldest first, and removes nothing.

Called as ``FD LIMIT OLDER_THAN_S``. What counts as one is what a cleanup may remove as a rotated log.
"""

from __future__ import annotations

import os
import time

from .describe import BLOCK, described
from .removable import is_removable, siblings_of
from .rows import write_row
from .walk import Skipped, join, walk

KINDS = frozenset({"rotated_logs"})


def main(argv: list[str]) -> int:
    """Print one row a log, then a total row."""
    root, limit, before = int(argv[0]), int(argv[1]), time.time() - int(argv[2])
    root_name = os.fsencode(os.readlink(f"/proc/self/fd/{root}")).rpartition(b"/")[2]  # noqa: PTH115 - see kernel
    skipped = Skipped()
    found: list[tuple[float, bytes, os.stat_result]] = []
    for folder in walk(root, skipped):
        beside = siblings_of(name for name, _status in folder.files)
        within = (root_name, *folder.path.split(b"/")) if folder.path else (root_name,)
        found += [
            (status.st_mtime, join(folder.path, name), status)
            for name, status in folder.files
            if status.st_mtime <= before and is_removable(name, within, beside, KINDS)
        ]
    found.sort(key=lambda entry: entry[:2])
    for _time, path, status in found[:limit]:
        write_row(described(path, status))
    taken = sum(status.st_blocks * BLOCK for _time, _path, status in found)
    write_row({"total": True, "files": len(found), "disk_bytes": taken, "folders_skipped": skipped.total()})
    return os.EX_OK
