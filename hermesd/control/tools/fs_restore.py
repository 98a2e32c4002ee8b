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

from .copying import copy
from .fs_remove import open_folder, read_manifest, words
from .kept_file import RECORD, Kept, read_folder
from .manifest_file import BadManifestError, Record, difference
from .rows import path_fields, write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

MAX_SHOWN = 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
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
    reasons: list[dict[str, Value]] = []
    size = others = 0
    for record in records:
        try:
            others += restore(folder, root, record, known[record.path], until)
            size += record.size
        except KeyError:
            reasons.append({**path_fields(record.path), "reason": "is not in the record"})
        except OSError as error:
            reasons.append({**path_fields(record.path), "reason": words(error)})
    return _tell(folder, known, reasons, len(records), size, others, late=time.monotonic() > until)


def _tell(
    folder: int,
    known: dict[bytes, Kept],
    reasons: list[dict[str, Value]],
    asked: int,
    size: int,
    others: int,
    *,
    late: bool,
) -> int:
    left = [kept for kept in known.values() if _is_there(folder, kept)]
    if not left:
        os.unlink(RECORD, dir_fd=folder)
    write_row(
        {
            "files_restored": asked - len(reasons),
            "files_skipped": len(reasons),
            "size_bytes": size,
            "files_with_another_owner": others,
            "files_left": len(left),
            "left_bytes": sum(kept.size for kept in left),
        }
    )
    for reason in reasons[:MAX_SHOWN]:
        write_row(reason)
    if reasons and len(reasons) == asked:
        sys.stderr.write(f"nothing could be put back: {reasons[0]['reason']}\n")
        return 1
    if late:
        sys.stderr.write(
            f"{asked - len(reasons)} files were put back, then the time was over: undo it again\n"
        )
    return 1 if late else os.EX_OK


def restore(folder: int, root: int, record: Record, kept: Kept, until: float) -> bool:
    """Put one file back and let its copy go. Return whether its owner is another now. Raise OSError."""
    source = os.open(kept.name, _READ, dir_fd=folder)
    with contextlib.ExitStack() as held:
        held.callback(os.close, source)
        if difference(record, os.fstat(source)):
            raise OSError(0, "its copy is not what was shown")
        place, name = open_folder(root, record.path)
        held.callback(os.close, place)
        if taken(place, name):
            raise OSError(errno.EEXIST, "a file is there")
        target, temporary = _nameless(place, kept)
        held.callback(os.close, target)
        try:
            if copy(source, target, kept.size, until) != kept.digest:
                raise OSError(errno.EIO, "its copy is damaged")
            other = _dress(target, kept)
            os.fsync(target)
            give_name(target, temporary, place, name)
        finally:
            if temporary:
                os.unlink(temporary, dir_fd=place)
        _sync(target, place)
    os.unlink(kept.name, dir_fd=folder)
    return other


def taken(place: int, name: bytes) -> bool:
    """Say whether anything has that name, a link that leads nowhere too."""
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_there(folder: int, kept: Kept) -> bool:
    return taken(folder, kept.name.encode())


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
    return os.open(temporary, _NEW, 0o600, dir_fd=place), temporary


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


def _sync(target: int, place: int) -> None:
    """Wait until file and name are on the disk; a folder that may not be read is synced with its file."""
    os.fsync(target)
    with contextlib.suppress(PermissionError):
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
