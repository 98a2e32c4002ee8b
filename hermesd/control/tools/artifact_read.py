"""Prints a range of an output that was kept. Called as ``FD OFFSET LENGTH``, both in bytes."""

from __future__ import annotations

import os
import sys


def main(argv: list[str]) -> int:
    """Print the range, cut to whole characters; exit 1 when it begins beyond the end."""
    fd, offset, length = int(argv[0]), int(argv[1]), int(argv[2])
    size = os.fstat(fd).st_size
    if offset >= size:
        sys.stderr.write(f"the output has {size} bytes\n")
        return 1
    data = os.pread(fd, length, offset)
    sys.stdout.buffer.write(data.decode("utf-8", "ignore").encode())
    sys.stdout.buffer.flush()
    return os.EX_OK
