"""Which file systems there are, and which of them are worth measuring: pure decisions over mountinfo.

The kernel's list is read from `/proc/self/mountinfo`, which never blocks. This module must never
touch a mount point: looking at one is what may hang.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Final

MOUNTINFO: Final = Path("/proc/self/mountinfo")
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")

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

Filesystem = tuple[str, str, str]
"""Device number, device and type: a number alone is given anew once its file system is gone."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo. ``root`` is the part of the file system that is mounted here.

    ``read_only`` is the file system's own state, ``mounted_read_only`` that of this mount of it.
    """

    path: str
    device: str
    fstype: str
    number: str
    root: str = "/"
    read_only: bool = False
    mounted_read_only: bool = False

    @property
    def filesystem(self) -> Filesystem:
        """Return what stays the same while the file system is mounted, wherever that is."""
        return (self.number, self.device, self.fstype)


def read_mounts() -> list[Mount]:
    """Return what is mounted, as the kernel lists it. Raise OSError."""
    return parse_mountinfo(MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape"))


def read_boot() -> str:
    """Return what names this time of the host's being up, empty where the kernel does not say."""
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts in the kernel's order. A line that is not understood is left out."""
    return [mount for mount in map(_parse_line, text.splitlines()) if mount is not None]


def choose_mounts(
    mounts: Iterable[Mount],
    only: Iterable[str],
    exclude: Iterable[str],
    held: Mapping[Filesystem, str] = MappingProxyType({}),
) -> list[Mount]:
    """Return the mounts to measure: each file system once, at its shortest whole mount, by path.

    Left out are kernel interfaces, overlays but the root (they repeat what lies beneath), what a later
    mount at the same place hides, and file systems that are read-only on purpose (they fill no
    further). ``only`` and ``exclude`` hold mount points or shell patterns; ``exclude`` wins. ``held``
    says where each file system was measured so far: one that turned read-only is measured on, and in
    the same place, whatever else became mounted.
    """
    visible = {mount.path: mount for mount in mounts}
    wanted, unwanted = tuple(only), tuple(exclude)
    chosen: dict[Filesystem, Mount] = {}
    for mount in visible.values():
        listed = not wanted or _matches(mount.path, wanted)
        if not _is_storage(mount, held) or not listed or _matches(mount.path, unwanted):
            continue
        known = chosen.get(mount.filesystem)
        if known is None or _rank(mount, held) < _rank(known, held):
            chosen[mount.filesystem] = mount
    return sorted(chosen.values(), key=lambda mount: mount.path)


def is_confined(mounts: Iterable[Mount]) -> bool:
    """Say whether we see every mount read-only because our own unit is confined (`ProtectSystem=`)."""
    root = next((mount for mount in mounts if mount.path == "/"), None)
    return root is not None and root.mounted_read_only and not root.read_only


def _is_storage(mount: Mount, held: Mapping[Filesystem, str]) -> bool:
    if mount.fstype in NOT_STORAGE or (mount.fstype == "overlay" and mount.path != "/"):
        return False
    return not mount.read_only or mount.filesystem in held or _has_turned(mount)


def _has_turned(mount: Mount) -> bool:
    """Whoever mounts a disk read-only has it in the mount too; the kernel, after an error, does not."""
    return mount.read_only and not mount.mounted_read_only and mount.device.startswith("/dev/")


def _rank(mount: Mount, held: Mapping[Filesystem, str]) -> tuple[bool, bool, int, str]:
    elsewhere = held.get(mount.filesystem) != mount.path
    return (elsewhere, mount.root != "/", len(mount.path), mount.path)


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
        mounted_read_only="ro" in before[5].split(","),
    )


def _unescape(field: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)
