"""What can be measured of the host, one name at a time, in a process that may hang and be killed.

A name is one of `WHOLE`, `filesystem:PATH` or `folder:PATH`; the answer is plain numbers and words.
Everything here may block for ever (a dead NFS server, a broken disk), so it must never be called in
the agent's own process.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from typing import Final

from hermesd.sources import kernel

Facts = dict[str, float | int | bool | str]

FOLDER_ENTRIES: Final = 500_000
"""A walk that met so many entries stops: its sum is then a lower bound (``complete`` is false)."""

FOLDER_SHARE: Final = 0.8
"""The part of its time that a walk uses, so that it answers before it is taken for stuck."""

_CLOCK_EVERY: Final = 256
_BLOCK_BYTES: Final = 512  # st_blocks counts these, whatever the file system's own blocks are


def prepare() -> None:
    """Load what measuring needs, once, in the process that workers are forked from."""
    import psutil  # noqa: F401, PLC0415 - the agent's own process never needs it


def measure(name: str, seconds: float) -> Facts:
    """Measure one name. Raise OSError when the host refuses, ValueError for a name that is none."""
    kind, _, path = name.partition(":")
    if kind == "filesystem":
        return filesystem(path)
    if kind == "folder":
        return folder(path, seconds * FOLDER_SHARE)
    if name in WHOLE:
        return WHOLE[name]()
    raise ValueError("there is no such measure")


def filesystem(path: str) -> Facts:
    """Return size, used and available bytes, the percent in use, and the inodes.

    The percent is what `df` rounds up to whole numbers: used / (used + available to users). A path
    that is not a folder, or a file system without blocks, has a size of 0.
    """
    if not stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116 - pathlib costs an import in every worker
        return {"size_bytes": 0, "used_bytes": 0, "available_bytes": 0, "percent": 0.0, "inodes": 0}
    found = os.statvfs(path)
    used, available = found.f_blocks - found.f_bfree, found.f_bavail
    return {
        "inodes": found.f_files,
        "inodes_free": found.f_favail,
        "size_bytes": found.f_blocks * found.f_frsize,
        "used_bytes": used * found.f_frsize,
        "available_bytes": available * found.f_frsize,
        "percent": 100.0 * used / (used + available) if used + available else 0.0,
    }


def folder(path: str, seconds: float, most_entries: int = FOLDER_ENTRIES) -> Facts:
    """Return the bytes that the folder takes, as `du -x` counts them.

    Links are not followed, other file systems not entered, and a file with several names counts
    once. ``unreadable`` counts folders that could not be listed: their contents are not in the sum.
    """
    walk = _Walk(time.monotonic() + seconds, most_entries)
    top = os.lstat(path)
    walk.add(top)
    pending = [path]
    while pending and walk.complete:
        pending.extend(walk.visit(pending.pop(), top.st_dev))
    return {
        "used_bytes": walk.used_bytes,
        "entries": walk.entries,
        "unreadable": walk.unreadable,
        "complete": walk.complete,
    }


class _Walk:
    def __init__(self, deadline: float, most_entries: int) -> None:
        self.used_bytes = 0
        self.entries = 0
        self.unreadable = 0
        self.complete = True
        self._deadline = deadline
        self._most_entries = most_entries
        self._seen: set[tuple[int, int]] = set()

    def visit(self, path: str, device: int) -> list[str]:
        """Count the entries of one folder; return the folders among them."""
        inside: list[str] = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if self._is_over():
                        break
                    if self._count(entry, device):
                        inside.append(entry.path)
        except FileNotFoundError:
            pass  # it was removed meanwhile: nothing is missing from the sum
        except OSError:
            self.unreadable += 1
        return inside

    def add(self, found: os.stat_result) -> None:
        """Add what an inode takes, once."""
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            key = (found.st_dev, found.st_ino)
            if key in self._seen:
                return
            self._seen.add(key)
        self.used_bytes += found.st_blocks * _BLOCK_BYTES

    def _count(self, entry: os.DirEntry[str], device: int) -> bool:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        if found.st_dev != device:
            return False
        self.add(found)
        return stat.S_ISDIR(found.st_mode)

    def _is_over(self) -> bool:
        self.entries += 1
        late = self.entries % _CLOCK_EVERY == 0 and time.monotonic() > self._deadline
        self.complete = self.complete and not late and self.entries <= self._most_entries
        return not self.complete


def memory() -> Facts:
    """Return the percent of memory that is not available to programs (caches count as available)."""
    import psutil  # noqa: PLC0415 - see prepare

    found = psutil.virtual_memory()
    used = found.total - found.available
    return {
        "size_bytes": found.total,
        "used_bytes": used,
        "available_bytes": found.available,
        "percent": 100.0 * used / found.total if found.total else 0.0,
    }


def swap() -> Facts:
    """Return how full the swap is. A host without swap has a size of 0."""
    import psutil  # noqa: PLC0415 - see prepare

    found = psutil.swap_memory()
    return {
        "size_bytes": found.total,
        "used_bytes": found.used,
        "available_bytes": found.free,
        "percent": 100.0 * found.used / found.total if found.total else 0.0,
    }


def load() -> Facts:
    """Return the load average over one minute, and as a percent of the processors."""
    one, five, fifteen = os.getloadavg()
    processors = os.cpu_count() or 1
    return {
        "one": one,
        "five": five,
        "fifteen": fifteen,
        "processors": processors,
        "percent": 100.0 * one / processors,
    }


WHOLE: Final[dict[str, Callable[[], Facts]]] = {
    "memory": memory,
    "swap": swap,
    "load": load,
    "cpu": kernel.cpu,
    "pressure": kernel.pressure,
    "descriptors": kernel.descriptors,
    "zombies": kernel.zombies,
    "oom": kernel.oom,
    "temperature": kernel.temperature,
    "clock": kernel.clock,
}
"""The names that stand for the whole host."""
