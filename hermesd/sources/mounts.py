"""Which file systems there are, and which of them are worth measuring: pure decisions over mountinfo.

The kernel's list is read from `/proc/self/mountinfo`, which never blocks. This module must never
touch a mount point: looking at one is what may hang.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

MOUNTINFO: Final = Path("/proc/self/mountinfo")

_KERNEL: Final = frozenset(
    {
        *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "cpuset", "debugfs", "devpts"),
        *("devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "ramfs"),
        *("rootfs", "rpc_pipefs", "securityfs", "selinuxfs", "smackfs", "sysfs", "tracefs"),
        *("fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal"),
    }
)
_IMAGES: Final = frozenset({"squashfs", "fuse.snapfuse", "iso9660", "udf", "erofs", "cramfs"})
NOT_STORAGE: Final = _KERNEL | _IMAGES
"""Kernel interfaces, and images that are full from the day they are made."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo. ``root`` is the part of the file system that is mounted here.

    ``read_only`` is the file system's own state, not that of this mount of it.
    """

    path: str
    device: str
    fstype: str
    number: str
    root: str = "/"
    read_only: bool = False


def read_mounts() -> list[Mount]:
    """Return what is mounted, as the kernel lists it. Raise OSError."""
    return parse_mountinfo(MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape"))


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts in the kernel's order. A line that is not understood is left out."""
    return [mount for mount in map(_parse_line, text.splitlines()) if mount is not None]


def choose_mounts(mounts: Iterable[Mount], only: Iterable[str], exclude: Iterable[str]) -> list[Mount]:
    """Return the mounts to measure: each file system once, at its shortest whole mount, by path.

    Left out are kernel interfaces, read-only file systems (they fill no further), overlays but the
    root (they repeat what lies beneath), and what a later mount at the same place hides. ``only``
    and ``exclude`` hold mount points or shell patterns; ``exclude`` wins.
    """
    visible = {mount.path: mount for mount in mounts}
    wanted, unwanted = tuple(only), tuple(exclude)
    chosen: dict[str, Mount] = {}
    for mount in visible.values():
        listed = not wanted or _matches(mount.path, wanted)
        if not _is_storage(mount) or not listed or _matches(mount.path, unwanted):
            continue
        known = chosen.get(mount.number)
        if known is None or _rank(mount) < _rank(known):
            chosen[mount.number] = mount
    return sorted(chosen.values(), key=lambda mount: mount.path)


def _is_storage(mount: Mount) -> bool:
    if mount.fstype in NOT_STORAGE or mount.read_only:
        return False
    return mount.fstype != "overlay" or mount.path == "/"


def _rank(mount: Mount) -> tuple[bool, int, str]:
    return (mount.root != "/", len(mount.path), mount.path)


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(path == pattern or fnmatchcase(path, pattern) for pattern in patterns)


def _parse_line(line: str) -> Mount | None:
    left, dash, right = line.partition(" - ")
    before, after = left.split(" "), right.split(" ")
    if not dash or len(before) < 6 or len(after) < 3:  # noqa: PLR2004 - fields as proc(5) numbers them
        return None
    return Mount(
        path=_unescape(before[4]),
        device=_unescape(after[1]),
        fstype=after[0],
        number=before[2],
        root=_unescape(before[3]),
        read_only="ro" in after[2].split(","),
    )


def _unescape(field: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)
