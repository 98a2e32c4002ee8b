"""Statistics over a log file, or over every log beneath a folder: what grows, and what it says.

Called as ``FD SINCE UNTIL``, times as `2026-11-30 03:00:00`, as the log writes them. One row a file,
largest first, then a total. Files are streamed; what is held is a bounded table of messages with
their numbers taken out, and of hours. Of a very large file the newest part is read, and the row says
so; when the time is used up the rest is left out, and rows say so too.
"""

from __future__ import annotations

import os
import re
import stat
import time

from .removable import is_live_log
from .rows import path_fields, write_row
from .walk import Skipped, join, regular_files

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .rows import Value

MAX_FILES = 50
MAX_READ_BYTES = 64 << 20
MAX_SECONDS = 6.0
MAX_MESSAGES = 2000
MAX_HOURS = 1000
TOP = 5
SHOWN_HOURS = 24
EVER = ("1970-01-01 00:00:00", "2099-12-31 23:59:59")
_LINE_BYTES = 300
_CHUNK_BYTES = 1 << 18
_HOUR = len("2026-11-30T03")
_DAY = 86_400
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_LEVEL = re.compile(
    rb"\b(?:(emerg|alert|crit(?:ical)?|fatal|panic|err(?:or)?|severe)"
    rb"|(warn(?:ing)?)|(info|notice)|(debug|trace))\b",
    re.IGNORECASE,
)
_LEVELS = ("other", "errors", "warnings", "info", "debug")
_TIME = re.compile(
    rb"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d:\d\d:\d\d)"
    rb"|(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d:\d\d:\d\d)"
    rb"|([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
)
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_VARIES = re.compile(rb"0x[0-9a-f]+|\b(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{7,}\b|\d[\d.:,/]*", re.IGNORECASE)


class Stats:
    """What was seen of one file between two times."""

    def __init__(self, path: bytes, size: int, since: str = EVER[0], until: str = EVER[1]) -> None:
        self.path = path
        self.size = size
        self.since = since.replace(" ", "T")
        self.until = until.replace(" ", "T")
        self.whole = (since, until) == EVER
        self.changed = 0.0
        self.within = self.whole
        self.hours: dict[str, list[int]] = {}
        self.lines = 0
        self.levels = [0] * len(_LEVELS)
        self.first = ""
        self.last = ""
        self.messages: dict[bytes, int] = {}
        self.partial = False

    def row(self) -> dict[str, Value]:
        """Return it as a row."""
        top = sorted(self.messages.items(), key=lambda item: (-item[1], item[0]))[:TOP]
        return {
            **path_fields(self.path),
            "size_bytes": self.size,
            "lines": self.lines,
            **dict(zip(_LEVELS[1:], self.levels[1:], strict=True)),
            "first": self.first,
            "last": self.last,
            "top": [{"message": text.decode("utf-8", "replace"), "count": count} for text, count in top],
            "hours": [
                {"hour": hour, "lines": counts[0], "errors": counts[1], "warnings": counts[2]}
                for hour, counts in sorted(self.hours.items())[-SHOWN_HOURS:]
            ],
            "partial": self.partial,
        }


def main(argv: list[str]) -> int:
    """Print the rows; nothing when there is no log."""
    root, (since, until) = int(argv[0]), argv[1:] or EVER
    end = time.monotonic() + MAX_SECONDS
    found = sorted(_files(root), key=lambda item: (-item[1], item[0]))
    everything = [_read(root, Stats(path, size, since, until), end) for path, size in found[:MAX_FILES]]
    for stats in everything:
        write_row(stats.row())
    if len(everything) > 1:
        write_row(_total(everything, len(found)))
    return os.EX_OK


def _files(root: int) -> Iterator[tuple[bytes, int]]:
    status = os.fstat(root)
    if stat.S_ISREG(status.st_mode):
        yield b"", status.st_size
        return
    for folder, name, found in regular_files(root, Skipped()):
        if is_log(name):
            yield join(folder.path, name), found.st_size


def is_log(name: bytes) -> bool:
    """Say whether a file is a log that can be read as text: live, or the first one rotated away."""
    return is_live_log(name.lower().removesuffix(b".1")) and name.lower() not in (
        b"wtmp",
        b"btmp",
        b"lastlog",
        b"faillog",
    )


