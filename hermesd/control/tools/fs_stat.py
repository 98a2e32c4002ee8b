"""Shows what one path is: kind, size, owner, mode, times, names. Called as ``FD``."""

from __future__ import annotations

import os

from .describe import described
from .rows import iso_time, write_row


def main(argv: list[str]) -> int:
    """Print one row."""
    status = os.fstat(int(argv[0]))
    write_row(
        {
            **described(b"", status),
            "names": status.st_nlink,
            "inode": status.st_ino,
            "device": f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}",
            "changed": iso_time(status.st_ctime),
            "read": iso_time(status.st_atime),
        }
    )
    return os.EX_OK
