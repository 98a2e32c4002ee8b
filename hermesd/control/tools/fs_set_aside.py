"""Removes exactly the files of a manifest, each only after its copy is safe in the quarantine.

Called as ``FD QUARANTINE_FD NAME MOST_BYTES SECONDS`` with the manifest on standard input. It begins as
`fs_remove` does: one difference and nothing is removed. Then NAME is made in the quarantine, for this
user alone, and file after file is copied through the descriptor that was compared, written to the disk
together with its entry in the record, and only then unlinked. What cannot be copied (no room, not to be
read, no time left) stays where it is and is told. Killed at any moment, each file is in at least one place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time

from .copying import NEW, READ, batches, copy
from .fs_remove import Tally, check, open_folder, read_manifest, unlink, words
from .kept_file import RECORD, Kept, kept_of, write_kept
from .manifest_file import Record, difference

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator

CANNOT_KEEP = 4
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def main(argv: list[str]) -> int:
    """Verify, set aside and remove; print what `fs_remove` prints. Exit 4 when nothing can be kept at all."""
    root, quarantine, name, most, seconds = int(argv[0]), int(argv[1]), argv[2], int(argv[3]), float(argv[4])
    until = time.monotonic() + seconds
    manifest = sys.stdin.buffer.read()
    if status := check(root, manifest):
        return status
    try:
        place = Place(quarantine, name, most, until)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=quarantine)  # an empty one; what holds anything stays
        sys.stderr.write(f"nothing was removed: the quarantine cannot be written: {words(error)}\n")
        return CANNOT_KEEP
    return set_aside(root, place, manifest)


def set_aside(root: int, place: Place, manifest: bytes) -> int:
    """Move every file of a manifest that still is what it was into ``place``; return the exit status."""
    tally = Tally(root)
    number = 0
    for batch in batches(read_manifest(manifest)):
        with contextlib.ExitStack() as held:
            copied = []
            for record in batch:
                number += 1
                try:
                    copied.append((record, _copied(root, record, number, place, held)))
                except OSError as error:
                    tally.count(record, f"was not set aside: {words(error)}")
            _finish(root, copied, place, tally)
    return tally.tell()


class Place:
    """The folder of one operation in the quarantine: its copies, its record, and how much may yet come."""

    def __init__(self, quarantine: int, name: str, most: int, until: float) -> None:
        os.mkdir(name, 0o700, dir_fd=quarantine)  # one that is there already is somebody else's
        self.fd = os.open(name, _FOLDER, dir_fd=quarantine)
        self.until = until
        self.left = most
        self._record = os.open(RECORD, NEW | os.O_APPEND, 0o600, dir_fd=self.fd)
        os.fsync(self.fd)

    @contextlib.contextmanager
    def new(self, name: str, held: contextlib.ExitStack) -> Iterator[int]:
        """Give a descriptor of a new copy, open until ``held`` ends; a fault leaves no copy behind."""
        fd = os.open(name, NEW, 0o600, dir_fd=self.fd)
        held.callback(os.close, fd)
        try:
            yield fd
            os.fdatasync(fd)
        except BaseException:
            os.unlink(name, dir_fd=self.fd)
            raise

    def note(self, kept: Kept) -> None:
        """Write an entry down; it is safe after `sync`. Raise OSError."""
        data = write_kept(kept)
        size = os.fstat(self._record).st_size
        try:
            while data:
                data = data[os.write(self._record, data) :]
        except OSError:
            os.ftruncate(self._record, size)  # half an entry would swallow the next one
            raise

    def sync(self) -> None:
        """Wait until entries and names of copies outlive the machine's power. Raise OSError."""
        os.fsync(self._record)
        os.fsync(self.fd)

    def drop(self, kept: Kept) -> None:
        """Take a copy out again: its file stays where it is."""
        with contextlib.suppress(OSError):
            os.unlink(kept.name, dir_fd=self.fd)
            self.left += kept.size


def _copied(root: int, record: Record, number: int, place: Place, held: contextlib.ExitStack) -> Kept:
    """Copy one file, compared before and after through its own descriptor. Raise OSError."""
    if record.size > place.left:
        raise OSError(errno.ENOSPC, "the quarantine has no room for it")
    folder, name = open_folder(root, record.path)
    held.callback(os.close, folder)
    source = os.open(name, READ, dir_fd=folder)
    held.callback(os.close, source)
    before = os.fstat(source)
    if why := difference(record, before):
        raise OSError(0, why)
    with place.new(str(number), held) as target:
        digest = copy(source, target, record.size, place.until)
        if why := difference(record, os.fstat(source)):
            raise OSError(0, why)
        kept = kept_of(number, record.path, before, digest)
        place.note(kept)
    place.left -= record.size
    return kept


def _finish(root: int, copied: list[tuple[Record, Kept]], place: Place, tally: Tally) -> None:
    """Wait for the disk, then unlink what was copied; what cannot be unlinked loses its copy."""
    why = ""
    try:
        place.sync()
    except OSError as error:
        why = f"was not set aside: {words(error)}"
    for record, kept in copied:
        failed = why or unlink(root, record)
        if failed:
            place.drop(kept)
        tally.count(record, failed)
