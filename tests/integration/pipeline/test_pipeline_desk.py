"""What people ask at the control socket, over a real one."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest

from hermesd.confd import ConfigError, Fault
from hermesd.config import AgentSettings
from hermesd.incidents import Outcome
from hermesd.ipc.client import ask
from hermesd.ipc.messages import read_line, request_line
from hermesd.ipc.server import Peer, SocketServer
from hermesd.pipeline.desk import Desk, may_steer


class Sources:
    def states(self):
        return ()


class Reload:
    fault = False

    async def __call__(self):
        if self.fault:
            raise ConfigError([Fault("rules/disk.toml", 3, "threshold.value: not a number")])


@pytest.fixture
def control(tmp_path):
    """Serve a house's desk; the returned function asks it and gives the last answer."""
    path = tmp_path / "control.sock"

    def serve(house, reload=None):
        desk = Desk(house.kit, house.runner, house.inbox, Sources(), tmp_path / "audit", reload or Reload())
        return SocketServer(path, name="control.sock", allow=lambda _: True, answer=desk.answer)

    async def said(kind, **payload):
        line = request_line(kind, payload, sender="test", receiver="control")
        answers = []
        async for answer in ask(path, line):
            answers.append(read_line(answer))
            if answers[-1]["status"] in ("succeeded", "failed"):
                break
        return answers

    async def asked(kind, **payload):
        last = (await said(kind, **payload))[-1]
        return last["payload"] if last["status"] == "succeeded" else (last["payload"]["code"],)

    serve.ask = asked
    serve.listen = said
    return serve


async def test_status_says_how_everything_stands(open_house, control, parts):
    async with open_house(parts.in_rounds(parts.finish())) as house, control(house):
        await house.reading(93.0)
        await house.ended()
        status = await control.ask("status")
    assert status["ready"] is True
    assert status["inbox"] == {"undecided": 0, "accepted": 1}
    assert status["incidents_open"] == 1
    assert status["executor"]["reachable"] is True
    assert status["executor"]["commands"] == 4
    assert status["model"]["configured"] is False
    assert status["audit"]["head"].startswith(f"{status['audit']['records']}:")


async def test_incidents_and_runs_are_listed_and_shown_whole(open_house, control, world, parts):
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    world.answers["fs:cleanup"] = lambda request: parts.result(request, gain=parts.GAIN, impact=parts.IMPACT)
    async with open_house(planner, stages={"review_ms": 10}) as house, control(house):
        await house.reading(93.0)
        [run] = await house.ended()
        [incident] = (await control.ask("incidents"))["incidents"]
        [row] = (await control.ask("runs", incident=incident["id"]))["runs"]
        of_run = await control.ask("show", id=run.task_id)
        of_incident = await control.ask("show", id=incident["id"])
    assert incident["runs"] == [run.task_id]
    assert (incident["status"], incident["last_value"], incident["unit"]) == ("open", 93.0, "percent")
    assert (row["task_id"], row["outcome"]) == (run.task_id, "reported")
    [step] = of_run["run"]["steps"]
    assert step["status"] == "succeeded"
    assert step["impact"]["files"] == 37
    assert step["gain"]["freed_bytes"] == 14_200_000
    assert {stage["name"] for stage in of_run["run"]["stages"]} >= {"receive", "plan", "execute", "report"}
    assert of_run["incident"]["id"] == incident["id"]
    assert next(record["kind"] for record in of_run["records"]) == "run.started"
    assert {record["task_id"] for record in of_run["records"]} == {run.task_id}
    assert "incident.opened" in {record["kind"] for record in of_incident["records"]}
    assert of_incident["run"]["task_id"] == run.task_id


async def test_a_resolved_incident_is_listed_only_when_all_are_wanted(open_house, control, parts):
    async with open_house(parts.in_rounds(parts.finish())) as house, control(house):
        await house.reading(93.0)
        await house.reading(40.0)
        await house.ended()
        await house.until(lambda: _judged(house))
        assert (await control.ask("incidents"))["incidents"] == []
        assert len((await control.ask("incidents", all=True))["incidents"]) == 1


async def test_a_person_asks_and_is_answered_and_the_log_has_no_word_of_it(
    open_house, control, world, parts, tmp_path
):
    planner = parts.in_rounds(parts.acts(parts.action()), parts.finish("it is half empty"))
    words = "how full is my secret disk at /srv/data?"
    async with open_house(planner) as house, control(house):
        asked = await control.ask("ask", text=words)
        [run] = await house.ended()
        [record] = house.records("person.asked")
        everything = json.dumps(house.records())
    assert run.task_id == asked["task_id"]
    assert run.outcome is Outcome.ANSWERED
    assert "it is half empty" in run.report
    assert planner.asked[0].briefing.facts["path"] == "/srv/data"
    assert record["words_sha256"] == hashlib.sha256(words.encode()).hexdigest()
    assert "secret" not in everything


