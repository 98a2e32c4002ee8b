"""The executor's one door to the host's names: paths by descriptor, users and groups by number.

Everything here only looks. It must never write, start or change anything.
"""

from __future__ import annotations

import ctypes
import errno
import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

from hermesd.control.sandbox.base import PathUse, Resolved

_SYS_OPENAT2: Final = 437
_RESOLVE_NO_XDEV: Final = 0x01
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_STAND_INS: Final = ("/usr", "/mnt", "/media", "/srv", "/opt")


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def look(use: PathUse) -> Resolved | None:
    """Return what lies at the path now, opened beneath its root without links; None when nothing may."""
    try:
        root_fd = os.open(use.root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fd = _openat2(root_fd, use.beneath) if use.beneath else os.dup(root_fd)
    except OSError:
        return None
    finally:
        os.close(root_fd)
    try:
        found = os.fstat(fd)
        return Resolved(found.st_dev, found.st_ino, found.st_mode)
    finally:
        os.close(fd)


def _openat2(root_fd: int, path: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    how = _OpenHow(
        os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC,
        0,
        _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_XDEV,
    )
    fd: int = libc.syscall(
        ctypes.c_long(_SYS_OPENAT2), root_fd, path, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
    )
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code) if code else errno.errorcode[errno.EINVAL])
    return fd


def stand_in(path: str) -> str | None:
    """Return a folder on the file system of ``path`` that may be mounted in its place."""
    try:
        wanted = Path(path).stat().st_dev
    except OSError:
        return None
    for folder in _STAND_INS:
        try:
            if Path(folder).lstat().st_dev == wanted:
                return folder
        except OSError:
            continue
    return None


def is_folder(path: str) -> bool:
    """Say whether a folder is there, without following a link to it."""
    try:
        return stat.S_ISDIR(Path(path).lstat().st_mode)
    except OSError:
        return False


def is_file(path: str) -> bool:
    """Say whether a regular file is there, without following a link to it."""
    try:
        return stat.S_ISREG(Path(path).lstat().st_mode)
    except OSError:
        return False


def user_id(name: str) -> int | None:
    """Return a user's number; ``name`` may be a number already. None when there is no such user."""
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def group_id(name: str) -> int | None:
    """Return a group's number; None when there is no such group on this host."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def groups_of(uid: int, gid: int) -> frozenset[int]:
    """Return every group of a user, as the host's databases give them."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return frozenset({gid})
    return frozenset(os.getgrouplist(name, gid))


def group_names(uid: int) -> frozenset[str]:
    """Return the names of a user's groups; none for a user that the host does not know."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return frozenset()
    names = set()
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return frozenset(names)
