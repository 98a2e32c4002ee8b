"""Rows come back as they went in, and the tables refuse what must not be."""

import asyncio
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.events import Event, EventStatus
from hermesd.incidents import Incident, IncidentStatus, Outcome, Run, RunKind, RunStatus
from hermesd.protocol import (
    Action,
    CommandResult,
    Decision,
    Finish,
    ResultStatus,
    Stage,
    StageOutcome,
    StageTiming,
)
from hermesd.state import events, incidents, rule_states, runs, settings, steps
from hermesd.state.schema import migrate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def db():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection)
    yield connection
    connection.close()


def event(number: int = 1, **changes: object) -> Event:
    given = {"id": f"e{number}", "source": "host", "type": "host.memory", "time": NOW}
    return Event(**{**given, **changes})


def incident(name: str = "i1", **changes: object) -> Incident:
    given = {
        "id": name,
        "rule": "disk",
        "fingerprint": f"fp-{name}",
        "title": "Disk / is 91 % full",
        "labels": {"path": "/数据"},
        "severity": "warning",
        "opened_at": NOW,
        "last_event_at": NOW,
    }
    return Incident(**{**given, **changes})


def run(name: str = "t1", **changes: object) -> Run:
    given = {"task_id": name, "kind": RunKind.EVENT, "goal": "Look", "created_at": NOW}
    return Run(**{**given, **changes})


FULL_EVENT = event(
    subject="/",
    labels={"path": "/x\udcff", "名": "值"},
    status=EventStatus.READING,
    value=91.25,
    unit="percent",
    text="line\nline",
    cause=("a", "b"),
)


def test_an_event_comes_back_as_it_went_in_even_with_bytes_that_are_no_text(db):
    assert events.insert_event(db, FULL_EVENT, NOW)
    (stored,) = events.undecided_events(db, 10)
    assert stored.event == FULL_EVENT
    assert stored.accepted_at == NOW


def test_the_same_source_and_id_is_one_event_and_says_that_it_is_not_new(db):
    assert events.insert_events(db, [event(1), event(1), event(2), event(1, source="mqtt")], NOW) == [
        True,
        False,
        True,
        True,
    ]
    assert events.insert_event(db, event(1, value=5.0), NOW) is False
    assert events.count_undecided(db) == 3


def test_an_event_that_was_decided_is_still_known_when_it_is_delivered_again(db):
    events.insert_event(db, event(), NOW)
    events.mark_decided(db, 1, [], NOW)
    assert events.insert_event(db, event(), NOW) is False
    assert events.count_undecided(db) == 0


def test_undecided_events_come_in_the_order_of_arrival_and_in_portions(db):
    events.insert_events(db, [event(number) for number in (5, 3, 9, 1)], NOW)
    first = events.undecided_events(db, 2)
    assert [stored.event.id for stored in first] == ["e5", "e3"]
    rest = events.undecided_events(db, 10, after_seq=first[-1].seq)
    assert [stored.event.id for stored in rest] == ["e9", "e1"]


def test_an_event_is_decided_once_and_the_first_decision_stands(db):
    events.insert_event(db, event(), NOW)
    assert events.mark_decided(db, 1, [{"kind": "opened"}], NOW)
    assert not events.mark_decided(db, 1, [{"kind": "other"}], NOW + DAY)
    found = events.find_event(db, "e1")
    assert found is not None
    assert (found.verdicts, found.decided_at) == (({"kind": "opened"},), NOW)
    assert events.find_event(db, "e1", "mqtt") is None


def test_accepted_events_are_counted_for_ever(db):
    assert events.count_events(db) == 0
    events.insert_events(db, [event(1), event(2)], NOW - 40 * DAY)
    events.mark_decided(db, 1, [], NOW)
    events.mark_decided(db, 2, [], NOW)
    assert events.prune(db, NOW, 30) == 2
    assert events.count_events(db) == 2


def test_pruning_takes_old_decided_events_and_never_those_of_an_incident_that_is_not_resolved(db):
    names = ["old", "fresh", "undecided", "of-open", "of-acknowledged", "of-resolved", "of-both", "of-run"]
    for name in names:
        age = 10 if name == "fresh" else 31
        events.insert_event(db, event(id=name), NOW - age * DAY)
    for name, status in (
        ("open", IncidentStatus.OPEN),
        ("acknowledged", IncidentStatus.ACKNOWLEDGED),
        ("resolved", IncidentStatus.RESOLVED),
    ):
        incidents.open_incident(db, incident(name, status=status))
    links = {
        "of-open": ["open"],
        "of-acknowledged": ["acknowledged"],
        "of-resolved": ["resolved"],
        "of-both": ["resolved", "open"],
    }
    for seq, name in enumerate(names, 1):
        if name != "undecided":
            events.mark_decided(db, seq, [], NOW, links.get(name, ()))
    runs.insert_run(db, run(event_id="of-run"))
    assert events.prune(db, NOW, 30) == 2
    kept = {row[0] for row in db.execute("SELECT id FROM events")}
    assert kept == set(names) - {"old", "of-resolved"}


