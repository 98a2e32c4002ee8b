"""The hands over real sockets: an executor that answers, dies, restarts, hangs, or talks nonsense."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from hermesd.clocks import StageBudgets
from hermesd.ipc.client import Unreachable
from hermesd.ipc.messages import Code, Kind
from hermesd.ipc.server import RequestError, SocketServer
from hermesd.pipeline.hands import ExecutorHands, Patience
from hermesd.protocol import (
    CommandRequest,
    Progress,
    ResultStatus,
    Stage,
    StageOutcome,
    payload_of,
    read_payload,
)

HEAD = "5:" + "b" * 64
OWN = "9:" + "c" * 64
QUICK = Patience(
    restart_seconds=0.5, grace_seconds=0.15, first_pause_seconds=0.01, extensions=2, answer_seconds=0.3
)
BUDGETS = StageBudgets(validate_ms=50)


def request(command="system:disk_usage"):
    return CommandRequest(request_id="t.1.0.1", task_id="t", intent="look", command=command)


class Executor:
    """Answers requests by a script; the ledger is what it has seen."""

    def __init__(self, parts):
        self.parts = parts
        self.seen = []
        self.anchors = []
        self.cancelled = []
        self.alive = True
        self.script = self.succeed

    async def succeed(self, command, reply):
        return payload_of(self.parts.result(command))

    async def answer(self, peer, envelope, reply):
        self.anchors.append(envelope.anchor)
        if not self.alive:
            await asyncio.sleep(60)
        if envelope.kind == Kind.CATALOGUE:
            return payload_of(self.parts.CATALOGUE)
        if envelope.kind == Kind.COMMAND_CANCEL:
            self.cancelled.append(envelope.payload["request_id"])
            return {"cancelled": True}
        command = read_payload(CommandRequest, envelope.payload)
        self.seen.append(command)
        return await self.script(command, reply)


@pytest.fixture
def executor(parts):
    return Executor(parts)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.sock"


@pytest.fixture
def served(executor, path):
    def serve():
        return SocketServer(
            path, name="executor", allow=lambda _: True, answer=executor.answer, anchor=lambda: HEAD
        )

    return serve


@pytest.fixture
def hands(path):
    return ExecutorHands(path, BUDGETS, lambda: OWN, QUICK)


async def ignore(progress):
    """Listen to nothing."""


async def progress(reply, stage, budget_ms=50):
    said = Progress(request_id="t.1.0.1", stage=stage, budget_ms=budget_ms)
    await reply.send(Kind.COMMAND_PROGRESS, payload_of(said))


async def test_the_catalogue_is_read_and_remembered_with_the_executors_head(served, hands, executor, parts):
    async with served():
        assert await hands.catalogue() == parts.CATALOGUE
    assert hands.known == parts.CATALOGUE
    assert hands.anchor == HEAD
    assert executor.anchors == [OWN], "our head goes with every message"


async def test_a_catalogue_seen_a_moment_ago_serves_where_that_is_enough(served, hands, executor):
    async with served():
        await hands.catalogue()
        await hands.catalogue(fresh_seconds=60)
        assert len(executor.anchors) == 1
        await hands.catalogue()
        assert len(executor.anchors) == 2, "whoever wants to know whether it is there asks"


async def test_nobody_there_is_said_at_once_or_after_the_patience(hands, served, parts):
    with pytest.raises(Unreachable):
        await hands.catalogue()
    asked = asyncio.create_task(hands.catalogue(2.0))
    await asyncio.sleep(0.05)
    async with served():
        assert await asked == parts.CATALOGUE


async def test_a_request_comes_back_with_its_result_and_its_progress(served, hands, executor, parts):
    heard = []

    async def script(command, reply):
        for stage in (Stage.VALIDATE, Stage.PREPARE, Stage.EXECUTE):
            await progress(reply, stage)
        return payload_of(parts.result(command))

    async def hear(said):
        heard.append(said.stage)

    executor.script = script
    async with served():
        found = await hands.run(request(), hear)
    assert found.status is ResultStatus.SUCCEEDED
    assert heard == [Stage.VALIDATE, Stage.PREPARE, Stage.EXECUTE]


async def test_a_restarting_executor_is_waited_for_and_asked_the_same_again(served, hands, executor, parts):
    hanging = asyncio.Event()

    async def script(command, reply):
        hanging.set()
        await asyncio.sleep(60)

    executor.script = script
    async with served():
        asked = asyncio.create_task(hands.run(request(), ignore))
        await hanging.wait()
        executor.script = executor.succeed
    await asyncio.sleep(0.05)
    async with served():
        found = await asked
    assert found.status is ResultStatus.SUCCEEDED
    assert executor.seen[0] == executor.seen[1]


async def test_an_executor_that_stays_away_leaves_a_reading_unavailable(hands):
    found = await hands.run(request(), ignore)
    assert found.status is ResultStatus.UNAVAILABLE
    assert "agent.sock" in found.reason


@pytest.mark.parametrize(
    ("sent_before", "status"), [(False, ResultStatus.UNAVAILABLE), (True, ResultStatus.UNKNOWN)]
)
async def test_a_change_that_may_have_reached_it_is_unknown(hands, sent_before, status):
    found = await hands.run(request("fs:cleanup"), ignore, changing=True, sent_before=sent_before)
    assert found.status is status


@pytest.mark.parametrize(
    ("changing", "status"), [(False, ResultStatus.TIMED_OUT), (True, ResultStatus.UNKNOWN)]
)
async def test_a_hung_executor_ends_the_request_in_the_stage_it_hangs_in(
    served, hands, executor, changing, status
):
    async def script(command, reply):
        await progress(reply, Stage.PREPARE)
        executor.alive = False
        await asyncio.sleep(60)

    executor.script = script
    async with served():
        found = await hands.run(request(), ignore, changing=changing)
    assert found.status is status
    [timing] = found.stages
    assert timing.name is Stage.PREPARE
    assert (timing.outcome is StageOutcome.TIMEOUT) == (status is ResultStatus.TIMED_OUT)
    assert "the container did not start in time" in found.reason


async def test_a_busy_executor_is_not_taken_for_a_hung_one(served, hands, executor, parts):
    async def script(command, reply):
        if len(executor.seen) < 3:
            await asyncio.sleep(60)
        return payload_of(parts.result(command))

    executor.script = script
    async with served():
        found = await hands.run(request(), ignore)
    assert found.status is ResultStatus.SUCCEEDED
    assert len(executor.seen) == 3


async def test_an_executor_that_is_busy_for_ever_is_given_up_and_the_request_withdrawn(
    served, hands, executor
):
    async def script(command, reply):
        await asyncio.sleep(60)

    executor.script = script
    async with served():
        found = await hands.run(request(), ignore)
    assert found.status is ResultStatus.TIMED_OUT
    assert executor.cancelled == ["t.1.0.1"]


async def test_waiting_for_a_person_has_the_budget_of_that_stage(served, hands, executor, parts):
    async def script(command, reply):
        await progress(reply, Stage.CONFIRM, 5_000)
        await asyncio.sleep(0.6)
        return payload_of(parts.result(command))

    executor.script = script
    async with served():
        found = await hands.run(request(), ignore, changing=True)
    assert found.status is ResultStatus.SUCCEEDED
    assert len(executor.seen) == 1


async def test_a_request_that_the_executor_cannot_read_is_refused(served, hands, executor):
    async def script(command, reply):
        raise RequestError(Code.BAD_REQUEST, "the envelope and its request name different tasks")

    executor.script = script
    async with served():
        found = await hands.run(request(), ignore)
    assert found.status is ResultStatus.REFUSED
    assert "different tasks" in found.reason


async def test_nonsense_from_the_executor_is_never_taken_for_a_result(path, hands):
    async def talk(reader, writer):
        await reader.readline()
        writer.write(b'{"status": "succeeded"}\n')
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(talk, str(path)):
        found = await hands.run(request(), ignore)
    assert found.status is ResultStatus.UNAVAILABLE
    assert "cannot be read" in found.reason


async def test_a_withdrawal_says_whether_it_took(served, hands):
    assert await hands.cancel("t.1.0.1") is False
    async with served():
        assert await hands.cancel("t.1.0.1") is True


async def test_a_cancelled_asker_leaves_no_connection_behind(served, hands, executor):
    async def script(command, reply):
        await asyncio.sleep(60)

    executor.script = script
    async with served() as server:
        asked = asyncio.create_task(hands.run(request(), ignore))
        while not executor.seen:
            await asyncio.sleep(0.01)
        asked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asked
        connection = next(iter(server._connections))
        async with asyncio.timeout(2):
            while not connection._ended:
                await asyncio.sleep(0.01)
