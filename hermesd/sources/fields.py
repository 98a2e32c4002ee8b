"""Reading single fields of what strangers send: times, labels, status, severity, texts, ids.

Each function takes any JSON value and returns the field, or raises Unreadable with a reason that
names the field and quotes none of the content. This module must never guess what was meant.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from hermesd.events import MAX_LABELS, MAX_TEXT, EventStatus, Severity
from hermesd.sources.base import Unreadable

MAX_NAME: Final = 128
MAX_LABEL_VALUE: Final = 1024
MAX_ID: Final = 256
_CUT_MARK: Final = "…"


def read_time(value: Any, field: str) -> datetime | None:
    """Return an RFC 3339 time (nanoseconds are cut to microseconds) or seconds since 1970, in UTC.

    None when it is absent, empty or in year 1, which is how Go writes "no time". Raise Unreadable.
    """
    if value is None or value == "":
        return None
    try:
        found = _time_of(value)
        return None if found.year == 1 else found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise Unreadable(f"{field} is not a time") from None


def _time_of(value: Any) -> datetime:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError
    if not isinstance(value, str):
        return datetime.fromtimestamp(value, UTC)
    found = datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def read_labels(value: Any, field: str) -> dict[str, str]:
    """Return an object of scalars as labels: at most MAX_LABELS, long values cut. Raise Unreadable."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Unreadable(f"{field} is not an object")
    if len(value) > MAX_LABELS:
        raise Unreadable(f"{field} has more than {MAX_LABELS} entries")
    return {read_name(name, field): label_text(item, field) for name, item in value.items()}


def read_name(value: Any, field: str) -> str:
    """Return a label's name. Raise Unreadable when it is empty or long."""
    if not isinstance(value, str) or not value or len(value) > MAX_NAME:
        raise Unreadable(f"{field} has a name that is empty or longer than {MAX_NAME} characters")
    return storable(value)


def label_text(value: Any, field: str) -> str:
    """Return a scalar as a label's value. Raise Unreadable for anything nested."""
    if isinstance(value, dict | list):
        raise Unreadable(f"{field} holds something nested where a plain value is wanted")
    text = value if isinstance(value, str) else json.dumps(value)
    return cut(text, MAX_LABEL_VALUE)


def read_text(value: Any, field: str, limit: int = MAX_TEXT) -> str:
    """Return a text, cut at ``limit`` characters; empty when absent. Raise Unreadable."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unreadable(f"{field} is not a text")
    return cut(value, limit)


def read_number(value: Any, field: str) -> float | None:
    """Return a finite number, None when absent. Raise Unreadable."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable(f"{field} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Unreadable(f"{field} is not a finite number")
    return number


def read_status(value: Any, number: float | None) -> EventStatus:
    """Return the status; absent, a value makes a reading and anything else fires. Raise Unreadable."""
    if value is None:
        return EventStatus.FIRING if number is None else EventStatus.READING
    try:
        return EventStatus(str(value).lower())
    except ValueError:
        raise Unreadable(f"status is none of {', '.join(EventStatus)}") from None


def read_severity(value: Any, default: Severity) -> Severity:
    """Return the severity; absent, the default. Raise Unreadable."""
    if value is None:
        return default
    try:
        return Severity(str(value).lower())
    except ValueError:
        raise Unreadable(f"severity is none of {', '.join(Severity)}") from None


def read_id(value: Any) -> str:
    """Return an id as text (a number too), digested when long; empty when absent. Raise Unreadable."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Unreadable("id is not a text or a whole number")
    return short_id(storable(str(value)))


def short_id(text: str) -> str:
    """Return the id itself, or its digest when it is longer than MAX_ID."""
    return text if len(text) <= MAX_ID else digest(text.encode("utf-8"))


def digest(*parts: bytes) -> str:
    """Return 32 hexadecimal digits that stand for the parts, whose borders count."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
    return whole.hexdigest()[:32]


def storable(text: str) -> str:
    """Return the text as any store takes it: lone surrogates and NULs become visible escapes."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def cut(text: str, limit: int) -> str:
    """Return the text, cut at ``limit`` characters with a mark."""
    text = storable(text)
    return text if len(text) <= limit else text[: limit - 1] + _CUT_MARK


def as_object(value: Any) -> Mapping[str, Any]:
    """Return the JSON object. Raise Unreadable when it is something else."""
    if not isinstance(value, dict):
        raise Unreadable("want a JSON object")
    return value
