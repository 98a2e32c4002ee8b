"""Health checks by command: which commands are sent at all, and what their ends say."""

import asyncio

import pytest

from hermesd.ipc.client import Unreachable
from hermesd.pipeline.probing import CommandProbe, read_result
from hermesd.protocol import CatalogueView, CommandInfo, CommandResult, Effect, Permission, ResultStatus
from hermesd.sources.health_found import Condition
from hermesd.sources.settings_health import Check

CHECK = Check(name="clock", url="command:system:time", args={"zone": "UTC"}, timeout_s=7)


def info(**more):
    given = {
        "name": "system:time",
        "description": "d",
        "effect": Effect.READ,
        "permission": Permission.PUBLIC,
    }
    return CommandInfo(**{**given, "args_schema": {}, "timeout_ms": 1000, **more})


class Hands:
    """Hands that answer as they are told, and remember what was asked."""

    anchor, known = "", None

    def __init__(self, *commands, status=ResultStatus.SUCCEEDED, reachable=True, hangs=False, **result):
        self.view = CatalogueView(policy_version="1", sandbox="x", commands=commands)
        self.status, self.result = status, result
        self.reachable, self.hangs = reachable, hangs
        self.asked, self.cancelled = [], []

    async def catalogue(self, patience_seconds=0.0, fresh_seconds=0.0):
        if not self.reachable:
            raise Unreachable("nobody answers")
        return self.view

    async def run(self, request, on_progress, *, changing=False, sent_before=False):
        self.asked.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        return CommandResult(
            request_id=request.request_id, task_id=request.task_id, command=request.command,
            status=self.status, **self.result,
        )  # fmt: skip

    async def cancel(self, request_id):
        self.cancelled.append(request_id)
        return True


async def test_a_public_read_is_sent_with_its_arguments_and_its_limit_and_its_success_is_up():
    hands = Hands(info(), summary="it is noon")
    found = await CommandProbe(hands)(CHECK)
    assert (found.condition, found.reason) == (Condition.UP, "it is noon")
    (request,) = hands.asked
    assert (request.command, request.args, request.timeout_ms) == ("system:time", {"zone": "UTC"}, 7000)


async def test_no_two_probes_have_the_same_request_id():
    hands = Hands(info())
    for _ in range(3):
        await CommandProbe(hands)(CHECK)
    assert len({request.request_id for request in hands.asked}) == 3


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (info(effect=Effect.CHANGE, permission=Permission.INTERNAL), "not a read that runs by itself"),
        (info(permission=Permission.INTERNAL), "not a read that runs by itself"),
        (info(name="system:other"), "there is no command system:time"),
        (info(usable=False, unusable_reason="no df"), "cannot be run: no df"),
    ],
)
async def test_what_is_no_public_read_is_never_sent(command, reason):
    hands = Hands(command)
    found = await CommandProbe(hands)(CHECK)
    assert found.condition is Condition.UNKNOWN
    assert reason in found.reason
    assert hands.asked == []


async def test_an_executor_that_nobody_reaches_is_unknown():
    found = await CommandProbe(Hands(info(), reachable=False))(CHECK)
    assert (found.condition, found.reason) == (Condition.UNKNOWN, "nobody answers")


async def test_a_probe_that_nobody_waits_for_is_withdrawn():
    hands = Hands(info(), hangs=True)
    task = asyncio.create_task(CommandProbe(hands)(CHECK))
    while not hands.asked:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert hands.cancelled == [hands.asked[0].request_id]


@pytest.mark.parametrize("status", ResultStatus)
def test_only_a_command_that_ran_and_said_no_is_down(status):
    result = CommandResult(request_id="r", task_id="t", command="system:time", status=status, exit_status=3)
    wanted = {ResultStatus.SUCCEEDED: Condition.UP, ResultStatus.FAILED: Condition.DOWN}
    assert read_result(CHECK, result).condition is wanted.get(status, Condition.UNKNOWN)


def test_an_output_without_the_expected_text_is_down():
    check = Check(name="x", url="command:system:time", body="^noon$")
    result = CommandResult(
        request_id="r", task_id="t", command="system:time", status=ResultStatus.SUCCEEDED, output="midnight"
    )
    assert read_result(check, result).condition is Condition.DOWN
