"""Lists the processes that use most: names and figures, never arguments, which carry secrets.

Called as ``LIMIT SORT`` with SORT `memory` or `cpu`, where the host's processes can be seen.
"""

from __future__ import annotations

import os
import sys

from .rows import write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

SORTS = {"memory": "rss_bytes", "cpu": "cpu_seconds"}


def main(argv: list[str]) -> int:
    """Print one row a process, first what uses most."""
    limit, key = int(argv[0]), SORTS.get(argv[1])
    own = int(os.readlink("/proc/self"))  # noqa: PTH115 - not getpid: these are the host's numbers
    if key is None:
        sys.stderr.write(f"sorted by {' or '.join(SORTS)}\n")
        return os.EX_USAGE
    rows = [row for pid in _pids() if pid != own and (row := _row(pid))]
    rows.sort(key=lambda row: (-_figure(row[key]), _figure(row["pid"])))
    for row in rows[:limit]:
        write_row(row)
    return os.EX_OK


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib costs more than the rest


def _row(pid: int) -> dict[str, Value] | None:
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:  # it ended meanwhile
        return None
    return parse_stat(text, float(_read("/proc/uptime").split()[0]))


def parse_stat(text: str, uptime: float) -> dict[str, Value]:
    """Return a row from the text of /proc/PID/stat; a name may hold blanks and parentheses."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    ticks = os.sysconf("SC_CLK_TCK")
    return {
        "pid": int(pid),
        "name": name,
        "rss_bytes": int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        "cpu_seconds": round((int(fields[11]) + int(fields[12])) / ticks, 2),
        "state": fields[0],
        "age_s": max(0, round(uptime - int(fields[19]) / ticks)),
    }


def _figure(value: Value) -> float:
    return value if isinstance(value, int | float) else 0


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123 - pathlib costs as much as the rest
        return file.read()
