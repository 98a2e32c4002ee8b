"""From a command's bytes to what is answered: text, rows, one line that sums them up.

Pure and total: whatever a command prints, something safe comes out, and nothing raises. Text loses
its escape sequences and control characters here, and then its secrets: in this order, so that no
sequence can hide one, and over the whole of it, so that none lies across a cut.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from hermesd.control.catalogue import Output
from hermesd.control.redaction import Redactor
from hermesd.control.sandbox.base import Ended
from hermesd.protocol import ProtocolError, check_json
from hermesd.telemetry import visible

MAX_TEXT: Final = 64 * 1024
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_FIELD: Final = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)(?::([a-z]+))?\}")

Row = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Read:
    """A command's output as read: ``text`` for people, ``rows`` for programs, ``whole`` to be kept.

    ``digest`` is the SHA-256 of ``whole``, which is clean and without secrets; a text that is cut says how
    much more there is and, where ``kept``, how to read on.
    """

    text: str
    whole: bytes
    rows: tuple[Row, ...]
    summary: str
    digest: str
    size_bytes: int
    truncated: bool


def read_output(
    output: Output, ended: Ended, values: dict[str, JsonValue], redactor: Redactor, *, kept: bool = False
) -> Read:
    """Return the output as the command's file says that it is to be read. ``kept``: the whole will be."""
    stdout, stderr = clean(ended.stdout), clean(ended.stderr)
    if ended.truncated:
        stdout, stderr = redactor.cut_off(stdout), redactor.cut_off(stderr)
    lines = stdout.splitlines()[output.skip_lines :]
    rows = [redactor.row(_placed(row, output, values)) for row in _rows(output, lines)]
    whole = redactor.text("\n".join(lines) or stderr)
    text = "\n".join(whole.split("\n", output.max_lines)[: output.max_lines])[:MAX_TEXT]
    data, cut = whole.encode(), len(text) < len(whole)
    digest = hashlib.sha256(data).hexdigest()
    if cut:
        text += _cut_mark(len(data), len(text.encode()), digest if kept else "")
    if ended.truncated:
        text += "\n[ended here: it wrote more than it may]"
    return Read(
        text=text,
        whole=data,
        rows=tuple(rows[: output.max_lines]),
        summary=redactor.text(summarise(output, rows, len(lines))),
        digest=digest,
        size_bytes=len(ended.stdout),
        truncated=cut or ended.truncated,
    )


def _cut_mark(size: int, shown: int, digest: str) -> str:
    where = f", read on with artifact:read digest={digest} offset={shown}" if digest else ""
    return f"\n[cut, {size - shown} more bytes{where}]"


def clean(data: bytes) -> str:
    """Return bytes as text without escape sequences, each line with its odd characters made visible."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    return "\n".join(visible(line.replace("\t", "    ")) for line in text.split("\n"))


def first_line(data: bytes) -> str:
    """Return the first line with something on it, for a reason of at most 300 characters."""
    return next((line.strip()[:300] for line in clean(data).splitlines() if line.strip()), "")


def summarise(output: Output, rows: list[Row], lines: int) -> str:
    """Return the command's summary: its template over the first row that is no total.

    ``{count}`` is how many there are, ``{total_NAME}`` a figure of the total; without one, `nothing` is said.
    """
    found = [row for row in rows if row.get("total") is not True]
    totals = {
        f"total_{name}": value for row in rows if row.get("total") is True for name, value in row.items()
    }
    if not output.summary:
        return f"{len(found)} rows" if rows else f"{lines} lines"
    template = output.summary if found else output.nothing
    facts: Row = {"count": len(found), **totals, **(found[0] if found else {})}
    return _FIELD.sub(lambda field: _shown(facts.get(field[1]), field[2] or ""), template)


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