def test_pruning_is_done_in_bounded_portions(db):
    events.insert_events(db, [event(number) for number in range(25)], NOW - 40 * DAY)
    for seq in range(1, 26):
        events.mark_decided(db, seq, [], NOW)
    assert [events.prune(db, NOW, 30, limit=10) for _ in range(4)] == [10, 10, 5, 0]


def test_an_incident_comes_back_as_it_went_in_and_as_it_was_changed(db):
    opened = incident(last_value=91.5, unit="percent")
    incidents.open_incident(db, opened)
    assert incidents.find_incident(db, "i1") == opened
    assert incidents.find_open_incident(db, "fp-i1") == opened
    resolved = replace(opened, status=IncidentStatus.RESOLVED, resolved_at=NOW + DAY, events=7)
    incidents.update_incident(db, resolved)
    assert incidents.find_incident(db, "i1") == resolved
    assert incidents.find_open_incident(db, "fp-i1") is None
    assert incidents.list_incidents(db) == []
    assert incidents.list_incidents(db, include_resolved=True) == [resolved]


def test_two_incidents_of_one_fingerprint_are_never_open_together(db):
    incidents.open_incident(db, incident("i1", fingerprint="f", status=IncidentStatus.ACKNOWLEDGED))
    with pytest.raises(sqlite3.IntegrityError):
        incidents.open_incident(db, incident("i2", fingerprint="f"))
    incidents.update_incident(db, incident("i1", fingerprint="f", status=IncidentStatus.RESOLVED))
    incidents.open_incident(db, incident("i2", fingerprint="f"))
    assert incidents.count_open_incidents(db) == 1


def test_incidents_are_listed_newest_first_and_in_bounds(db):
    for number in range(5):
        incidents.open_incident(db, incident(f"i{number}"))
    assert [found.id for found in incidents.list_incidents(db, 3)] == ["i4", "i3", "i2"]


def test_the_events_of_an_incident_are_found_newest_first(db):
    incidents.open_incident(db, incident())
    events.insert_events(db, [event(1), event(2), event(3)], NOW)
    for seq in (1, 3):
        events.mark_decided(db, seq, [], NOW, ["i1"])
    assert [stored.event.id for stored in events.events_of_incident(db, "i1")] == ["e3", "e1"]
    assert [stored.event.id for stored in events.events_of_incident(db, "i1", 1)] == ["e3"]


TIMING = StageTiming(name=Stage.PLAN, round=1, ms=12.5, budget_ms=45_000, outcome=StageOutcome.TIMEOUT)


def test_a_run_comes_back_as_it_went_in_and_as_it_ended(db):
    incidents.open_incident(db, incident())
    queued = run(incident_id="i1", event_id="e1", runbook="disk-full")
    runs.insert_run(db, queued)
    assert runs.find_run(db, "t1") == queued
    assert runs.active_runs(db) == [queued]
    ended = replace(
        queued,
        status=RunStatus.ENDED,
        outcome=Outcome.RESOLVED,
        reason="cleared",
        started_at=NOW,
        ended_at=NOW + DAY,
        round=3,
        stage="report",
        report="All is well",
        worked_ms=1234,
        stages=(TIMING, TIMING),
    )
    runs.update_run(db, ended)
    assert runs.find_run(db, "t1") == ended
    assert runs.active_runs(db) == []
    assert runs.runs_of_incident(db, "i1") == [ended]


def test_runs_are_listed_newest_first_and_active_ones_oldest_first(db):
    incidents.open_incident(db, incident())
    for number in range(4):
        runs.insert_run(db, run(f"t{number}", incident_id="i1" if number % 2 else None))
    assert [found.task_id for found in runs.list_runs(db, 3)] == ["t3", "t2", "t1"]
    assert [found.task_id for found in runs.list_runs(db, 9, "i1")] == ["t3", "t1"]
    assert [found.task_id for found in runs.active_runs(db)] == ["t0", "t1", "t2", "t3"]
    assert [found.task_id for found in runs.active_runs(db, "i1")] == ["t1", "t3"]


def test_a_run_belongs_to_an_incident_that_exists_and_its_task_id_is_its_own(db):
    with pytest.raises(sqlite3.IntegrityError):
        runs.insert_run(db, run(incident_id="nobody"))
    runs.insert_run(db, run())
    with pytest.raises(sqlite3.IntegrityError):
        runs.insert_run(db, run())


ACTION = Action(step="a", command="system:disk_usage", args={"path": "/"}, intent="see")
RESULT = CommandResult(
    request_id="t1.1.0.0",
    task_id="t1",
    command="system:disk_usage",
    status=ResultStatus.SUCCEEDED,
    rows=({"used": 5},),
    stages=(TIMING,),
)


