"""Envelopes over real Unix sockets: who may talk, how much, and what a bad message costs."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hermesd.ipc.client import BlockingClient, Unreachable, ask
from hermesd.ipc.messages import MAX_LINE_BYTES, Code, request_line
from hermesd.ipc.server import Bounds, Peer, RequestError, SocketServer

NOBODY = 65534


class Echo:
    """Answers by kind, and remembers what it was asked and by whom."""

    def __init__(self) -> None:
        self.asked: list[tuple[Peer, str]] = []
        self.ended: list[str] = []

    async def __call__(self, peer, request, reply):  # noqa: C901 - a list of cases
        self.asked.append((peer, request.kind))
        if request.kind == "refuse":
            raise RequestError(Code.REFUSED, "not today")
        if request.kind == "break":
            raise ZeroDivisionError("secret detail")
        if request.kind == "unsendable":
            return {"value": object()}
        if request.kind == "huge":
            return {"text": "x" * (2 * MAX_LINE_BYTES)}
        if request.kind == "large":
            return {"text": "x" * 900_000}
        if request.kind == "progress":
            for number in range(3):
                await reply.send("step", {"n": number})
        if request.kind == "flood":
            for _ in range(40):
                await reply.send("step", {"text": "x" * 500_000})
        if request.kind == "slow":
            await asyncio.sleep(0.3)
        self.ended.append(request.kind)
        return {"echo": request.payload}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "test.sock"


def server(path, echo, **options):
    given = {"allow": lambda _peer: True, "answer": echo, "anchor": lambda: "7:abc", **options}
    return SocketServer(path, name="tester", **given)


class Peering:
    """One raw connection of a peer."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, text: bytes) -> None:
        self.writer.write(text)

    def ask(self, kind, **payload):
        self.send(request_line(kind, payload, sender="peer", receiver="tester", task_id="t1"))

    async def answer(self):
        line = await asyncio.wait_for(self.reader.readline(), 5)
        return json.loads(line) if line else None

    async def is_closed(self):
        try:
            return await asyncio.wait_for(self.reader.read(1), 5) == b""
        except ConnectionError:
            return True


@pytest.fixture
async def connect(path):
    opened = []

    async def make():
        peer = Peering(*await asyncio.open_unix_connection(str(path), limit=2 * MAX_LINE_BYTES))
        opened.append(peer)
        return peer

    yield make
    for peer in opened:
        peer.writer.transport.abort()
    await asyncio.sleep(0)


async def test_a_request_is_answered_with_its_task_and_the_servers_anchor(path, connect):
    echo = Echo()
    async with server(path, echo):
        peer = await connect()
        peer.ask("hello", text="数")
        answer = await peer.answer()
    assert answer == {
        "version": 1,
        "task_id": "t1",
        "sender": "tester",
        "receiver": "peer",
        "kind": "hello",
        "payload": {"echo": {"text": "数"}},
        "status": "succeeded",
        "anchor": "7:abc",
    }
    assert echo.asked == [(Peer(os.getpid(), os.geteuid(), os.getegid()), "hello")]


async def test_progress_comes_before_exactly_one_final_answer(path, connect):
    async with server(path, Echo()):
        peer = await connect()
        peer.ask("progress")
        found = [await peer.answer() for _ in range(4)]
    assert [answer["status"] for answer in found] == ["running"] * 3 + ["succeeded"]
    assert [answer["payload"].get("n") for answer in found[:3]] == [0, 1, 2]


STRANGER = f"""
import os, socket, sys
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
try:
    peer.sendall(b'nonsense' * 1000)
    got = peer.recv(100)
except OSError:
    got = b''
print(repr(got))
"""


