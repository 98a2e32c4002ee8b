"""A walk beneath one descriptor that never follows a link and never leaves the file system.

Every folder is opened from its parent's descriptor, by a name that is not followed, so that nothing
that is renamed or replaced meanwhile leads elsewhere. Folders that cannot be read, lie too deep or
belong to another mount are counted, not entered.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 100
"""Descriptors are held for every level; deeper folders are counted as skipped."""

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Skipped:
    """What a walk did not look at."""

    def __init__(self) -> None:
        self.unreadable = 0
        self.other_mounts = 0
        self.too_deep = 0

    def total(self) -> int:
        """Return how many folders were not entered."""
        return self.unreadable + self.other_mounts + self.too_deep


class Folder:
    """A folder under way: its descriptor (valid until the walk goes on), path, and names by kind."""

    def __init__(
        self, fd: int, path: bytes, files: list[tuple[bytes, os.stat_result]], folders: list[bytes]
    ) -> None:
        self.fd = fd
        self.path = path
        self.files = files
        self.folders = folders


def walk(root: int, skipped: Skipped) -> Iterator[Folder]:
    """Yield every folder from the root down, in the order of names. ``root`` is not closed."""
    device = os.fstat(root).st_dev
    top = _read(os.dup(root), b"", device, skipped)
    stack = [top] if top else []
    try:
        if top:
            yield top
        while stack:
            inner = _next(stack[-1], device, len(stack), skipped)
            if inner is not None:
                stack.append(inner)
                yield inner
            elif not stack[-1].folders:
                os.close(stack.pop().fd)
    finally:
        for folder in stack:
            os.close(folder.fd)


def regular_files(root: int, skipped: Skipped) -> Iterator[tuple[Folder, bytes, os.stat_result]]:
    """Yield every regular file beneath the root with its folder and status."""
    for folder in walk(root, skipped):
        for name, status in folder.files:
            yield folder, name, status


def join(folder: bytes, name: bytes) -> bytes:
    """Return a name with the path of its folder before it."""
    return folder + b"/" + name if folder else name


def _next(folder: Folder, device: int, depth: int, skipped: Skipped) -> Folder | None:
    """Open the next folder beneath ``folder``; None when that one is skipped or there is none."""
    if not folder.folders:
        return None
    name = folder.folders.pop()
    if depth >= MAX_DEPTH:
        skipped.too_deep += 1
        return None
    try:
        fd = os.open(name, _FLAGS, dir_fd=folder.fd)
    except OSError:
        skipped.unreadable += 1
        return None
    return _read(fd, join(folder.path, name), device, skipped)


def _read(fd: int, path: bytes, device: int, skipped: Skipped) -> Folder | None:
    """Read a folder's names; None (and closed) when it is another mount's or cannot be read."""
    try:
        if os.fstat(fd).st_dev != device:
            skipped.other_mounts += 1
            os.close(fd)
            return None
        files, folders = _names(fd)
    except OSError:
        skipped.unreadable += 1
        os.close(fd)
        return None
    return Folder(fd, path, files, folders)


def _names(fd: int) -> tuple[list[tuple[bytes, os.stat_result]], list[bytes]]:
    """Return regular files and folders; folders in reverse order, to be taken from the end."""
    files: list[tuple[bytes, os.stat_result]] = []
    folders: list[bytes] = []
    for name in sorted(os.listdir(fd)):
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            files.append((os.fsencode(name), status))
        elif stat.S_ISDIR(status.st_mode):
            folders.append(os.fsencode(name))
    folders.reverse()
    return files, folders
