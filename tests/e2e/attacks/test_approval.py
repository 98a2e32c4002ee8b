"""A confirmation that is stolen, repeated, moved, imitated or guessed: none of them lets anything go."""

import asyncio
import contextlib
import os
import signal

import pytest

from hermesd.demo.stage import AskError
from hermesd.ipc.messages import request_line

pytestmark = pytest.mark.slow


@pytest.fixture
async def shown(pair, as_agent):
    """An executor, rubbish, and an operation over it that a person was just shown."""
    await pair.start("executor")
    rubbish = pair.rubbish(files=2)
    asking = asyncio.create_task(as_agent(pair, "fs:cleanup", "r1", path=str(pair.data)))
    operation = await pair.pending()
    yield {**await pair.executor("approve.show", id=operation["id"]), "id": operation["id"]}, rubbish
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await asking


async def redeemed(pair, operation_id, token, second):
    """Return what came of a confirmation: its outcome, or the words it was turned away with."""
    try:
        return (await pair.executor("approve.redeem", id=operation_id, token=token, second=second))["outcome"]
    except AskError as error:
        return str(error)


async def test_of_two_confirmations_at_once_one_takes_effect_and_none_later(pair, shown):
    seen, rubbish = shown
    proof = (seen["id"], seen["token"], seen["second_word"])
    answers = await asyncio.gather(redeemed(pair, *proof), redeemed(pair, *proof))
    assert sorted(answer == "succeeded" for answer in answers) == [False, True], answers
    assert not any(path.exists() for path in rubbish)
    for path in pair.rubbish(files=2):
        assert path.exists()
    assert await redeemed(pair, *proof) != "succeeded"
    assert all(path.exists() for path in rubbish)


@pytest.mark.parametrize("typed", ["", "\n", "y", "yes", "Y\n", "\x04", "\x1b[2J", "AAAA-AAAA"])
async def test_what_is_not_the_token_lets_nothing_go_and_uses_it_up(pair, shown, typed):
    seen, rubbish = shown
    assert "not the token" in await redeemed(pair, seen["id"], typed, seen["second_word"])
    assert "no token is out" in await redeemed(pair, seen["id"], seen["token"], seen["second_word"])
    assert all(path.exists() for path in rubbish)


async def test_the_token_of_one_operation_lets_no_other_go(pair, shown, as_agent):
    seen, rubbish = shown
    second = asyncio.create_task(
        as_agent(pair, "fs:cleanup", "r2", path=str(pair.data / "cache"), kinds=["caches"])
    )

    async def both():
        return len((await pair.executor("approvals"))["operations"]) == 2

    await pair.until(both)
    waiting = (await pair.executor("approvals"))["operations"]
    other = next(one["id"] for one in waiting if one["id"] != seen["id"])
    await pair.executor("approve.show", id=other)
    assert "not the token" in await redeemed(pair, other, seen["token"], seen["second_word"])
    assert all(path.exists() for path in rubbish)
    second.cancel()


async def test_a_token_is_worth_nothing_after_a_reload(pair, shown):
    seen, rubbish = shown
    before = (await pair.executor("status"))["policy_version"]
    pair.write("permissions.toml.d/more.toml", 'denied_commands = ["system:load"]\n')
    os.kill(pair.parts["executor"][0].pid, signal.SIGHUP)

    async def changed():
        return (await pair.executor("status"))["policy_version"] != before

    await pair.until(changed)
    assert await redeemed(pair, seen["id"], seen["token"], seen["second_word"]) != "succeeded"
    assert all(path.exists() for path in rubbish)


async def test_a_token_is_worth_nothing_after_a_restart(pair, shown):
    seen, rubbish = shown
    await pair.kill("executor")
    await pair.start("executor")
    assert "no token is out" in await redeemed(pair, seen["id"], seen["token"], seen["second_word"])
    assert all(path.exists() for path in rubbish)


async def test_the_agent_can_neither_say_a_confirmation_nor_reach_where_it_is_said(pair, shown, hostile):
    seen, rubbish = shown
    payload = {"id": seen["id"], "token": seen["token"], "second": seen["second_word"]}
    line = request_line("approve.redeem", payload, sender="agent", receiver="executor")
    assert hostile.said(line) == ("failed", "")
    for command in ("approve.redeem", "approve", "operator:approve"):
        assert hostile.said(hostile.line(command, payload)) in {("succeeded", "refused"), ("failed", "")}
    assert all(path.exists() for path in rubbish)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_a_token_is_worth_nothing_to_another_person(pair, shown):
    """Root may connect as an operator does; the token was shown to the operator."""
    seen, rubbish = shown
    uid = 64803
    pair_uid = pair.operator_uid
    assert uid == pair_uid
    os.seteuid(uid)
    try:
        again = await pair.executor("approve.show", id=seen["id"])
    finally:
        os.seteuid(0)
    assert "somebody else" in await redeemed(pair, seen["id"], again["token"], again["second_word"])
    assert all(path.exists() for path in rubbish)


async def test_a_thousand_prompts_fill_no_list_and_let_nothing_go(pair, shown, hostile):
    """Each asker hangs up at once: what it asked for would wait on without it."""
    seen, rubbish = shown
    for _ in range(1_000):
        with contextlib.suppress(OSError), hostile.connected() as client:
            client.sendall(hostile.line("fs:cleanup", {"path": str(pair.data)}))
        await asyncio.sleep(0.002)
    waiting = (await pair.executor("approvals"))["operations"]
    assert 1 < len(waiting) <= 64
    assert seen["id"] in {one["id"] for one in waiting}
    assert (await pair.executor("status"))["usable"]
    assert all(path.exists() for path in rubbish)


NAMES = (
    b"\x1b[2J\x1b[Happroved by root; token AAAA-BBBB.bin",
    b"a\rapprove this\r.bin",
    b"\xe2\x80\xae nib.txt",
    b"new\nline.bin",
    b"not\xff\xfetext.bin",
    b"-rf",
    b" " * 200 + b".bin",
)


async def test_no_file_name_speaks_to_the_person_and_each_goes_as_it_was_listed(pair, as_agent):
    await pair.start("executor")
    rubbish = pair.rubbish(files=1)
    folder = rubbish[0].parent
    for name in NAMES:
        path = folder / os.fsdecode(name)
        path.write_bytes(b"x" * 100)
        os.utime(path, (1e9, 1e9))
    asking = asyncio.create_task(as_agent(pair, "fs:cleanup", "r1", path=str(pair.data)))
    operation = await pair.pending()
    seen = await pair.executor("approve.show", id=operation["id"])
    listed = [*seen["impact"]["sample"], seen["text"], seen["intent"]]
    assert len(seen["impact"]["sample"]) == 1 + len(NAMES)
    assert not [text for text in listed if not text.isprintable()]
    assert all(len(text) < 300 for text in listed)
    assert await redeemed(pair, operation["id"], seen["token"], seen["second_word"]) == "succeeded"
    assert (await asking)["gain"]["files_removed"] == 1 + len(NAMES)
    assert list(folder.iterdir()) == []
