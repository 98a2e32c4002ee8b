"""`when`: a condition in CEL over one event, for what matchers and thresholds cannot say.

The interpreter is loaded when the first rule uses it and never otherwise. A label that the event
lacks is an empty text, as it is for matchers; `value` is a double, or null. What fails while it is
evaluated is an answer with its reason. This module must never let an expression raise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from hermesd.events import Event

MAX_EXPRESSION: Final = 1000

_LABEL: Final = re.compile(r"""\blabels\s*(?:\.\s*([A-Za-z_]\w*)|\[\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\])""")


class Expression:
    """A compiled condition. Two of one text are equal."""

    def __init__(self, text: str) -> None:
        """Compile. Raise ValueError with the reason."""
        if len(text) > MAX_EXPRESSION:
            raise ValueError(f"an expression longer than {MAX_EXPRESSION} characters")
        import cel  # noqa: PLC0415 - 200 ms and 27 MB, and few rules need it

        self.text = text
        try:
            self._program = cel.compile(text)
        except ValueError as error:
            raise ValueError(f"{text[:80]!r} is not CEL: {_first_line(error)}") from None
        self._absent: Mapping[str, str] = dict.fromkeys(_labels_in(text), "")

    def judge(self, event: Event) -> str:
        """Return why the event does not meet the condition; empty when it does."""
        try:
            answer = self._program.execute(self._known(event))
        except Exception as error:  # noqa: BLE001 - whatever it meets in a stranger's label is a reason, no fault
            return f"when could not be evaluated: {_first_line(error)}"
        if answer is True:
            return ""
        if answer is False:
            return f"does not meet when = {self._shown}"
        return f"when answers neither true nor false but {str(answer)[:80]!r}"

    @cached_property
    def _shown(self) -> str:
        return self.text if len(self.text) <= 80 else f"{self.text[:79]}…"  # noqa: PLR2004 - a line of a reason

    def _known(self, event: Event) -> dict[str, Any]:
        return {
            "labels": {**self._absent, **event.labels},
            "type": event.type,
            "source": event.source,
            "subject": event.subject,
            "status": event.status.value,
            "severity": event.severity.value,
            "value": None if event.value is None else float(event.value),
            "unit": event.unit,
            "text": event.text,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def parse_expression(text: object) -> Expression:
    """Return the expression that ``text`` writes. Raise ValueError with the reason."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError("an expression is a text, as 'labels.env == \"prod\" && value > 90.0'")
    return Expression(text)


def _labels_in(text: str) -> set[str]:
    """Return the labels that the text names: those are what may be missing."""
    return {dotted or double or single for dotted, double, single in _LABEL.findall(text)}


def _first_line(error: Exception) -> str:
    words = str(error).strip()
    found = re.search(r"Syntax error: [^\n]*", words)
    line = found[0] if found else words.partition("\n")[0]
    return f"no key {line}" if isinstance(error, KeyError) else line[:200]
