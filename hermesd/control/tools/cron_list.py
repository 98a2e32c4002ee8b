"""Lists what cron runs: the entries of `/etc/crontab`, `/etc/cron.d` and readable users' tables.

Called as ``LIMIT``. An entry that is switched off (a comment that reads like an entry, a file that cron
passes over for its name) is shown as such. Commands are shown as they stand: the executor takes secrets out.
"""

from __future__ import annotations

import os
import re

from .kernel import read_or
from .rows import write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .rows import Value

PERIODS = ("hourly", "daily", "weekly", "monthly", "yearly")
USERS = ("/var/spool/cron/crontabs", "/var/spool/cron")
_FIELD = r"[0-9*/,a-zA-Z-]+"
_ENTRY = re.compile(rf"(@[a-z]+|{_FIELD}(?:\s+{_FIELD}){{4}})\s+(.+)")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_OFF = re.compile(r"#\s*")


def main(argv: list[str]) -> int:
    """Print one row an entry."""
    rows = [*_tables(), *_periodic(), *_users()]
    for row in rows[: int(argv[0])]:
        write_row(row)
    return os.EX_OK


def _tables() -> Iterator[dict[str, Value]]:
    yield from entries("/etc/crontab", read_or("/etc/crontab"), system=True)
    for name in _names("/etc/cron.d"):
        path = f"/etc/cron.d/{name}"
        yield from entries(path, read_or(path), system=True, passed_over=not _NAME.fullmatch(name))


def _periodic() -> Iterator[dict[str, Value]]:
    for period in PERIODS:
        for name in _names(f"/etc/cron.{period}"):
            path = f"/etc/cron.{period}/{name}"
            on = bool(_NAME.fullmatch(name)) and os.access(path, os.X_OK)
            yield {"file": path, "line": 0, "when": period, "user": "root", "command": path, "enabled": on}


def _users() -> Iterator[dict[str, Value]]:
    for folder in USERS:
        for name in _names(folder):
            yield from entries(f"{folder}/{name}", read_or(f"{folder}/{name}"), system=False, user=name)


def entries(
    path: str, text: str, *, system: bool, user: str = "", passed_over: bool = False
) -> Iterator[dict[str, Value]]:
    """Yield a row for each entry of a table; ``system`` tables name the user in each entry."""
    for number, line in enumerate(text.splitlines(), 1):
        off = _OFF.match(line)
        found = _ENTRY.fullmatch(line[off.end() :].strip() if off else line.strip())
        if not found or (off and not any(char.isdigit() or char in "@*" for char in found[1][:1])):
            continue
        who, _, command = found[2].partition(" ") if system else (user, "", found[2])
        if command.strip():
            yield {
                "file": path,
                "line": number,
                "when": found[1],
                "user": who,
                "command": command.strip(),
                "enabled": not off and not passed_over,
            }


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208 - see kernel
    except OSError:
        return []
