"""Removes exactly the files of a manifest, or nothing when the world is not what it says.

Called as ``FD`` (what follows is ignored: it is what the preview was asked for) with the manifest on
standard input. First every record is compared with the file that its path leads to now, beneath FD,
through no link; one difference and nothing is removed. Then each is compared again through its
folder's descriptor and unlinked there. Exit 0 when any was removed, 1 when none could be, 3 for a
world that differs, 64 for what is no manifest.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from itertools import islice

from .manifest_file import MAX_ENTRIES, BadManifestError, Record, difference, read_record
from .rows import path_fields, render, write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .rows import Value

WORLD_DIFFERS = 3
MAX_SHOWN = 20
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # to go through one needs not read it
_BLOCK = 512
_ASKED_AGAIN = 6
_BETWEEN_SECONDS = 0.1


def main(argv: list[str]) -> int:
    """Verify, remove, and print one row of what was gained, then rows of what was skipped."""
    root = int(argv[0])
    manifest = sys.stdin.buffer.read()
    return check(root, manifest) or remove(root, manifest)


def check(root: int, manifest: bytes) -> int:
    """Compare every record with the world, before the first effect; 0 when nothing differs, else the exit."""
    try:
        differing = list(islice(differences(root, manifest), MAX_SHOWN))
    except BadManifestError as error:
        sys.stderr.write(f"this is not a manifest: {error}\n")
        return os.EX_USAGE
    sys.stderr.write("".join(f"{_shown(record)} {why}\n" for record, why in differing))
    return WORLD_DIFFERS if differing else os.EX_OK


def differences(root: int, manifest: bytes) -> Iterator[tuple[Record, str]]:
    """Yield every record whose file is not what it was, with the difference."""
    for record in read_manifest(manifest):
        why = _differs(root, record)
        if why:
            yield record, why


def read_manifest(data: bytes) -> Iterator[Record]:
    """Yield the records. Raise BadManifestError for a record that cannot be read, or too many of them."""
    start = 0
    for _ in range(MAX_ENTRIES):
        end = data.find(b"\0", start)
        if end < 0:
            break
        yield read_record(data[start:end])
        start = end + 1
    if start != len(data):
        raise BadManifestError("it is cut off or too long")


def remove(root: int, manifest: bytes) -> int:
    """Unlink every file of a manifest that still is what it was; return the exit status."""
    tally = Tally(root)
    for record in read_manifest(manifest):
        tally.count(record, unlink(root, record))
    return tally.tell()


class Tally:
    """What was removed and what was not, from before the first removal until it is told."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._before = os.fstatvfs(root)
        self._removed = self._size = self._blocks = self._skipped = 0
        self._reasons: list[dict[str, Value]] = []

    def count(self, record: Record, why: str) -> None:
        """Take a file as removed, or (``why``) as skipped."""
        if why:
            self._skipped += 1
            if self._skipped <= MAX_SHOWN:
                self._reasons.append({**path_fields(record.path), "reason": why})
            return
        self._removed += 1
        self._size += record.size
        self._blocks += record.blocks

    def tell(self) -> int:
        """Print the row of what was gained and rows of what was skipped; return the exit status."""
        disk_bytes = self._blocks * _BLOCK
        write_row(
            {
                "files_removed": self._removed,
                "files_skipped": self._skipped,
                "size_bytes": self._size,
                "disk_bytes": disk_bytes,
                "freed_bytes": _freed(self._root, self._before, disk_bytes),
            }
        )
        for reason in self._reasons:
            write_row(reason)
        if self._skipped and not self._removed:
            sys.stderr.write(f"nothing could be removed: {self._reasons[0]['reason']}\n")
            return 1
        return os.EX_OK


def _differs(root: int, record: Record) -> str:
    """Return how the file that a record names differs from it now."""
    try:
        folder, name = open_folder(root, record.path)
    except OSError as error:
        return words(error)
    try:
        return difference(record, os.stat(name, dir_fd=folder, follow_symlinks=False))
    except OSError as error:
        return words(error)
    finally:
        os.close(folder)


def unlink(root: int, record: Record) -> str:
    """Unlink one file, compared again through the descriptor of its folder; return why not."""
    try:
        folder, name = open_folder(root, record.path)
    except OSError as error:
        return words(error)
    try:
        why = difference(record, os.stat(name, dir_fd=folder, follow_symlinks=False))
        if not why:
            os.unlink(name, dir_fd=folder)
    except OSError as error:
        return words(error)
    finally:
        os.close(folder)
    return why


def open_folder(root: int, path: bytes) -> tuple[int, bytes]:
    """Return a descriptor of the folder that a path ends in, each step a name that is not followed."""
    *folders, name = path.split(b"/")
    if any(part in (b"", b".", b"..") for part in (*folders, name)):
        raise OSError(errno.EINVAL, "has a path that leads elsewhere")
    device = os.fstat(root).st_dev
    fd = os.dup(root)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
    except OSError:
        os.close(fd)
        raise
    if os.fstat(fd).st_dev != device:
        os.close(fd)
        raise OSError(errno.EXDEV, "lies in another mount")
    return fd, name


def _freed(root: int, before: os.statvfs_result, expected: int) -> int:
    """Return what the file system got back. Some free later: it is asked again, for half a second at most.

    What other programs write meanwhile counts against it, and a removed file that one of them still
    holds open frees nothing: it is what a person sees in `df`. Where a file system does not count its
    blocks, what the files took is all there is to say.
    """
    if not before.f_blocks:
        return expected
    for _ in range(_ASKED_AGAIN):
        freed = (os.fstatvfs(root).f_bfree - before.f_bfree) * before.f_frsize
        if freed >= expected:
            break
        time.sleep(_BETWEEN_SECONDS)
    return freed


def words(error: OSError) -> str:
    """Return what an error means, for people; one of our own has its words already."""
    return error.strerror.lower() if error.errno and error.strerror else str(error.strerror)


def _shown(record: Record) -> str:
    return render(path_fields(record.path)["path"])
