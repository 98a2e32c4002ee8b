"""Lists what a cleanup would remove beneath a folder, and removes nothing.

Called as ``FD KINDS OLDER_THAN_S``; KINDS are names of `removable.KINDS` with commas between. Prints a
manifest: what is confirmed and removed later are exactly these records.
"""

from __future__ import annotations

import os
import sys
import time

from .manifest_file import MAX_ENTRIES, record_of, write_record
from .removable import KINDS, is_removable, siblings_of
from .walk import Folder, Skipped, join, walk


def main(argv: list[str]) -> int:
    """Print one record a file. Exit 64 for a wrong argument, 4 when there are more than fit a manifest."""
    root, kinds, older = int(argv[0]), frozenset(argv[1].split(",")), int(argv[2])
    if not kinds <= frozenset(KINDS):
        sys.stderr.write(f"the kinds are {', '.join(KINDS)}\n")
        return os.EX_USAGE
    before = time.time() - older
    root_name = os.fsencode(os.readlink(f"/proc/self/fd/{root}")).rpartition(b"/")[2]  # noqa: PTH115 - see rows
    entries = 0
    for folder in walk(root, Skipped()):
        for record in _records(folder, root_name, kinds, before):
            entries += 1
            if entries > MAX_ENTRIES:
                sys.stderr.write(f"more than {MAX_ENTRIES} files: name a smaller folder\n")
                return 4
            sys.stdout.buffer.write(record)
    sys.stdout.buffer.flush()
    return os.EX_OK


def _records(folder: Folder, root_name: bytes, kinds: frozenset[str], before: float) -> list[bytes]:
    beside = siblings_of(name for name, _status in folder.files)
    folders = (root_name, *folder.path.split(b"/")) if folder.path else (root_name,)
    return [
        write_record(record_of(join(folder.path, name), status))
        for name, status in folder.files
        if status.st_nlink == 1
        and status.st_mtime <= before
        and is_removable(name, folders, beside, kinds)
        and not _is_database(folder.fd, name)
    ]


def _is_database(folder: int, name: bytes) -> bool:
    """Say whether a file is an SQLite database whatever its name; what cannot be read is judged by name."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        return os.read(fd, 16) == b"SQLite format 3\0"
    except OSError:
        return False
    finally:
        os.close(fd)