def step(**changes: object) -> steps.Step:
    given = {
        "task_id": "t1",
        "round": 1,
        "index": 0,
        "attempt": 0,
        "request_id": "t1.1.0.0",
        "action": ACTION,
    }
    return steps.Step(**{**given, **changes})


def test_a_step_comes_back_as_planned_sent_and_ended(db):
    runs.insert_run(db, run())
    steps.insert_step(db, step())
    assert steps.steps_of(db, "t1") == [step()]
    steps.update_step(db, step(status=steps.StepStatus.SENT))
    ended = step(status=steps.StepStatus.ENDED, result=RESULT)
    steps.update_step(db, ended)
    assert steps.find_step(db, "t1.1.0.0") == ended


def test_a_request_id_and_a_place_are_each_taken_once(db):
    runs.insert_run(db, run())
    steps.insert_step(db, step())
    with pytest.raises(sqlite3.IntegrityError):
        steps.insert_step(db, step(index=1))
    with pytest.raises(sqlite3.IntegrityError):
        steps.insert_step(db, step(request_id="other"))


def test_steps_come_in_the_order_of_round_place_and_attempt(db):
    runs.insert_run(db, run())
    places = [(10, 0, 0), (2, 1, 0), (2, 0, 1), (2, 0, 0)]
    for round_no, index, attempt in places:
        request_id = f"t1.{round_no}.{index}.{attempt}"
        steps.insert_step(db, step(round=round_no, index=index, attempt=attempt, request_id=request_id))
    found = [(made.round, made.index, made.attempt) for made in steps.steps_of(db, "t1")]
    assert found == sorted(places)


def test_decisions_come_back_in_order_with_why_some_were_refused(db):
    runs.insert_run(db, run())
    act, end = Decision(thought="t", actions=(ACTION,)), Decision(thought="t", finish=Finish(report="r"))
    first = steps.insert_decision(db, "t1", 1, "model", act, NOW)
    steps.insert_decision(db, "t1", 1, "runbook", end, NOW)
    steps.refuse_decision(db, first, "no such command")
    found = steps.decisions_of(db, "t1")
    assert [(made.decision, made.planner, made.refused) for made in found] == [
        (act, "model", "no such command"),
        (end, "runbook", ""),
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda db: incidents.update_incident(db, incident("nobody")),
        lambda db: runs.update_run(db, run("nobody")),
        lambda db: steps.update_step(db, step()),
    ],
)
def test_changing_a_row_that_is_not_there_is_an_error_and_not_silence(db, change):
    with pytest.raises(KeyError):
        change(db)


def test_a_rules_memory_is_kept_replaced_and_forgotten(db):
    rule_states.save_rule_state(db, "disk", "f", {"a": 1})
    rule_states.save_rule_state(db, "disk", "f", {"a": 2})
    assert rule_states.load_rule_state(db, "disk", "f") == {"a": 2}
    assert rule_states.rule_states(db) == [rule_states.StateRow("disk", "f", {"a": 2})]
    rule_states.save_rule_state(db, "disk", "f", None)
    assert rule_states.load_rule_state(db, "disk", "f") is None


def test_a_setting_that_was_never_set_has_its_default(db):
    assert settings.read_setting(db, "paused", default=False) is False
    settings.write_setting(db, "paused", value=True)
    settings.write_setting(db, "paused", value={"by": "ops"})
    assert settings.read_setting(db, "paused") == {"by": "ops"}


def test_a_host_name_that_is_no_text_stops_nothing(db):
    odd = "/mnt/\udcff"
    assert events.insert_event(db, event(id=odd, source=odd, subject=odd), NOW)
    assert not events.insert_event(db, event(id=odd, source=odd), NOW)
    assert events.find_event(db, odd, odd) is not None
    incidents.open_incident(db, incident(title=odd, unit=odd, labels={odd: odd}))
    runs.insert_run(db, run(goal=odd, event_id=odd, reason=odd, report=odd, asked_by=odd))
    found = runs.find_run(db, "t1")
    assert found is not None
    assert found.report == "/mnt/\\udcff"


def test_a_naive_time_is_refused(db):
    with pytest.raises(ValueError, match="aware"):
        events.insert_event(db, event(), datetime(2026, 3, 1))  # noqa: DTZ001 - the point


async def test_a_slot_is_claimed_in_one_transaction_however_many_ask(tmp_path):
    from hermesd.state.store import open_store

    store = open_store(tmp_path / "state.db")

    def claim(name):
        def work(connection):
            if len(runs.active_runs(connection)) >= 2:
                return False
            runs.insert_run(connection, run(name))
            return True

        return work

    granted = await asyncio.gather(*(store.write(claim(f"t{number}")) for number in range(20)))
    assert sum(granted) == 2
    store.close()
