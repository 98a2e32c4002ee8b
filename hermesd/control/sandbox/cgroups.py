"""Limits on a container as a whole, where systemd has delegated a cgroup (v2) to this process.

With `Delegate=yes` the unit's own cgroup is ours: this process moves into a leaf of it, and each
container gets a child with its memory and its processes bounded, which also ends it as one. Without,
limits hold for each process alone, and `degraded` says so. This module must never touch a cgroup
outside its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from hermesd.control.sandbox.base import Profile

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN_LEAF: Final = "executor"
_PREFIX: Final = "container-"
_NEEDED: Final = frozenset({"memory", "pids"})
_PER_PROCESS: Final = (
    "memory is bounded for each process of a container, not for their sum "
    "(no delegated cgroup v2: run as a unit with Delegate=yes)"
)
_SPARE_MB: Final = 32
"""What the stub and the page cache of its start need beside the command."""


def marked_delegated(path: Path) -> bool:
    """Say whether systemd has handed a cgroup over: only then are its other processes ours to move."""
    try:
        return os.getxattr(path, "user.delegate") == b"1"
    except OSError:
        return False


class Groups:
    """The delegated cgroup, or nothing: then containers get none."""

    def __init__(self, base: Path | None) -> None:
        self._base = base
        self._prefix = f"{_PREFIX}{os.getpid()}-"

    @classmethod
    def find(
        cls,
        root: Path = _ROOT,
        own: Path = Path("/proc/self/cgroup"),
        is_handed_over: Callable[[Path], bool] = marked_delegated,
    ) -> Self:
        """Take the delegated cgroup of this process into use, if there is one."""
        try:
            base = delegated(root, own.read_text(), is_handed_over)
            if base is not None:
                _prepare(base)
        except OSError:
            base = None
        return cls(base)

    def degraded(self) -> tuple[str, ...]:
        """Return which promises are kept by weaker means, in words for `status`."""
        if self._base is not None:
            return ()
        return (_PER_PROCESS,)

    def create(self, pid: int, profile: Profile) -> Group | None:
        """Put a container's first process into a cgroup of its own."""
        if self._base is None:
            return None
        group = Group(self._base / f"{self._prefix}{pid}")
        group.fill(pid, profile)
        return group

    def sweep(self) -> int:
        """End the containers of a former life; return how many groups still held something."""
        if self._base is None:
            return 0
        old = [path for path in self._base.glob(f"{_PREFIX}*") if not path.name.startswith(self._prefix)]
        return sum(Group(path).end() for path in old)


class Group:
    """One container's cgroup."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fill(self, pid: int, profile: Profile) -> None:
        """Create it, set its limits, and put the process in."""
        self._path.mkdir()
        limit = (profile.memory_mb + profile.tmp_mb + _SPARE_MB) << 20
        (self._path / "memory.max").write_text(str(limit))
        (self._path / "pids.max").write_text(str(profile.pids + 1))
        with contextlib.suppress(OSError):  # absent without swap
            (self._path / "memory.swap.max").write_text("0")
        (self._path / "cgroup.procs").write_text(str(pid))

    def end(self) -> bool:
        """Kill whatever is in it and remove it; True when it held something."""
        try:
            held = bool((self._path / "cgroup.procs").read_text().strip())
            (self._path / "cgroup.kill").write_text("1")
            self._path.rmdir()
        except OSError:  # its processes are still ending: the next sweep removes it
            return True
        return held


def delegated(root: Path, own: str, is_handed_over: Callable[[Path], bool] = marked_delegated) -> Path | None:
    """Return this process's cgroup when it is v2, handed over to us, and may bound memory and pids."""
    name = next((line[3:] for line in own.splitlines() if line.startswith("0::/")), "")
    if not name or name == "/" or not (root / "cgroup.controllers").exists():
        return None
    base = root / name.lstrip("/")
    if base.name == _OWN_LEAF:
        base = base.parent
    usable = set((base / "cgroup.controllers").read_text().split()) >= _NEEDED
    ours = is_handed_over(base) and os.access(base / "cgroup.subtree_control", os.W_OK)
    return base if usable and ours else None


def _prepare(base: Path) -> None:
    """Move every process of the group into a leaf: only then may the group have controlled children."""
    leaf = base / _OWN_LEAF
    leaf.mkdir(exist_ok=True)
    for pid in (base / "cgroup.procs").read_text().split():
        (leaf / "cgroup.procs").write_text(pid)
    (base / "cgroup.subtree_control").write_text("+memory +pids")
