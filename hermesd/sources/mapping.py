"""A sender's own JSON as events, by expressions that the operator wrote: the one home of jmespath.

An expression is compiled when its file is read, so that a wrong one is a fault with its line, and
evaluated once for each item. It is the operator's; only the data is a stranger's. This module must
never let a sender's data choose an expression, and never guess where one finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, Field

from hermesd.events import Event
from hermesd.sources.base import Unreadable
from hermesd.sources.plain import Defaults, read_plain
from hermesd.sources.settings_base import Settings

if TYPE_CHECKING:
    from jmespath.parser import ParsedResult

MAX_ITEMS: Final = 1000


def _valid(expression: str) -> str:
    if expression:
        from jmespath.exceptions import JMESPathError  # noqa: PLC0415 - paid for by those who map

        try:
            _compiled(expression)
        except JMESPathError as error:
            reason = str(error).splitlines()[0].rstrip(":")
            raise ValueError(f"it is no JMESPath expression: {reason}") from None
    return expression


Expression = Annotated[str, Field(max_length=1024), AfterValidator(_valid)]


class Map(Settings):
    """Where the parts of an event stand in a sender's JSON: JMESPath expressions, each for one item.

    ``each`` finds the list of items in the payload; empty, the payload is the one item. A key that is
    empty, or whose expression finds nothing, is as if the sender had not said it.
    """

    each: Expression = ""
    id: Expression = ""
    type: Expression = ""
    time: Expression = ""
    subject: Expression = ""
    status: Expression = ""
    severity: Expression = ""
    value: Expression = ""
    unit: Expression = ""
    text: Expression = ""
    labels: dict[str, Expression] = Field(default_factory=dict, max_length=32)


def read_mapped(found: Map, payload: Any, defaults: Defaults) -> list[Event]:
    """Return the events of a payload, all or none. Raise Unreadable.

    Without an id of its own an item's id is the default's, numbered where there are several.
    """
    items = _items(found, payload)
    events = []
    for number, item in enumerate(items):
        own = defaults if len(items) == 1 else replace(defaults, id=f"{defaults.id}#{number}")
        events.append(read_plain(_plain(found, item), own))
    return events


def _items(found: Map, payload: Any) -> list[Any]:
    items = _find(found.each, payload, "each") if found.each else [payload]
    if not isinstance(items, list):
        raise Unreadable("each: there is no list where it looks")
    if len(items) > MAX_ITEMS:
        raise Unreadable(f"more than {MAX_ITEMS} events in one payload")
    return items


def _plain(found: Map, item: Any) -> Mapping[str, Any]:
    """Return the plain object that the item stands for."""
    expressions = {name: getattr(found, name) for name in _KEYS}
    plain = {name: _find(text, item, name) for name, text in expressions.items() if text}
    labels = {name: _find(text, item, f"labels.{name}") for name, text in found.labels.items()}
    return {**plain, "labels": {name: value for name, value in labels.items() if value is not None}}


def _find(expression: str, data: Any, key: str) -> Any:
    from jmespath.exceptions import JMESPathError  # noqa: PLC0415 - paid for by those who map

    try:
        return _compiled(expression).search(data)
    except JMESPathError:
        raise Unreadable(f"{key}: the expression does not fit what was sent") from None


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> ParsedResult:
    import jmespath  # noqa: PLC0415 - paid for by those who map

    return jmespath.compile(expression)


_KEYS: Final = tuple(name for name in Map.model_fields if name not in {"each", "labels"})
