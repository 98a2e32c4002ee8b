"""Lists what lies directly in a folder, links as links. Called as ``FD LIMIT SORT``."""

from __future__ import annotations

import os
import sys

from .describe import described
from .rows import write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Callable

SORTS: dict[str, Callable[[tuple[bytes, os.stat_result]], tuple[float, bytes]]] = {
    "name": lambda entry: (0, entry[0]),
    "size": lambda entry: (-entry[1].st_size, entry[0]),
    "newest": lambda entry: (-entry[1].st_mtime, entry[0]),
}
_MOST = 100_000


def main(argv: list[str]) -> int:
    """Print one row an entry, then a total row."""
    root, limit, sort = int(argv[0]), int(argv[1]), SORTS.get(argv[2])
    if sort is None:
        sys.stderr.write(f"sorted by {', '.join(SORTS)}\n")
        return os.EX_USAGE
    try:
        names = os.listdir(root)
    except OSError as error:
        sys.stderr.write(f"cannot be listed: {error.strerror}\n")
        return 1
    entries = []
    for name in names[:_MOST]:
        try:
            entries.append((os.fsencode(name), os.stat(name, dir_fd=root, follow_symlinks=False)))
        except OSError:  # it is gone
            continue
    for entry in sorted(entries, key=sort)[:limit]:
        write_row(described(*entry))
    write_row(
        {"total": True, "entries": len(names), "size_bytes": sum(status.st_size for _, status in entries)}
    )
    return os.EX_OK
