"""Durations as people write them: `10s`, `5m`, `1h30m`. Never a bare number, whose unit would be a guess."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_UNITS: Final = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SHAPE: Final = re.compile(
    r"(?:([0-9]{1,6})w)?(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?"
    r"(?:([0-9]{1,6})m(?!s))?(?:([0-9]{1,6})s)?(?:([0-9]{1,6})ms)?",
    re.ASCII,
)
_MAX_SECONDS: Final = 366 * 86_400.0


def parse_duration(text: object) -> float:
    """Return the seconds that ``text`` says, largest unit first (`1d12h`). Raise ValueError."""
    if not isinstance(text, str):
        raise ValueError('a duration is a text with a unit, as "90s" or "5m"')  # noqa: TRY004 - for pydantic
    found = _SHAPE.fullmatch(text)
    if not text or found is None:
        raise ValueError(f'{text[:40]!r} is not a duration; write for example "90s", "5m" or "1h30m"')
    seconds = sum(float(count) * unit for count, unit in zip(found.groups("0"), _UNITS.values(), strict=True))
    if seconds > _MAX_SECONDS:
        raise ValueError(f"{text!r} is longer than 366 days")
    return seconds


def render_duration(seconds: float) -> str:
    """Return the seconds in the same words, rounded to whole seconds from ten on."""
    return _render(round(seconds) if seconds >= 10 else round(seconds, 1))  # noqa: PLR2004 - tenths tell nothing there


@lru_cache(maxsize=4096)
def _render(rest: float) -> str:
    parts = []
    for unit, size in _UNITS.items():
        if unit == "s":
            break
        count = int(rest // int(size))
        rest -= count * int(size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts + ([f"{rest:g}s"] if rest or not parts else []))