async def test_following_a_run_tells_its_lines_and_then_its_report(open_house, control, world, parts):
    gate = world.hold("fs:cleanup")
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner, stages={"review_ms": 10}) as house, control(house):
        await house.reading(93.0)
        run = await house.waiting()
        listening = asyncio.create_task(control.listen("follow", task_id=run.task_id))
        await house.until(lambda: _followed(house, run.task_id))
        gate.set()
        *lines, end = await listening
        again = await control.ask("follow", task_id=run.task_id)
    told = [line["payload"]["stage"] for line in lines]
    past, coming = told[: told.index("confirm")], told[told.index("confirm") :]
    assert past == ["receive", "brief", "plan", "validate"], "what is past is told first"
    assert [stage for stage in coming if stage != "confirm"] == [
        "prepare", "execute", "plan", "review", "report", "",
    ]  # fmt: skip
    assert lines[-1]["payload"]["outcome"] == "reported"
    assert end["payload"]["outcome"] == "reported"
    assert "Stages:" in end["payload"]["report"]
    assert again == end["payload"], "a run that has ended is told at once"


async def test_a_follower_who_has_gone_is_let_go_when_the_next_line_comes(open_house, control, world, parts):
    gate = world.hold("log:stats")
    planner = parts.in_rounds(parts.acts(parts.action("look", "log:stats")), parts.finish())
    async with open_house(planner) as house, control(house) as server:
        await house.reading(93.0)
        run = await house.started()
        listening = asyncio.create_task(control.listen("follow", task_id=run.task_id))
        await house.until(lambda: _followed(house, run.task_id))
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        gate.set()
        await house.ended()
        async with asyncio.timeout(2):
            while server._connections:
                await asyncio.sleep(0.01)


async def test_runs_are_steered_over_the_socket(open_house, control, world, parts):
    world.hold("fs:cleanup")
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner) as house, control(house):
        assert (await control.ask("pause"))["status"] == "paused"
        assert (await control.ask("status"))["paused"] is True
        assert (await control.ask("resume"))["status"] == "running"
        await house.reading(93.0)
        run = await house.waiting()
        assert (await control.ask("pause", task_id=run.task_id))["status"] == "paused"
        assert (await control.ask("cancel", task_id=run.task_id))["status"] == "cancelling"
        [run] = await house.ended()
    assert run.outcome is Outcome.CANCELLED


async def test_what_cannot_be_answered_is_refused_with_a_code(open_house, control, parts):
    async with open_house(parts.in_rounds(parts.finish())) as house, control(house):
        assert await control.ask("unheard") == ("bad_request",)
        assert await control.ask("show") == ("bad_request",)
        assert await control.ask("show", id="inc-unheard") == ("not_found",)
        assert await control.ask("follow", task_id="run-unheard") == ("not_found",)
        assert await control.ask("cancel", task_id="run-unheard") == ("not_found",)
        assert await control.ask("ask", text="  ") == ("bad_request",)
        assert await control.ask("ask", text="x" * 2000) == ("bad_request",)
        assert await control.ask("incidents", limit=0) == ("bad_request",)
        assert await control.ask("incidents", all="yes") == ("bad_request",)
        assert await control.ask("audit.verify", anchor="5") == ("bad_request",)
        assert not await house.runs()


async def test_the_log_is_verified_against_what_the_other_process_saw(open_house, control, parts, world):
    async with open_house(parts.in_rounds(parts.finish())) as house, control(house):
        await house.reading(93.0)
        await house.ended()
        found = await control.ask("audit.verify")
        held = await control.ask("audit.verify", anchor=found["head"])
        cut = await control.ask("audit.verify", anchor=f"{found['records'] + 5}:{'0' * 64}")
    assert found["ok"] is held["ok"] is True
    assert found["peer_anchor"] == world.anchor
    assert cut["ok"] is False
    assert cut["reason"]


async def test_the_executors_head_is_known_over_a_restart(open_house, control, parts, world):
    planner = parts.in_rounds(parts.acts(parts.action()), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        await house.ended()
    seen, world.anchor = world.anchor, ""
    async with open_house(planner) as house, control(house):
        assert (await control.ask("audit.verify"))["peer_anchor"] == seen


async def test_a_reload_that_fails_says_which_file_and_line(open_house, control, parts):
    reload = Reload()
    async with open_house() as house, control(house, reload):
        assert await control.ask("reload") == {"digest": "test"}
        reload.fault = True
        [answer] = await control.listen("reload")
    assert answer["payload"]["code"] == "refused"
    assert "rules/disk.toml" in answer["payload"]["reason"]


def test_root_the_own_user_and_operators_may_steer_and_nobody_else():
    settings = AgentSettings(operator_group="no-such-group", operator_uids=(4711,))
    assert may_steer(settings, Peer(1, 0, 0))
    assert may_steer(settings, Peer(1, 4711, 4711))
    assert not may_steer(settings, Peer(1, 4712, 4712))


def test_members_of_the_operators_group_may_steer():
    settings = AgentSettings(operator_group="daemon")
    assert may_steer(settings, Peer(1, 1, 1)), "daemon is in its own group"
    assert not may_steer(settings, Peer(1, 2, 2)), "bin is not"


async def _judged(house):
    return house.inbox.undecided == 0


async def _followed(house, task_id):
    return house.kit.followers._by_run.get(task_id)
