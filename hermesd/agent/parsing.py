"""From a model's text to a Decision, or to a reason that can be sent back to it.

Pure and total: any text whatever gives one of the two. Nothing is repaired and nothing is guessed: an
answer that two readers could understand differently is refused in words. One code fence around the
object is taken off, since models put it there by habit and it cannot change the meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from hermesd.agent.planner import cut, visible
from hermesd.protocol import Decision, ProtocolError, check_json, describe

MAX_ANSWER: Final = 64 * 1024
"""Characters of an answer; a decision with four actions and long texts has less than 20,000."""

MAX_REASON: Final = 600

_FENCE: Final = re.compile(r"```[A-Za-z]{0,10}[ \t]*\r?\n(.*)\n[ \t]*```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer that is no decision. ``reason`` is one line and quotes no more than names from it."""

    reason: str


def parse_decision(text: str) -> Decision | Malformed:
    """Return the decision that the text is, or why it is none."""
    if len(text) > MAX_ANSWER:
        return Malformed(f"the answer is longer than {MAX_ANSWER} characters")
    body = _unfenced(text.strip())
    if not body:
        return Malformed("the answer is empty")
    if not (body.startswith("{") and body.endswith("}")):
        return Malformed("there is text around the object; answer with one JSON object and nothing else")
    try:
        return _decision(body.encode("utf-8"))
    except UnicodeEncodeError:
        return Malformed("the answer holds characters that are no text (lone surrogates)")
    except ProtocolError as error:
        return Malformed(_one_line(str(error)))
    except ValidationError as error:
        return Malformed(_one_line(describe(error)))


def _unfenced(text: str) -> str:
    found = _FENCE.fullmatch(text)
    return found[1].strip() if found else text


def _decision(body: bytes) -> Decision | Malformed:
    check_json(body)
    decision = Decision.model_validate_json(body)
    steps = [action.step for action in decision.actions]
    if len(set(steps)) != len(steps):
        return Malformed("actions: two of them have the same step name")
    return decision


def _one_line(reason: str) -> str:
    return cut(visible(reason), MAX_REASON)
