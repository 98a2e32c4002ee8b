"""What holds of the engine for every sequence of events."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hermesd.events import Event, EventStatus
from hermesd.rules.engine import RuleState, VerdictKind, judge, state_from_record
from hermesd.rules.rule import Rule
from hermesd.rules.titles import render

NOW = datetime(2026, 3, 1, tzinfo=UTC)
COOLDOWN = timedelta(minutes=15)

RULE = Rule.model_validate(
    {
        "name": "disk",
        "match": ['type="reading"'],
        "group_by": ["host"],
        "for": "2m",
        "cooldown": "15m",
        "threshold": {"op": ">", "value": 80},
        "clear": {"op": "<", "value": 75},
        "run": {"goal": "Look at {host}"},
    }
)

values = st.one_of(st.none(), st.floats(), st.integers(70, 90).map(float))
sightings = st.lists(
    st.tuples(st.floats(0, 1800), values, st.sampled_from(EventStatus), st.sampled_from(["a", "b"])),
    max_size=60,
)


def told(value: float | None, status: EventStatus, subject: str) -> Event:
    return Event(
        id="1",
        source="s",
        type="reading",
        time=NOW,
        subject=subject,
        labels={"host": "h"},
        status=status,
        value=value,
    )


@given(sightings)
def test_runs_are_granted_no_closer_than_the_cooldown_and_incidents_open_and_resolve_in_turn(seen):
    state: RuleState | None = None
    now, last_grant, is_open = NOW, None, False
    for seconds, value, status, subject in seen:
        now += timedelta(seconds=seconds)
        verdict, state = judge(RULE, told(value, status, subject), state, now)
        assert verdict.reason
        if verdict.start_run:
            assert last_grant is None or now - last_grant >= COOLDOWN
            assert state is not None
            assert state.last_run_at == now
            last_grant = now
        if verdict.kind is VerdictKind.OPENED:
            assert not is_open
            is_open = True
        if verdict.kind in (VerdictKind.ABSORBED, VerdictKind.RESOLVED):
            assert is_open
            assert verdict.incident_id
            is_open = verdict.kind is VerdictKind.ABSORBED
        if verdict.kind in (VerdictKind.BELOW, VerdictKind.PENDING):
            assert not is_open
        assert (state is not None and state.opened_at is not None) == is_open
        assert state is None or state_from_record(state.to_record()) == state


@given(sightings)
def test_judging_is_pure(seen):
    def play() -> list[object]:
        state: RuleState | None = None
        now, verdicts = NOW, []
        for seconds, value, status, subject in seen:
            now += timedelta(seconds=seconds)
            verdict, state = judge(RULE, told(value, status, subject), state, now)
            verdicts.append((verdict, state))
        return verdicts

    assert play() == play()


@given(st.text(), st.floats() | st.none())
def test_a_title_is_one_bounded_line_whatever_a_stranger_wrote(text, value):
    event = Event(id="1", source="s", type="t", time=NOW, labels={"host": text}, value=value)
    title = render("{host} is {value:.1f}", event)
    assert title.isprintable()
    assert len(title) <= 300
