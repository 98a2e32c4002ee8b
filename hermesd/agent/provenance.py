"""Where each argument of a proposed action came from: an observation, the event, the sentence, or nowhere.

A model that makes up a path or a process number is told so before anything runs. What a command's own
file offers (its enumerations, bounds with a default, examples, the roots that may be looked beneath)
is the planner's to choose. A source that the model names is believed only when the value stands in
it; where it names none, all that the run knows is searched. This is a sieve for errors: the power lies
with the gate. Pure; this module must never let a value pass because it looks plausible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hermesd.agent.arguments import properties_of
from hermesd.agent.planner import Briefing, Observation, cut, visible
from hermesd.agent.references import named_in
from hermesd.protocol import Action, CommandInfo

CATALOGUE: Final = "catalogue"
GOAL: Final = "goal"
MAX_SHOWN: Final = 80

_FREE_TYPES: Final = frozenset({"integer", "number", "boolean"})
_FREE_FORMATS: Final = frozenset({"date-time"})
_DURATION: Final = re.compile(r"[1-9][0-9]{0,8}[smhd]")


@dataclass(frozen=True, slots=True)
class Known:
    """What a run knows, by the name under which a planner may cite it."""

    texts: Mapping[str, str]
    roots: tuple[str, ...]


def known_of(briefing: Briefing, observations: Sequence[Observation]) -> Known:
    """Return everything that a value may have come from."""
    view = briefing.catalogue
    texts = {
        GOAL: briefing.goal,
        "event": _text(briefing.event),
        "incident": _text(briefing.incident),
        "facts": _text(briefing.facts),
        **{seen.step: _text(seen.as_scope()) for seen in observations},
    }
    return Known(texts, (*view.readable_roots, *view.writable_roots, "/"))


def trace(action: Action, info: CommandInfo, known: Known) -> tuple[dict[str, str], list[str]]:
    """Return the source of each argument, and what has none, in words for the planner."""
    found: dict[str, str] = {}
    faults: list[str] = []
    for name, value in action.args.items():
        schema = properties_of(info.args_schema).get(name, {})
        source = _source(value, schema, known, action.sources.get(name, ""))
        if source:
            found[name] = source
        else:
            faults.append(_fault(name, value, action.sources.get(name, ""), known))
    return found, faults


def _source(value: Any, schema: Mapping[str, Any], known: Known, named: str) -> str:
    references = named_in(value)
    if references:
        return references[0]
    if _is_offered(value, schema, known):
        return CATALOGUE
    if named and named != CATALOGUE:
        return named if _stands_in(value, known.texts.get(named, "")) else ""
    return next((name for name, text in known.texts.items() if _stands_in(value, text)), "")


def _is_offered(value: Any, schema: Mapping[str, Any], known: Known) -> bool:
    """Say whether the catalogue leaves the value to the planner's choice."""
    if isinstance(value, list | tuple):
        items = schema.get("items")
        return all(_is_offered(item, items if isinstance(items, Mapping) else {}, known) for item in value)
    if value == schema.get("default") or value in schema.get("enum", ()) or value in known.roots:
        return True
    if schema.get("type") == "string" and "default" in schema:
        return schema.get("format") in _FREE_FORMATS or bool(_DURATION.fullmatch(str(value)))
    if schema.get("type") in _FREE_TYPES:
        return schema.get("type") == "boolean" or "default" in schema
    return _is_word_of(value, schema)


def _is_word_of(value: Any, schema: Mapping[str, Any]) -> bool:
    """Say whether a plain word is one of the examples. A path or a number there is not this host's."""
    examples = schema.get("examples", ())
    return isinstance(value, str) and not value.startswith("/") and value in examples and " " in value


def _stands_in(value: Any, text: str) -> bool:
    if isinstance(value, list | tuple):
        return all(_stands_in(item, text) for item in value)
    wanted = str(value)
    if not wanted or not text:
        return False
    if wanted.startswith("/"):
        return _path_stands_in(wanted.rstrip("/"), text)
    return _occurs(wanted, text)


def _path_stands_in(path: str, text: str) -> bool:
    """Say whether the path, one above it with what the text names beneath, or one below it is there."""
    if not path:
        return False
    if re.search(rf"(?<![\w.-]){re.escape(path)}(?![\w-])", text):
        return True
    above, _, last = path.rpartition("/")
    return bool(above) and _occurs(last, text) and _path_stands_in(above, text)


def _occurs(wanted: str, text: str) -> bool:
    begins = r"(?<![A-Za-z0-9_])" if wanted[0].isascii() and wanted[0].isalnum() else ""
    ends = r"(?![A-Za-z0-9_])" if wanted[-1].isascii() and wanted[-1].isalnum() else ""
    return re.search(f"{begins}{re.escape(wanted)}{ends}", text, re.IGNORECASE) is not None


def _fault(name: str, value: Any, named: str, known: Known) -> str:
    shown = cut(visible(json.dumps(value, ensure_ascii=False, default=str)), MAX_SHOWN)
    if named and named not in known.texts:
        return f"{name}: there is no source {cut(visible(named), MAX_SHOWN)!r}; name one of " + ", ".join(
            known.texts
        )
    where = f"in {named}" if named else "in the goal, the event, or anything observed"
    return f"{name}: {shown} does not stand {where}; take values from there, or look for them first"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) if value else ""
