"""Two fake processes for hermesctl: the real socket server, answers made up by the test.

The real `hermesctl` runs as a subprocess against them, through pipes or on a pseudo-terminal.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import socket
import struct
import subprocess
import sysconfig
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hermesd.ipc.messages import Code
from hermesd.ipc.server import Peer, Reply, RequestError, SocketServer
from hermesd.protocol import Envelope

HERMESCTL = Path(sysconfig.get_path("scripts")) / "hermesctl"
PATIENCE_SECONDS = 15.0


@dataclass(frozen=True)
class Failed:
    """An answer with status `failed`."""

    code: Code
    reason: str


@dataclass(frozen=True)
class Told:
    """What is said with status `running`, then the final answer."""

    running: list[dict[str, Any]]
    answer: Any


@dataclass(frozen=True)
class Hangs:
    """No answer within the test's life."""


class FakeProcess:
    """A process that answers each kind as the test says. ``asked`` holds what was asked, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.admits = True

    def asked_for(self, kind: str) -> list[dict[str, Any]]:
        return [payload for asked, payload in self.asked if asked == kind]

    @asynccontextmanager
    async def serving(self):
        async with SocketServer(
            self.path, name=self.path.stem, allow=lambda _peer: self.admits, answer=self._answer
        ):
            yield

    async def _answer(self, _peer: Peer, request: Envelope, reply: Reply) -> dict[str, Any]:
        self.asked.append((request.kind, dict(request.payload)))
        answer = self.answers.get(request.kind, Failed(Code.BAD_REQUEST, f"{request.kind} is not answered"))
        if callable(answer):
            answer = answer(dict(request.payload))
        if isinstance(answer, Told):
            for payload in answer.running:
                await reply.send(request.kind, payload)
            answer = answer.answer
        if isinstance(answer, Hangs):
            await asyncio.Event().wait()
        if isinstance(answer, Failed):
            raise RequestError(answer.code, answer.reason)
        return answer


@dataclass
class Ended:
    """How one run of hermesctl ended."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """All that was shown, as if no line had been broken."""
        return " ".join((self.out + self.err).split())

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)


class OnTerminal:
    """hermesctl on a pseudo-terminal: what it shows, and what a person types."""

    def __init__(self, arguments: list[str], environ: dict[str, str], rows: int, columns: int) -> None:
        self._fd, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            ["setsid", "--ctty", HERMESCTL, *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=environ,
        )
        os.close(inner)
        self.raw = ""

    @property
    def shown(self) -> str:
        """What a person reads: without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.raw)

    def read_until(self, text: str) -> str:
        """Wait until ``text`` is shown; return all that was shown so far."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while text not in self.shown and time.monotonic() < ends and self._read():
            pass
        assert text in self.shown, f"{text!r} was never shown:\n{self.shown}"
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit code."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends and self._read():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._fd)

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 1.0)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.raw += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


@dataclass
class Bench:
    """The two fakes and hermesctl pointed at them."""

    daemon: FakeProcess
    executor: FakeProcess
    terminals: list[OnTerminal] = field(default_factory=list)

    def environ(self, **more: str) -> dict[str, str]:
        kept = {
            name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPYCACHEPREFIX") if name in os.environ
        }
        sockets = {
            "HERMESD_CONTROL_SOCKET": str(self.daemon.path),
            "HERMESD_OPERATOR_SOCKET": str(self.executor.path),
        }
        return {**kept, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "TZ": "UTC", **sockets, **more}

    def run(self, *arguments: str, **environ: str) -> Ended:
        done = subprocess.run(
            [HERMESCTL, *arguments],
            env=self.environ(**environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def on_terminal(self, *arguments: str, rows: int = 40, columns: int = 80, **environ: str) -> OnTerminal:
        terminal = OnTerminal([*arguments], self.environ(**environ), rows, columns)
        self.terminals.append(terminal)
        return terminal


@contextmanager
def raw_answer(path: Path, data: bytes) -> Iterator[None]:
    """A socket at which one request is answered with ``data``, then closed."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(data)

    thread = threading.Thread(target=serve, name="raw-answer")
    thread.start()
    yield
    thread.join(PATIENCE_SECONDS)
    listener.close()


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


