"""The executor's one door to the host's names: paths by descriptor, users and groups by number.

Everything here only looks, but for one thing: a folder of the quarantine that has outlived its time is
removed. It must never start anything.
"""

from __future__ import annotations

import ctypes
import errno
import grp
import os
import pwd
import stat
from dataclasses import dataclass
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
        if code == errno.ENOSYS:
            return _open_by_steps(root_fd, path)
        raise OSError(code, os.strerror(code) if code else errno.errorcode[errno.EINVAL])
    return fd


def _open_by_steps(root_fd: int, path: bytes) -> int:
    """Do as `openat2` where a unit forbids it or the kernel is too old; as the container's stub does."""
    device = os.fstat(root_fd).st_dev
    fd = os.dup(root_fd)
    for part in path.split(b"/"):
        try:
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
        found = os.fstat(fd)
        if part in (b"", b".", b"..") or stat.S_ISLNK(found.st_mode) or found.st_dev != device:
            os.close(fd)
            raise OSError(errno.EXDEV, "leads through a link or into another mount")
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


@dataclass(frozen=True, slots=True)
class Room:
    """A folder and its file system. ``fault``: why no container could keep anything safe in it."""

    dev: int
    free_bytes: int
    space: tuple[int, int]
    fault: str = ""

    def shares_space_with(self, other: Room) -> bool:
        """Say whether both take from one space: one file system, or two subvolumes of one."""
        return self.dev == other.dev or (self.space[0] > 0 and self.space == other.space)


def room(path: str) -> Room | None:
    """Return a folder's room, looked at without following a link to it; None when it is none."""
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found, system = os.fstat(fd), os.fstatvfs(fd)
        fault = drop_box_fault(found.st_mode, found.st_uid)
        if not fault and not os.access(f"/proc/self/fd/{fd}", os.W_OK | os.X_OK):
            fault = "may not be written here"
    except OSError:
        return None
    finally:
        os.close(fd)
    return Room(
        dev=found.st_dev,
        free_bytes=system.f_bavail * system.f_frsize,
        space=(system.f_blocks * system.f_frsize, system.f_bfree),
        fault=fault,
    )


def drop_box_fault(mode: int, uid: int) -> str:
    """Return why a folder of this mode and owner is no place to keep something safe in; "" when it is."""
    writable = [bits for bits in (0o030, 0o003) if mode & bits == bits]
    if uid == 0 and not writable:
        return "can be written by root alone, and no command is root: chmod 1733"
    if mode & 0o022 and not mode & stat.S_ISVTX:
        return "can be written by others, who could remove what is kept: chmod 1733"
    return ""


def remove_flat_folder(folder: str, name: str) -> None:
    """Remove a folder that holds only files, without following a link to it. Raise OSError; gone is fine."""
    outer = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=outer)
        except FileNotFoundError:
            return
        try:
            for entry in os.listdir(fd):  # noqa: PTH208 - of the descriptor, not of a name
                os.unlink(entry, dir_fd=fd)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=outer)
    finally:
        os.close(outer)


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


def is_socket(path: str) -> bool:
    """Say whether a socket is there, without following a link to it."""
    try:
        return stat.S_ISSOCK(Path(path).lstat().st_mode)
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
    """Return a group's number; ``name`` may be a number already. None when there is no such group."""
    if name.isascii() and name.isdigit():
        return int(name)
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
    """Return a user's groups, each by its name and by its number in digits; none for an unknown user."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return frozenset()
    names = set()
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        names.add(str(gid))
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return frozenset(names)
