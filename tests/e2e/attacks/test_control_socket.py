"""Whoever may connect, does so in bad manners: nobody else is kept waiting and nothing is taken."""

import array
import contextlib
import os
import socket
from pathlib import Path

import pytest

from hermesd.launcher import LaunchError

pytestmark = pytest.mark.slow


async def test_a_thousand_half_open_clients_keep_no_person_from_being_answered(pair, hostile):
    await pair.start("executor")
    with contextlib.ExitStack() as clients:
        for _ in range(1_000):
            with contextlib.suppress(OSError):
                clients.enter_context(hostile.connected()).sendall(b'{"version": 1, "kin')
        assert (await pair.executor("status"))["usable"]
    assert hostile.ask("system:load")["status"] == "succeeded"


async def test_a_passed_descriptor_is_not_kept(pair, hostile, tmp_path):
    await pair.start("executor")
    secret = tmp_path / "passed"
    secret.write_text("x")
    folder = Path(f"/proc/{pair.parts['executor'][0].pid}/fd")
    before = len(list(folder.iterdir()))
    with hostile.connected() as client, secret.open("rb") as file:
        rights = array.array("i", [file.fileno()] * 20)
        client.sendmsg([b"{}\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        client.recv(4096)
        held = [os.readlink(entry) for entry in folder.iterdir()]  # noqa: PTH115 - sockets have no path
    assert str(secret) not in held
    assert len(held) <= before + 2


async def test_a_link_at_the_sockets_path_leads_nobody_elsewhere(pair):
    victim = pair.folder / "victim"
    victim.write_text("precious")
    (pair.folder / "executor" / "agent.sock").symlink_to(victim)
    with contextlib.suppress(LaunchError):
        await pair.start("executor")
    assert victim.read_text() == "precious"
    assert not victim.is_socket()


async def test_who_never_reads_keeps_nobody_from_being_answered(pair, hostile):
    await pair.start("executor")
    with hostile.connected() as client:
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                client.send(hostile.line("no:such", {"x": "y" * 4000}))
        assert (await pair.executor("status"))["usable"]
        assert hostile.ask("system:load")["status"] == "succeeded"
