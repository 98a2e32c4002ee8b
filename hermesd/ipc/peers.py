"""The socket's two ends as the kernel knows them: where a server listens, and who has connected.

This module must never trust a path or a peer beyond what the kernel says of it.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_UCRED: Final = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, as the kernel says (SO_PEERCRED at connection time)."""

    pid: int
    uid: int
    gid: int


def peer_of(sock: Any) -> Peer:
    """Return who is at the other end of a connected Unix socket, from the kernel."""
    pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid, gid)


def _is_answered(path: Path) -> bool:
    """Say whether somebody listens at the socket. One that a dead process left refuses connections."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def bind(path: Path, mode: int, group: int) -> socket.socket:
    """Return a listening socket at ``path``. A stale socket is replaced; anything else is refused.

    Raise OSError: FileExistsError when something that is not a socket (a link too) stands there, or
    a socket at which somebody still listens.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        found = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISSOCK(found.st_mode):
            raise FileExistsError(f"{path} exists and is not a socket")
        if _is_answered(path):
            raise FileExistsError(f"{path}: another process listens there")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind_closed(listener, path)
        if group >= 0:
            os.chown(path, -1, group, follow_symlinks=False)
        path.chmod(mode)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _bind_closed(listener: socket.socket, path: Path) -> None:
    """Bind so that nobody else may connect before owner and mode are what they must be."""
    old_mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(old_mask)