def _read(root: int, stats: Stats, until: float) -> Stats:
    try:
        for line in _lines(_open(root, stats.path), stats, until):
            _count(line[:_LINE_BYTES], stats)
    except OSError:
        stats.partial = True
    return stats


def _open(root: int, path: bytes) -> int:
    """Open a file beneath the root, each step a name that is not followed. The root itself: its own text."""
    if not path:
        return os.open(f"/proc/self/fd/{root}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    fd = os.dup(root)
    for part in path.split(b"/"):
        try:
            inner = os.open(part, _FLAGS, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def _lines(fd: int, stats: Stats, until: float) -> Iterator[bytes]:
    """Yield each line's beginning; closes the file."""
    with os.fdopen(fd, "rb", buffering=0) as file:
        stats.changed = os.fstat(fd).st_mtime
        skipped = max(0, stats.size - MAX_READ_BYTES)
        stats.partial = file.seek(skipped) > 0
        rest, left = b"", MAX_READ_BYTES
        while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
            left -= len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            rest = rest if len(rest) < _CHUNK_BYTES else rest[:_LINE_BYTES]
            if time.monotonic() > until:
                stats.partial = True
                return
        if rest:
            yield rest


def _count(line: bytes, stats: Stats) -> None:
    seen = timestamp(line)
    moment = _full(seen, stats.changed) if seen else ""
    if moment and not stats.whole:
        stats.within = stats.since <= moment <= stats.until
    if not stats.within:
        return  # a line without a time belongs to the one before it
    stats.lines += 1
    found = _LEVEL.search(line)
    level = found.lastindex or 0 if found else 0
    stats.levels[level] += 1
    if seen:
        stats.first = stats.first or seen
        stats.last = seen
        _count_hour(moment[:_HOUR], level, stats)
    text = message(line)
    if text:
        stats.messages[text] = stats.messages.get(text, 0) + 1
        if len(stats.messages) > MAX_MESSAGES:
            stats.messages = {text: count for text, count in stats.messages.items() if count > 1}


def _count_hour(hour: str, level: int, stats: Stats) -> None:
    counts = stats.hours.setdefault(hour, [0, 0, 0])
    counts[0] += 1
    if level in (1, 2):
        counts[level] += 1
    if len(stats.hours) > MAX_HOURS:
        del stats.hours[min(stats.hours)]


def _full(seen: str, changed: float) -> str:
    """Return a time with its year: one without it is of the last year before the file was written to."""
    if seen[:1].isdigit():
        return seen
    month = f"{_MONTHS.index(seen[:3].encode()) + 1 if seen[:3].encode() in _MONTHS else 0:02d}"
    rest = f"{month}-{seen[4:6].replace(' ', '0')}T{seen[7:]}"
    last = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(changed + _DAY))
    year = int(last[:4])
    return f"{year}-{rest}" if f"{year}-{rest}" <= last else f"{year - 1}-{rest}"


def timestamp(line: bytes) -> str:
    """Return the time in a line's beginning: ISO 8601 where it has a year, else as it stands; "" without."""
    found = _TIME.search(line, 0, _LINE_BYTES)
    if not found:
        return ""
    year, month, day, clock, log_day, log_month, log_year, log_clock, short = found.groups()
    if short:
        return str(short, "ascii")
    if log_month:
        number = _MONTHS.index(log_month) + 1 if log_month in _MONTHS else 0
        year, month, day, clock = log_year, b"%02d" % number, log_day, log_clock
    return str(year + b"-" + month + b"-" + day + b"T" + clock, "ascii")


def message(line: bytes) -> bytes:
    """Return a line without its time, and with whatever varies from one to the next replaced by `#`."""
    found = _TIME.match(line.lstrip(b"["))
    start = found.end() + line.startswith(b"[") if found else 0
    return _VARIES.sub(b"#", line[start:]).strip(b" \t\r#.,:;]-")


def _total(everything: list[Stats], files: int) -> dict[str, Value]:
    levels = zip(_LEVELS[1:], zip(*(stats.levels[1:] for stats in everything), strict=True), strict=True)
    return {
        "total": True,
        "files": files,
        "size_bytes": sum(stats.size for stats in everything),
        "lines": sum(stats.lines for stats in everything),
        **{name: sum(counts) for name, counts in levels},
        "partial": files > len(everything) or any(stats.partial for stats in everything),
    }
