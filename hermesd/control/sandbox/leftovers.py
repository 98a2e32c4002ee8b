"""What a former life left running: found by our mark, ended through process descriptors.

Every container's first process carries the mark of its instance in its argv. Only processes of
the containers' own uid are looked at, and never one that this life started. Blocking: callers use
a thread. This module must never signal a process that it has not looked at through a descriptor.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

_MARK: Final = "hermesd.instance="
_ROUNDS: Final = 20


def mark(instance: str) -> str:
    """Return the argv element that names an instance."""
    return f"{_MARK}{instance}"


def end(of: str, uid: int, spared: Collection[int]) -> int:
    """Kill processes of ``uid`` that carry the mark ``of``, but for ``spared``; return how many."""
    return sum(_kill(pid, of) for pid in _processes(uid) if pid not in spared and not _descends(pid, spared))


def namespace_of(pid: int) -> str:
    """Return the name of a process's mount namespace; "" when it may not be asked."""
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return ""


def end_namespace(name: str) -> None:
    """Kill every process in a mount namespace, again while new ones appear, bounded."""
    for _ in range(_ROUNDS):
        found = [pid for pid in _processes() if name and namespace_of(pid) == name]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _processes(uid: int | None = None) -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if uid is None or _uid(int(entry.name)) == uid:
                yield int(entry.name)


def _uid(pid: int) -> int:
    """Return a process's real uid; its folder in /proc belongs to root while it hides its memory."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return -1


def _descends(pid: int, ancestors: Collection[int]) -> bool:
    with contextlib.suppress(OSError, IndexError, ValueError):
        while pid > 1:
            pid = int(_read(pid, "stat").rpartition(b")")[2].split()[1])
            if pid in ancestors:
                return True
    return False


def _kill(pid: int, of: str) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if of.encode() not in _read(pid, "cmdline").split(b"\0"):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()
