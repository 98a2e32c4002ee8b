"""Titles and goals: text with `{label}` places, filled from an event and from nothing else.

A place names a label, a pseudo label, `value` or `unit`; it can reach no attribute and no index. What
an event lacks becomes `?`. What a stranger wrote into a label stays on one line and has a bound, but
is otherwise his text: whoever shows it to a planner must still treat it as data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from string import Formatter
from typing import Final

from hermesd.events import Event
from hermesd.rules.matcher import reader
from hermesd.telemetry import visible

MAX_TITLE: Final = 300
MAX_GOAL: Final = 1000
MAX_LABEL: Final = 120

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
_FORMAT: Final = re.compile(r"(?:\.[0-9])?[fg]", re.ASCII)

Part = Callable[[Event], str]


def parse_template(text: object) -> str:
    """Return the text when its places can be filled. Raise ValueError with the reason."""
    if not isinstance(text, str):
        raise ValueError("a text is expected here")  # noqa: TRY004 - pydantic's border
    _compile(text)
    return text


def render(template: str, event: Event, limit: int = MAX_TITLE) -> str:
    """Return the template filled from the event, on one line of at most ``limit`` characters."""
    text = "".join(part(event) for part in _compile(template))
    return text if len(text) <= limit else text[: limit - 1] + "…"


@lru_cache(maxsize=1024)
def _compile(template: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    for literal, name, form, conversion in _split(template):
        if literal:
            parts.append(_constant(visible(literal)))
        if name is not None:
            parts.append(_place(name, form or "", conversion))
    return tuple(parts)


def _split(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{error}; write {{{{ and }}}} for plain braces") from None


def _place(name: str, form: str, conversion: str | None) -> Part:
    if not _NAME.fullmatch(name) or conversion:
        raise ValueError(
            f"{{{name}}} is not a place: between the braces stands a label's name, value or unit"
        )
    if name == "value":
        if form and not _FORMAT.fullmatch(form):
            raise ValueError(f"{{value:{form}}}: the format is one like .0f, .1f or g")
        return lambda event: "?" if event.value is None else format(event.value, form or "g")
    if form:
        raise ValueError(f"{{{name}:{form}}}: only value has a format")
    read = (lambda event: event.unit) if name == "unit" else reader(name)
    return lambda event: _bounded(read(event)) or "?"


def _constant(text: str) -> Part:
    return lambda _event: text


def _bounded(text: str) -> str:
    return visible(text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…")
