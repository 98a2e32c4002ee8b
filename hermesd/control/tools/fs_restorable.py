"""Lists what of a quarantine's folder can be put back, and puts nothing back.

Called as ``KEPT_FD ROOT_FD``. Prints a manifest of the copies, each with the path that its file had: what is
confirmed and put back later are exactly these. A file whose name is taken, or whose folder is gone, is
not among them.
"""

from __future__ import annotations

import os
import stat
import sys

from .fs_remove import open_folder
from .fs_restore import taken
from .kept_file import Kept, read_folder
from .manifest_file import record_of, write_record


def main(argv: list[str]) -> int:
    """Print one record a file. Exit 1 when the folder is not this user's, or cannot be read."""
    folder, root = int(argv[0]), int(argv[1])
    status = os.fstat(folder)
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        sys.stderr.write("what was set aside belongs to another user: nothing is put back from it\n")
        return 1
    try:
        known = read_folder(folder)
    except OSError as error:
        sys.stderr.write(f"what was set aside cannot be read: {error.strerror}\n")
        return 1
    for kept in known.values():
        copy = _copy_of(folder, kept)
        if copy is not None and is_free(root, kept.path):
            sys.stdout.buffer.write(write_record(record_of(kept.path, copy)))
    sys.stdout.buffer.flush()
    return os.EX_OK


def _copy_of(folder: int, kept: Kept) -> os.stat_result | None:
    """Return the status of an entry's copy; None when it is gone, or not what was written."""
    try:
        status = os.stat(kept.name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    whole = stat.S_ISREG(status.st_mode) and status.st_size == kept.size
    return status if whole else None


def is_free(root: int, path: bytes) -> bool:
    """Say whether a path leads, through no link, into a folder that has nothing of that name."""
    try:
        folder, name = open_folder(root, path)
    except OSError:
        return False
    try:
        return not taken(folder, name)
    finally:
        os.close(folder)
