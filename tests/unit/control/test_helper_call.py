"""An installed helper behind the gate: its real program on a real socket, started as systemd starts it.

Here a listening socket hands each connection to a new process as standard input and output, which is
what `Accept=yes` does; the units themselves run in tests/e2e/test_real_systemd.py.
"""

import asyncio
import contextlib
import os
import socket
import sys
from dataclasses import replace

import pytest

from hermesd.control import host_action
from hermesd.control.helper_units import PROGRAM
from hermesd.control.outcome import Stopped
from hermesd.control.sandbox.base import Ended
from hermesd.control.settings import load_policy
from hermesd.protocol import ResultStatus

OPERATOR = 4711
STATUS = b"Id=nginx.service\nActiveState=failed\nSubState=failed\nResult=exit-code\nNRestarts=5\n"


@contextlib.asynccontextmanager
async def listening(path, words):
    """Start the helper's program with ``words`` for each connection, as a socket unit does."""
    path.parent.mkdir(exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    listener.setblocking(False)

    async def accept():
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            argv = ("/usr/bin/python3", "-I", "-S", "-B", str(PROGRAM), *words)
            started = await asyncio.create_subprocess_exec(*argv, stdin=connection, stdout=connection)
            connection.close()
            ended.append(asyncio.create_task(started.wait()))

    ended: list[asyncio.Task] = []
    task = asyncio.create_task(accept())
    try:
        yield
    finally:
        task.cancel()
        listener.close()
        await asyncio.gather(*ended)


@pytest.fixture
def helped(house, tmp_path):
    """A house whose policy has a helper for one unit, which here runs a command that tells on itself."""
    (house.layers[1] / "daemon.toml").write_text(f'[executor]\nhelper_sockets = "{tmp_path}/do"\n')
    with (house.layers[1] / "permissions.toml").open("a") as out:
        out.write('[helpers.web]\ncommand = "unit:restart"\nargs = { unit = "nginx.service" }\n')
        out.write(f'[helpers.data]\ncommand = "fs:cleanup"\nargs = {{ path = "{house.data}" }}\n')
    house.sandbox.answers["/usr/bin/systemctl"] = Ended(0, STATUS, b"", 1.0)
    return house


def telling(gate, *argv):
    """Let the unit's helper run another command; return the words that it would be installed with."""
    words = ("run", "60", *argv)
    web = next(helper for helper in gate.policy.helpers if helper.name == "web")
    status = replace(gate.policy.commands["unit:status"], unusable="")  # where no bus runs, too
    commands = {**gate.policy.commands, "unit:status": status}
    gate.policy = replace(gate.policy, helpers=(replace(web, argv=words),), commands=commands)
    return words


def restart(house, request_id="t1.1.0.0", unit="nginx.service"):
    return house.request("unit:restart", request_id, unit=unit)


async def waiting(gate, request):
    task = asyncio.create_task(gate.run(request, lambda _progress: None))
    async with asyncio.timeout(10):
        while not (found := await gate.pending()):
            assert not task.done(), task.result()
            await asyncio.sleep(0.005)
    return task, found[0]


async def approved(gate, operation):
    _op, _preview, minted = await gate.show(operation.id, OPERATOR)
    return await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)


async def test_a_unit_is_restarted_by_its_helper_once_a_person_typed_the_token_and_the_word(helped, tmp_path):
    async with helped.open() as gate:
        words = telling(gate, "/usr/bin/tee", f"{tmp_path}/effect")
        async with listening(tmp_path / "do" / "web.sock", words):
            task, operation = await waiting(gate, restart(helped))
            text = operation.impact.text
            assert "nginx.service: failed (failed), result exit-code, 5 restarts" in text
            assert "as root, by hermesd-do-web" in text
            assert not (tmp_path / "effect").exists()
            _op, _preview, minted = await gate.show(operation.id, OPERATOR)
            assert minted.second_word
            result = await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
            assert await task == result
    assert (result.status, result.exit_status) == (ResultStatus.SUCCEEDED, 0)
    assert (tmp_path / "effect").exists()
    assert "systemctl" in {name.rpartition("/")[2] for name, _job in helped.sandbox.ran}


