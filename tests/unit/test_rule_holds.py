"""What keeps a run from starting although its rule's condition holds, and whose business an event is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hermesd.events import Event, EventStatus
from hermesd.rules.book import RuleBook
from hermesd.rules.budgets import OpenIncident, PastRun, busy, host_of, inhibited, over_budget
from hermesd.rules.engine import judge, select_rules
from hermesd.rules.maintenance import Maintenance, match_maintenance
from hermesd.rules.rule import Rule
from hermesd.rules.verdict import HoldKind, VerdictKind

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def rule(name="r", **changes) -> Rule:
    return Rule.model_validate(
        {"name": name, "match": ['type="m"'], "group_by": ["host"], "run": {"goal": "Look"}, **changes}
    )


def event(kind="m", value=None, **labels) -> Event:
    return Event(
        id="1",
        source="s",
        type=kind,
        time=NOW,
        labels={"host": "h", **labels},
        status=EventStatus.FIRING,
        value=value,
    )


def past(minutes, name="r", fingerprint="f", host="h"):
    return PastRun(name, fingerprint, host, NOW - timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"per_target": 2}, "2 runs for this target within 1h"),
        ({"per_rule": 3}, "3 runs for rule r within 1h"),
        ({"per_host": 4}, "4 runs for host h within 1h"),
        ({"per_target": 3, "per_rule": 4, "per_host": 5}, ""),
        ({"per_target": 2, "window": "2m"}, ""),
    ],
)
def test_each_budget_counts_the_runs_of_its_own_kind_within_the_window(budget, words):
    runs = [past(1), past(5), past(9, fingerprint="g"), past(10, name="q", fingerprint="x"), past(61)]
    hold = over_budget(rule(budget=budget), event(), "f", runs, NOW)
    assert (hold is not None) is bool(words)
    assert hold is None or hold.reason.startswith(words)


def test_a_host_is_the_label_or_the_instance_without_its_port():
    assert host_of({"host": "a", "instance": "b:9100"}) == "a"
    assert host_of({"instance": "b:9100"}) == "b"
    assert host_of({"instance": "b"}) == "b"
    assert host_of({}) == ""


def test_an_open_incident_that_agrees_in_the_named_labels_inhibits():
    kept = rule(inhibit=[{"by": "parent", "equal": ["rack"]}])
    same = OpenIncident("inc-1", "parent", {"rack": "r1"})
    other = OpenIncident("inc-2", "parent", {"rack": "r2"})
    stranger = OpenIncident("inc-3", "sibling", {"rack": "r1"})
    assert inhibited(kept, event(rack="r1"), [stranger, other]) is None
    hold = inhibited(kept, event(rack="r1"), [other, same])
    assert hold.kind is HoldKind.INHIBITED
    assert "inc-1" in hold.reason


@pytest.mark.parametrize(
    ("run", "active", "held"),
    [
        ({"mode": "single"}, 0, False),
        ({"mode": "single"}, 1, True),
        ({"mode": "parallel"}, 50, False),
        ({"mode": "parallel", "limit": 2}, 1, False),
        ({"mode": "parallel", "limit": 2}, 2, True),
        ({"mode": "queued", "limit": 3}, 3, True),
        ({"mode": "restart"}, 9, False),
    ],
)
def test_a_mode_says_how_many_runs_of_a_rule_there_may_be(run, active, held):
    assert (busy(rule(run={"goal": "x", **run}), active) is not None) is held


WEEKLY = {"reason": "backup", "days": ["sun"], "at": "02:30", "for": "2h", "timezone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-03-01T01:29:59+00:00", False),  # 02:29:59 in Berlin, a Sunday
        ("2026-03-01T01:30:00+00:00", True),
        ("2026-03-01T03:29:59+00:00", True),
        ("2026-03-01T03:30:00+00:00", False),
        ("2026-03-02T01:30:00+00:00", False),  # Monday
        ("2026-07-05T00:30:00+00:00", True),  # in summer an hour earlier by UTC
    ],
)
def test_a_weekly_window_opens_by_the_clock_of_its_zone(moment, is_open):
    assert Maintenance.model_validate(WEEKLY).is_open(datetime.fromisoformat(moment)) is is_open


def test_a_window_over_midnight_is_open_on_the_next_day():
    window = Maintenance.model_validate({**WEEKLY, "at": "23:00", "timezone": "UTC"})
    assert window.is_open(datetime(2026, 3, 2, 0, 30, tzinfo=UTC))
    assert not window.is_open(datetime(2026, 3, 2, 1, 0, tzinfo=UTC))


def test_a_window_holds_only_what_it_matches_the_rule_by_its_name_too():
    begins, ends = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
    window = Maintenance.model_validate(
        {"reason": "move", "from": begins, "to": ends, "match": ['host="h"', 'rule=~"disk.*"']}
    )
    held = match_maintenance([window], rule("disk-full"), event(), NOW)
    assert held == (HoldKind.MAINTENANCE, "move")
    assert match_maintenance([window], rule("cpu"), event(), NOW) is None
    assert match_maintenance([window], rule("disk-full"), event(host="x"), NOW) is None
    assert match_maintenance([window], rule("disk-full"), event(), ends) is None


@pytest.mark.parametrize(
    "keys",
    [
        {"reason": "x"},
        {"reason": "x", "from": NOW, "to": NOW},
        {"reason": "x", "from": NOW},
        {**WEEKLY, "from": NOW, "to": NOW + timedelta(hours=1)},
        {**WEEKLY, "timezone": "Berlin/Europe"},
        {**WEEKLY, "days": ["someday"]},
        {**WEEKLY, "at": "25:00"},
    ],
)
def test_a_window_that_could_mean_two_things_or_nothing_is_refused(keys):
    with pytest.raises(ValidationError):
        Maintenance.model_validate(keys)


@pytest.mark.parametrize(
    ("when", "given", "kind"),
    [
        ('labels.role == "db" && value > 3.0', event(value=4.0, role="db"), VerdictKind.OPENED),
        ('labels.role == "db" && value > 3.0', event(value=2.0, role="db"), VerdictKind.IGNORED),
        ('labels.role == ""', event(), VerdictKind.OPENED),  # a label that is not there is empty
        ("value > 3.0", event(), VerdictKind.IGNORED),  # nothing to compare: a reason, no fault
        ('labels.host.startsWith("h")', event(), VerdictKind.OPENED),
        ('"one"', event(), VerdictKind.IGNORED),
    ],
)
def test_a_condition_in_cel_decides_whose_business_an_event_is(when, given, kind):
    verdict, _state = judge(rule(when=when), given, None, NOW)
    assert verdict.kind is kind
    assert verdict.reason


MATCHERS = st.sampled_from(
    [
        'type="m"',
        'type="n"',
        'type=~"m|n"',
        'host="a"',
        'host="b"',
        'host!="a"',
        'job="x"',
        'job="y"',
        'job=~"x.*"',
        'job=""',
    ]
)
BOOKS = st.lists(
    st.tuples(st.lists(MATCHERS, min_size=1, max_size=3), st.booleans(), st.integers(-2, 2)), max_size=12
)


@given(
    BOOKS,
    st.sampled_from(["m", "n", "o"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["", "x", "y", "xx"]),
)
def test_the_book_finds_exactly_the_rules_that_match_by_priority(written, kind, host, job):
    rules = [
        rule(f"r{number}", match=match, enabled=enabled, priority=priority)
        for number, (match, enabled, priority) in enumerate(written)
    ]
    labels = {"host": host} | ({"job": job} if job else {})
    met = event(kind, **labels)
    expected = sorted(select_rules(rules, met), key=lambda found: -found.priority)
    assert [found.name for found in RuleBook(rules).matching(met)] == [found.name for found in expected]