def ahead(**span: float) -> str:
    return (datetime.now(UTC) + timedelta(**span)).isoformat()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Both fakes, listening, with the answers of a healthy hermesd."""
    made = Bench(FakeProcess(tmp_path / "control.sock"), FakeProcess(tmp_path / "operator.sock"))
    fill_with_health(made)
    with serving(made.daemon, made.executor):
        yield made
    for terminal in made.terminals:
        terminal.close()


class serving:  # noqa: N801 - used as a context manager
    """Serves the fakes on a loop in a thread of its own."""

    def __init__(self, *processes: FakeProcess) -> None:
        self._processes = processes
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="fakes")

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._processes[0].serving(), self._processes[-1].serving():
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


Answering = Callable[[dict[str, Any]], Any]


def fill_with_health(bench: Bench) -> None:
    bench.daemon.answers = {
        "status": daemon_status(),
        "incidents": {"incidents": [incident()]},
        "runs": {"runs": [run()]},
        "show": {"incident": incident(), "run": told_run(), "records": records()},
    }
    bench.executor.answers = {
        "status": executor_status(),
        "approvals": {"operations": []},
        "commands": catalogue(),
        "approve.show": operation(),
    }


def daemon_status(**changes: Any) -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "pid": 4711,
        "ready": True,
        "started_at": ago(hours=3),
        "uptime_s": 11_532.4,
        "config": "3f9c2a7d1b5e8046",
        "paused": False,
        "sources": [source(), source(name="broker", kind="mqtt", last_event_at=None)],
        "inbox": {"undecided": 0, "accepted": 128_403},
        "incidents_open": 0,
        "runs_active": 0,
        "model": {"configured": False, "name": "", "state": ""},
        "executor": {
            "reachable": True,
            "sandbox": "bubblewrap",
            "sandbox_reason": "",
            "degraded": [],
            "commands": 11,
            "policy_version": "91d0c4e2a8b7f356",
        },
        "audit": {"records": 2_048, "head": f"2048:{'ab' * 32}"},
        **changes,
    }


def source(**changes: Any) -> dict[str, Any]:
    return {
        "name": "host",
        "kind": "host",
        "state": "running",
        "since": ago(hours=3),
        "restarts": 0,
        "error": "",
        "last_event_at": ago(seconds=8),
        **changes,
    }


def executor_status(**changes: Any) -> dict[str, Any]:
    return {
        "sandbox": "bubblewrap",
        "usable": True,
        "reason": "bubblewrap passed its self-test",
        "degraded": [],
        "promises": {},
        "engines": {"docker": "no engine answers at /run/docker.sock", "bubblewrap": "passed"},
        "policy_version": "91d0c4e2a8b7f356",
        "commands": 11,
        "pending": 0,
        "audit": {"records": 512, "head": f"512:{'cd' * 32}"},
        "separation": "agent and executor run as different users",
        **changes,
    }


def incident(**changes: Any) -> dict[str, Any]:
    return {
        "id": "inc-20260301-7f3a",
        "rule": "disk-full",
        "title": "Disk /var on web-1 is 91 % full",
        "status": "open",
        "severity": "warning",
        "labels": {"host": "web-1", "path": "/var", "device": "/dev/sda3"},
        "opened_at": ago(minutes=3),
        "resolved_at": None,
        "events": 14,
        "last_value": 91.25,
        "unit": "percent",
        "runs": ["run-20260301-c41d"],
        **changes,
    }


def run(**changes: Any) -> dict[str, Any]:
    return {
        "task_id": "run-20260301-c41d",
        "incident_id": "inc-20260301-7f3a",
        "kind": "event",
        "goal": "Find what fills /var on web-1, say why, and propose what can be removed.",
        "status": "waiting",
        "outcome": None,
        "reason": "",
        "round": 2,
        "stage": "confirm",
        "created_at": ago(minutes=3),
        "started_at": ago(minutes=3),
        "ended_at": None,
        **changes,
    }


def stage(name: str, round_no: int, ms: float, budget_ms: int, outcome: str = "ok") -> dict[str, Any]:
    return {"name": name, "round": round_no, "ms": ms, "budget_ms": budget_ms, "outcome": outcome}


def step(**changes: Any) -> dict[str, Any]:
    return {
        "round": 1,
        "step": "usage",
        "command": "system:disk_usage",
        "args": {"path": "/var"},
        "status": "succeeded",
        "summary": "/var: 91 % of 20.0 GB used",
        "reason": "",
        "impact": None,
        "gain": None,
        **changes,
    }


def told_run(**changes: Any) -> dict[str, Any]:
    impact = operation()["impact"]
    gain = {"files_removed": 37, "files_skipped": 0, "size_bytes": 14_200_000, "freed_bytes": 14_200_832}
    return {
        **run(status="ended", outcome="resolved", stage="", ended_at=ago(minutes=1)),
        "stages": [
            stage("receive", 0, 0.8, 2000),
            stage("brief", 0, 3.4, 5000),
            stage("plan", 1, 0.2, 45_000),
            stage("validate", 1, 0.4, 5000),
            stage("prepare", 1, 4.1, 30_000),
            stage("execute", 1, 11.9, 10_000),
            stage("plan", 2, 0.2, 45_000),
            stage("validate", 2, 0.5, 5000),
            stage("confirm", 2, 74_210, 14_400_000),
            stage("prepare", 2, 4.4, 30_000),
            stage("execute", 2, 61_000, 60_000, "timeout"),
            stage("review", 2, 2.2, 45_000),
            stage("report", 2, 0.6, 10_000),
        ],
        "report": "Old caches of app filled /var.\n37 files were removed, 14.2 MB freed; /var is 71 % full.",
        "steps": [
            step(),
            step(
                step="largest",
                command="fs:largest",
                args={"path": "/var/cache/app", "count": 10},
                status="refused",
                summary="",
                reason="path: outside what I may operate on",
            ),
            step(
                round=2,
                step="clean",
                command="fs:remove_old",
                args={"path": "/var/cache/app", "older_than_days": 7},
                summary="removed 37 files",
                impact=impact,
                gain=gain,
            ),
        ],
        **changes,
    }


def records() -> list[dict[str, Any]]:
    return [
        {
            "seq": 41,
            "kind": "run.created",
            "task_id": "run-20260301-c41d",
            "time": ago(minutes=3),
            "incident": "inc-20260301-7f3a",
        },
        {
            "seq": 42,
            "kind": "command.result",
            "task_id": "run-20260301-c41d",
            "time": ago(minutes=2),
            "command": "system:disk_usage",
            "status": "succeeded",
            "args": {"path": "/var"},
        },
    ]


def waiting_operation(**changes: Any) -> dict[str, Any]:
    return {
        "id": "op-run-20260301-c41d.2.0.0",
        "command": "fs:remove_old",
        "task_id": "run-20260301-c41d",
        "intent": "Remove caches of app that are older than a week",
        "text": "37 files under /var/cache/app, 14.2 MB, not reversible",
        "created_at": ago(minutes=2),
        "expires_at": ahead(hours=3, minutes=58),
        "status": "pending",
        **changes,
    }


def operation(**changes: Any) -> dict[str, Any]:
    return {
        "id": "op-run-20260301-c41d.2.0.0",
        "command": "fs:remove_old",
        "intent": "Remove caches of app that are older than a week",
        "task_id": "run-20260301-c41d",
        "args": {"path": "/var/cache/app", "older_than_days": 7},
        "impact": {
            "files": 37,
            "size_bytes": 14_200_000,
            "root": "/var/cache/app",
            "sample": [f"pages/{number:04d}.cache ({900 - number}.0 kB)" for number in range(12)],
            "reversible": False,
            "manifest_digest": "ef" * 32,
            "text": "37 files under /var/cache/app, 14.2 MB, not reversible",
        },
        "text": "37 files under /var/cache/app, 14.2 MB, not reversible",
        "token": "K7QM-W3ZP",
        "token_expires_at": ahead(seconds=120),
        "token_seconds": 120.0,
        "second_word": "",
        **changes,
    }


def ending(outcome: str = "succeeded", **changes: Any) -> dict[str, Any]:
    gain = {"files_removed": 37, "files_skipped": 0, "size_bytes": 14_200_000, "freed_bytes": 14_200_832}
    good = outcome == "succeeded"
    return {
        "id": "op-run-20260301-c41d.2.0.0",
        "outcome": outcome,
        "text": "37 files removed, 0 skipped, 14200832 bytes freed" if good else "the list is not the same",
        "result": {
            "status": outcome,
            "reason": "",
            "gain": gain if good else None,
            "stages": [
                stage("prepare", 0, 77.0, 30_000),  # the preview's
                stage("execute", 0, 88.0, 10_000),
                stage("confirm", 0, 11_500.0, 14_400_000),
                stage("prepare", 0, 4.2, 30_000),
                stage("execute", 0, 31.0, 60_000),
            ],
        },
        **changes,
    }


def catalogue() -> dict[str, Any]:
    path = {
        "type": "string",
        "description": "A path on the file system in question",
        "default": "/",
        "examples": ["/var/log"],
    }
    days = {"type": "integer", "description": "Age in days", "minimum": 1, "maximum": 365}
    return {
        "policy_version": "91d0c4e2a8b7f356",
        "sandbox": "bubblewrap",
        "sandbox_reason": "",
        "degraded": [],
        "readable_roots": ["/var", "/srv", "/tmp"],
        "writable_roots": ["/var/cache/app"],
        "commands": [
            {
                "name": "system:disk_usage",
                "description": "Reports size, used and free space of the file system holding a path. Returns "
                "one JSON row per file system.",
                "effect": "read",
                "permission": "public",
                "scenes": ["disk", "inspection"],
                "args_schema": {"type": "object", "properties": {"path": path}, "required": []},
                "timeout_ms": 10_000,
                "usable": True,
            },
            {
                "name": "fs:remove_old",
                "description": "Removes files that are older than some days. Returns what was removed.",
                "effect": "destroy",
                "permission": "internal",
                "scenes": ["disk"],
                "args_schema": {
                    "type": "object",
                    "properties": {"path": path, "older_than_days": days},
                    "required": ["path", "older_than_days"],
                },
                "timeout_ms": 60_000,
                "usable": False,
                "unusable_reason": "/usr/bin/python3 is missing",
            },
        ],
    }
