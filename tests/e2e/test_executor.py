"""The executor as a process of its own, spoken to over its sockets, with real containers behind it."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from hermesd.demo.stage import AskError
from hermesd.ipc.client import Unreachable, ask
from hermesd.ipc.messages import Kind, read_line, request_line

pytestmark = pytest.mark.slow


async def test_it_says_ready_only_after_a_sandbox_proved_itself_and_serves_a_look(pair, as_agent):
    await pair.start("executor")
    status = await pair.executor("status")
    assert status["usable"], status["reason"]
    assert status["sandbox"] == "bubblewrap"
    pair.rubbish(files=3, size=10_000)
    result = await as_agent(pair, "fs:largest", "r1", path=str(pair.data))
    assert result["status"] == "succeeded", result["reason"]
    assert [row["size_bytes"] for row in result["rows"][:3]] == [10_000] * 3
    load = await as_agent(pair, "system:load", "r2")
    assert load["rows"][0]["load_1"] >= 0


async def test_a_cleanup_removes_what_was_shown_and_nothing_else(pair, as_agent):
    await pair.start("executor")
    rubbish = pair.rubbish(files=4, size=5_000)
    kept = pair.data / "orders.db"
    kept.write_bytes(b"live")
    asking = asyncio.create_task(as_agent(pair, "fs:cleanup", "r1", path=str(pair.data)))
    operation = await pair.pending()
    assert operation["text"] == f"4 files under {pair.data}, 20.0 kB, not reversible"
    answer = await pair.approve(operation["id"])
    assert answer["outcome"] == "succeeded", answer["text"]
    assert (await asking)["gain"]["files_removed"] == 4
    assert not any(path.exists() for path in rubbish)
    assert kept.read_bytes() == b"live"


async def test_a_file_that_changed_after_it_was_shown_stops_the_removal_before_any_effect(pair, as_agent):
    await pair.start("executor")
    rubbish = pair.rubbish(files=3)
    asking = asyncio.create_task(as_agent(pair, "fs:cleanup", "r1", path=str(pair.data)))
    operation = await pair.pending()
    shown = await pair.executor("approve.show", id=operation["id"])
    rubbish[1].write_bytes(b"in use again")
    answer = await pair.executor(
        "approve.redeem", id=operation["id"], token=shown["token"], second=shown["second_word"]
    )
    assert answer["outcome"] == "plan_changed"
    assert (await asking)["status"] == "plan_changed"
    assert all(path.exists() for path in rubbish)


async def test_a_link_planted_in_the_folder_is_never_followed_out_of_it(pair, as_agent):
    await pair.start("executor")
    pair.rubbish(files=1)
    (pair.data / "cache" / "way-out").symlink_to("/etc")
    result = await as_agent(pair, "fs:largest", "r1", path=f"{pair.data}/cache/way-out")
    assert result["status"] == "refused"
    assert "passwd" not in str(result)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("who", ["agent", "executor", "stranger"])
async def test_the_operators_socket_turns_everybody_else_away_before_reading(pair, who):
    await pair.start("executor")
    uid = {"agent": 64801, "executor": 64802, "stranger": 64999}[who]
    os.seteuid(uid)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(pair.theatre.operator_socket))
    finally:
        os.seteuid(0)
    connection.settimeout(5)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(request_line("approvals", {}, sender="x", receiver="y"))
    with contextlib.suppress(ConnectionResetError):
        assert connection.recv(1) == b""
    connection.close()
    assert f"uid {uid}" in pair.log("executor")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_a_person_cannot_ask_as_the_agent_does(pair):
    await pair.start("executor")
    line = request_line(Kind.CATALOGUE, {}, sender="x", receiver="y")
    with pytest.raises((Unreachable, StopAsyncIteration)):
        await anext(ask(pair.folder / "executor" / "agent.sock", line))


async def test_bad_messages_are_refused_with_a_reason_and_the_next_one_is_served(pair):
    await pair.start("executor")
    reader, writer = await asyncio.open_unix_connection(str(pair.theatre.operator_socket))
    for line, words in (
        (b"this is not JSON\n", "not JSON"),
        (b'{"version": 1, "version": 1}\n', "duplicate"),
        (b"[" * 50 + b"]" * 50 + b"\n", "nested"),
        (request_line("approve.show", {"id": 7}, sender="a", receiver="b"), "text"),
        (request_line("conquer", {}, sender="a", receiver="b"), "not answered here"),
    ):
        writer.write(line)
        answer = read_line(await reader.readline())
        assert answer["status"] == "failed"
        assert words in answer["payload"]["reason"]
    writer.write(request_line("status", {}, sender="a", receiver="b"))
    assert read_line(await reader.readline())["status"] == "succeeded"
    writer.close()


async def test_a_wrong_file_stops_the_start_with_file_line_and_reason(pair):
    path = pair.write("commands/bad.toml", 'name = "x:y"\neffect = "destroyy"\n')
    from hermesd.launcher import LaunchError

    with pytest.raises(LaunchError, match=r"bad\.toml:2: effect"):
        await pair.start("executor")
    assert Path(path).exists()


async def test_a_wrong_file_on_reload_leaves_the_old_policy_in_force(pair, as_agent):
    import signal

    await pair.start("executor")
    before = (await pair.executor("status"))["policy_version"]
    bad = pair.write("commands/bad.toml", 'name = "x:y"\neffect = "destroyy"\n')
    os.kill(pair.parts["executor"][0].pid, signal.SIGHUP)

    async def refused():
        return "bad.toml:2" in pair.log("executor")

    await pair.until(refused)
    assert (await pair.executor("status"))["policy_version"] == before
    bad.unlink()
    pair.write("permissions.toml.d/more.toml", 'denied_commands = ["system:load"]\n')
    os.kill(pair.parts["executor"][0].pid, signal.SIGHUP)

    async def changed():
        return (await pair.executor("status"))["policy_version"] != before

    await pair.until(changed)
    result = await as_agent(pair, "system:load", "r9")
    assert result["status"] == "refused"


async def test_killed_while_a_command_runs_it_never_runs_it_again(pair, as_agent):
    pair.write(
        "commands/slow.toml",
        'name = "test:slow"\ndescription = "Waits, for the tests of what a crash leaves behind."\n'
        'effect = "read"\npermission = "public"\nexecutable = "/usr/bin/sleep"\nargv = ["8"]\n',
    )
    await pair.start("executor")
    asking = asyncio.create_task(as_agent(pair, "test:slow", "r1"))
    ledger = pair.folder / "executor" / "state" / "ledger.sqlite3"

    async def begun():
        import sqlite3

        with contextlib.closing(sqlite3.connect(ledger)) as db:
            return db.execute("SELECT 1 FROM requests WHERE state = 'started'").fetchone()

    await pair.until(begun)
    await pair.kill("executor")
    with contextlib.suppress(Unreachable, StopAsyncIteration, AskError):
        await asking
    await pair.start("executor")
    again = await as_agent(pair, "test:slow", "r1")
    assert again["status"] == "unknown"
    assert "not known" in again["reason"]


async def test_without_a_usable_sandbox_nothing_runs_and_status_says_why(pair, as_agent):
    pair.write(
        "daemon.toml.d/zz.toml", '[executor]\nsandbox = "docker"\ndocker_sockets = ["/nonexistent.sock"]\n'
    )
    await pair.start("executor")
    status = await pair.executor("status")
    assert not status["usable"]
    assert "docker" in status["reason"]
    result = await as_agent(pair, "system:load", "r1")
    assert result["status"] == "unavailable"
    assert "docker" in result["reason"]
