"""Which files a cleanup may ever name, by their names alone: pure, and narrow on purpose.

What is not clearly rubbish stays: a live log, a database, a dotfile and anything of a kind that
nobody asked for. Names are bytes; what they mean is judged in lower case.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

KINDS = ("caches", "rotated_logs", "temporary")

_CACHE_FOLDERS = (b"cache", b".cache", b"caches")
_CACHE_ENDS = (b"-cache", b"_cache", b".cache")
_TEMPORARY_FOLDERS = (b"tmp", b"temp", b".tmp")
_TEMPORARY_ENDS = (b".tmp", b".temp", b".swp", b".swo")
_PACKED_ENDS = (b".gz", b".xz", b".bz2", b".zst", b".lz4")
_LOG_ENDS = (b".log", b".out", b".err")
_LOG_NAMES = (
    b"syslog",
    b"messages",
    b"lastlog",
    b"wtmp",
    b"btmp",
    b"faillog",
    b"dmesg",
    b"debug",
    b"maillog",
)
_LOG_FOLDERS = (b"log", b"logs")
_DATABASE_ENDS = (
    *(b".db", b".db3", b".sqlite", b".sqlite3", b".sqlitedb", b".mdb", b".ldb", b".sst", b".kdbx", b".dbf"),
    *(b"-wal", b"-shm", b"-journal", b".journal", b".ibd", b".frm", b".myd", b".myi", b".rdb", b".aof"),
    *(b".lock", b".lck", b".pid", b".sock", b".wal", b".realm", b".tdb", b".gdbm"),
)
_DATABASE_WORDS = (
    b"mysql",
    b"mariadb",
    b"postgres",
    b"pgdata",
    b"mongodb",
    b"redis",
    b"elasticsearch",
    b"ldap",
)
_LONGEST_NUMBER = 3  # `app.log.123`; more digits are a date or a version
_DASHED_DATE = len("-2024-01-31")


class Siblings:
    """The regular files of one folder: their names, and the newest of each series with a date in it."""

    def __init__(self, names: frozenset[bytes], newest: Mapping[bytes, bytes]) -> None:
        self.names = names
        self.newest = newest


def siblings_of(names: Iterable[bytes]) -> Siblings:
    """Return what a file's judgement needs to know of the files beside it."""
    names = frozenset(names)
    newest: dict[bytes, bytes] = {}
    for name in names:
        base = _undated(_unpacked(name))
        if base:
            newest[base] = max(newest.get(base, b""), name)
    return Siblings(names, newest)


def is_removable(name: bytes, folders: Sequence[bytes], beside: Siblings, kinds: Collection[str]) -> bool:
    """Say whether a file may be removed as one of ``kinds``.

    ``folders`` are the names of the folders that it lies in, the given root's own first.
    """
    lowered = name.lower()
    within = [folder.lower() for folder in folders]
    if is_protected(lowered, within):
        return False
    if "rotated_logs" in kinds and is_rotated_log(name, within, beside):
        return True
    if is_live_log(lowered) or any(word in folder for folder in within for word in _DATABASE_WORDS):
        return False
    return ("temporary" in kinds and is_temporary(lowered, within)) or (
        "caches" in kinds and is_cached(within)
    )


def is_protected(name: bytes, folders: Sequence[bytes]) -> bool:
    """Say whether a file is never removed: dotfiles, what lies in hidden folders, databases and locks."""
    known = (*_CACHE_FOLDERS, *_TEMPORARY_FOLDERS)
    hidden = any(folder.startswith(b".") and folder not in known for folder in folders)
    return name.startswith(b".") or hidden or name.endswith(_DATABASE_ENDS)


def is_live_log(name: bytes) -> bool:
    """Say whether something probably writes to the file now."""
    return name.endswith(_LOG_ENDS) or name in _LOG_NAMES


def is_cached(folders: Sequence[bytes]) -> bool:
    """Say whether a file lies in a folder whose name says that it can be made again."""
    return any(folder in _CACHE_FOLDERS or folder.endswith(_CACHE_ENDS) for folder in folders) or any(
        folder in _TEMPORARY_FOLDERS for folder in folders[1:]
    )


def is_temporary(name: bytes, folders: Sequence[bytes]) -> bool:
    """Say whether a file is what a program left behind: temporaries, editors' swap files, core dumps.

    The root's own name does not count: everything beneath a root in `/tmp` would be rubbish then.
    """
    stem, _, number = name.partition(b".")
    core = stem == b"core" and (not number or number.isdigit())
    return (
        name.endswith(_TEMPORARY_ENDS) or core or any(folder in _TEMPORARY_FOLDERS for folder in folders[1:])
    )


def is_rotated_log(name: bytes, folders: Sequence[bytes], beside: Siblings) -> bool:
    """Say whether a file is a log that was rotated away: numbered, dated, or packed beside a live one.

    The newest of a dated series whose undated name does not exist is the live one.
    """
    stem = _unpacked(name)
    numbered, dated = _unnumbered(stem), _undated(stem)
    if numbered and _is_log(numbered, folders, beside):
        return True
    if dated and _is_log(dated, folders, beside):
        return dated in beside.names or beside.newest.get(dated) != name
    return stem != name and stem in beside.names and is_live_log(stem.lower())


def _is_log(base: bytes, folders: Sequence[bytes], beside: Siblings) -> bool:
    in_log_folder = any(folder in _LOG_FOLDERS for folder in folders)
    return is_live_log(base.lower()) or (in_log_folder and base in beside.names)


def _unpacked(name: bytes) -> bytes:
    end = next((end for end in _PACKED_ENDS if name.lower().endswith(end)), b"")
    return name[: len(name) - len(end)]


def _unnumbered(name: bytes) -> bytes:
    """Return `app.log` of `app.log.12`; b"" when there is no such number."""
    base, _, number = name.rpartition(b".")
    return base if number.isdigit() and len(number) <= _LONGEST_NUMBER else b""


def _undated(name: bytes) -> bytes:
    """Return `app.log` of `app.log-20240131` and of `app-2024-01-31.log`; b"" when there is no date."""
    end = b".log" if name.lower().endswith(b".log") else b""
    stem = name[: len(name) - len(end)]
    for mark in (b"-", b"."):
        base, _, date = stem.rpartition(mark)
        if base and len(date) in (8, 10) and date.isdigit() and date.startswith(b"20"):
            return base + end
    cut = len(stem) - _DASHED_DATE
    return stem[:cut] + end if cut > 0 and _is_dashed_date(stem[cut:]) else b""


def _is_dashed_date(text: bytes) -> bool:
    year, month, day = text[1:5], text[6:8], text[9:]
    marks = text[:1] in (b"-", b".") and text[5:6] == text[8:9] == b"-"
    return marks and (year + month + day).isdigit() and year.startswith(b"20")
