"""What a file of `tools.d/` imports: the decorator that makes a function a command of the catalogue.

It lives in containers alone, under the name `hermesd_tools`; no process of hermesd imports a file that
uses it. It turns hints and what the decorator was given into a definition, key by key what a TOML
definition says. It must never judge what is permitted: the executor reads the definition as it reads
any other, with the same red lines.
"""

from __future__ import annotations

import datetime as dt
import pathlib
import typing

HINTS = {
    bool: ("boolean",),
    int: ("integer", "duration"),
    float: ("number",),
    str: ("string", "unit", "path", "artifact"),
    pathlib.Path: ("path", "artifact"),
    dt.datetime: ("datetime",),
}
"""Which types of argument a hint may stand for; the first is meant where nothing else is said."""

_ASYNC, _STARRED = 0x80 | 0x200, 0x04 | 0x08
"""A code's flags. `inspect` would name them, and costs a third of a call's start."""

_SCHEMA_KEYS = {
    "description": "description", "default": "default", "minimum": "minimum", "maximum": "maximum",
    "maxLength": "max_length", "maxItems": "max_items", "examples": "examples",
}  # fmt: skip
_SCHEMA_TYPES = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean"}


class ToolError(Exception):
    """Raise it for an answer that cannot be given: its words, and nothing else, are what is told."""


class WrongTool(Exception):  # noqa: N818 - an ordinary fault of a file, with its words
    """A definition that cannot be made of what the decorator was given."""


class Argument:
    """What a hint cannot say of a parameter: the keys of `[args.NAME]`, beside the hint in `Annotated`."""

    def __init__(self, description: str = "", **settings: object) -> None:
        self.settings = {"description": description, **settings}


class Target:
    """One file that a person confirmed: ``name`` beneath the tool's `path`, and its size as it was shown."""

    def __init__(self, name: bytes, size_bytes: int) -> None:
        self.name = name
        self.size_bytes = size_bytes


class Tool:
    """One registered function. ``line`` is where its decorator stands."""

    def __init__(self, function: typing.Callable[..., object], definition: dict[str, typing.Any]) -> None:
        self.function = function
        self.definition = definition
        self.line = function.__code__.co_firstlineno


registered: list[Tool] = []
faults: list[tuple[int, str]] = []
confirmed: list[Target] = []

F = typing.TypeVar("F", bound=typing.Callable[..., object])


def targets() -> list[Target]:
    """Return what a person confirmed; each was compared with what its preview saw before the call."""
    return list(confirmed)


def register_tool(
    *,
    name: str,
    description: str = "",
    effect: str = "read",
    permission: str = "internal",
    args: dict[str, dict[str, object]] | None = None,
    schema: dict[str, typing.Any] | None = None,
    **settings: object,
) -> typing.Callable[[F], F]:
    """Make the function a command. ``settings`` are the further keys of a definition, such as ``timeout_ms``.

    Its arguments are those of ``args`` (as in `[args.NAME]`), of ``schema`` (JSON Schema), or of its hints.
    """

    def register(function: F) -> F:
        try:
            given = _of_schema(schema) if schema is not None else args
            _check(function, given)
            definition = {
                "name": name,
                "description": description or " ".join((function.__doc__ or "").split()),
                "effect": effect,
                "permission": permission,
                **settings,
                "args": given if given is not None else _of_hints(function),
            }
        except WrongTool as wrong:
            faults.append((function.__code__.co_firstlineno, str(wrong)))
            return function
        tool = Tool(function, definition)
        if any(other.definition["name"] == name for other in registered):
            faults.append((tool.line, f"{name} is registered twice in this file"))
        registered.append(tool)
        return function

    return register


def _check(function: typing.Callable[..., object], given: dict[str, dict[str, object]] | None) -> None:
    code = function.__code__
    if code.co_flags & _ASYNC:
        raise WrongTool(f"{function.__name__} is async; a tool is a plain function")
    if code.co_flags & _STARRED or code.co_posonlyargcount:
        raise WrongTool(f"{function.__name__}: a tool's parameters each have a name to be called by")
    if given is not None and set(given) != set(_parameters(function)):
        raise WrongTool(f"the given arguments are not the parameters of {function.__name__}")


