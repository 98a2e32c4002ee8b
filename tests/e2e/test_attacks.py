"""A hostile agent at the executor's real socket: what it says in arguments and bytes changes nothing."""

import array
import contextlib
import json
import os
import socket
from pathlib import Path

import pytest

from hermesd.ipc.messages import Kind, request_line
from hermesd.launcher import LaunchError

pytestmark = pytest.mark.slow
SECONDS = 10

OPTIONS = {
    ("fs:largest", "path"): ("-delete", "-exec", "-files0-from=/etc/shadow", "@file", "-rf"),
    ("log:tail", "path"): ("-I", "--checkpoint-action=exec=sh", "-e", "-o", "@/etc/shadow"),
    ("unit:status", "unit"): ("-H", "-Hroot@h", "--root=/", "--vacuum-time=1s", "--roo", "eww", "LD_PRELOAD"),
    ("log:search", "text"): ("-f/etc/shadow", "--file=/etc/shadow", "--fil", "-rn"),
}  # fmt: skip
DECEPTIONS = {
    ("unit:status", "unit"): (
        *("nginx.service\n", "ngin\u0445.service", "n\u200bginx.service", "nginx\u202e.service"),
        *("nginx.service\ufe0f", "\u212aernel.service", "nginx\0.service"),
    ),
    ("fs:largest", "path"): (
        *("/tmp/\uff0e\uff0e\uff0fetc", "/tmp/\0/etc", "/tmp/../etc/shadow", "/var/log/../../etc/shadow"),
        *("/tmp2/x", "/proc/self/root", "/dev/fd/3", "/etc", "//tmp", "/tmp/./x"),
    ),
    ("fs:largest", "limit"): ("\u0967\u0968", "1_000", " 12\n", "12", True, -1, 0, 1.5, None, [], {}, 2**80),
    ("process:terminate", "pid"): (0, -1, 1, True, "1", 2**70),
}
BESIDE = {"limit": {"path": "/tmp"}, "text": {"path": "/var/log/syslog"}}
WRAPPERS = (
    "env",
    "xargs",
    "timeout",
    "busybox",
    "python3",
    "/usr/bin/env",
    "sh",
    "shell:run",
    "ps eww",
    "kill",
)


def line_of(number, command, args):
    """Return a request of a run of its own: three refusals of one run would be a takeover."""
    payload = {
        "request_id": f"r{number}",
        "task_id": f"t{number}",
        "intent": "a test",
        "command": command,
        "args": args,
    }
    return request_line(
        Kind.COMMAND_REQUEST, payload, sender="agent", receiver="executor", task_id=f"t{number}"
    )


@contextlib.contextmanager
def connected(pair):
    """Connect as the agent's user does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(SECONDS)
        account = pair.players.agent
        os.seteuid(account.uid if account else os.geteuid())
        try:
            client.connect(str(pair.folder / "executor" / "agent.sock"))
        finally:
            if account:
                os.seteuid(0)
        yield client


def said(pair, data):
    """Return status of the envelope and of the result that the executor answers, empty where it hung up."""
    with connected(pair) as client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(data)
        for line in client.makefile("rb"):
            envelope = json.loads(line)
            if envelope["status"] not in ("created", "running"):
                return envelope["status"], envelope["payload"].get("status", "")
    return "", ""


async def nothing_but_refusals(pair, cases):
    number = 0
    for (command, name), values in cases.items():
        for value in values:
            number += 1
            answer = said(pair, line_of(number, command, {**BESIDE.get(name, {}), name: value}))
            assert answer == ("succeeded", "refused"), (command, name, value, answer)
    assert number == sum(map(len, cases.values())) > 0
    assert (await pair.executor("approvals"))["operations"] == []
    assert said(pair, line_of(0, "system:load", {})) == ("succeeded", "succeeded")


async def test_no_option_gets_through_an_argument(pair):
    await pair.start("executor")
    await nothing_but_refusals(pair, OPTIONS)


async def test_no_deception_in_text_path_or_number_gets_through(pair):
    await pair.start("executor")
    await nothing_but_refusals(pair, DECEPTIONS)


async def test_no_wrapper_is_a_command(pair):
    await pair.start("executor")
    for number, name in enumerate(WRAPPERS):
        answer = said(pair, line_of(number, name, {}))
        assert answer in {("succeeded", "refused"), ("failed", "")}, (name, answer)


MALFORMED = {
    "two objects": lambda good: good.strip() + good,
    "prose before": lambda good: b"Sure! Here it is: " + good,
    "prose behind": lambda good: good.strip() + b" hope it helps\n",
    "duplicate keys": lambda good: good.replace(b'"kind"', b'"kind": "command.request", "kind"', 1),
    "10,000 brackets": lambda _good: b"[" * 10_000 + b"]" * 10_000 + b"\n",
    "NaN": lambda good: good.replace(b'"path"', b'"limit": NaN, "path"', 1),
    "1e400": lambda good: good.replace(b'"path"', b'"limit": 1e400, "path"', 1),
    "-0.0": lambda good: good.replace(b'"path"', b'"limit": -0.0, "path"', 1),
    "lone surrogate": lambda good: good.replace(b'"path"', b'"x": "\\ud800", "path"', 1),
    "no UTF-8": lambda good: good.replace(b'"path"', b'"x": "\xff\xfe", "path"', 1),
    "50 MB": lambda _good: b'{"x":"' + b"a" * 50_000_000 + b'"}\n',
}


async def test_no_malformed_message_is_taken_for_a_request(pair):
    await pair.start("executor")
    good = line_of(1, "fs:largest", {"path": "/tmp"})
    for name, spoil in MALFORMED.items():
        data = spoil(good)
        assert data != good, name
        assert said(pair, data) in {("", ""), ("failed", ""), ("succeeded", "refused")}, name
    other = line_of(2, "fs:largest", {"path": "/tmp"})  # the first one's id has had its answer
    assert said(pair, other) == ("succeeded", "succeeded")


async def test_a_thousand_half_open_clients_keep_no_person_from_being_answered(pair):
    await pair.start("executor")
    with contextlib.ExitStack() as clients:
        for _ in range(1_000):
            with contextlib.suppress(OSError):
                clients.enter_context(connected(pair)).sendall(b'{"version": 1, "kin')
        assert (await pair.executor("status"))["usable"]
    assert said(pair, line_of(1, "system:load", {})) == ("succeeded", "succeeded")


async def test_a_passed_descriptor_is_not_kept(pair, tmp_path):
    await pair.start("executor")
    secret = tmp_path / "passed"
    secret.write_text("x")
    folder = Path(f"/proc/{pair.parts['executor'][0].pid}/fd")
    before = len(list(folder.iterdir()))
    with connected(pair) as client, secret.open("rb") as file:
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
