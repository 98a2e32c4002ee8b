"""Puts files back that were set aside, and never in the place of one that is there.

Called as ``KEPT_FD ROOT_FD SECONDS`` with the list of `fs_restorable` on standard input, which was confirmed.
Each copy is compared with that list and with the digest that was taken when it was made. The file is
written beneath the root through no link, without a name until it is whole, and gets its own name only if
nothing has it. The copy goes last: killed at any moment, each file is in at least one place. A file
belongs to this user afterwards where it may not be given away, and loses set-id bits.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time

from .copying import NEW, READ, batches, copy
from .fs_remove import open_folder, read_manifest, words
from .kept_file import RECORD, Kept, read_folder
from .manifest_file import BadManifestError, Record, difference
from .rows import path_fields, write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

MAX_SHOWN = 20
_PERMISSIONS = 0o1777


def main(argv: list[str]) -> int:
    """Put back; print a row of what became of it and rows of what was skipped. Exit 1 when none could be."""
    folder, root, seconds = int(argv[0]), int(argv[1]), float(argv[2])
    until = time.monotonic() + seconds
    try:
        records = list(read_manifest(sys.stdin.buffer.read()))
        known = read_folder(folder)
    except (BadManifestError, OSError) as error:
        sys.stderr.write(f"what was set aside cannot be read: {error}\n")
        return os.EX_USAGE
    done = Done(folder, known)
    for batch in batches(records):
        put_back(root, batch, done, until)
    return done.tell(len(records), late=time.monotonic() > until)


class Done:
    """What was put back and what was not; ``known`` is the record of the quarantine's ``folder``."""

    def __init__(self, folder: int, known: dict[bytes, Kept]) -> None:
        self.folder = folder
        self.known = known
        self._size = self._others = 0
        self._reasons: list[dict[str, Value]] = []

    def restored(self, kept: Kept, *, other_owner: bool) -> None:
        """Take a file as put back."""
        self._size += kept.size
        self._others += other_owner

    def skipped(self, record: Record, error: OSError) -> None:
        """Take a file as skipped."""
        self._reasons.append({**path_fields(record.path), "reason": words(error)})

    def tell(self, asked: int, *, late: bool) -> int:
        """Print the row of what became of it and rows of what was skipped; return the exit status."""
        left = [kept for kept in self.known.values() if taken(self.folder, kept.name.encode())]
        if not left:
            os.unlink(RECORD, dir_fd=self.folder)
        restored = asked - len(self._reasons)
        write_row(
            {
                "files_restored": restored,
                "files_skipped": len(self._reasons),
                "size_bytes": self._size,
                "files_with_another_owner": self._others,
                "files_left": len(left),
                "left_bytes": sum(kept.size for kept in left),
            }
        )
        for reason in self._reasons[:MAX_SHOWN]:
            write_row(reason)
        if self._reasons and not restored:
            sys.stderr.write(f"nothing could be put back: {self._reasons[0]['reason']}\n")
        elif late:
            sys.stderr.write(f"{restored} files were put back, then the time was over: undo it again\n")
        return 1 if late or (self._reasons and not restored) else os.EX_OK


class Written:
    """A file that is whole beneath the root and has no name of its own yet; descriptors live in ``held``."""

    def __init__(
        self, root: int, record: Record, done: Done, until: float, held: contextlib.ExitStack
    ) -> None:
        kept = done.known.get(record.path)
        if kept is None:
            raise OSError(0, "is not in the record")
        self.record, self.kept = record, kept
        source = os.open(kept.name, READ, dir_fd=done.folder)
        held.callback(os.close, source)
        if difference(record, os.fstat(source)):
            raise OSError(0, "its copy is not what was shown")
        self.place, self.name = open_folder(root, record.path)
        held.callback(os.close, self.place)
        if taken(self.place, self.name):
            raise OSError(errno.EEXIST, "a file is there")
        self.target, self.temporary = _nameless(self.place, kept)
        held.callback(os.close, self.target)
        if self.temporary:
            held.callback(os.unlink, self.temporary, dir_fd=self.place)
        if copy(source, self.target, kept.size, until) != kept.digest:
            raise OSError(errno.EIO, "its copy is damaged")
        self.other_owner = _dress(self.target, kept)

    def finish(self) -> None:
        """Bring it to the disk, and to its name. Raise OSError."""
        os.fsync(self.target)
        give_name(self.target, self.temporary, self.place, self.name)


def put_back(root: int, records: list[Record], done: Done, until: float) -> None:
    """Put some files back together; their copies go when all of them and their names are on the disk."""
    with contextlib.ExitStack() as held:
        whole = []
        for record in records:
            try:
                whole.append(Written(root, record, done, until, held))
            except OSError as error:
                done.skipped(record, error)
        named = []
        for file in whole:
            try:
                file.finish()
                named.append(file)
            except OSError as error:
                done.skipped(file.record, error)
        _sync(named)
        for file in named:
            os.unlink(file.kept.name, dir_fd=done.folder)
            done.restored(file.kept, other_owner=file.other_owner)


def _sync(named: list[Written]) -> None:
    """Wait until the names are on the disk; in a folder that may not be read, each with its file."""
    synced = set()
    for file in named:
        status = os.fstat(file.place)
        if (status.st_dev, status.st_ino) in synced:
            continue
        try:
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=file.place)
        except PermissionError:
            os.fsync(file.target)
            continue
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        synced.add((status.st_dev, status.st_ino))


def taken(place: int, name: bytes) -> bool:
    """Say whether anything has that name, a link that leads nowhere too."""
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _nameless(place: int, kept: Kept) -> tuple[int, str]:
    """Return a descriptor of a new file without a name; where there is no such thing, its temporary name."""
    try:
        return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=place), ""
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    return with_temporary_name(place, kept)


def with_temporary_name(place: int, kept: Kept) -> tuple[int, str]:
    """Return a new file and the name that it has until it is whole: on network file systems, say."""
    temporary = f".hermesd-undo.{os.getpid()}.{kept.name}"
    return os.open(temporary, NEW, 0o600, dir_fd=place), temporary


def _dress(target: int, kept: Kept) -> bool:
    """Give the file its owner (as far as this user may), mode and times; return whether the owner differs."""
    with contextlib.suppress(OSError):
        os.fchown(target, kept.uid, kept.gid)
    os.fchmod(target, kept.mode & _PERMISSIONS)
    os.utime(target, ns=(kept.atime_ns, kept.mtime_ns))
    now = os.fstat(target)
    return (now.st_uid, now.st_gid) != (kept.uid, kept.gid)


def give_name(target: int, temporary: str, place: int, name: bytes) -> None:
    """Give the whole file its name; the kernel refuses when something has it."""
    try:
        if temporary:
            os.link(temporary, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
        else:
            os.link(f"/proc/self/fd/{target}", name, dst_dir_fd=place, follow_symlinks=True)
    except FileExistsError:
        raise OSError(errno.EEXIST, "a file is there") from None