async def test_a_unit_without_a_helper_of_its_own_and_one_whose_socket_is_not_there_stay_tickets(
    helped, tmp_path
):
    async with helped.open() as gate:
        absent = await gate.run(restart(helped), lambda _p: None)
        words = telling(gate, "/usr/bin/true")
        async with listening(tmp_path / "do" / "web.sock", words):
            other = await gate.run(restart(helped, "t1.2.0.0", "ssh.service"), lambda _p: None)
    assert [absent.status, other.status] == [ResultStatus.TICKETED] * 2
    assert helped.sandbox.started == []


async def test_a_planner_is_told_what_is_done_here_once_a_person_confirmed(helped):
    async with helped.open() as gate:
        known = {info.name: info for info in gate.view().commands}
    assert known["unit:restart"].permission == "internal"
    assert 'unit="nginx.service"' in known["unit:restart"].description
    assert known["unit:reload"].permission == "confidential"


async def test_a_unit_file_that_was_installed_for_something_else_does_nothing(helped, tmp_path):
    async with helped.open() as gate:
        telling(gate, "/usr/bin/true")
        installed = ("run", "60", "/usr/bin/tee", f"{tmp_path}/effect")
        async with listening(tmp_path / "do" / "web.sock", installed):
            _task, operation = await waiting(gate, restart(helped))
            result = await approved(gate, operation)
    assert result.status is ResultStatus.FAILED
    assert "installed for something else: run hermesd units sync" in result.reason
    assert not (tmp_path / "effect").exists()


async def test_what_a_helper_says_of_its_failure_is_the_reason(helped, tmp_path):
    async with helped.open() as gate:
        words = telling(gate, "/usr/bin/ls", "/nothing/here")
        async with listening(tmp_path / "do" / "web.sock", words):
            _task, operation = await waiting(gate, restart(helped))
            result = await approved(gate, operation)
    assert (result.status, result.exit_status) == (ResultStatus.FAILED, 2)
    assert "No such file" in result.reason


async def test_a_helper_that_dies_before_it_answers_leaves_the_request_in_doubt_and_is_not_asked_again(
    helped, tmp_path
):
    async with helped.open() as gate:
        telling(gate, "/usr/bin/true")
        (tmp_path / "do").mkdir()
        asked = []

        async def dies(reader, writer):
            asked.append(await reader.readline())
            writer.close()

        async with await asyncio.start_unix_server(dies, tmp_path / "do" / "web.sock"):
            _task, operation = await waiting(gate, restart(helped))
            result = await approved(gate, operation)
            again = await gate.run(restart(helped), lambda _p: None)
    assert result.status is ResultStatus.UNKNOWN
    assert "ended without an answer" in result.reason
    assert again == result
    assert len(asked) == 1


async def test_a_helper_that_takes_too_long_is_ended_by_its_own_clock(helped, tmp_path):
    async with helped.open() as gate:
        words = ("run", "1", "/usr/bin/sleep", "30")
        web = gate.policy.helpers[-1]
        gate.policy = replace(gate.policy, helpers=(replace(web, argv=words),))
        async with listening(tmp_path / "do" / "web.sock", words):
            _task, operation = await waiting(gate, restart(helped))
            result = await approved(gate, operation)
    assert result.status is ResultStatus.TIMED_OUT
    assert "may have happened" in result.reason


async def test_a_socket_that_is_not_for_the_executor_means_nothing_was_done(helped, tmp_path):
    async with helped.open() as gate:
        words = telling(gate, "/usr/bin/true")
        async with listening(tmp_path / "do" / "web.sock", words):
            _task, operation = await waiting(gate, restart(helped))
            _op, _preview, minted = await gate.show(operation.id, OPERATOR)
            (tmp_path / "do" / "web.sock").unlink()
            dead = socket.socket(socket.AF_UNIX)
            dead.bind(str(tmp_path / "do" / "web.sock"))  # bound, and nobody listens
            result = await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
            dead.close()
    assert result.status is ResultStatus.UNAVAILABLE
    assert "systemctl status hermesd-do-web.socket" in result.reason


