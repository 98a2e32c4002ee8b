"""What a silence keeps from starting a run, and for how long."""

from datetime import UTC, datetime, timedelta

from hermesd.events import Event
from hermesd.rules.matcher import parse_matcher
from hermesd.rules.rule import Rule
from hermesd.rules.silence import Silence, match_silence
from hermesd.rules.verdict import HoldKind

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULE = Rule.model_validate({"name": "web", "match": ["type=alert"], "group_by": [], "run": {"goal": "Look"}})


def event(**labels):
    return Event(id="1", source="s", type="alert", time=NOW, labels=labels)


def silence(*matchers, minutes=60):
    return Silence(
        "sil-1",
        tuple(parse_matcher(text) for text in matchers),
        "uid 1000",
        "moving the rack",
        NOW + timedelta(minutes=minutes),
    )


def held(given, **labels):
    return match_silence([given], RULE, event(**labels), NOW)


def test_a_silence_says_who_made_it_until_when_and_why():
    hold = held(silence("host=a"), host="a")
    assert hold is not None
    assert hold.kind is HoldKind.SILENCED
    assert hold.reason == "sil-1 by uid 1000 until 2026-03-01 13:00 UTC: moving the rack"


def test_all_matchers_of_a_silence_must_hold():
    both = silence("host=a", "job=~web.*")
    assert held(both, host="a", job="web-1")
    assert held(both, host="a", job="db") is None
    assert held(both, host="b", job="web-1") is None


def test_a_silence_can_name_the_rule_that_would_start_a_run():
    assert held(silence("rule=web"))
    assert held(silence("rule=other")) is None


def test_a_silence_has_ended_at_its_end():
    assert held(silence("host=a", minutes=0), host="a") is None
