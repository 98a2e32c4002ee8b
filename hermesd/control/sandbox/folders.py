"""Roots as descriptors: opened once, component by component, before an engine mounts them.

A name that is given to an engine can be swapped under it; a descriptor cannot. Nothing here follows
a link, and a root that is to be writable must hold no other mount. This module must never open a
root for reading: what comes out can be mounted and looked at, nothing else.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from hermesd.control.sandbox.base import Mount, Profile, SandboxError

Roots = tuple[tuple[int, int, tuple[str, ...]], ...]
"""What roots are at one moment: see `fingerprint`."""

OURS: Final = ("/proc", "/sys", "/dev", "/hermes")
"""The container's own folders, and what no root may reach (checked again here, behind the gate)."""


def open_beneath(path: str) -> int:
    """Return a descriptor (O_PATH) of an absolute path without following any link. Raise SandboxError."""
    fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.split("/")[1:]:
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = inner
    except OSError as error:
        os.close(fd)
        raise SandboxError(f"{path} cannot be given to a container: {error.strerror}") from None
    return fd


def open_root(mount: Mount, mountinfo: str) -> int:
    """Return a descriptor of a mount's root. Raise SandboxError when it may not be mounted so."""
    fault = root_fault(mount, mountinfo)
    if fault:
        raise SandboxError(f"{mount.root} cannot be given to a container: {fault}")
    fd = open_beneath(mount.root)
    kind = os.fstat(fd).st_mode
    if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
        os.close(fd)
        raise SandboxError(f"{mount.root} cannot be given to a container: it is a link or no folder")
    return fd


def root_fault(mount: Mount, mountinfo: str) -> str:
    """Return why a root may not be mounted, as far as its name and the mount table tell."""
    parts = mount.root.split("/")[1:]
    if not mount.root.startswith("/") or (
        mount.root != "/" and any(part in ("", ".", "..") for part in parts)
    ):
        return "it is not an absolute path in normal form"
    if mount.root in ("/", "/run") or any(
        mount.root == own or mount.root.startswith(own + "/") for own in OURS
    ):
        return "it is never given to a command"
    if mount.mode not in ("ro", "rw"):
        return f"{mount.mode!r} is no mode"
    inner = submounts(mount.root, mountinfo) if mount.mode == "rw" else ()
    return f"it is to be writable and holds another mount ({inner[0]})" if inner else ""


def submounts(root: str, mountinfo: str) -> tuple[str, ...]:
    """Return the mount points that lie beneath ``root``, from the text of /proc/self/mountinfo."""
    points = (_unescape(line.split(" ")[4]) for line in mountinfo.splitlines() if line.count(" ") > 4)  # noqa: PLR2004
    return tuple(point for point in points if point.startswith(root + "/"))


def fingerprint(profile: Profile) -> Roots:
    """Return what a profile's roots are now: device, inode, and the mounts that lie beneath each.

    A container that was started when this was something else shows another world.
    """
    table = read_mountinfo() if profile.mounts else ""
    return tuple(_seen(mount.root, table) for mount in profile.mounts)


def _seen(root: str, table: str) -> tuple[int, int, tuple[str, ...]]:
    try:
        status = Path(root).lstat()
    except OSError:
        return 0, 0, ()
    return status.st_dev, status.st_ino, submounts(root, table)


def _unescape(point: str) -> str:
    """Undo the kernel's octal escapes for blank, tab, newline and backslash."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, char)
    return point


def open_file(path: str) -> int:
    """Return a descriptor (O_PATH) of a single file or socket. Raise SandboxError."""
    fd = open_beneath(path)
    kind = os.fstat(fd).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
        os.close(fd)
        raise SandboxError(f"{path} cannot be given to a container: it is neither a file nor a socket")
    return fd


def read_mountinfo() -> str:
    """Return this process's mount table."""
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