@pytest.fixture
def open_folder():
    """A folder that every uid may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a peer of another uid")
async def test_a_stranger_is_closed_before_a_byte_of_his_is_read(open_folder, caplog):
    echo, path, asked_about = Echo(), open_folder / "test.sock", []

    def allow(peer):
        asked_about.append(peer.uid)
        return peer.uid == 0

    async with server(path, echo, allow=allow, mode=0o666) as serving:
        stranger = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", STRANGER, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert serving.turned_away == 1
    assert stranger.stdout == "b''\n", stranger.stderr
    assert asked_about == [NOBODY]
    assert echo.asked == []
    assert f"uid {NOBODY}" in caplog.text
    assert "refused a message" not in caplog.text


async def test_knocking_is_counted_and_does_not_fill_the_log(path, connect, caplog):
    async with server(path, Echo(), allow=lambda _peer: False) as serving:
        for _ in range(30):
            assert await (await connect()).is_closed()
        assert serving.turned_away == 30
    assert len(caplog.records) == 1


async def test_a_peer_that_may_not_connect_reads_nothing_and_others_are_served(path, connect):
    admitted = iter([False, True])
    async with server(path, Echo(), allow=lambda _peer: next(admitted)) as serving:
        turned_away, welcome = await connect(), await connect()
        turned_away.ask("hello")
        assert await turned_away.is_closed()
        welcome.ask("hello")
        assert (await welcome.answer())["status"] == "succeeded"
        assert serving.turned_away == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"nonsense\n", "not JSON"),
        (b"\n", "not JSON"),
        (b"\xff\xfe\n", "not UTF-8"),
        (b'{"version":1,"version":1}\n', "duplicate keys"),
        (b"[" * 10_000 + b"\n", "deeper than"),
        (b'{"version":1}\n', "Field required"),
        (b'"' + b"x" * (MAX_LINE_BYTES + 5) + b'"\n', "longer than"),
    ],
)
async def test_a_broken_message_is_answered_and_the_next_one_is_served(path, connect, text, reason):
    async with server(path, Echo()):
        peer = await connect()
        peer.send(text)
        refused = await peer.answer()
        assert (refused["status"], refused["payload"]["code"]) == ("failed", "bad_request")
        assert reason in refused["payload"]["reason"]
        peer = peer if len(text) <= MAX_LINE_BYTES else await connect()
        peer.ask("hello")
        assert (await peer.answer())["status"] == "succeeded"


async def test_a_line_without_end_is_cut_off_with_a_reason_and_costs_no_more_than_its_bound(path, connect):
    async with server(path, Echo()):
        peer = await connect()
        peer.send(b"x" * (MAX_LINE_BYTES + 1))
        assert "longer than" in (await peer.answer())["payload"]["reason"]
        assert await peer.is_closed()


@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [
        ("refuse", "refused", "not today"),
        ("break", "internal", "a fault inside hermesd"),
        ("unsendable", "internal", "a fault inside hermesd"),
        ("huge", "internal", "a fault inside hermesd"),
    ],
)
async def test_a_request_that_fails_is_told_so_and_takes_no_other_with_it(path, connect, kind, code, reason):
    async with server(path, Echo()):
        peer = await connect()
        peer.ask(kind)
        peer.ask("hello")
        failed, served = await peer.answer(), await peer.answer()
    assert (failed["status"], failed["payload"]["code"]) == ("failed", code)
    assert reason in failed["payload"]["reason"]
    assert "secret" not in json.dumps(failed)
    assert served["status"] == "succeeded"


async def test_requests_sent_together_are_served_one_after_the_other_in_order(path, connect):
    async with server(path, Echo()):
        peer = await connect()
        for number in range(20):
            peer.ask("hello", n=number)
        found = [(await peer.answer())["payload"]["echo"]["n"] for _ in range(20)]
    assert found == list(range(20))


async def test_a_request_in_single_bytes_is_a_request(path, connect):
    async with server(path, Echo()):
        peer = await connect()
        for byte in request_line("hello", {}, sender="peer", receiver="tester"):
            peer.send(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert (await peer.answer())["status"] == "succeeded"


async def test_a_peer_that_has_said_all_is_still_answered(path, connect):
    async with server(path, Echo()):
        peer = await connect()
        peer.ask("slow")
        peer.writer.write_eof()
        assert (await peer.answer())["status"] == "succeeded"
        assert await peer.is_closed()


async def test_work_goes_on_when_the_peer_that_asked_for_it_goes_away(path, connect):
    echo = Echo()
    async with server(path, echo):
        peer = await connect()
        peer.ask("slow")
        await asyncio.sleep(0.1)
        peer.writer.transport.abort()
        async with asyncio.timeout(5):
            while not echo.ended:
                await asyncio.sleep(0.02)
    assert echo.ended == ["slow"]


async def test_connections_are_bounded_and_a_place_becomes_free_again(path, connect):
    async with server(path, Echo(), bounds=Bounds(connections=3)) as serving:
        peers = [await connect() for _ in range(3)]
        for peer in peers:
            peer.ask("hello")
            assert await peer.answer()
        assert await (await connect()).is_closed()
        peers[0].writer.transport.abort()
        async with asyncio.timeout(5):
            while len(serving._connections) == 3:
                await asyncio.sleep(0.01)
        late = await connect()
        late.ask("hello")
        assert (await late.answer())["status"] == "succeeded"


async def test_a_peer_that_says_nothing_or_half_a_line_is_closed_in_time(path, connect):
    async with server(path, Echo(), bounds=Bounds(idle_seconds=0.2)):
        silent, half = await connect(), await connect()
        half.send(b'{"version": 1, ')
        began = time.monotonic()
        assert await silent.is_closed()
        assert await half.is_closed()
        assert time.monotonic() - began < 2


async def test_a_peer_that_does_not_read_is_cut_off_and_holds_up_no_work(path):
    echo = Echo()
    async with server(path, echo, bounds=Bounds(write_seconds=0.2)) as serving:
        deaf = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        deaf.connect(str(path))
        deaf.sendall(request_line("flood", {}, sender="deaf", receiver="tester"))
        async with asyncio.timeout(5):
            while not echo.ended or serving._connections:
                await asyncio.sleep(0.02)
        deaf.close()
    assert echo.ended == ["flood"]


async def test_an_answer_that_is_never_read_keeps_no_connection_open(path):
    async with server(path, Echo(), bounds=Bounds(write_seconds=0.2)):
        deaf = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        deaf.connect(str(path))
        deaf.sendall(request_line("large", {}, sender="deaf", receiver="tester"))
        deaf.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.8)
        received = 0
        while chunk := await asyncio.to_thread(deaf.recv, 1 << 16):
            received += len(chunk)
        deaf.close()
    assert 0 < received < 900_000


async def test_leaving_ends_every_connection_and_takes_the_socket_away(path, connect):
    async with server(path, Echo()):
        idle, busy = await connect(), await connect()
        busy.ask("slow")
        await asyncio.sleep(0.05)
    assert await idle.is_closed()
    assert await busy.is_closed()
    assert not path.exists()


async def test_the_socket_has_its_mode_from_the_first_moment(path):
    async with server(path, Echo(), mode=0o620):
        assert stat.S_IMODE(path.stat().st_mode) == 0o620


async def test_a_link_or_a_file_where_the_socket_should_be_is_refused_and_left_alone(path, tmp_path):
    path.parent.mkdir()
    target = tmp_path / "target"
    target.write_text("precious")
    path.symlink_to(target)
    with pytest.raises(FileExistsError, match="not a socket"):
        await server(path, Echo()).__aenter__()
    assert target.read_text() == "precious"
    path.unlink()
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="not a socket"):
        await server(path, Echo()).__aenter__()
    assert path.read_text() == "precious"


async def test_a_socket_that_a_dead_process_left_is_replaced_and_a_living_one_is_not(path, connect):
    path.parent.mkdir()
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.listen()
    with pytest.raises(FileExistsError, match="another process listens"):
        await server(path, Echo()).__aenter__()
    left.close()
    async with server(path, Echo()):
        peer = await connect()
        peer.ask("hello")
        assert (await peer.answer())["status"] == "succeeded"


def blocking(path, kind, **payload):
    with BlockingClient(path, timeout_seconds=0.5) as client:
        return list(client.ask(kind, payload))


async def test_the_command_lines_client_gets_progress_and_the_final_answer(path):
    async with server(path, Echo()):
        found = await asyncio.to_thread(blocking, path, "progress", a=1)
    assert [answer["status"] for answer in found] == ["running"] * 3 + ["succeeded"]
    assert found[-1]["payload"] == {"echo": {"a": 1}}


async def test_the_command_lines_client_says_which_socket_does_not_answer_and_why(path):
    with pytest.raises(Unreachable, match=str(path)):
        blocking(path, "hello")
    async with server(path, Echo(), allow=lambda _peer: False):
        with pytest.raises(Unreachable, match=r"permitted|reset|Broken pipe"):
            await asyncio.to_thread(blocking, path, "hello")


async def test_the_command_lines_client_does_not_wait_for_ever(path):
    async def never(_peer, _request, _reply):
        await asyncio.sleep(60)

    async with server(path, never):
        with pytest.raises(Unreachable, match="in time"):
            await asyncio.to_thread(blocking, path, "hello")


async def test_the_agents_client_yields_lines_until_it_has_what_it_wants(path):
    async with server(path, Echo()):
        line = request_line("progress", {}, sender="agent", receiver="tester")
        found = []
        async for answer in ask(path, line):
            found.append(json.loads(answer)["status"])
            if found[-1] == "succeeded":
                break
    assert found == ["running", "running", "running", "succeeded"]


async def test_the_agents_client_says_that_nobody_answers(path):
    with pytest.raises(Unreachable, match=str(path)):
        async for _answer in ask(path, b"{}\n"):
            pass
