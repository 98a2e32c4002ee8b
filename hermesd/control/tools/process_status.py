"""Shows one process: state, owner, memory, threads, unit and limits; never its arguments or environment.

Called as ``PID`` where the host's processes can be seen.
"""

from __future__ import annotations

import os
import sys

from .kernel import fields, read, read_or, whose
from .process_top import parse_stat
from .rows import write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

_LIMITS = {
    "Max open files": "open_files",
    "Max processes": "processes",
    "Max locked memory": "locked_memory_bytes",
    "Max address space": "address_space_bytes",
    "Max core file size": "core_bytes",
}
_SIZES = {"VmRSS": "rss_bytes", "VmPeak": "peak_bytes", "VmSwap": "swap_bytes", "RssShmem": "shared_bytes"}
_WIDTH = 26


def main(argv: list[str]) -> int:
    """Print one row; exit 1 when there is no such process."""
    pid = int(argv[0])
    try:
        stat, status = read(f"/proc/{pid}/stat"), read(f"/proc/{pid}/status")
    except OSError:
        sys.stderr.write(f"there is no process {pid}\n")
        return 1
    row = parse_stat(stat, float(read("/proc/uptime").split()[0]))
    row |= {**from_status(status), **limits(read_or(f"/proc/{pid}/limits"))}
    row["open_files"] = _open_files(pid)
    row["unit"] = unit(read_or(f"/proc/{pid}/cgroup"))
    write_row(row)
    return os.EX_OK


def from_status(text: str) -> dict[str, Value]:
    """Return what /proc/PID/status adds; sizes in bytes."""
    found = fields(text)
    sizes = {
        name: int(found[key].split()[0]) * 1024
        for key, name in _SIZES.items()
        if found.get(key, "").endswith("kB")
    }
    return {
        "parent": int(found.get("PPid", "0")),
        "uid": whose(int(found.get("Uid", "0").split()[0])),
        "threads": int(found.get("Threads", "0")),
        "no_new_privileges": found.get("NoNewPrivs") == "1",
        **sizes,
    }


def limits(text: str) -> dict[str, Value]:
    """Return the soft limits that are of interest, `limit_NAME`; None where there is none."""
    found: dict[str, Value] = {}
    for line in text.splitlines():
        name = _LIMITS.get(line[:_WIDTH].strip())
        soft = line[_WIDTH:].split()[:1]
        if name and soft:
            found[f"limit_{name}"] = int(soft[0]) if soft[0].isdigit() else None
    return found


def unit(text: str) -> str:
    """Return the systemd unit that a process belongs to, from the text of /proc/PID/cgroup; "" without."""
    ends = (".service", ".scope", ".slice")
    names = [part for line in text.splitlines() for part in line.rpartition(":")[2].split("/")]
    return next((name for name in reversed(names) if name.endswith(ends)), "")


def _open_files(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - see kernel
    except OSError:
        return None  # another user's
