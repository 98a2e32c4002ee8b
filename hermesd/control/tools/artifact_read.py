"""Prints a range of an output that was kept. Called as ``FD OFFSET LENGTH``, both in bytes.

An answer has 200 lines at most, so that is where a range ends too; its last line says where it goes on.
"""

from __future__ import annotations

import os
import sys

MOST_LINES = 199


def main(argv: list[str]) -> int:
    """Print the range, cut to whole characters and 199 lines; exit 1 when it begins beyond the end."""
    fd, offset, length = int(argv[0]), int(argv[1]), int(argv[2])
    size = os.fstat(fd).st_size
    if offset >= size:
        sys.stderr.write(f"the output has {size} bytes\n")
        return 1
    text = os.pread(fd, length, offset).decode("utf-8", "ignore")
    shown = "".join(text.splitlines(keepends=True)[:MOST_LINES]).encode()
    sys.stdout.buffer.write(shown)
    if left := size - offset - len(shown):
        ended = b"" if shown.endswith(b"\n") else b"\n"
        sys.stdout.buffer.write(
            ended + b"[%d more bytes, read on with offset=%d]\n" % (left, offset + len(shown))
        )
    sys.stdout.buffer.flush()
    return os.EX_OK
