"""Argument types, and whether a value is one: strict, ASCII where it matters, never coerced.

Pure functions over text and numbers. A refusal is a sentence for whoever asked; it names no setting,
so that a hostile asker learns what was wrong and not what to change.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from hermesd.control.roots import covering, normal_path_fault

OUTSIDE: Final = "outside what I may operate on (这个目录不在可操作范围内)"

_MAX_PATTERN: Final = 200
_PATH_TEXT: Final = re.compile(r"/[A-Za-z0-9_/.@:+,=~%-]*", re.ASCII)
_UNIT_TEXT: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,240}\.(?:service|socket|timer|mount|target|path|slice|scope)", re.ASCII
)
_JSON_TYPES: Final = {
    "string": "string", "path": "string", "unit": "string", "enum": "string",
    "integer": "integer", "number": "number", "boolean": "boolean", "list": "array",
}  # fmt: skip


class Argument(BaseModel):
    """`[args.NAME]`: one typed argument. Ranges are inclusive; text is ASCII and matched as a whole.

    A `path` lies beneath one of ``roots`` by whole components, or equals one of ``exact``. A `list`
    holds values of ``values``, each once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["string", "integer", "number", "boolean", "enum", "path", "unit", "list"]
    description: str = Field(min_length=1)
    default: JsonValue = None
    required: bool = False
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    max_length: int = Field(default=256, ge=1, le=4096)
    pattern: str = Field(default="", max_length=_MAX_PATTERN)
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
        return self

    @field_validator("roots", "exact")
    @classmethod
    def _normal(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if fault := normal_path_fault(path):
                raise ValueError(f"{path!r} {fault}")
        return paths

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        if pattern:
            _compile(pattern)
        return pattern

    def json_schema(self) -> dict[str, JsonValue]:
        """Return the argument as JSON Schema."""
        found: dict[str, JsonValue] = {"type": _JSON_TYPES[self.type], "description": self._words()}
        if self.type == "enum":
            found["enum"] = list(self.values)
        if self.type == "list":
            found["items"] = {"type": "string", "enum": list(self.values)}
            found["uniqueItems"] = True
        limits = {"minimum": self.minimum, "maximum": self.maximum, "default": self.default}
        found |= {key: value for key, value in limits.items() if value is not None}
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
        parts += [f"{value}: {meaning}." for value, meaning in self.values.items()]
        return " ".join(parts)


def is_required(argument: Argument) -> bool:
    """Say whether a request must give the argument."""
    return argument.required or argument.default is None


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
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if argument.minimum is not None and value < argument.minimum:
        return f"must be at least {argument.minimum:g} {argument.unit}".rstrip()
    if argument.maximum is not None and value > argument.maximum:
        return f"must be at most {argument.maximum:g} {argument.unit}".rstrip()
    return ""


def _list_fault(argument: Argument, value: JsonValue) -> str:
    if not isinstance(value, list) or not value:
        return "must be a list of at least one value"
    if any(not isinstance(item, str) or item not in argument.values for item in value):
        return f"each value must be one of {', '.join(argument.values)}"
    return "holds a value twice" if len({str(item) for item in value}) != len(value) else ""


def _text_fault(argument: Argument, value: JsonValue, roots: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        return "must be text"
    if len(value) > (4096 if argument.type == "path" else argument.max_length):
        return "is too long"
    if not value.isascii() or not value.isprintable():
        return "must be printable ASCII"
    if argument.type != "path" and value.startswith("-"):
        return "may not begin with '-'"
    if argument.pattern and not _compile(argument.pattern).fullmatch(value):
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


@lru_cache(maxsize=512)
def _compile(pattern: str) -> re.Pattern[str]:
    if re.search(r"[+*}]\)[+*{]", pattern):
        raise ValueError("pattern: a repeat inside a repeat can take for ever")
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"pattern: {error}") from None
