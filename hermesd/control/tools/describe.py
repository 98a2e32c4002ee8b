"""A file's or folder's status as a row: what several tools say of it."""

from __future__ import annotations

import os
import stat

from .kernel import whose
from .rows import iso_time, path_fields

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

BLOCK = 512
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def described(path: bytes, status: os.stat_result) -> dict[str, Value]:
    """Return the row."""
    return {
        **path_fields(path),
        "kind": _KINDS.get(stat.S_IFMT(status.st_mode), "other"),
        "size_bytes": status.st_size,
        "disk_bytes": status.st_blocks * BLOCK,
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "uid": whose(status.st_uid),
        "gid": whose(status.st_gid),
        "mtime": iso_time(status.st_mtime),
    }
