"""`hermesctl commands`: what the executor can run, and how one command is called. Pure."""

from __future__ import annotations

from typing import Any, Final

from hermesd.ctl import messages as m
from hermesd.ctl.messages import Text
from hermesd.ctl.screen import Cell, Column, Item, Line, Table, Tone
from hermesd.ctl.speech import Speech, millis
from hermesd.ctl.views.fields import plain, rows_of, table_of, text_of, texts_of
from hermesd.ctl.views.timeline import fact_lines

_EFFECT_TONES: Final = {"change": Tone.WARN, "send": Tone.WARN, "destroy": Tone.BAD}


def find_command(view: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the command of that name, None when the catalogue has none."""
    return next((one for one in rows_of(view, "commands") if text_of(one, "name") == name), None)


def render_commands(view: dict[str, Any], say: Speech) -> list[Item]:
    """Return the catalogue, one row a command, and how far it reaches."""
    commands = rows_of(view, "commands")
    if not commands:
        return [Line(say(m.NO_COMMANDS), Tone.WARN)]
    columns = (
        Column(say(m.COMMAND), whole=True),
        Column(say(m.EFFECT), whole=True),
        Column(say(m.PERMISSION), whole=True),
        Column(say(m.DESCRIPTION)),
    )
    reach: list[tuple[Text, str]] = [
        (m.REACH, " ".join(texts_of(view, "readable_roots"))),
        (m.REACH_WRITE, " ".join(texts_of(view, "writable_roots"))),
    ]
    rows = tuple(_row(one, say) for one in sorted(commands, key=lambda one: text_of(one, "name")))
    return [Table(columns, rows), Line(), *fact_lines(reach, say)]


def _row(command: dict[str, Any], say: Speech) -> tuple[Cell, ...]:
    effect = text_of(command, "effect")
    usable = command.get("usable") is not False
    told = first_sentence(text_of(command, "description"))
    if not usable:
        told = say(m.UNUSABLE, reason=text_of(command, "unusable_reason"))
    return (
        Cell(text_of(command, "name"), Tone.PLAIN if usable else Tone.DIM),
        Cell(say.word(m.EFFECTS, effect), _EFFECT_TONES.get(effect, Tone.PLAIN)),
        Cell(say.word(m.PERMISSIONS, command.get("permission"))),
        Cell(told, Tone.PLAIN if usable else Tone.WARN),
    )


def first_sentence(text: str) -> str:
    """Return a text up to its first full stop that ends a sentence."""
    ends = [end + 1 for mark in (". ", "。") if (end := text.find(mark)) >= 0]
    return text[: min(ends)] if ends else text


def render_command(command: dict[str, Any], say: Speech) -> list[Item]:
    """Return one command with its arguments."""
    facts: list[tuple[Text, str]] = [
        (m.EFFECT, say.word(m.EFFECTS, command.get("effect"))),
        (m.PERMISSION, say.word(m.PERMISSIONS, command.get("permission"))),
        (m.TIME_LIMIT, millis(command.get("timeout_ms"))),
        (m.SCENES, " ".join(texts_of(command, "scenes"))),
        (m.PRIORITY, plain(command.get("priority", ""))),
        (m.BESIDE, say(m.BESIDE_YES if command.get("concurrency_safe") is True else m.BESIDE_NO)),
        (m.AGAIN, say(m.AGAIN_YES if command.get("retryable") is True else m.AGAIN_NO)),
        (m.PREVIEWED_BY, text_of(command, "preview")),
        (m.FALLBACK, text_of(command, "fallback")),
        (m.PROGRAM, text_of(command, "runs")),
    ]
    lowered = [(Text(label.en.lower(), label.zh), text) for label, text in facts]
    items: list[Item] = [Line(text_of(command, "name"), Tone.HEAD), Line(text_of(command, "description"))]
    if command.get("usable") is False:
        items.append(Line(say(m.UNUSABLE, reason=text_of(command, "unusable_reason")), Tone.WARN))
    return [*items, Line(), *fact_lines(lowered, say), Line(), *_arguments(command, say)]


def _arguments(command: dict[str, Any], say: Speech) -> list[Item]:
    schema = table_of(command, "args_schema")
    arguments = table_of(schema, "properties")
    if not arguments:
        return [Line(say(m.ARGUMENTS) + say(m.COLON) + say(m.NO_ARGUMENTS), Tone.DIM)]
    required = set(texts_of(schema, "required"))
    columns = (Column(say(m.ARGUMENT), whole=True), Column(say(m.DESCRIPTION)))
    rows = tuple(
        (Cell(name), Cell(_told(one, say, required=name in required)))
        for name, one in arguments.items()
        if isinstance(one, dict)
    )
    return [Table(columns, rows)]


def _told(argument: dict[str, Any], say: Speech, *, required: bool) -> str:
    limits = [say(m.REQUIRED)] if required else []
    if argument.get("default") is not None:
        limits.append(say(m.DEFAULT, value=plain(argument["default"])))
    if values := texts_of(argument, "enum"):
        limits.append(say(m.ONE_OF, values=", ".join(values)))
    limits += [
        say(text, value=plain(argument[name]))
        for name, text in (("minimum", m.LEAST), ("maximum", m.MOST))
        if name in argument
    ]
    if examples := argument.get("examples"):
        shown = ", ".join(plain(one) for one in examples) if isinstance(examples, list) else str(examples)
        limits.append(say(m.EXAMPLES, values=shown))
    description = text_of(argument, "description")
    return f"{description} ({'; '.join(limits)})" if limits else description
