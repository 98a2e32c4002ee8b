"""Shows how long tasks waited for processor, memory and disk: the kernel's pressure figures, host-wide.

Called without arguments. `some` is the share of time in which at least one task waited, `full` in which
all did.
"""

from __future__ import annotations

import os
import sys

from .kernel import read_or
from .rows import write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

RESOURCES = ("cpu", "memory", "io")


def main(_argv: list[str]) -> int:
    """Print one row a resource; exit 1 where the kernel does not count pressure."""
    rows = [row for name in RESOURCES if (row := parse(name, read_or(f"/proc/pressure/{name}")))]
    for row in rows:
        write_row(row)
    if not rows:
        sys.stderr.write("this kernel does not count pressure\n")
        return 1
    return os.EX_OK


def parse(resource: str, text: str) -> dict[str, Value]:
    """Return a row of one resource's text, in percent of the last 10, 60 and 300 s; {} of no text."""
    row: dict[str, Value] = {}
    for line in text.splitlines():
        kind, *pairs = line.split()
        for name, _, value in (pair.partition("=") for pair in pairs):
            if name.startswith("avg"):
                row[f"{kind}_{name.removeprefix('avg')}s_percent"] = float(value)
    return {"resource": resource, **row} if row else {}
