"""Silences that people make over a real control socket: no run, and everything else as ever."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.ipc.client import ask
from hermesd.ipc.messages import read_line, request_line
from hermesd.ipc.server import SocketServer
from hermesd.pipeline.desk import Desk


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
        async with contextlib.aclosing(ask(path, line)) as answers:
            last = read_line(await anext(answers))
        return last["payload"] if last["status"] == "succeeded" else last["payload"]["code"]

    serve.ask = asked
    return serve


VAR = {"matchers": ["path=/var"], "for": "2h", "reason": "the disk is being replaced"}


async def test_what_is_silenced_opens_its_incident_and_starts_no_run_over_a_restart_too(
    open_house, desk, parts
):
    async with open_house(serve=False) as house, desk(house):
        made = await desk.ask("silence.add", **VAR)
        assert house.records("silence.added")[0]["silence"] == made["id"]
    async with open_house(parts.in_rounds(parts.finish()), serve=False) as house:
        await house.reading(93.0)
        await house.dispatcher.judge_once()
        [incident] = await house.incidents()
        assert await house.runs() == []
        [told] = house.records("event.verdict")
    assert incident.events == 1
    assert "the disk is being replaced" in told["reason"]
    assert made["id"] in told["reason"]


@pytest.mark.parametrize("how", ["it is ended", "its time is over"])
async def test_once_a_silence_is_over_the_condition_that_still_holds_gets_its_run(
    open_house, desk, parts, how
):
    moment = [datetime.now(UTC)]
    house_of = open_house(parts.in_rounds(parts.finish()), serve=False, now=lambda: moment[0])
    async with house_of as house, desk(house):
        made = await desk.ask("silence.add", **VAR)
        await house.reading(93.0)
        await house.dispatcher.judge_once()
        assert await house.runs() == []
        if how == "it is ended":
            assert await desk.ask("silence.end", id=made["id"]) == {"id": made["id"]}
        else:
            moment[0] += timedelta(hours=2)
        await house.reading(94.0)
        await house.dispatcher.judge_once()
        assert len(await house.runs()) == 1
        assert await desk.ask("silences") == {"silences": []}
        [ended] = (await desk.ask("silences", all=True))["silences"]
    assert (ended["id"], ended["in_force"]) == (made["id"], False)
    assert ended["reason"] == VAR["reason"]


async def test_a_silence_without_an_end_a_reason_or_a_condition_is_refused(open_house, desk):
    async with open_house(serve=False) as house, desk(house):
        for wrong in ({"for": ""}, {"for": "0s"}, {"for": "2"}, {"reason": " "}, {"matchers": []}):
            assert await desk.ask("silence.add", **{**VAR, **wrong}) == "bad_request", wrong
        assert await desk.ask("silence.add", **{**VAR, "matchers": ["path>3"]}) == "bad_request"
        assert await desk.ask("silences", all=True) == {"silences": []}


async def test_a_silence_that_is_not_there_or_has_ended_cannot_be_ended(open_house, desk):
    async with open_house(serve=False) as house, desk(house):
        assert await desk.ask("silence.end", id="sil-none") == "not_found"
        made = await desk.ask("silence.add", **VAR)
        await desk.ask("silence.end", id=made["id"])
        assert await desk.ask("silence.end", id=made["id"]) == "not_found"


async def test_hermesctl_adds_lists_and_ends_a_silence(open_house, desk, tmp_path):
    async def hermesctl(*words):
        program = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "hermesd.ctl",
                "--control-socket",
                str(tmp_path / "control.sock"),
                *words,
            ),
            stdout=asyncio.subprocess.PIPE,
            env={"COLUMNS": "120", "LANG": "C.UTF-8"},
        )
        async with asyncio.timeout(20):
            told, _ = await program.communicate()
        return program.returncode, told.decode()

    async with open_house(serve=False) as house, desk(house):
        code, told = await hermesctl("silence", "add", "path=/var", "--for", "2h", "--reason", "a new disk")
        assert code == 0
        silence_id = told.partition(":")[0]
        assert "in force until" in told
        code, listed = await hermesctl("silence", "list")
        assert code == 0
        assert silence_id in listed
        assert 'path="/var"' in listed
        assert "a new disk" in listed
        assert await hermesctl("silence", "end", silence_id) == (0, f"{silence_id}: ended\n")
        assert await hermesctl("silence", "list") == (0, "no silences\n")
        assert (await hermesctl("--lang", "zh", "silence", "list")) == (0, "没有静默\n")
