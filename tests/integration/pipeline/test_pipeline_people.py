"""Events that people put in, and what they are told when they ask why, over a real control socket."""

from __future__ import annotations

import contextlib
import os

import pytest

from hermesd.ipc.client import ask
from hermesd.ipc.messages import read_line, request_line
from hermesd.ipc.server import SocketServer
from hermesd.pipeline.desk import Desk
from hermesd.sources.schedule import ScheduleSource
from hermesd.sources.schedule_file import Schedule
from hermesd.state.memory import StoredMemory


class Sources:
    def states(self):
        return ()


async def no_reload():
    return None


@pytest.fixture
def desk(tmp_path):
    """Serve a house's desk; `desk.ask` asks it and returns the payload, or the code of a refusal."""
    path = tmp_path / "control.sock"

    def serve(house):
        answers = Desk(house.kit, house.runner, house.inbox, Sources(), tmp_path / "audit", no_reload)
        return SocketServer(path, name="control.sock", allow=lambda _: True, answer=answers.answer)

    async def asked(kind, **payload):
        line = request_line(kind, payload, sender="test", receiver="control")
        async with contextlib.aclosing(ask(path, line)) as answers:  # open until the asker leaves it
            last = read_line(await anext(answers))
        return last["payload"] if last["status"] == "succeeded" else last["payload"]["code"]

    serve.ask = asked
    return serve


async def judged(house, desk, event_id):
    async def look():
        found = await desk.ask("explain", id=event_id)
        return found if found["decided_at"] else None

    return await house.until(look)


def disk_alert(parts):
    return parts.disk_rule(match=["type=disk.alert"], threshold=None, clear=None)


async def test_an_emitted_event_is_durable_judged_and_says_who_it_was(open_house, desk, parts):
    planner = parts.in_rounds(parts.finish())
    async with open_house(planner, rules=[disk_alert(parts)]) as house, desk(house):
        labels = {"path": "/var", "asked_by": "0.5"}
        said = await desk.ask("emit", type="disk.alert", text="it is full", labels=labels)
        story = await judged(house, desk, said["id"])
        assert story["event"]["source"] == "hermesctl"
        assert story["event"]["labels"] == {"path": "/var", "asked_by": str(os.geteuid())}
        [run] = await house.ended()
        assert [one["task_id"] for one in story["runs"]] == [run.task_id]
        assert story["verdicts"][0]["kind"] == "opened"


async def test_an_event_emitted_twice_with_one_id_is_one_event(open_house, desk):
    async with open_house(rules=[]) as house, desk(house):
        for _ in range(2):
            assert (await desk.ask("emit", type="a", id="mine"))["id"] == "mine"
        assert house.inbox.accepted == 1


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "host.filesystem", "value": 99.0},
        {"type": "schedule.due"},
        {"type": "two words"},
        {"labels": {"": "x"}},
        {"value": "much"},
        {"status": "burning"},
        {"source": "host"},
    ],
)
async def test_what_is_no_event_of_a_person_is_refused(open_house, desk, payload):
    async with open_house() as house, desk(house):
        assert await desk.ask("emit", **payload) == "bad_request"
        assert house.inbox.accepted == 0


async def test_a_full_inbox_tells_the_person_to_come_again(open_house, desk):
    async with open_house(limits={"inbox_events": 100}, serve=False) as house, desk(house):
        for number in range(100):
            await desk.ask("emit", type="a", id=f"e{number}")
        assert await desk.ask("emit", type="a") == "not_now"


async def test_for_each_rule_that_an_event_does_not_concern_the_first_miss_is_said(open_house, desk, parts):
    rules = [
        disk_alert(parts),
        parts.disk_rule(name="other-host", match=["type=disk.alert", "host=db1"], threshold=None, clear=None),
        parts.disk_rule(name="readings"),
        parts.disk_rule(name="asleep", enabled=False),
    ]
    async with open_house(rules=rules) as house, desk(house):
        said = await desk.ask("emit", type="disk.alert", labels={"host": "web1"})
        story = await judged(house, desk, said["id"])
        assert {one["rule"]: one["reason"] for one in story["not_concerned"]} == {
            "other-host": 'does not match host="db1"',
            "readings": 'does not match type="host.filesystem"',
            "asleep": "the rule is switched off",
        }


async def test_an_event_that_waits_in_the_inbox_is_shown_as_waiting(open_house, desk):
    async with open_house(serve=False) as house, desk(house):
        said = await desk.ask("emit", type="disk.alert")
        story = await desk.ask("explain", id=said["id"])
        assert story["decided_at"] is None
        assert story["not_concerned"] == []


async def test_an_event_that_never_was_is_not_found(open_house, desk):
    async with open_house() as house, desk(house):
        assert await desk.ask("explain", id="nothing") == "not_found"


async def test_schedules_are_listed_with_their_next_times_and_what_was_missed(open_house, desk, parts):
    hourly = Schedule.model_validate({"name": "hourly", "every": "1h", "task": "look"})
    asleep = Schedule.model_validate({"name": "asleep", "every": "1h", "task": "look", "enabled": False})
    planner = parts.in_rounds(parts.finish())
    async with open_house(planner, timed={"schedules": (hourly, asleep)}) as house, desk(house):
        memory = StoredMemory(house.kit.store, "schedule")
        long_ago = hourly.next_slot(house.kit.now()).replace(year=2025)
        source = ScheduleSource(lambda: (hourly, asleep), memory, now=lambda: long_ago)
        await source.look_once(house.inbox.accept)
        now = ScheduleSource(lambda: (hourly, asleep), memory, now=house.kit.now)
        await now.look_once(house.inbox.accept)
        [run] = await house.ended()
        first, second = (await desk.ask("schedules"))["schedules"]
        assert first["run"]["task_id"] == run.task_id
        assert first["missed"] > 0
        assert len(first["next"]) == 3
        assert first["next"][0] > house.kit.now().isoformat()
        assert (second["next"], second["run"], second["last_slot"]) == ([], None, None)
