"""Which files a cleanup may ever name, by their names alone: pure, and narrow on purpose.

What is not clearly rubbish stays: a live log, a database, a dotfile and anything of a kind that
nobody asked for. Names are bytes; they are compared in lower case.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

KINDS = ("caches", "rotated_logs", "temporary")

_CACHE_FOLDERS = (b"cache", b".cache", b"caches")
_CACHE_ENDS = (b"-cache", b"_cache", b".cache")
_TEMPORARY_FOLDERS = (b"tmp", b"temp", b".tmp")
_TEMPORARY_ENDS = (b".tmp", b".temp", b".swp", b".swo")
_PACKED_ENDS = (b".gz", b".xz", b".bz2", b".zst", b".lz4")
_LIVE_LOG_ENDS = (b".log", b".out", b".err", b".journal")
_LIVE_LOG_NAMES = (b"syslog", b"messages", b"lastlog", b"wtmp", b"btmp", b"faillog")
_DATABASE_ENDS = (
    *(b".db", b".db3", b".sqlite", b".sqlite3", b".sqlitedb", b".mdb", b".ldb", b".sst", b".kdbx"),
    *(b"-wal", b"-shm", b"-journal", b".ibd", b".frm", b".myd", b".myi", b".rdb", b".aof", b".dbf"),
    *(b".lock", b".lck", b".pid", b".sock", b".wal", b".realm", b".tdb", b".gdbm"),
)
_DATABASE_WORDS = (b"mysql", b"mariadb", b"postgres", b"pgdata", b"mongodb", b"redis", b"elasticsearch", b"ldap")


def is_removable(
    name: bytes, folders: Sequence[bytes], siblings: Collection[bytes], kinds: Collection[str]
) -> bool:
    """Say whether a file may be removed as one of ``kinds``.

    ``folders`` are the names of the folders that it lies in, the given root's own first;
    ``siblings`` are the names of the regular files beside it.
    """
    lowered = name.lower()
    within = [folder.lower() for folder in folders]
    if is_protected(lowered, within):
        return False
    return (
        ("rotated_logs" in kinds and is_rotated_log(lowered, {other.lower() for other in _near(name, siblings)}))
        or ("temporary" in kinds and is_temporary(lowered, within))
        or ("caches" in kinds and is_cached(within))
    )


def is_protected(name: bytes, folders: Sequence[bytes]) -> bool:
    """Say whether a file is never removed: dotfiles, hidden folders, live logs, databases, locks."""
    hidden = any(folder.startswith(b".") and folder not in (*_CACHE_FOLDERS, *_TEMPORARY_FOLDERS) for folder in folders)
    database = name.endswith(_DATABASE_ENDS) or any(
        word in folder for folder in folders for word in _DATABASE_WORDS
    )
    return name.startswith(b".") or hidden or database or is_live_log(name)


def is_live_log(name: bytes) -> bool:
    """Say whether something probably writes to the file now."""
    return (name.endswith(_LIVE_LOG_ENDS) and not _dated(name)) or name in _LIVE_LOG_NAMES


def is_cached(folders: Sequence[bytes]) -> bool:
    """Say whether a file lies in a folder whose name says that it can be made again."""
    return any(folder in _CACHE_FOLDERS or folder.endswith(_CACHE_ENDS) for folder in folders) or any(
        folder in _TEMPORARY_FOLDERS for folder in folders[1:]
    )


def is_temporary(name: bytes, folders: Sequence[bytes]) -> bool:
    """Say whether a file is what a program left behind: temporaries, editors' swap files, core dumps."""
    stem, _, number = name.partition(b".")
    core = stem == b"core" and (not number or number.isdigit())
    return name.endswith(_TEMPORARY_ENDS) or core or any(folder in _TEMPORARY_FOLDERS for folder in folders[1:])


def is_rotated_log(name: bytes, siblings: Collection[bytes]) -> bool:
    """Say whether a file is a log that was rotated away: numbered, dated, or packed beside a live one."""
    stem = _unpacked(name)
    for base in (_unnumbered(stem), _undated(stem)):
        if base and (base.endswith(b".log") or base in _LIVE_LOG_NAMES or base in siblings):
            return True
    return stem != name and (stem in siblings) and is_live_log(stem)


def _near(name: bytes, siblings: Collection[bytes]) -> list[bytes]:
    """Return which of the possible live names of a rotated file exist beside it."""
    stem = _unpacked(name)
    return [base for base in (stem, _unnumbered(stem), _undated(stem)) if base and base in siblings]


def _unpacked(name: bytes) -> bytes:
    end = next((end for end in _PACKED_ENDS if name.lower().endswith(end)), b"")
    return name[: len(name) - len(end)]


def _unnumbered(name: bytes) -> bytes:
    """Return `app.log` of `app.log.12`; b"" when there is no such number."""
    base, _, number = name.rpartition(b".")
    return base if number.isdigit() and len(number) <= 3 else b""  # noqa: PLR2004 - more digits are a date or a version


def _undated(name: bytes) -> bytes:
    """Return `app.log` of `app.log-20240131` and of `app-2024-01-31.log`; b"" when there is no date."""
    end = b".log" if name.lower().endswith(b".log") else b""
    stem = name[: len(name) - len(end)]
    for cut in (b"-", b"."):
        base, _, date = stem.rpartition(cut)
        if base and len(date) in (8, 10) and date.isdigit() and date.startswith(b"20"):
            return base + end
    if len(stem) > 11 and _is_dashed_date(stem[-10:]) and stem[-11:-10] in (b"-", b"."):  # noqa: PLR2004 - YYYY-MM-DD and a mark
        return stem[:-11] + end
    return b""


def _is_dashed_date(text: bytes) -> bool:
    year, month, day = text[:4], text[5:7], text[8:]
    return text[4:5] == text[7:8] == b"-" and (year + month + day).isdigit() and year.startswith(b"20")


def _dated(name: bytes) -> bool:
    return bool(_undated(name))
