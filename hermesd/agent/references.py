"""References: `${step.rows.0.path}` in a runbook's texts and arguments, and what they stand for.

A reference is looked up in a scope, a tree of plain JSON values. An argument that is exactly one
reference keeps the value's type; inside a text the value is written for people, sizes as sizes.
What cannot be looked up is an Unresolved with its reason: nothing here raises on what a run has seen,
and nothing here is evaluated as code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from hermesd.agent.planner import cut, visible

FORMS: Final = frozenset({"", "bytes", "percent", "count"})
MAX_SHOWN: Final = 300
"""Characters of one value inside a text for people."""

Scope = Mapping[str, Any]

_OPENING: Final = re.compile(r"\$\{")
_REFERENCE: Final = re.compile(r"\$\{([^${}]*)\}")
_BEGINNING: Final = re.compile(r"\$\{([A-Za-z0-9_-]+)(?=[.|}])")
_BODY: Final = re.compile(r"([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)(?:\|([a-z]+))?")


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a value stands, and the form in which a text shows it."""

    path: tuple[str, ...]
    form: str = ""

    def __str__(self) -> str:
        return "${" + ".".join(self.path) + "}"


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A reference that stands for nothing, and why, in words."""

    reason: str


Part = str | Reference


@lru_cache(maxsize=4096)
def parse_template(text: str) -> tuple[Part, ...]:
    """Return the text's literal parts and references in order. Raise ValueError with what is wrong."""
    parts: list[Part] = []
    end = 0
    for found in _REFERENCE.finditer(text):
        parts.append(_literal(text[end : found.start()]))
        parts.append(_reference(found[0], found[1]))
        end = found.end()
    parts.append(_literal(text[end:]))
    return tuple(part for part in parts if part != "")


def _literal(text: str) -> str:
    if _OPENING.search(text):
        raise ValueError(f"a reference is not closed, or not of the form ${{name.field|form}}: {text[:60]!r}")
    return text


def _reference(whole: str, body: str) -> Reference:
    found = _BODY.fullmatch(body)
    if not found:
        raise ValueError(f"{whole} is no reference: write ${{name.field}} or ${{name.field|bytes}}")
    form = found[2] or ""
    if form not in FORMS:
        raise ValueError(f"{whole}: there is no form {form!r}; the forms are bytes, percent, count")
    return Reference(tuple(found[1].split(".")), form)


def references_in(value: Any) -> Iterator[Reference]:
    """Yield every reference in a text, or in the texts inside lists and tables. Raise ValueError."""
    if isinstance(value, str):
        yield from (part for part in parse_template(value) if isinstance(part, Reference))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references_in(item)


def named_in(value: Any) -> list[str]:
    """Return the first name of each reference in the value. What is no proper reference names nothing."""
    try:
        return list(dict.fromkeys(reference.path[0] for reference in references_in(value)))
    except ValueError:
        return []


def rename_references(value: Any, names: Mapping[str, str]) -> Any:
    """Return the value with the first name of its references replaced where ``names`` has another."""
    if isinstance(value, str):
        return _BEGINNING.sub(lambda found: "${" + names.get(found[1], found[1]), value)
    if isinstance(value, list | tuple):
        return [rename_references(item, names) for item in value]
    if isinstance(value, Mapping):
        return {key: rename_references(item, names) for key, item in value.items()}
    return value


def look_up(reference: Reference, scope: Scope) -> Any:
    """Return the value, or Unresolved. A value that is null counts as missing."""
    value: Any = scope
    for position, name in enumerate(reference.path):
        value = _step_into(value, name)
        if value is None:
            known = ".".join(reference.path[:position]) or "what is known"
            return Unresolved(f"{reference}: {known} has no {name}")
    return value


def _step_into(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list | tuple):
        index = len(value) - 1 if name == "last" else int(name) if name.isdecimal() and len(name) < 8 else -1  # noqa: PLR2004
        return value[index] if 0 <= index < len(value) else None
    return None


def resolve(value: Any, scope: Scope) -> Any:
    """Return an argument with its references replaced, types kept, or the first Unresolved."""
    if isinstance(value, str):
        parts = parse_template(value)
        if len(parts) == 1 and isinstance(parts[0], Reference):
            return _as_json(look_up(parts[0], scope))
        return _joined(parts, scope, plain=True)
    if isinstance(value, list | tuple):
        items = [resolve(item, scope) for item in value]
        return next((item for item in items if isinstance(item, Unresolved)), items)
    return value


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def render(text: str, scope: Scope) -> str | Unresolved:
    """Return a text for people with its references written out, or the first Unresolved."""
    return _joined(parse_template(text), scope, plain=False)


def _joined(parts: tuple[Part, ...], scope: Scope, *, plain: bool) -> str | Unresolved:
    written: list[str] = []
    for part in parts:
        shown = part if isinstance(part, str) else _written(part, scope, plain=plain)
        if isinstance(shown, Unresolved):
            return shown
        written.append(shown)
    return "".join(written)


def _written(reference: Reference, scope: Scope, *, plain: bool) -> str | Unresolved:
    value = look_up(reference, scope)
    if isinstance(value, Unresolved):
        return value
    if plain:
        usable = isinstance(value, str | int) and not isinstance(value, bool)
        return str(value) if usable else Unresolved(f"{reference} cannot be a part of an argument's text")
    return show(value, reference.form) or Unresolved(f"{reference} is not a figure")


def show(value: Any, form: str = "") -> str:
    """Return a value as a person reads it, empty when the form needs a figure and it is none."""
    if form == "count" and isinstance(value, list | tuple | Mapping):
        return str(len(value))
    if form:
        return _figure(value, form) if _is_number(value) else ""
    if isinstance(value, list | tuple) and all(isinstance(item, str | int | float) for item in value):
        value = ", ".join(_plain(item) for item in value)
    return cut(visible(_plain(value)), MAX_SHOWN)


def _figure(value: float, form: str) -> str:
    if form == "bytes":
        return human_bytes(value)
    return f"{round(value, 1):g} %" if form == "percent" else f"{value:,}"


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def human_bytes(size: float) -> str:
    """Return a size as people write it: decimal units, one digit after the point."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(size) < 1000:  # noqa: PLR2004 - decimal units are powers of 1000
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
