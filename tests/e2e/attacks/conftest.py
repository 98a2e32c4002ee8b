"""A hostile agent: it speaks to the executor's real socket as the agent's user does, in any bytes."""

import contextlib
import json
import os
import socket

import pytest

from hermesd.ipc.messages import Kind, request_line

SECONDS = 20
ENDED = ("succeeded", "failed", "cancelled", "timed_out")


class Hostile:
    """Whoever holds the agent. Each request is of a task of its own: three refusals of one are a takeover."""

    def __init__(self, pair) -> None:
        self.pair = pair
        self.number = 0

    def line(self, command, args, number=None, task=None):
        if number is None:
            self.number += 1
            number = self.number
        payload = {
            "request_id": f"h{number}",
            "task_id": task or f"t{number}",
            "intent": "a test",
            "command": command,
            "args": args,
        }
        task_id = payload["task_id"]
        return request_line(
            Kind.COMMAND_REQUEST, payload, sender="agent", receiver="executor", task_id=task_id
        )

    @contextlib.contextmanager
    def connected(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(SECONDS)
            account = self.pair.players.agent
            os.seteuid(account.uid if account else os.geteuid())
            try:
                client.connect(str(self.pair.folder / "executor" / "agent.sock"))
            finally:
                if account:
                    os.seteuid(0)
            yield client

    def answer(self, data):
        """Send bytes; return the final envelope, or none where the executor hung up."""
        with self.connected() as client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(data)
            for line in client.makefile("rb"):
                envelope = json.loads(line)
                if envelope["status"] not in ("created", "running"):
                    return envelope
        return None

    def said(self, data):
        """Return status of the envelope and of the result, both empty where the executor hung up."""
        envelope = self.answer(data)
        return ("", "") if envelope is None else (envelope["status"], envelope["payload"].get("status", ""))

    def ask(self, command, **args):
        """Send one request; return what became of it."""
        return self.answer(self.line(command, args))["payload"]

    async def is_refused(self, cases, beside=()):
        """Send each value as its command's argument: refused, nobody asked, and an honest look still runs."""
        tried = 0
        for (command, name), values in cases.items():
            for value in values:
                tried += 1
                answer = self.said(self.line(command, {**dict(beside).get(name, {}), name: value}))
                assert answer == ("succeeded", "refused"), (command, name, value, answer)
        assert tried > 0
        assert (await self.pair.executor("approvals"))["operations"] == []
        assert self.said(self.line("system:load", {})) == ("succeeded", "succeeded")


@pytest.fixture
def hostile(pair):
    return Hostile(pair)
