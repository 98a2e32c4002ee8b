"""From events to verdicts: storms collapse, the inbox is bounded, everything leaves its reason."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.audit import AuditError
from hermesd.events import Event
from hermesd.incidents import IncidentStatus
from hermesd.sources.base import InboxFull
from hermesd.state.events import find_event, prune
from hermesd.state.incidents import find_incident
from hermesd.state.marks import is_current, list_marks


def alert(number, **labels):
    return Event(
        id=f"a{number}",
        source="alerts",
        type="alertmanager.alert",
        time=datetime.now(UTC),
        labels={"alertname": "Down", "job": "web", "instance": f"host-{number}", **labels},
    )


@pytest.fixture
def alert_rule(parts):
    return parts.disk_rule(
        match=["type=alertmanager.alert"],
        group_by=["alertname", "job"],
        title="{alertname} of {job}",
        threshold=None,
        clear=None,
        run={"goal": "Look at {job}"},
    )


async def test_ten_thousand_alerts_of_one_cause_are_one_incident_and_one_run(open_house, parts, alert_rule):
    async with open_house(parts.in_rounds(parts.finish()), rules=[alert_rule]) as house:
        for begin in range(0, 10_000, 500):
            await house.inbox.accept([alert(number) for number in range(begin, begin + 500)])
        await house.until(lambda: _all_judged(house), seconds=30)
        await house.ended()
        [incident] = await house.incidents()
        assert len(await house.runs()) == 1
        verdicts = house.records("event.verdict")
    assert incident.events == 10_000
    assert sum(record["count"] for record in verdicts) == 10_000
    assert len(verdicts) < 100, "what happened alike is one record with its count"
    assert house.inbox.accepted == 10_000


async def test_the_same_event_delivered_twice_is_one(open_house, parts, alert_rule):
    async with open_house(parts.in_rounds(parts.finish()), rules=[alert_rule]) as house:
        await house.inbox.accept([alert(1), alert(1)])
        await house.inbox.accept([alert(1)])
        await house.ended()
        [incident] = await house.incidents()
    assert incident.events == 1
    assert house.inbox.accepted == 1


async def test_a_full_inbox_takes_nothing_and_takes_again_once_it_is_judged(open_house):
    async with open_house(serve=False, limits={"inbox_events": 100}) as house:
        await house.inbox.accept([alert(number) for number in range(100)])
        with pytest.raises(InboxFull):
            await house.inbox.accept([alert(100)])
        assert await house.kit.store.read(lambda c: find_event(c, "a100")) is None
        await house.dispatcher.judge_once()
        await house.inbox.accept([alert(100)])


async def test_a_store_that_cannot_write_makes_the_source_come_again(open_house):
    async with open_house(serve=False) as house:
        house.kit.store.close()
        with pytest.raises(InboxFull):
            await house.inbox.accept([alert(1)])
        assert house.inbox.undecided == 0


async def test_every_event_keeps_what_was_made_of_it_and_why(open_house, parts):
    async with open_house(parts.in_rounds(parts.finish())) as house:
        low = await house.reading(40.0)
        high = await house.reading(93.0)
        await house.inbox.accept([alert(1)])
        await house.until(lambda: _all_judged(house))

        async def reasons(event_id):
            stored = await house.kit.store.read(lambda c: find_event(c, event_id))
            return [(verdict["kind"], verdict["reason"]) for verdict in stored.verdicts]

        assert await reasons(low.id) == [("below", "40 percent is < 75")]
        [(kind, why)] = await reasons(high.id)
        assert kind == "opened"
        assert "93 percent is > 80" in why
        assert await reasons("a1") == [("ignored", "no rule matches")]


async def test_an_incident_that_ends_and_comes_back_is_two(open_house, parts):
    async with open_house(parts.in_rounds(parts.finish()), serve=False) as house:
        for value in (93.0, 40.0, 94.0):
            await house.reading(value)
        await house.dispatcher.judge_once()
        newer, older = await house.incidents()
        runs = await house.runs()
    assert (older.status, newer.status) == (IncidentStatus.RESOLVED, IncidentStatus.OPEN)
    assert older.events == 2
    assert len(runs) == 1, "the cooldown holds across incidents of one fingerprint"


async def test_after_the_cooldown_an_open_incident_gets_another_run_but_never_two_at_once(
    open_house, world, parts
):
    moment = [datetime.now(UTC)]
    world.hold("log:stats")
    planner = parts.in_rounds(parts.acts(parts.action("look", "log:stats")), parts.finish())
    async with open_house(planner, now=lambda: moment[0]) as house:
        await house.reading(93.0)
        await house.started()
        moment[0] += timedelta(minutes=16)
        await house.reading(93.0)
        await house.until(lambda: _all_judged(house))
        assert len(await house.runs()) == 1
        world.gates["log:stats"].set()
        await house.ended()
        moment[0] += timedelta(minutes=16)
        await house.reading(93.0)
        await house.ended(2)
        told = [entry for record in house.records("event.verdict") for entry in record["runs"]]
    assert "none: a run of this incident is under way" in told


async def test_a_rule_that_forgot_its_incident_finds_it_again(open_house, parts):
    async with open_house(parts.in_rounds(parts.finish()), serve=False) as house:
        await house.reading(93.0)
        await house.dispatcher.judge_once()
        await house.kit.store.write(lambda c: c.execute("DELETE FROM rule_states") and None)
        await house.reading(94.0)
        await house.reading(40.0)
        await house.dispatcher.judge_once()
        [incident] = await house.incidents()
    assert incident.status is IncidentStatus.RESOLVED
    assert incident.events == 3


class Poisoned:
    """A rule that breaks on one event: what no rule of a file can do, and a fault of the program might."""

    def __init__(self, rule):
        self._rule = rule

    def __getattr__(self, name):
        return getattr(self._rule, name)

    @property
    def threshold(self):
        return self

    def holds(self, value):
        if value == 66.6:
            raise ZeroDivisionError("a bug")
        return self._rule.threshold.holds(value)

    @property
    def words(self):
        return "poisoned"


async def test_an_event_that_cannot_be_judged_is_set_aside_and_the_others_are_served(open_house, parts):
    rule = Poisoned(parts.disk_rule())
    async with open_house(parts.in_rounds(parts.finish()), rules=[rule]) as house:
        bad = await house.reading(66.6)
        await house.reading(93.0)
        await house.ended()
        [record] = house.records("event.set_aside")
        stored = await house.kit.store.read(lambda c: find_event(c, bad.id))
        assert house.inbox.undecided == 0
    assert record["event"] == bad.id
    assert stored.verdicts[0]["reason"] == "it could not be judged: ZeroDivisionError"


async def test_a_log_that_cannot_be_written_ends_the_dispatcher_and_opens_nothing(open_house, parts):
    async with open_house(parts.in_rounds(parts.finish()), serve=False) as house:
        await house.reading(93.0)
        await asyncio.to_thread(house.kit.audit.close)
        with pytest.raises(AuditError):
            await house.dispatcher.run()
        assert not await house.incidents()
        assert not await house.runs()


async def test_host_readings_are_marks_that_age(open_house, parts):
    async with open_house(serve=False) as house:
        await house.reading(41.0)
        await house.reading(42.0)
        await house.inbox.accept([alert(1)])
        await house.dispatcher.judge_once()
        [mark] = await house.kit.store.read(list_marks)
    assert (mark.name, mark.scope, mark.value["value"]) == ("host.filesystem", "/var", 42.0)
    assert is_current(mark, datetime.now(UTC))
    assert not is_current(mark, datetime.now(UTC) + timedelta(minutes=11))


async def test_an_event_of_a_rule_without_a_run_opens_an_incident_only(open_house, parts):
    async with open_house(rules=[parts.disk_rule(run=None)]) as house:
        await house.reading(93.0)
        await house.until(lambda: _all_judged(house))
        [incident] = await house.incidents()
        assert not await house.runs()
        found = await house.kit.store.read(lambda c: find_incident(c, incident.id))
    assert found.last_value == 93.0


async def _all_judged(house):
    return house.inbox.undecided == 0


@pytest.mark.slow
async def test_a_hundred_thousand_alerts_of_one_cause_are_one_incident_and_one_run(
    open_house, parts, alert_rule
):
    async with open_house(parts.in_rounds(parts.finish()), rules=[alert_rule], serve=False) as house:
        for begin in range(0, 100_000, 500):
            await house.inbox.accept([alert(number) for number in range(begin, begin + 500)])
            await house.dispatcher.judge_once()
        while house.inbox.undecided:
            await house.dispatcher.judge_once()
        [incident] = await house.incidents()
        assert len(await house.runs()) == 1
    assert incident.events == 100_000
    assert house.inbox.accepted == 100_000


async def test_an_incident_that_is_open_is_never_aged_out(open_house, parts):
    moment = [datetime.now(UTC)]
    async with open_house(parts.in_rounds(parts.finish()), serve=False, now=lambda: moment[0]) as house:
        await house.reading(93.0)
        await house.dispatcher.judge_once()
        moment[0] += timedelta(days=400)
        while await house.kit.store.write(lambda c: prune(c, moment[0], 30, 1000)):
            pass
        assert await house.dispatcher.judge_once() == 0
        [incident] = await house.incidents()
        assert incident.status is IncidentStatus.OPEN
        await house.reading(40.0)
        await house.dispatcher.judge_once()
        [incident] = await house.incidents()
    assert incident.status is IncidentStatus.RESOLVED
