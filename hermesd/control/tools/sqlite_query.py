"""Answers one SELECT from an SQLite file. Called as ``FD LIMIT SQL``.

The file is opened as it lies there, without its locks and without its write-ahead log (`immutable`), so
that looking can neither write beside it nor make its owner wait. Every step of a statement asks the
authorizer, which lets reading pass and nothing else: no ATTACH, no write, no extension. SQLite opens by
name; what it opened is compared with the descriptor that was resolved before a row is shown.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import sys
import time

from .rows import write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .rows import Value

SECONDS = 8.0
"""How long a statement may take: under the command's own limit, so that the reason can be said."""

_CELL_CHARACTERS = 500
_CELL_BYTES = 1 << 20
_STEPS_BETWEEN_LOOKS = 10_000
_READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})
_DESCRIBING = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
)


def main(argv: list[str], seconds: float = SECONDS) -> int:
    """Print the rows, then what they leave out; exit 1 with the reason when there is no answer."""
    fd, limit, statement = int(argv[0]), int(argv[1]), argv[2]
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return _sorry("this is a folder, not a database file")
    try:
        with _Opened(fd, seconds) as database:
            notes = _print_rows(database, statement, limit)
    except (sqlite3.Error, sqlite3.Warning, OSError, MemoryError) as error:
        return _sorry(_words(error, seconds))
    for note in notes + _not_looked_at(fd):
        write_row({"note": note})
    return os.EX_OK


class _Opened:
    """A database opened for reading the very file that a descriptor names."""

    def __init__(self, fd: int, seconds: float) -> None:
        name = f"file:/proc/self/fd/{fd}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(name, uri=True, isolation_level=None)
        try:
            self._connection.execute("PRAGMA schema_version").fetchone()
            _check_identity(fd)
        except BaseException:
            self._connection.close()
            raise
        _restrict(self._connection, seconds)

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _check_identity(fd: int) -> None:
    """Raise OSError unless SQLite holds the very object of ``fd``, beside the descriptor itself."""
    wanted = os.fstat(fd)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib costs more than the rest
        if int(name) == fd:
            continue
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            if os.path.samestat(os.fstat(int(name)), wanted):
                return
    raise OSError(0, "the file was replaced while it was opened")


def _restrict(connection: sqlite3.Connection, seconds: float) -> None:
    until = time.monotonic() + seconds
    connection.execute("PRAGMA query_only = 1")
    connection.execute("PRAGMA trusted_schema = 0")
    connection.execute("PRAGMA temp_store = 2")
    connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL_BYTES)
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS_BETWEEN_LOOKS)
    connection.set_authorizer(_judge)


def _judge(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Let reading pass. ``second`` is a function's name, or a PRAGMA's argument beside its name."""
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if second in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in _DESCRIBING else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _print_rows(database: sqlite3.Connection, statement: str, limit: int) -> list[str]:
    cursor = database.execute(statement)
    names = list(_distinct(column[0] for column in cursor.description or ()))
    for _number in range(limit):
        row = cursor.fetchone()
        if row is None:
            return []
        write_row({name: _cell(value) for name, value in zip(names, row, strict=True)})
    return [] if cursor.fetchone() is None else [f"there are more rows than {limit}"]


def _distinct(names: Iterator[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}_{seen[name]}"


def _cell(value: object) -> Value:
    """Return a value for a row: long text is cut, bytes are hexadecimal, infinity is a word."""
    if isinstance(value, bytes):
        text = f"x'{value[: _CELL_CHARACTERS // 2].hex()}'"
        return text if len(value) <= _CELL_CHARACTERS // 2 else f"{text} of {len(value)} bytes"
    if isinstance(value, str):
        return value if len(value) <= _CELL_CHARACTERS else value[:_CELL_CHARACTERS] + "…"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return value if isinstance(value, int | float) else None


def _not_looked_at(fd: int) -> list[str]:
    """Say what lies beside the file and is newer than what was read."""
    with contextlib.suppress(OSError):
        name = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - pathlib costs more than the rest
        if os.stat(f"{name}-wal").st_size:  # noqa: PTH116 - as above
            return ["newer changes lie in the write-ahead log beside the file and are not in this answer"]
    return []


def _words(error: BaseException, seconds: float) -> str:
    if isinstance(error, sqlite3.OperationalError) and "interrupted" in str(error):
        return f"the statement took longer than {seconds:g} s and was ended"
    if isinstance(error, sqlite3.DatabaseError) and "not authorized" in str(error):
        return "only reading is allowed here: one SELECT, without ATTACH, PRAGMA that sets, or extensions"
    if isinstance(error, MemoryError):
        return "the answer needs more memory than there is: select less"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _sorry(why: str) -> int:
    sys.stderr.write(f"no answer: {why}\n")
    return 1
