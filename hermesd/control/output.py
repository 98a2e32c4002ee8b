"""From a command's bytes to what is answered: text, rows, one line that sums them up.

Pure and total: whatever a command prints, something safe comes out, and nothing raises. Text loses
its escape sequences and control characters here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from hermesd.control.catalogue import Output
from hermesd.control.sandbox.base import Ended
from hermesd.protocol import ProtocolError, check_json
from hermesd.telemetry import visible

MAX_TEXT: Final = 64 * 1024
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_FIELD: Final = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)(?::([a-z]+))?\}")

Row = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Read:
    """A command's output as read: ``text`` for people, ``rows`` for programs, ``digest`` of the whole."""

    text: str
    rows: tuple[Row, ...]
    summary: str
    digest: str
    size_bytes: int
    truncated: bool


def read_output(output: Output, ended: Ended, values: dict[str, JsonValue]) -> Read:
    """Return the output as the command's file says that it is to be read."""
    lines = clean(ended.stdout).splitlines()[output.skip_lines :]
    rows = [_placed(row, output, values) for row in _rows(output, lines)][: output.max_lines]
    text = "\n".join(lines[: output.max_lines])
    cut = ended.truncated or len(lines) > output.max_lines or len(text) > MAX_TEXT
    if not text and ended.stderr:
        text = clean(ended.stderr)
    return Read(
        text=text[:MAX_TEXT],
        rows=tuple(rows),
        summary=summarise(output, rows, len(lines)),
        digest=hashlib.sha256(ended.stdout).hexdigest(),
        size_bytes=len(ended.stdout),
        truncated=cut,
    )


def clean(data: bytes) -> str:
    """Return bytes as text without escape sequences, each line with its odd characters made visible."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    return "\n".join(visible(line.replace("\t", "    ")) for line in text.split("\n"))


def first_line(data: bytes) -> str:
    """Return the first line with something on it, for a reason of at most 300 characters."""
    return next((line.strip()[:300] for line in clean(data).splitlines() if line.strip()), "")


def summarise(output: Output, rows: list[Row], lines: int) -> str:
    """Return the command's summary: its template over the first row, ``{count}`` being the rows."""
    if not output.summary:
        return f"{len(rows)} rows" if rows else f"{lines} lines"
    if not rows:
        return "nothing found"
    facts: Row = {"count": len(rows), **rows[0]}
    return _FIELD.sub(lambda found: _shown(facts.get(found[1]), found[2] or ""), output.summary)


def human_bytes(size: float) -> str:
    """Return a size as people write it: decimal units, one digit after the point."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(size) < 1000:  # noqa: PLR2004 - decimal units are powers of 1000
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _shown(value: JsonValue, form: str) -> str:
    if form == "bytes" and isinstance(value, int | float):
        return human_bytes(value)
    return f"{value:g}" if isinstance(value, float) else str(value) if value is not None else "?"


def _placed(row: Row, output: Output, values: dict[str, JsonValue]) -> Row:
    base, name = values.get(output.relative_to), row.get("path")
    if isinstance(base, str) and isinstance(name, str) and not name.startswith("/"):
        row = {**row, "path": f"{base.rstrip('/')}/{name}" if name else base}
    return {**row, **{argument: values[argument] for argument in output.with_args if argument in values}}


def _rows(output: Output, lines: list[str]) -> Iterable[Row]:
    match output.parser:
        case "table":
            return [row for line in lines if (row := _table_row(output.columns, line))]
        case "key_value":
            return [row for row in (_key_values(lines),) if row]
        case "json_lines" | "gain":
            return [row for line in lines if (row := _json_row(line))]
        case _:
            return []


def _table_row(columns: tuple[str, ...], line: str) -> Row | None:
    parts = line.split(None, len(columns) - 1)
    if len(parts) != len(columns):
        return None
    names = (column.partition(":") for column in columns)
    return {name: _typed(kind, part.strip()) for (name, _, kind), part in zip(names, parts, strict=True)}


def _typed(kind: str, text: str) -> JsonValue:
    try:
        if kind == "integer":
            return int(text)
        if kind in ("number", "percent"):
            return float(text.rstrip("%"))
    except ValueError:
        return None
    return text


def _key_values(lines: list[str]) -> Row:
    """Read `Key: value kB` and `key=value` lines. Sizes in kB become bytes."""
    row: Row = {}
    for line in lines:
        found = re.match(r"([A-Za-z][A-Za-z0-9_()]*)\s*[:=]\s*(.*)$", line)
        if not found:
            continue
        name, text = re.sub(r"\W+", "_", found[1]).strip("_"), found[2].strip()
        size = re.fullmatch(r"(\d+) kB", text)
        row[name] = int(size[1]) * 1024 if size else int(text) if re.fullmatch(r"\d{1,18}", text) else text
    return row


def _json_row(line: str) -> Row | None:
    try:
        value = check_json(line.encode())
    except ProtocolError:
        return None
    return value if isinstance(value, dict) else None