async def test_a_helper_that_was_taken_away_after_it_was_asked_for_is_not_approved_any_more(helped, tmp_path):
    async with helped.open() as gate:
        words = telling(gate, "/usr/bin/true")
        async with listening(tmp_path / "do" / "web.sock", words):
            task, operation = await waiting(gate, restart(helped))
            (tmp_path / "do" / "web.sock").unlink()
            with pytest.raises(Stopped, match="not installed any more"):
                await gate.show(operation.id, OPERATOR)
            await gate.deny(operation.id, OPERATOR, "gone")
            assert (await task).status is ResultStatus.DENIED


def records(folder, *names):
    """Return a manifest of files as they are now, as the preview tool writes it."""
    found = b""
    for name in names:
        status = (folder / name).stat()
        numbers = (
            *(status.st_dev, status.st_ino, status.st_size, status.st_blocks, status.st_mtime_ns),
            *(status.st_mode, status.st_uid, status.st_gid, status.st_nlink),
        )
        found += b" ".join(b"%d" % number for number in numbers) + b" " + os.fsencode(name) + b"\0"
    return found


async def test_a_removal_helper_removes_what_was_shown_and_skips_and_reports_what_was_swapped(
    helped, tmp_path
):
    for name in ("a.tmp", "b.tmp", "stays"):
        (helped.data / name).write_bytes(b"x" * 4096)
    outside = tmp_path / "outside"
    outside.write_text("not yours")
    helped.sandbox.answers["fs_targets"] = Ended(0, records(helped.data, "a.tmp", "b.tmp"), b"", 1.0)
    async with helped.open() as gate:
        (data,) = [helper for helper in gate.policy.helpers if helper.name == "data"]
        async with listening(tmp_path / "do" / "data.sock", data.argv):
            _task, operation = await waiting(gate, helped.cleanup())
            assert "not reversible (it is removed as root, which keeps no copy)" in operation.impact.text
            _op, _preview, minted = await gate.show(operation.id, OPERATOR)
            (helped.data / "b.tmp").unlink()
            (helped.data / "b.tmp").symlink_to(outside)
            result = await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
    assert result.status is ResultStatus.SUCCEEDED, result.reason
    assert result.gain is not None
    assert (result.gain.files_removed, result.gain.files_skipped) == (1, 1)
    assert sorted(path.name for path in helped.data.iterdir()) == ["b.tmp", "stays"]
    assert outside.read_text() == "not yours"
    assert "fs_remove" not in {name for name, _job in helped.sandbox.ran}


def test_a_removal_reaches_a_folder_within_its_own_and_none_through_a_link(tmp_path):
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "a").write_text("1")
    (root / "way").symlink_to(root / "deep")
    listed = records(root / "deep", "a")
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        host_action.remove(str(root), b"way", listed)
    with pytest.raises(OSError, match="leads elsewhere"):
        host_action.remove(str(root), b"deep/../deep", listed)
    assert host_action.remove(str(root), b"deep", listed)[0] == 0
    assert not (root / "deep" / "a").exists()


def test_a_list_that_is_cut_removes_nothing_of_it(tmp_path):
    (tmp_path / "a").write_text("1")
    with pytest.raises(host_action.NotAskedError, match="not a manifest"):
        host_action.remove(str(tmp_path), b"", records(tmp_path, "a") + b"1 2 3")
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"restart\n",
        b"hermesd-do 1 %(digest)s 10 -\nonly this",
        b"hermesd-do 1 %(digest)s 99999999999 -\n",
        b"hermesd-do 1 %(digest)s 0 -zz\n",
        b"hermesd-do 1 " + b"0" * 64 + b" 0 -\n",
        b"hermesd-do 2 %(digest)s 0 -\n",
        b"hermesd-do 1 %(digest)s 0 -",
        b"x" * 100_000,
        b"\xff\xfe\n",
    ],
)
async def test_what_is_no_whole_request_runs_nothing(tmp_path, sent):
    words = ["run", "60", "/usr/bin/tee", f"{tmp_path}/effect"]
    sent = sent.replace(b"%(digest)s", host_action.digest_of(words).encode())
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-B", str(PROGRAM), *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    answer, _ = await program.communicate(sent)
    assert answer.startswith(b"hermesd-did 64 0 ")
    assert not (tmp_path / "effect").exists()


def test_the_program_and_the_gate_know_an_action_by_the_same_digest(helped):
    for helper in load_policy(helped.layers).helpers:
        assert helper.digest == host_action.digest_of(list(helper.argv))
