"""hermesctl's two languages: choosing one, and saying texts, times, sizes and figures in it.

Pure: the time of day is passed in. The texts themselves are in `messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from hermesd.ctl import messages as m
from hermesd.ctl.messages import Text

EN: Final = "en"
ZH: Final = "zh"
LANGUAGES: Final = (EN, ZH)

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_KILO: Final = 1000


def language_of(environ: Mapping[str, str]) -> str:
    """Return the language that the locale's variables ask for: zh for Chinese, else en."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := environ.get(name):
            return ZH if value.lower().startswith("zh") else EN
    return EN


class Speech:
    """Says texts in one language."""

    def __init__(self, language: str) -> None:
        self.language = language

    def __call__(self, text: Text, /, **values: object) -> str:
        """Return the text with the values put in."""
        words = text.zh if self.language == ZH else text.en
        return words.format_map(values) if values else words

    def word(self, words: Mapping[str, Text], value: object) -> str:
        """Return a word of the protocol in the person's language; an unknown one as it came."""
        text = str(value or "")
        return self(words[text]) if text in words else text

    def span(self, seconds: float) -> str:
        """Return a length of time with two units at most: `3 h 12 min`."""
        whole = int(max(0, seconds))
        if whole < _MINUTE:
            return self(m.SECONDS, n=whole)
        if whole < _HOUR:
            return self(m.MINUTES, n=whole // _MINUTE)
        if whole < _DAY:
            hours, minutes = whole // _HOUR, whole % _HOUR // _MINUTE
            return self(m.HOURS_MINUTES, h=hours, m=minutes) if minutes else self(m.HOURS, n=hours)
        days, hours = whole // _DAY, whole % _DAY // _HOUR
        return self(m.DAYS_HOURS, d=days, h=hours) if hours else self(m.DAYS, n=days)

    def ago(self, stamp: object, now: datetime) -> str:
        """Return how long ago an ISO time was, a dash for none."""
        moment = moment_of(stamp)
        if moment is None:
            return "–"
        seconds = (now - moment).total_seconds()
        if seconds < 1:
            return self(m.JUST_NOW)
        return self(m.AGO, span=self.span(seconds))

    def lasting(self, stamp: object, now: datetime) -> str:
        """Return how long something has lasted since an ISO time, a dash for none."""
        moment = moment_of(stamp)
        return self.span((now - moment).total_seconds()) if moment else "–"

    def left(self, stamp: object, now: datetime) -> str:
        """Return how long it is until an ISO time, a dash for none."""
        moment = moment_of(stamp)
        if moment is None:
            return "–"
        seconds = (moment - now).total_seconds()
        return self(m.IN_SPAN, span=self.span(seconds)) if seconds >= 1 else self(m.OVER)

    def when(self, stamp: object, now: datetime) -> str:
        """Return an ISO time as the local clock shows it, and how long ago that was."""
        moment = moment_of(stamp)
        if moment is None:
            return "–"
        absolute = moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
        return self(m.WHEN, absolute=absolute, ago=self.ago(stamp, now))


def moment_of(stamp: object) -> datetime | None:
    """Return an ISO time of the wire as an aware datetime, None when it is not one."""
    if not isinstance(stamp, str) or not stamp:
        return None
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def clock_time(stamp: object) -> str:
    """Return an ISO time as hours, minutes and seconds of the local clock."""
    moment = moment_of(stamp)
    return moment.astimezone().strftime("%H:%M:%S") if moment else "–"


def size(number: object) -> str:
    """Return a number of bytes with a decimal unit: `14.2 MB`."""
    value = float(number) if isinstance(number, int | float) else 0.0
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if abs(value) < _KILO or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= _KILO
    raise AssertionError  # pragma: no cover - the last unit always returns


def millis(number: object) -> str:
    """Return a number of milliseconds as people write it: `0.4 ms`, `45 s`, `4 h`."""
    value = float(number) if isinstance(number, int | float) else 0.0
    if value < _KILO:
        return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"  # noqa: PLR2004 - one decimal when small
    seconds = value / _KILO
    if seconds < 2 * _MINUTE:
        return f"{seconds:.3g} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.3g} min"
    return f"{seconds / _HOUR:.3g} h"


def count(number: object) -> str:
    """Return a whole number with thousands set apart."""
    return f"{number:,}" if isinstance(number, int) else "?"
