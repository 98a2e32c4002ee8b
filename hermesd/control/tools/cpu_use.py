"""Measures for one second what the host's processors do.

Called without arguments. One row for all processors together, then one for each, in percent.
"""

from __future__ import annotations

import os
import time

from .kernel import read
from .rows import write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

SECONDS = 1.0
_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def main(_argv: list[str]) -> int:
    """Print the rows."""
    before = parse(read("/proc/stat"))
    time.sleep(SECONDS)
    after = parse(read("/proc/stat"))
    for name, counters in after.items():
        row = share(before.get(name, counters), counters)
        if row:
            write_row({"cpu": "all" if name == "cpu" else name.removeprefix("cpu"), **row})
    return os.EX_OK


def parse(text: str) -> dict[str, list[int]]:
    """Return the counters of each processor from the text of /proc/stat; `cpu` is their sum."""
    lines = (line.split() for line in text.splitlines() if line.startswith("cpu"))
    return {parts[0]: [int(part) for part in parts[1 : 1 + len(_KINDS)]] for parts in lines}


def share(before: list[int], after: list[int]) -> dict[str, Value]:
    """Return the percent of each kind between two readings; {} when no time went by."""
    spent = [max(0, new - old) for old, new in zip(before, after, strict=True)]
    whole = sum(spent)
    if not whole:
        return {}
    percent = {name: round(100 * ticks / whole, 1) for name, ticks in zip(_KINDS, spent, strict=False)}
    busy = round(100 - percent["idle"] - percent.get("iowait", 0), 1)
    return {"busy_percent": busy, **{f"{name}_percent": value for name, value in percent.items()}}
