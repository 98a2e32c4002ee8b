"""A small world with a real condition: a disk with caches, rotated logs and an application's live files.

As root it is a file system of its own (a tmpfs of a few megabytes); elsewhere a folder with a byte
budget, the measure that every user has. It begins calm and is filled on request. Leaving it unmounts
and removes everything. It must never touch a file outside its own folder.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Final

DISK_BYTES: Final = 24 << 20
_HOUR: Final = 3600.0
_MOUNT_SECONDS: Final = 10

_LIVE_LINE: Final = (
    "2026-11-30T12:00:{:02d} ERROR worker {} cannot write thumbnail: No space left on device\n"
)


@dataclass(frozen=True, slots=True)
class World:
    """The disk: where it is, whether it is a file system of its own, and whose files it holds."""

    root: Path
    mounted: bool
    owner: tuple[int, int] | None

    def settle(self) -> None:
        """Lay down what an application keeps: its database, its live log, a little cache."""
        self._write("data/orders.db", b"\x00SQLite-like live data" * 60_000, age_hours=0)
        self._write("log/shop.log", self._log_text(1500).encode(), age_hours=0)
        self._write("cache/thumbnails/first.bin", os.urandom(200_000), age_hours=30)

    def fill(self) -> None:
        """Let caches and rotated logs grow until the disk is over 80 % full."""
        for number in range(24):
            self._write(f"cache/thumbnails/{number:04d}.bin", os.urandom(400_000), age_hours=48 + number)
        for number in range(1, 7):
            self._write(f"log/shop.log.{number}", self._log_text(16_000).encode(), age_hours=24 * number)
        for number in range(7, 13):
            packed = gzip.compress(os.urandom(300_000) + self._log_text(2000).encode(), compresslevel=1)
            self._write(f"log/shop.log.{number}.gz", packed, age_hours=24 * number)

    def live_digest(self) -> str:
        """Return a digest over the application's live files, to prove that nobody touched them."""
        digest = hashlib.sha256()
        for name in ("data/orders.db", "log/shop.log"):
            digest.update((self.root / name).read_bytes())
        return digest.hexdigest()

    def _log_text(self, lines: int) -> str:
        return "".join(_LIVE_LINE.format(number % 60, number % 7) for number in range(lines))

    def _write(self, name: str, data: bytes, *, age_hours: float) -> None:
        path = self.root / name
        for folder in (path.parent.parent, path.parent):
            if not folder.exists():
                folder.mkdir(parents=True)
                self._own(folder)
        path.write_bytes(data)
        self._own(path)
        when = time() - age_hours * _HOUR
        os.utime(path, (when, when))

    def _own(self, path: Path) -> None:
        if self.owner is not None:
            os.chown(path, *self.owner)


@contextmanager
def world(folder: Path, owner: tuple[int, int] | None) -> Iterator[World]:
    """Make the disk beneath ``folder`` and take it away again. ``owner`` is who the cleanup will run as."""
    root = folder / "disk"
    root.mkdir()
    mounted = os.geteuid() == 0 and _mount(root)
    try:
        if owner is not None:
            os.chown(root, *owner)
        made = World(root, mounted, owner)
        made.settle()
        yield made
    finally:
        if mounted:
            _unmount(root)


def _mount(root: Path) -> bool:
    options = f"size={DISK_BYTES},mode=755,nodev,nosuid,noexec"
    try:
        done = subprocess.run(
            ["/usr/bin/mount", "-t", "tmpfs", "-o", options, "hermesd-demo", str(root)],
            check=False,
            capture_output=True,
            timeout=_MOUNT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _unmount(root: Path) -> None:
    """Take the disk away; lazily when something still looks at it."""
    for options in ([], ["--lazy"]):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                ["/usr/bin/umount", *options, str(root)],
                check=False,
                capture_output=True,
                timeout=_MOUNT_SECONDS,
            )
            if done.returncode == 0:
                return
