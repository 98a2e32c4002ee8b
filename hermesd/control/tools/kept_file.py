"""The record of what was set aside: written, and on the disk, before the file itself is removed.

A folder of the quarantine holds the copies, named by their numbers, and one file `record`. An entry of it is
seven decimal numbers, the content's SHA-256 and the path beneath the root, with blanks between, ended by
NUL. It only ever grows: an entry whose copy is not there any more says nothing, and a torn last entry
belongs to a file that was not removed yet.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD = "record"
_FIELDS = 9


class Kept:
    """One file that was set aside: its number, what it was, and the digest of what it held."""

    def __init__(self, numbers: tuple[int, ...], digest: str, path: bytes) -> None:
        self.numbers = numbers
        self.number, self.mode, self.uid, self.gid, self.size, self.mtime_ns, self.atime_ns = numbers
        self.digest = digest
        self.path = path

    @property
    def name(self) -> str:
        """The name of its copy."""
        return str(self.number)


def kept_of(number: int, path: bytes, status: os.stat_result, digest: str) -> Kept:
    """Return the entry of a file by its status and digest."""
    numbers = (
        *(number, status.st_mode, status.st_uid, status.st_gid),
        *(status.st_size, status.st_mtime_ns, status.st_atime_ns),
    )
    return Kept(numbers, digest, path)


def write_kept(kept: Kept) -> bytes:
    """Return the entry as bytes."""
    return b" ".join(b"%d" % number for number in kept.numbers) + b" %s %s\0" % (
        kept.digest.encode("ascii"),
        kept.path,
    )


def read_kept(data: bytes) -> Iterator[Kept]:
    """Yield the entries; what is torn or unreadable is passed over: its file was not removed by then."""
    for record in data.split(b"\0")[:-1]:
        fields = record.split(b" ", _FIELDS - 1)
        if len(fields) == _FIELDS and all(field.removeprefix(b"-").isdigit() for field in fields[:7]):
            numbers = tuple(int(field) for field in fields[:7])
            yield Kept(numbers, fields[7].decode("ascii", "replace"), fields[8])


def read_folder(folder: int) -> dict[bytes, Kept]:
    """Return the entries of a folder of the quarantine by their paths. Raise OSError."""
    fd = os.open(RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        return {kept.path: kept for kept in read_kept(file.read())}
