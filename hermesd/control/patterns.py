"""Patterns of definitions: whether matching one has a bounded cost. Pure.

A backtracking matcher takes for ever on some patterns. What is accepted here is small enough to say
what it costs: characters, classes, groups that are not repeated, and few repeats. No pattern outside
of this may ever be compiled from a file.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

MAX_STEPS: Final = 100_000
"""How many steps a match may take at worst: some ms."""
_MAX_GROUPS: Final = 6

_TOKEN: Final = re.compile(
    r"(?P<set>\[\^?\]?(?:[^\\\[\]]|\\[^A-Z])+\])|(?P<open>\((?:\?:)?)|(?P<close>\)\??)|(?P<mark>\|)"
    r"|(?P<atom>\\[^A-Zb-z0-9]|\\[dwst]|[A-Za-z0-9_./:@%=~,;!#&' \"<>-])",
    re.ASCII,
)
_REPEAT: Final = re.compile(r"\{(\d{1,4})(?:,(\d{0,4}))?\}|[*+?]", re.ASCII)


@lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern, ASCII and case-sensitive. Raise ValueError with a reason."""
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"pattern: {error}") from None


def pattern_fault(pattern: str, max_length: int) -> str:
    """Return why a pattern may cost too much on a text of ``max_length``; "" when it may not."""
    try:
        compiled(pattern)
    except ValueError as error:
        return str(error)
    varying, groups, at = 0, 0, 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return f"pattern: {pattern[at]!r} at {at} is more than a pattern of the catalogue may hold"
        groups += token.lastgroup == "open"
        repeat = _REPEAT.match(pattern, token.end())
        if repeat and token.lastgroup not in ("set", "atom"):
            return "pattern: a repeat inside a repeat can take for ever"
        varying += repeat is not None and _varies(repeat)
        at = repeat.end() if repeat else token.end()
    if groups > _MAX_GROUPS or max_length ** max(0, varying - 1) > MAX_STEPS:
        return f"pattern: {varying} repeats over {max_length} characters cost too much"
    return ""


def _varies(repeat: re.Match[str]) -> bool:
    """Say whether a repeat can take more or less: `?` and `{4}` cannot, to speak of."""
    if repeat[0] in "*+":
        return True
    return repeat[0] != "?" and repeat[2] is not None
