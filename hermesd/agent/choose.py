"""From a person's sentence to a runbook, by the keywords of the runbooks.

Simple and predictable on purpose: of the runbooks whose keywords the sentence uses, the one of the
highest priority, among equals the one with most of them, and when two are level none. A sentence
that says what not to do is not understood here. This module must never guess: being unsure is an
answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hermesd.agent.runbook_file import Runbook

MAX_SENTENCE: Final = 2000

_PATH: Final = re.compile(r"(?<![A-Za-z0-9_.:/])/(?:[A-Za-z0-9_.@+-]+/?)*")
_UNIT: Final = re.compile(
    r"(?<![A-Za-z0-9_.@-])[A-Za-z0-9_@-][A-Za-z0-9_.@-]*\.(?:service|timer|socket|mount)\b"
)
_OPERATION: Final = re.compile(
    r"(?<![A-Za-z0-9_.:-])op-[A-Za-z0-9]"
    r"(?:[A-Za-z0-9_.:-]{0,94}[A-Za-z0-9])?"
)
_NEGATION: Final = re.compile(r"\b(?:never|don'?t|do not)\b|别|不要|不用|不必|勿|禁止", re.IGNORECASE)

_PATH_END: Final = ".-/"


@dataclass(frozen=True, slots=True)
class Choice:
    """A runbook, what the sentence names (``path``, ``unit``, ``operation``: facts for the briefing), why."""

    runbook: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


def choose_runbook(text: str, runbooks: Iterable[Runbook]) -> Choice | None:
    """Return the runbook that the sentence asks for, None when that is not certain."""
    sentence = text[:MAX_SENTENCE]
    if _NEGATION.search(sentence):
        return None
    arguments = arguments_in(sentence)
    known = tuple(runbooks)
    said = _said(_without(sentence, arguments.values()).lower(), known)
    ranked = sorted(
        (
            (runbook.priority, len(found), runbook.name, found)
            for runbook in known
            if (found := _of(runbook, said))
        ),
        reverse=True,
    )
    if not ranked or (len(ranked) > 1 and ranked[0][:2] == ranked[1][:2]):
        return None
    _priority, _count, name, found = ranked[0]
    return Choice(name, arguments, f"the sentence says {', '.join(found)}")


def arguments_in(sentence: str) -> dict[str, str]:
    """Return what the sentence names: its one path, unit and operation; two of a kind count as none."""
    paths = {_tidy(found) for found in _PATH.findall(sentence)}
    units = {found[0] for found in _UNIT.finditer(sentence)}
    named = {"path": paths, "unit": units, "operation": set(_OPERATION.findall(sentence))}
    return {name: next(iter(values)) for name, values in named.items() if len(values) == 1}


def _tidy(path: str) -> str:
    return path.rstrip(_PATH_END) or "/"


def _without(sentence: str, values: Iterable[str]) -> str:
    """Return the sentence without what it names: `/var/cache/memory` says nothing about memory."""
    for value in sorted(values, key=len, reverse=True):
        if value != "/":
            sentence = sentence.replace(value, " ")
    return sentence


def _said(words: str, runbooks: Iterable[Runbook]) -> set[str]:
    """Return the keywords that the sentence uses, longer ones first: 服务器 does not say 服务."""
    keywords = {keyword.lower() for runbook in runbooks for keyword in runbook.keywords}
    said: set[str] = set()
    for keyword in sorted(keywords, key=lambda word: (-len(word), word)):
        rest = _taken_out(words, keyword)
        if rest != words:
            said.add(keyword)
            words = rest
    return said


def _of(runbook: Runbook, said: set[str]) -> list[str]:
    return [keyword for keyword in runbook.keywords if keyword.lower() in said]


def _taken_out(words: str, keyword: str) -> str:
    """Take the keyword out: as a whole word in letters that form words, anywhere in Chinese."""
    if keyword.isascii():
        return re.sub(rf"(?<![a-z0-9_]){re.escape(keyword)}(?![a-z0-9_])", "\0", words)
    return words.replace(keyword, "\0")
