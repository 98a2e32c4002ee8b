"""What time alone changes: a `for` that ran out, a series fallen silent, hits that are no longer within."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hermesd.events import Event, EventStatus
from hermesd.rules.engine import judge
from hermesd.rules.rule import Rule
from hermesd.rules.timers import due_of, judge_due
from hermesd.rules.verdict import VerdictKind, state_from_record

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def rule(**changes) -> Rule:
    return Rule.model_validate(
        {"name": "r", "match": ['type="m"'], "group_by": ["host"], "run": {"goal": "Look"}, **changes}
    )


def over(**changes) -> Rule:
    return rule(threshold={"op": ">", "value": 80}, clear={"op": "<", "value": 75}, **changes)


def reading(value, subject="s") -> Event:
    given_status = EventStatus.READING if value is not None else EventStatus.FIRING
    return Event(
        id="1",
        source="host",
        type="m",
        time=NOW,
        subject=subject,
        labels={"host": "h"},
        status=given_status,
        value=value,
    )


class Watch:
    """A rule with its state and the event that it rests on, as the store keeps them."""

    def __init__(self, watched: Rule, *, forgetful: bool = False) -> None:
        self.rule = watched
        self.state = None
        self.event = None
        self.forgetful = forgetful

    def see(self, value, minute=0.0):
        self.event = reading(value)
        verdict, self.state = judge(self.rule, self.event, self._again(), NOW + minute * MINUTE)
        return verdict

    def wait(self, minute):
        state = self._again()
        if state is None:
            return None
        verdict, self.state = judge_due(self.rule, self.event, state, NOW + minute * MINUTE)
        return verdict

    def due(self):
        due = due_of(self.rule, self.state)
        return None if due is None else (due - NOW) / MINUTE

    def _again(self):
        """Return the state; one who forgets reads it back from its record, as after a restart."""
        if self.forgetful and self.state is not None:
            return state_from_record(self.state.to_record())
        return self.state


def test_a_condition_that_held_long_enough_opens_although_nothing_more_was_said():
    watch = Watch(over(**{"for": "5m"}))
    assert watch.see(90).kind is VerdictKind.PENDING
    assert watch.due() == 5
    assert watch.wait(4.9) is None
    verdict = watch.wait(5)
    assert verdict.kind is VerdictKind.OPENED
    assert verdict.start_run
    assert watch.state.opened_at == NOW + 5 * MINUTE


def test_a_condition_that_cleared_before_its_time_leaves_nothing_due():
    watch = Watch(over(**{"for": "5m"}))
    watch.see(90)
    assert watch.see(70, 2).kind is VerdictKind.BELOW
    assert watch.state is None
    assert watch.wait(9) is None


def test_a_series_that_falls_silent_opens_and_ends_when_it_speaks_again():
    watch = Watch(rule(absent="10m"))
    assert watch.see(1).kind is VerdictKind.BELOW
    watch.see(1, 5)
    assert watch.due() == 15
    assert watch.wait(14) is None
    opened = watch.wait(15)
    assert opened.kind is VerdictKind.OPENED
    assert "nothing was heard for 10m" in opened.reason
    assert watch.due() is None, "an open incident is never aged out"
    assert watch.see(1, 500).kind is VerdictKind.RESOLVED
    assert watch.due() == 510


def test_a_count_opens_with_the_last_of_so_many_within_the_window_and_not_before():
    watch = Watch(rule(count=3, window="10m"))
    assert watch.see(None, 0).kind is VerdictKind.PENDING
    assert watch.see(None, 9).kind is VerdictKind.PENDING
    late = watch.see(None, 10)
    assert late.kind is VerdictKind.PENDING, "the first is ten minutes old, and no longer within"
    assert "2 of 3 within 10m" in late.reason
    assert watch.see(None, 12).kind is VerdictKind.OPENED


def test_a_counted_incident_ends_when_none_came_for_a_window():
    watch = Watch(rule(count=2, window="10m"))
    watch.see(None, 0)
    assert watch.see(None, 1).kind is VerdictKind.OPENED
    watch.see(None, 8)
    assert watch.due() == 18
    assert watch.wait(17) is None
    assert watch.wait(18).kind is VerdictKind.RESOLVED


def test_openings_beyond_high_stop_runs_until_no_more_than_low_are_left():
    flap = {"window": "60m", "high": 3, "low": 1}
    watch = Watch(over(cooldown="0s", flap=flap))

    def open_and_close(minute):
        verdict = watch.see(90, minute)
        assert verdict.kind is VerdictKind.OPENED
        watch.see(10, minute + 1)
        return verdict

    assert open_and_close(0).start_run
    assert open_and_close(10).start_run
    third = open_and_close(20)
    assert not third.start_run
    assert "flapping" in third.reason
    assert not open_and_close(65).start_run, "three are within the hour still: 10, 20 and 65"
    assert open_and_close(200).start_run, "the others are out of the window"


def test_a_chain_of_three_causes_starts_nothing_more():
    watch = Watch(over())
    event = reading(90)
    for causes, starts in (((), True), (("a", "b"), True), (("a", "b", "c"), False)):
        caused = Event(
            id="1",
            source="host",
            type="m",
            time=NOW,
            subject="s",
            labels=event.labels,
            status=event.status,
            value=90,
            cause=causes,
        )
        verdict, _state = judge(watch.rule, caused, None, NOW)
        assert verdict.kind is VerdictKind.OPENED
        assert verdict.start_run is starts


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"count": 3}, "belong together"),
        ({"window": "5m"}, "belong together"),
        ({"absent": "5m", "for": "1m"}, "stands alone"),
        ({"count": 2, "window": "5m", "for": "1m"}, "two things"),
        ({"flap": {"window": "5m", "high": 2, "low": 2}}, "must be below"),
        ({"inhibit": [{"by": "r"}]}, "cannot inhibit itself"),
        ({"run": {"goal": "x", "mode": "single", "limit": 2}}, "limit means nothing"),
        ({"when": "value >"}, "is not CEL"),
    ],
)
def test_keys_that_contradict_one_another_are_refused_with_the_reason(keys, words):
    with pytest.raises(ValidationError, match=words):
        rule(**keys)


KINDS = (
    {"for": "5m"},
    {"cooldown": "3m"},
    {"flap": {"window": "20m", "high": 2, "low": 1}, "cooldown": "0s"},
    {"count": 2, "window": "6m"},
)
STEPS = st.lists(
    st.tuples(st.floats(0.1, 9), st.one_of(st.none(), st.sampled_from([10.0, 77.0, 90.0]))), max_size=30
)


@given(st.sampled_from(KINDS), STEPS)
def test_a_restart_at_any_moment_changes_no_verdict(keys, steps):
    awake, restarted = Watch(over(**keys)), Watch(over(**keys), forgetful=True)
    minute = 0.0
    for pause, value in steps:
        minute += pause
        if value is None:
            assert awake.wait(minute) == restarted.wait(minute)
        else:
            assert awake.see(value, minute) == restarted.see(value, minute)
        assert awake.state == restarted.state


@given(st.sampled_from(KINDS), STEPS)
def test_nothing_is_remembered_for_ever_but_an_open_incident(keys, steps):
    watch, minute = Watch(over(**keys)), 0.0
    for pause, value in steps:
        minute += pause
        if value is not None:
            watch.see(value, minute)
    for _look in range(100):
        if watch.state is None or watch.due() is None:
            break
        watch.wait(watch.due())
    assert watch.state is None or watch.state.opened_at is not None
