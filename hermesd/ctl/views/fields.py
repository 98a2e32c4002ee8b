"""Reading payloads without trusting their shape: what is missing or odd reads as empty.

A daemon of another version must cost a person a dash on the screen, never the whole answer. Pure.
"""

from __future__ import annotations

import json
from typing import Any


def text_of(payload: dict[str, Any], name: str, default: str = "") -> str:
    """Return a field as text; what is null or missing as ``default``."""
    value = payload.get(name)
    return default if value is None or value == "" else str(value)


def table_of(payload: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a field that is an object, an empty one when it is not."""
    value = payload.get(name)
    return value if isinstance(value, dict) else {}


def rows_of(payload: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a field that is a list of objects; anything else in it is passed over."""
    value = payload.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts_of(payload: dict[str, Any], name: str) -> list[str]:
    """Return a field that is a list, each item as text."""
    value = payload.get(name)
    return [str(item) for item in value] if isinstance(value, list) else []


def number_of(payload: dict[str, Any], name: str) -> float:
    """Return a field that is a number, 0 when it is not."""
    value = payload.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def whole_of(payload: dict[str, Any], name: str) -> int:
    """Return a field as a whole number, 0 when it is none."""
    return int(number_of(payload, name))


def reading(payload: dict[str, Any], value: str = "last_value") -> str:
    """Return a measured value with its unit, a dash when there is none."""
    number = payload.get(value)
    if not isinstance(number, int | float):
        return "–"
    unit = text_of(payload, "unit")
    return f"{number:.1f} %" if unit == "percent" else f"{number:g} {unit}".rstrip()


def pairs(table: dict[str, Any]) -> list[str]:
    """Return an object as `name=value` texts, in its own order."""
    return [f"{name}={plain(value)}" for name, value in table.items()]


def plain(value: object) -> str:
    """Return a value as people write it: text as it is, anything else as JSON."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
