"""Rows for whoever reads a tool's output: one JSON object a line.

`json` costs 10 ms at import, as much as a whole container; the interpreter's own string encoder
costs nothing. File names are bytes: a name that is no UTF-8 is shown with escapes, and its exact
bytes follow in hex.
"""

from __future__ import annotations

import sys
import time
from _json import encode_basestring_ascii

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]


def write_row(row: dict[str, Value]) -> None:
    """Print one row."""
    sys.stdout.write(render(row) + "\n")


def render(value: Value) -> str:
    """Return a value as JSON, ASCII only."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list):
        return "[" + ", ".join(render(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{encode_basestring_ascii(k)}: {render(v)}" for k, v in value.items()) + "}"
    return repr(value)


def path_fields(path: bytes) -> dict[str, Value]:
    """Return `path` as text, and `path_hex` beside it when the text is not the name itself."""
    try:
        return {"path": path.decode("utf-8")}
    except UnicodeDecodeError:
        return {"path": path.decode("utf-8", "backslashreplace"), "path_hex": path.hex()}


def iso_time(seconds: float) -> str:
    """Return a time since the epoch as ISO 8601 in UTC, to the second."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, OSError, ValueError):
        return ""
