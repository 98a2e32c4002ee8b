"""Matchers, written as Alertmanager writes them: `name = "value"`, `!=`, `=~`, `!~`.

A regex matches the whole text. It is run by a linear-time engine (no look-around, no back
references), so that no label a stranger sends can make an event expensive. A label that an event
lacks counts as empty. This module must never read anything but the event it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

from hermesd.events import Event

MAX_PATTERN: Final = 1024

_SHAPE: Final = re.compile(
    r"""\s*(?P<name>[A-Za-z_][A-Za-z0-9_.]*|"(?:[^"\\\n]|\\.)+")
        \s*(?P<op>=~|!~|!=|=)
        \s*(?P<value>"(?:[^"\\\n]|\\.)*"|[^\s{}!=~,\\"'`]*)\s*""",
    re.VERBOSE,
)
_ESCAPES: Final = {"n": "\n", "\\": "\\", '"': '"'}


class Op(StrEnum):
    """How a matcher compares."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


@dataclass(frozen=True, slots=True)
class Matcher:
    """One compiled condition on one label. ``miss`` is the reason given when it does not hold."""

    name: str
    op: Op
    value: str
    read: Callable[[Event], str] = field(repr=False, compare=False)
    test: Callable[[str], bool] = field(repr=False, compare=False)
    miss: str = field(repr=False, compare=False)

    def holds(self, event: Event) -> bool:
        """Say whether the event meets the condition."""
        return self.test(self.read(event))

    def __str__(self) -> str:
        return f"{self.name}{self.op}{_quote(self.value)}"


def parse_matcher(text: object) -> Matcher:
    """Return the matcher that ``text`` writes. Raise ValueError with the reason."""
    if not isinstance(text, str):
        raise ValueError("a matcher is a text, as 'type=\"host.filesystem\"'")  # noqa: TRY004 - pydantic's border
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text[:80]!r} is not one matcher; write name, one of = != =~ !~, and a value in double quotes"
        )
    name, op, value = _unquote(found["name"]), Op(found["op"]), _unquote(found["value"])
    return Matcher(
        name=name,
        op=op,
        value=value,
        read=reader(name),
        test=_test(op, value),
        miss=f"does not match {name}{op}{_quote(value)}",
    )


@lru_cache(maxsize=4096)
def reader(name: str) -> Callable[[Event], str]:
    """Return how to read a label or pseudo label of an event, settled once.

    `type`, `source` and `status` are always the event's own: no label that a sender chose may pose
    as them. `severity` and `subject` are the label of that name if there is one, else the event's own.
    """
    own = _OWN.get(name)
    if own is not None:
        return own
    fallback = _FALLBACKS.get(name)
    if fallback is not None:
        return lambda event: event.labels.get(name) or fallback(event)
    return lambda event: event.labels.get(name, "")


_OWN: Final[dict[str, Callable[[Event], str]]] = {
    "type": lambda event: event.type,
    "source": lambda event: event.source,
    "status": lambda event: event.status.value,
}
_FALLBACKS: Final[dict[str, Callable[[Event], str]]] = {
    "severity": lambda event: event.severity.value,
    "subject": lambda event: event.subject,
}


def _test(op: Op, value: str) -> Callable[[str], bool]:
    if op is Op.EQUAL:
        return value.__eq__
    if op is Op.NOT_EQUAL:
        return value.__ne__
    match = _compile(value)
    return match if op is Op.REGEX else lambda text: not match(text)


def _compile(pattern: str) -> Callable[[str], bool]:
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a regex longer than {MAX_PATTERN} characters")
    try:
        # Alone first: an unbalanced bracket must not pair with the group that anchors the whole.
        _engine(pattern)
        match = _engine(rf"\A(?s:{pattern})\z")
    except SchemaError as error:
        raise ValueError(f"{pattern[:80]!r} is not a regex that is used here: {_cause(error)}") from None
    return lambda text: match(text) or (not text.isascii() and match(_readable(text)))


def _engine(pattern: str) -> Callable[[str], bool]:
    """Return a search by the linear-time engine that validates the models' own patterns."""
    return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python


def _readable(text: str) -> str:
    """Return text without the lone surrogates that stand for undecodable bytes of a host."""
    return text.encode("utf-8", "replace").decode()


def _cause(error: SchemaError) -> str:
    return (
        str(error).strip().rpartition("\n")[2].removeprefix("error: ").removeprefix("SchemaError: ").strip()
    )


def _quote(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _unquote(text: str) -> str:
    r"""Return what a quoted text says. A backslash before anything but n, \ and " stands for itself."""
    if not text.startswith('"'):
        return text
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text[1:-1])