def _parameters(function: typing.Callable[..., object]) -> dict[str, object]:
    """Return the parameters with their defaults, `...` where there is none."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    by_place = function.__defaults__ or ()
    last = code.co_varnames[code.co_argcount - len(by_place) : code.co_argcount]
    by_name = function.__kwdefaults__ or {}
    return {**dict.fromkeys(names, ...), **dict(zip(last, by_place, strict=True)), **by_name}


def _of_hints(function: typing.Callable[..., object]) -> dict[str, dict[str, object]]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # noqa: BLE001 - a hint is code, and may raise anything
        raise WrongTool(f"a hint cannot be read: {error}") from None
    found = {}
    for name, default in _parameters(function).items():
        if name not in hints:
            raise WrongTool(f"{name} has no type hint")
        found[name] = _argument(name, default, hints[name])
    return found


def _argument(name: str, default: object, hint: object) -> dict[str, object]:
    base, settings = hint, dict[str, object]()
    if typing.get_origin(hint) is typing.Annotated:
        base, *notes = typing.get_args(hint)
        for note in notes:
            settings |= note.settings if isinstance(note, Argument) else {}
    said = settings.pop("type", None)
    kind, values = _kind(base, name)
    if said is not None and said not in kind:
        raise WrongTool(f"{name}: {_shown(base)} cannot be of the type {said!r}")
    settings = {"type": said or kind[0], "description": "", **settings}
    if values:
        settings = {"values": values, **settings}
        if set(settings["values"]) != set(values):  # type: ignore[call-overload]
            raise WrongTool(f"{name}: its values are not those of its hint")
    if default is None:
        raise WrongTool(f"{name}: None is no value that could be asked for; leave the default away")
    if default is not ...:
        settings["default"] = str(default) if isinstance(default, pathlib.Path) else default
    return settings


def _kind(base: object, name: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the types that a hint may stand for, and the values where it lists them."""
    inner, kind = base, ("enum",)
    if typing.get_origin(base) is list:
        (inner,), kind = typing.get_args(base), ("list",)
    if typing.get_origin(inner) is typing.Literal:
        values = typing.get_args(inner)
        if all(isinstance(value, str) for value in values):
            return kind, {value: value for value in values}
        raise WrongTool(f"{name}: the values of a Literal are text")
    if kind == ("list",):
        raise WrongTool(f"{name}: a list is of Literal values, such as list[Literal['a', 'b']]")
    if not isinstance(base, type) or base not in HINTS:
        known = ", ".join(one.__name__ for one in HINTS)
        raise WrongTool(f"{name}: {_shown(base)} is no hint of a tool; it is one of {known}, Literal, list")
    return HINTS[base], {}


def _of_schema(schema: dict[str, typing.Any]) -> dict[str, dict[str, object]]:
    """Return a JSON Schema's properties as arguments; refuse what an argument cannot say."""
    extra = set(schema) - {"type", "properties", "required", "additionalProperties"}
    if extra or schema.get("type", "object") != "object":
        raise WrongTool(f"schema: {', '.join(sorted(extra)) or 'its type'} cannot be kept; it is an object")
    required = schema.get("required", ())
    return {
        name: {**_property(name, one), **({"required": True} if name in required else {})}
        for name, one in schema.get("properties", {}).items()
    }


def _property(name: str, one: dict[str, typing.Any]) -> dict[str, object]:
    found: dict[str, object] = {new: one[old] for old, new in _SCHEMA_KEYS.items() if old in one}
    rest = {key: value for key, value in one.items() if key not in _SCHEMA_KEYS}
    kind = rest.pop("type", "string")
    values = rest.pop("enum", None)
    if kind == "array":
        items = rest.pop("items", {})
        values = items.get("enum")
        rest.pop("uniqueItems", None)
        rest |= {f"items.{key}": value for key, value in items.items() if key not in ("type", "enum")}
    if values is not None:
        found |= {"type": "list" if kind == "array" else "enum", "values": {value: value for value in values}}
    elif rest.get("format") == "date-time":
        found["type"] = rest.pop("format").replace("date-time", "datetime")
    elif kind in _SCHEMA_TYPES:
        found["type"] = _SCHEMA_TYPES[kind]
    else:
        raise WrongTool(f"schema: {name}: a value of the type {kind!r} cannot be asked for")
    if "pattern" in rest:
        found["pattern"] = _whole_pattern(name, rest.pop("pattern"))
    if rest:
        raise WrongTool(f"schema: {name}: {', '.join(sorted(rest))} is nothing that an argument can say")
    return found


def _whole_pattern(name: str, pattern: str) -> str:
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise WrongTool(
            f"schema: {name}: a pattern begins with ^ and ends with $, since it matches the whole"
        )
    return pattern[1:-1]


def _shown(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)
