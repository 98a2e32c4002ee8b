"""JSON from strangers: read only what every reader would understand in the same way.

The standard library's parser is used because it can refuse duplicate keys, which the faster ones
silently drop. This module must never quote what it refuses: a reason goes back to whoever sent it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

MAX_DEPTH: Final = 32
"""Nesting of JSON containers in one message; deeper is refused by name, not by a stack overflow."""

_STRING: Final = re.compile(
    r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL
)  # an unfinished one too, without backtracking
_BRACKET: Final = re.compile(r"[\[\]{}]")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class ProtocolError(ValueError):
    """A peer sent something that is not of the protocol. The text says what, and quotes no content."""


def check_json(text: bytes) -> Any:
    """Parse JSON from a stranger, refusing what two readers could understand differently.

    Refused: invalid UTF-8, lone surrogates, duplicate keys, NaN and infinities (``1e400`` too),
    nesting beyond MAX_DEPTH, and anything after the first value. Raise ProtocolError.
    """
    try:
        decoded = text.decode("utf-8")
        _check_depth(decoded)
        value = _DECODER.decode(decoded)
        _refuse_lone_surrogates(decoded, value)
    except UnicodeDecodeError as error:
        raise ProtocolError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ProtocolError(f"not JSON: {error.msg} at character {error.pos}") from None
    except ProtocolError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise ProtocolError(f"not JSON that is read here: {error}") from None
    return value


def _check_depth(text: str) -> None:
    """Refuse deep nesting before a recursive parser meets it. Brackets inside strings do not count."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise ProtocolError(f"nested deeper than {MAX_DEPTH}")


def _refuse_lone_surrogates(text: str, value: Any) -> None:
    """Refuse escapes that are half a character: some readers replace them, some refuse, some keep them."""
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ProtocolError("half a character (a lone surrogate) in a text") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ProtocolError("duplicate keys in one object")
    return keys


def _no_constant(_name: str) -> None:
    raise ProtocolError("NaN and infinities are not numbers here")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ProtocolError("a number is too large")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
)
