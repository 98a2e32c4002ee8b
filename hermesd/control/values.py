"""Argument types, and whether a value is one: strict, ASCII where it can deceive, never coerced.

Pure functions over text and numbers. A refusal is a sentence for whoever asked; it names no setting,
so that a hostile asker learns what was wrong and not what to change.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator, model_validator

from hermesd.control.moments import moment_words, parse_moment, parse_span
from hermesd.control.patterns import compiled, pattern_fault
from hermesd.control.roots import covering, normal_path_fault

OUTSIDE: Final = "outside what I may operate on (这个目录不在可操作范围内)"

_MAX_PATTERN: Final = 200
_MAX_INTEGER: Final = 2**63 - 1
_PATH_TEXT: Final = re.compile(r"/[A-Za-z0-9_/.@:+,=~%-]*", re.ASCII)
_UNIT_TEXT: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,240}\.(?:service|socket|timer|mount|target|path|slice|scope)", re.ASCII
)
_JSON_TYPES: Final = {
    "string": "string", "path": "string", "unit": "string", "enum": "string", "artifact": "string",
    "operation": "string", "datetime": "string", "duration": "string",
    "integer": "integer", "number": "number", "boolean": "boolean", "list": "array",
}  # fmt: skip
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_OPERATION: Final = re.compile(r"op-[A-Za-z0-9][A-Za-z0-9_.:-]{0,95}", re.ASCII)
_FORMS: Final[dict[str, dict[str, JsonValue]]] = {
    "datetime": {"format": "date-time", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"},
    "duration": {"pattern": "^[1-9][0-9]{0,8}[smhd]$"},
    "artifact": {"pattern": f"^{_DIGEST.pattern}$"},
    "operation": {"pattern": f"^{_OPERATION.pattern}$"},
}
_UNSEEN: Final = frozenset({0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0})
"""Letters and marks by their class that nobody sees all the same."""


class Argument(BaseModel):
    """`[args.NAME]`: one typed argument. Ranges are inclusive; text is ASCII and matched as a whole.

    A `path` lies beneath one of ``roots`` by whole components, or equals one of ``exact``. A `list`
    holds values of ``values``, each once, ``max_items`` at most. A `datetime` is UTC to the second and
    comes not before the argument that ``after`` names. ``minimum`` and ``maximum`` of a `duration` are
    seconds. An `artifact` is the digest of an output that was kept. An `operation` is one whose files were
    set aside; a `path` that is ``of`` it is not asked for: it is the folder that the operation was about.
    ``any_script`` lets a `string` that is only compared with text be in any writing; what cannot be seen
    stays refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal[
        "string", "integer", "number", "boolean", "enum", "path", "unit", "list",
        "datetime", "duration", "artifact", "operation",
    ]  # fmt: skip
    description: str = Field(min_length=1)
    default: JsonValue = None
    required: bool = False
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    max_length: int = Field(default=256, ge=1, le=4096)
    max_items: int = Field(default=32, ge=1, le=256)
    pattern: str = Field(default="", max_length=_MAX_PATTERN)
    any_script: bool = False
    after: str = ""
    of: str = ""
    values: dict[str, str] = Field(default_factory=dict)
    roots: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    examples: tuple[JsonValue, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.type in ("enum", "list") and not self.values:
            raise ValueError("needs `values`: each value with its meaning")
        if self.type == "path" and not (self.roots or self.exact):
            raise ValueError("a path needs `roots` or `exact`")
        if self.after and self.type != "datetime":
            raise ValueError("only a datetime comes `after` another argument")
        if self.of and self.type != "path":
            raise ValueError("only a path is `of` an operation")
        if self.any_script and (self.type != "string" or self.pattern):
            raise ValueError("only a string without a pattern may be in any script")
        return self

    @field_validator("pattern")
    @classmethod
    def _bounded(cls, pattern: str, info: ValidationInfo) -> str:
        if pattern and (fault := pattern_fault(pattern, info.data.get("max_length", 256))):
            raise ValueError(fault)
        return pattern

    @field_validator("roots", "exact")
    @classmethod
    def _normal(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if fault := normal_path_fault(path):
                raise ValueError(f"{path!r} {fault}")
        return paths

    def json_schema(self) -> dict[str, JsonValue]:
        """Return the argument as JSON Schema."""
        found: dict[str, JsonValue] = {"type": _JSON_TYPES[self.type], "description": self._words()}
        if self.type == "enum":
            found["enum"] = list(self.values)
        if self.type == "list":
            found["items"] = {"type": "string", "enum": list(self.values)}
            found["uniqueItems"] = True
            found["maxItems"] = self.max_items
        if self.type == "string":
            found["maxLength"] = self.max_length
        number = self.type in ("integer", "number")
        limits = {
            "minimum": self.minimum if number else None,
            "maximum": self.maximum if number else None,
            "default": self.default,
        }
        found |= {key: value for key, value in limits.items() if value is not None}
        found |= _FORMS.get(self.type, {})
        if self.pattern:
            found["pattern"] = f"^(?:{self.pattern})$"
        if self.examples:
            found["examples"] = list(self.examples)
        return found

    def _words(self) -> str:
        parts = [self.description.rstrip(".") + "."]
        if self.unit:
            parts.append(f"In {self.unit}.")
        if self.roots or self.exact:
            places = [f"beneath {', '.join(self.roots)}"] if self.roots else []
            places += [f"exactly {', '.join(self.exact)}"] if self.exact else []
            parts.append(f"Must be {' or '.join(places)}.")
        if self.after:
            parts.append(f"Not before {self.after}.")
        parts += [f"{value}: {meaning}." for value, meaning in self.values.items()]
        return " ".join(parts)


def is_required(argument: Argument) -> bool:
    """Say whether a request must give the argument."""
    return argument.required or (argument.default is None and not argument.of)


def value_fault(argument: Argument, value: JsonValue, roots: tuple[str, ...]) -> str:
    """Return why ``value`` is not one of this argument's, "" when it is.

    ``roots`` is what the argument's own roots and the permitted ones have in common.
    """
    match argument.type:
        case "boolean":
            return "" if isinstance(value, bool) else "must be true or false"
        case "integer" | "number":
            return _number_fault(argument, value)
        case "list":
            return _list_fault(argument, value)
        case "datetime" | "duration" | "artifact" | "operation":
            return _form_fault(argument, value)
        case "enum":
            known = isinstance(value, str) and value in argument.values
            return "" if known else f"must be one of {', '.join(argument.values)}"
        case _:
            return _text_fault(argument, value, roots)


def _number_fault(argument: Argument, value: JsonValue) -> str:
    integer = argument.type == "integer"
    wanted = int if integer else int | float
    if isinstance(value, bool) or not isinstance(value, wanted):
        return f"must be {'an integer' if integer else 'a number'}"
    if isinstance(value, float) and (
        not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0)
    ):
        return "must be a finite number, and 0 has no sign"
    if abs(value) > _MAX_INTEGER:
        return "is too large"
    if argument.minimum is not None and value < argument.minimum:
        return f"must be at least {argument.minimum:g} {argument.unit}".rstrip()
    if argument.maximum is not None and value > argument.maximum:
        return f"must be at most {argument.maximum:g} {argument.unit}".rstrip()
    return ""


def _list_fault(argument: Argument, value: JsonValue) -> str:
    if not isinstance(value, list) or not value:
        return "must be a list of at least one value"
    if len(value) > argument.max_items:
        return f"may hold at most {argument.max_items} values"
    if any(not isinstance(item, str) or item not in argument.values for item in value):
        return f"each value must be one of {', '.join(argument.values)}"
    return "holds a value twice" if len({str(item) for item in value}) != len(value) else ""


def _text_fault(argument: Argument, value: JsonValue, roots: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        return "must be text"
    if len(value) > (4096 if argument.type == "path" else argument.max_length):
        return "is too long"
    if argument.any_script:
        if fault := _script_fault(value):
            return fault
    elif not value.isascii() or not value.isprintable():
        return "must be printable ASCII"
    if argument.type != "path" and value.startswith("-"):
        return "may not begin with '-'"
    if argument.pattern and not compiled(argument.pattern).fullmatch(value):
        return f"must match {argument.pattern}"
    if argument.type == "unit":
        return "" if _UNIT_TEXT.fullmatch(value) else "must be the name of a unit, such as nginx.service"
    return _path_fault(argument, value, roots) if argument.type == "path" else ""


def _path_fault(argument: Argument, value: str, roots: tuple[str, ...]) -> str:
    if fault := normal_path_fault(value):
        return fault
    if value in argument.exact:
        return ""
    if not _PATH_TEXT.fullmatch(value):
        return "holds a character that is not allowed in a path"
    return "" if covering(value, roots) else OUTSIDE


def _form_fault(argument: Argument, value: JsonValue) -> str:
    text = value if isinstance(value, str) else ""
    if argument.type == "artifact":
        return "" if _DIGEST.fullmatch(text) else "must be the digest of an output: 64 hexadecimal digits"
    if argument.type == "operation":
        return "" if _OPERATION.fullmatch(text) else "must be the id of an operation, such as op-t1.1.0.1"
    if argument.type == "datetime":
        return "" if parse_moment(text) else "must be a point in time in UTC such as 2026-11-30T03:00:00Z"
    seconds = parse_span(text)
    if seconds is None:
        return "must be a span of time such as 90s, 15m, 2h or 7d"
    if argument.minimum is not None and seconds < argument.minimum:
        return f"must be at least {argument.minimum:g} seconds"
    if argument.maximum is not None and seconds > argument.maximum:
        return f"must be at most {argument.maximum:g} seconds"
    return ""


def _script_fault(value: str) -> str:
    """Return why a text in any script deceives: what is unseen, reorders, or has a second spelling."""
    for char in value:
        kind = unicodedata.category(char)
        varies = 0xFE00 <= ord(char) <= 0xFE0F or 0xE0100 <= ord(char) <= 0xE01EF  # noqa: PLR2004 - Unicode's blocks
        if kind[0] == "C" or (kind[0] == "Z" and char != " ") or varies or ord(char) in _UNSEEN:
            return "holds a character that cannot be seen"
    return "" if unicodedata.is_normalized("NFC", value) else "holds a character with a plainer spelling"


def order_fault(arguments: Mapping[str, Argument], values: Mapping[str, JsonValue]) -> tuple[str, str]:
    """Return the first argument that comes before the one that it must come after, and why; else "", ""."""
    for name, argument in arguments.items():
        if argument.after and str(values[name]) < str(
            values[argument.after]
        ):  # one spelling: text sorts as time
            return name, f"must not be before {argument.after}"
    return "", ""


def argv_text(argument: Argument, value: JsonValue) -> str:
    """Return a value as one element of a command's argv."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if argument.type == "datetime":
        return moment_words(str(value))
    if argument.type == "duration":
        return str(parse_span(str(value)))
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)
