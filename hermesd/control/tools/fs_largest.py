"""Lists the largest regular files beneath a folder, and what all of them hold together.

Called as ``FD LIMIT``. Ranked by what a file takes on disk: a sparse file of a terabyte that takes
nothing does not fill a disk. Memory is bounded by LIMIT and by the number of hard-linked files.
"""

from __future__ import annotations

import heapq
import os

from .rows import iso_time, path_fields, write_row
from .walk import Skipped, join, regular_files

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

BLOCK = 512  # st_blocks counts in this unit whatever the file system's own is


def main(argv: list[str]) -> int:
    """Print one row a file, largest first, then a total row; nothing when there is no file."""
    root, limit = int(argv[0]), int(argv[1])
    skipped = Skipped()
    largest: list[tuple[int, bytes, int, float]] = []
    linked: set[int] = set()
    files = size = disk = 0
    for folder, name, status in regular_files(root, skipped):
        if status.st_nlink > 1:
            if status.st_ino in linked:
                continue  # another name of a file that was counted
            linked.add(status.st_ino)
        files, size, disk = files + 1, size + status.st_size, disk + status.st_blocks * BLOCK
        entry = (status.st_blocks * BLOCK, join(folder.path, name), status.st_size, status.st_mtime)
        if len(largest) < limit:
            heapq.heappush(largest, entry)
        else:
            heapq.heappushpop(largest, entry)
    for taken, path, length, changed in sorted(largest, key=_by_size):
        write_row(
            {**path_fields(path), "size_bytes": length, "disk_bytes": taken, "mtime": iso_time(changed)}
        )
    if files:
        write_row(_total(files, size, disk, skipped))
    return os.EX_OK


def _by_size(entry: tuple[int, bytes, int, float]) -> tuple[int, bytes]:
    return -entry[0], entry[1]


def _total(files: int, size: int, disk: int, skipped: Skipped) -> dict[str, Value]:
    return {
        "total": True,
        "files": files,
        "size_bytes": size,
        "disk_bytes": disk,
        "folders_skipped": skipped.total(),
    }
