"""Prints the named files that are there, each beneath its name. Called with their paths.

The container holds exactly the files that the command's definition names, at their own places.
"""

from __future__ import annotations

import os
import sys

from .kernel import read_or


def main(argv: list[str]) -> int:
    """Print them; exit 1 when none is there."""
    texts = [(path, read_or(path)) for path in argv if os.access(path, os.R_OK)]
    for path, text in texts:
        sys.stdout.write(f"# {path}\n{text.rstrip()}\n")
    if not texts:
        sys.stderr.write("none of the files is there\n")
        return 1
    return os.EX_OK
