"""Arguments against a command's JSON Schema: what does not fit, in words that a planner can act on.

The executor validates by itself and trusts nothing of this; here a planner is told before anybody is
asked. Only the keywords that the catalogue writes are known. This module must never quote a value at
length, and never convert one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from hermesd.agent.references import references_in

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
}


def unfit_arguments(command: str, args: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield what in the arguments does not fit. A reference is judged when its value is known."""
    known = properties_of(schema)
    for name in _required(schema):
        if name not in args:
            yield f"{command} needs the argument {name!r}"
    for name, value in args.items():
        if name not in known:
            yield f"{command} has no argument {name!r}"
        elif not _refers(value):
            yield from unfit_value(name, value, known[name])


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the schema of each argument."""
    found = schema.get("properties")
    items = found.items() if isinstance(found, Mapping) else ()
    return {str(name): item for name, item in items if isinstance(item, Mapping)}


def unfit_value(name: str, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield what in one value does not fit its schema."""
    wanted = _TYPES.get(str(schema.get("type")))
    if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):
        yield f"{name} must be of the type {schema['type']}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{name} is none of {', '.join(str(item) for item in schema['enum'])}"
    elif isinstance(value, str):
        yield from _unfit_text(name, value, schema)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _unfit_figure(name, value, schema)
    elif isinstance(value, list | tuple) and isinstance(schema.get("items"), Mapping):
        for item in value:
            yield from unfit_value(name, item, schema["items"])


def _unfit_text(name: str, value: str, schema: Mapping[str, Any]) -> Iterator[str]:
    longest = schema.get("maxLength")
    if isinstance(longest, int) and len(value) > longest:
        yield f"{name} is longer than {longest} characters"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _compiled(pattern).search(value):
        yield f"{name} must match {pattern}"


def _unfit_figure(name: str, value: float, schema: Mapping[str, Any]) -> Iterator[str]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int | float) and value < least:
        yield f"{name} must be at least {least:g}"
    if isinstance(most, int | float) and value > most:
        yield f"{name} must be at most {most:g}"


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error:
        return re.compile("")  # a pattern that Python does not know is the executor's to apply


def _required(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required")
    return [str(name) for name in required] if isinstance(required, list | tuple) else []


def _refers(value: Any) -> bool:
    try:
        return any(references_in(value))
    except ValueError:
        return False
