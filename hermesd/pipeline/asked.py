"""Reading what somebody asks at a socket: each field of the right kind and size, or a refusal in words.

Pure. This module must never guess what was meant.
"""

from __future__ import annotations

from typing import Any, Final

from hermesd.ipc.messages import Code
from hermesd.ipc.server import RequestError

MAX_LISTED: Final = 500


def text_in(payload: dict[str, Any], name: str, default: str | None = None, *, longest: int = 200) -> str:
    """Return a field that is a text; without a default it must be there. Raise RequestError."""
    value = payload.get(name, default)
    if not isinstance(value, str) or len(value) > longest:
        raise RequestError(Code.BAD_REQUEST, f"{name}: text of at most {longest} characters is needed")
    return value


def flag_in(payload: dict[str, Any], name: str) -> bool:
    """Return a field that is true or false, false when it is absent. Raise RequestError."""
    value = payload.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(Code.BAD_REQUEST, f"{name}: true or false is needed")
    return value


def limit_in(payload: dict[str, Any]) -> int:
    """Return how many are wanted at most. Raise RequestError."""
    value = payload.get("limit", 50)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_LISTED:
        raise RequestError(Code.BAD_REQUEST, f"limit: a whole number from 1 to {MAX_LISTED} is needed")
    return value
