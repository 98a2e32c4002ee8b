"""Prints lines of one text file, numbered by where they are asked from. Called as ``FD FROM LINES``.

What is no text is not printed. Secrets are taken out by the executor, before anything leaves it.
"""

from __future__ import annotations

import os
import stat
import sys

_MOST = 4 << 20


def main(argv: list[str]) -> int:
    """Print the lines; exit 1 for what is no text file or cannot be read."""
    fd, first, count = int(argv[0]), int(argv[1]), int(argv[2])
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return _sorry("is a folder, not a file")
        data = os.pread(fd, _MOST, 0)
    except OSError as error:
        return _sorry(error.strerror or "cannot be read")
    if b"\0" in data:
        return _sorry("is not a text")
    lines = data.decode("utf-8", "backslashreplace").splitlines()
    for line in lines[first - 1 : first - 1 + count]:
        sys.stdout.write(f"{line}\n")
    if first > max(1, len(lines)):
        return _sorry(f"has only {len(lines)} lines")
    return os.EX_OK


def _sorry(why: str) -> int:
    sys.stderr.write(f"the file {why}\n")
    return 1
