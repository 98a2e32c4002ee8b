"""What an event is spared by the arrangement of the rules."""

from datetime import UTC, datetime

from hermesd.events import Event
from hermesd.rules.book import NO_RULES, RuleBook
from hermesd.rules.rule import Rule


def rule(name: str, *match: str, enabled: bool = True) -> Rule:
    return Rule.model_validate({"name": name, "match": list(match), "group_by": [], "enabled": enabled})


def event(**labels: str) -> Event:
    return Event(id="1", source="s", type="alert", time=datetime(2026, 3, 1, tzinfo=UTC), labels=labels)


def found(book: RuleBook, **labels: str) -> list[str]:
    return [one.name for one in book.matching(event(**labels))]


def test_rules_of_one_type_that_ask_for_a_label_are_found_beside_those_that_ask_for_another():
    book = RuleBook(
        [
            rule("disk", 'type="alert"', 'alertname="DiskFull"'),
            rule("any", 'type="alert"'),
            rule("down", 'type="alert"', 'alertname="HostDown"'),
            rule("everything", 'alertname=~".*"'),
            rule("other", 'type="host.cpu"'),
        ]
    )
    assert found(book, alertname="DiskFull") == ["disk", "any", "everything"]
    assert found(book, alertname="HostDown") == ["any", "down", "everything"]
    assert found(book) == ["any", "everything"]


def test_a_rule_that_asks_one_label_for_two_values_meets_no_event():
    book = RuleBook([rule("never", 'type="alert"', 'team="a"', 'team="b"'), rule("a", 'team="a"')])
    assert found(book, team="a") == ["a"]
    assert found(book, team="b") == []


def test_a_label_asked_to_be_empty_is_found_by_an_event_that_lacks_it():
    book = RuleBook([rule("ours", 'team=""'), rule("theirs", 'team="x"')])
    assert found(book) == ["ours"]
    assert found(book, team="x") == ["theirs"]


def test_a_rule_that_is_switched_off_is_not_in_the_book():
    book = RuleBook([rule("off", 'type="alert"', enabled=False)])
    assert found(book) == []
    assert "off" not in book.by_name


def test_a_book_without_rules_meets_every_event_with_none():
    assert found(NO_RULES, host="h") == []
