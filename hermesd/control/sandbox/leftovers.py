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

from hermesd.control.sandbox.supply import INTERPRETER

_MARK: Final = "hermesd.instance="


def mark(instance: str) -> str:
    """Return the argv element that names an instance."""
    return f"{_MARK}{instance}"


def end(of: str, uid: int, spared: Collection[int]) -> int:
    """Kill stubs of ``uid`` that carry the mark ``of``, but for ``spared``; return how many.

    With its first process a container ends: all of it is in a process namespace of its own.
    """
    return sum(_kill(pid, of) for pid in _processes(uid) if pid not in spared)


def _processes(uid: int) -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if _uid(int(entry.name)) == uid:
                yield int(entry.name)


def _uid(pid: int) -> int:
    """Return a process's real uid; its folder in /proc belongs to root while it hides its memory."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return -1


def _kill(pid: int, of: str) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        argv = _read(pid, "cmdline").split(b"\0")
        if argv[0] != INTERPRETER.encode() or of.encode() not in argv:
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()
