"""How values become columns: times as sortable text, structures as JSON.

Times are ISO 8601 in UTC with microseconds, so that text order is time order. This module must
never lose a value silently: what cannot be written raises.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import orjson


def from_time(moment: datetime) -> str:
    """Return an aware time as a column. Raise ValueError when it is naive."""
    if moment.tzinfo is None:
        raise ValueError("a stored time must be aware")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def from_optional_time(moment: datetime | None) -> str | None:
    """Return a time that may be absent as a column."""
    return None if moment is None else from_time(moment)


def to_time(text: str) -> datetime:
    """Return the time that `from_time` wrote."""
    return datetime.fromisoformat(text)


def to_optional_time(text: str | None) -> datetime | None:
    """Return a time that may be absent."""
    return None if text is None else datetime.fromisoformat(text)


def from_text(text: str) -> str:
    """Return the text with undecodable bytes of the host (lone surrogates) made visible.

    SQLite takes no half characters, and one odd file name must not stop everybody's events.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def from_optional_text(text: str | None) -> str | None:
    """Return a text that may be absent as a column."""
    return None if text is None else from_text(text)


def from_json(value: Any) -> str:
    """Return plain JSON values as a column. Raise TypeError for anything else.

    A label that carries undecodable bytes of the host (lone surrogates) is written in escapes,
    which the fast encoder does not do.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value)


def to_json(text: str) -> Any:
    """Return what `from_json` wrote."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)
