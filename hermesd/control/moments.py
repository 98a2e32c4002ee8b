"""Points in time and spans of it, as requests write them and as programs are told them.

One spelling each, so that a value means the same to whoever asks, whoever is shown it and the program
that gets it: `2026-11-30T03:00:00Z` (always UTC) and `90s`, `15m`, `2h`, `7d`. Pure: this module must
never read a clock.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

MAX_SPAN_SECONDS: Final = 10 * 366 * 86_400

_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
_SPAN: Final = re.compile(r"([1-9]\d{0,8})([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_moment(text: str) -> datetime | None:
    """Return the point in time, None when the text is not one in the one spelling."""
    if not _MOMENT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # the 31st of February, the year 0
        return None


def parse_span(text: str) -> int | None:
    """Return a span in seconds, None when the text is not one in the one spelling."""
    found = _SPAN.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    return seconds if 0 < seconds <= MAX_SPAN_SECONDS else None


def moment_words(text: str) -> str:
    """Return a point in time as programs read it in a container, where the time zone is UTC."""
    return text.removesuffix("Z").replace("T", " ")
