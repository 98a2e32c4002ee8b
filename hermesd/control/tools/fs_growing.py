"""Lists the largest files that were written to lately: what is growing now.

Called as ``FD LIMIT WITHIN_S``.
"""

from __future__ import annotations

import heapq
import os
import time

from .describe import BLOCK, described
from .rows import write_row
from .walk import Skipped, join, regular_files


def main(argv: list[str]) -> int:
    """Print one row a file, largest first, then a total row."""
    root, limit, since = int(argv[0]), int(argv[1]), time.time() - int(argv[2])
    skipped = Skipped()
    largest: list[tuple[int, bytes, os.stat_result]] = []
    files = taken = 0
    for folder, name, status in regular_files(root, skipped):
        if status.st_mtime < since:
            continue
        files, taken = files + 1, taken + status.st_blocks * BLOCK
        entry = (status.st_blocks, join(folder.path, name), status)
        if len(largest) < limit:
            heapq.heappush(largest, entry)
        else:
            heapq.heappushpop(largest, entry)
    for _blocks, path, status in sorted(largest, key=lambda entry: (-entry[0], entry[1])):
        write_row(described(path, status))
    write_row({"total": True, "files": files, "disk_bytes": taken, "folders_skipped": skipped.total()})
    return os.EX_OK
