"""The rule book: all rules of a configuration, arranged once so that an event meets only its own.

Rules are found by the type they ask for and then by the label that most of them ask for by equality,
so that a book of hundreds costs an event little more than a book of one. This module must never
judge: it says whose business an event is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hermesd.events import Event
from hermesd.rules.matcher import Matcher, Op, reader
from hermesd.rules.rule import Rule

_TYPE: Final = "type"

Test = tuple[Callable[[Event], str], Callable[[str], bool]]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A rule, and the conditions that are still to be tested once it was found by its labels."""

    rule: Rule
    equal: Mapping[str, str]
    tests: tuple[Test, ...]

    def holds(self, event: Event) -> bool:
        """Say whether what is left to test holds."""
        return all(test(read(event)) for read, test in self.tests)

    def found_by(self, name: str) -> _Entry:
        """Return the entry without the condition that the index has settled: one value of that label.

        A second condition on the same label stays, and is never met by the first one's value.
        """
        kept = tuple(
            (matcher.read, matcher.test)
            for matcher in self.rule.match
            if (matcher.read, matcher.test) in self.tests and not _settles(matcher, name, self.equal[name])
        )
        return _Entry(self.rule, self.equal, kept)


class _Row:
    """Entries side by side. Where no condition is left to test, their rules are known beforehand."""

    __slots__ = ("_entries", "_untested")

    def __init__(self, entries: Iterable[_Entry]) -> None:
        self._entries = tuple(entries)
        self._untested = [entry.rule for entry in self._entries]
        if any(entry.tests for entry in self._entries):
            self._untested = []

    def matching(self, event: Event) -> Sequence[Rule]:
        return self._untested or [entry.rule for entry in self._entries if entry.holds(event)]


@dataclass(frozen=True, slots=True)
class _Shelf:
    """The entries of one type, by the value of one label where that tells many of them apart."""

    read: Callable[[Event], str] | None
    by_value: Mapping[str, _Row]
    others: _Row

    def row(self, event: Event) -> _Row:
        return self.others if self.read is None else self.by_value.get(self.read(event), self.others)


class RuleBook:
    """The enabled rules by descending priority, in their order where that is equal."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: tuple[Rule, ...] = tuple(
            sorted((rule for rule in rules if rule.enabled), key=lambda rule: -rule.priority)
        )
        self.by_name: Mapping[str, Rule] = {rule.name: rule for rule in self.rules}
        entries = [_entry(rule) for rule in self.rules]
        self._shelves = {kind: _shelve(chosen) for kind, chosen in _by_value(entries, _TYPE).items()}
        self._anywhere = _shelve([entry for entry in entries if _TYPE not in entry.equal])

    def matching(self, event: Event) -> Sequence[Rule]:
        """Return the rules whose business the event is, in their order."""
        return self._shelves.get(event.type, self._anywhere).row(event).matching(event)


def _entry(rule: Rule) -> _Entry:
    equal = {matcher.name: matcher.value for matcher in rule.match if matcher.op is Op.EQUAL}
    return _Entry(rule, equal, tuple((matcher.read, matcher.test) for matcher in rule.match))


def _settles(matcher: Matcher, name: str, value: str) -> bool:
    return matcher.op is Op.EQUAL and matcher.name == name and matcher.value == value


def _by_value(entries: list[_Entry], name: str) -> dict[str, list[_Entry]]:
    """Return for each value that is asked for by equality the entries that it may concern, in order."""
    values = {entry.equal[name] for entry in entries if name in entry.equal}
    return {
        value: [
            entry.found_by(name) if name in entry.equal else entry
            for entry in entries
            if entry.equal.get(name, value) == value
        ]
        for value in values
    }


def _shelve(entries: list[_Entry]) -> _Shelf:
    asked = Counter(name for entry in entries for name in entry.equal if name != _TYPE)
    best = max(asked, key=lambda name: asked[name], default="")
    if not best or asked[best] < 2:  # noqa: PLR2004 - one rule is not worth an index
        return _Shelf(None, {}, _Row(entries))
    by_value = {value: _Row(chosen) for value, chosen in _by_value(entries, best).items()}
    return _Shelf(reader(best), by_value, _Row(entry for entry in entries if best not in entry.equal))
