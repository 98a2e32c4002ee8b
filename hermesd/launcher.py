"""`hermesd run --single`: starts the two processes that systemd would start, and nothing else.

Each child is the same program with the same configuration as under systemd, and says READY on a
notification socket as it would there. As root each gets its own user; as anybody else both run as
that one. This module must never do any of the children's work, and never restart one: when one
ends, so does the other.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

READY_SECONDS: Final = 15.0
STOP_SECONDS: Final = 25.0


class LaunchError(Exception):
    """A child did not come up. ``str()`` says which, and what it said last."""


@dataclass(frozen=True, slots=True)
class Account:
    """Who a child runs as; None keeps the caller's identity."""

    uid: int
    gid: int


@dataclass(slots=True)
class Program:
    """How to start hermesd: the interpreter with its arguments, and the environment for it."""

    argv: tuple[str, ...] = (sys.executable, "-m", "hermesd")
    environ: Mapping[str, str] = field(default_factory=dict)


class Child:
    """One of the two processes, and its last words."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self.name = name
        self.process = process
        self._log_path = log_path

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def last_words(self, lines: int = 6) -> str:
        """Return the end of what the child wrote to standard error."""
        text = self._log_path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    async def stop(self) -> int:
        """Ask it to end, and end it when it does not. Return its exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                return await self.process.wait()
        except TimeoutError:
            self.process.kill()
            return await self.process.wait()


@asynccontextmanager
async def child(
    name: str,
    arguments: Sequence[str],
    *,
    program: Program,
    account: Account | None = None,
    log_path: Path,
) -> AsyncIterator[Child]:
    """Start ``hermesd ARGUMENTS`` and wait until it is READY; stop it on leaving. Raise LaunchError."""
    with _NotifySocket(account) as (address, notify), log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *program.argv,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(program, address),
            cwd="/",
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        started = Child(name, process, log_path)
        try:
            await _until_ready(started, notify)
            yield started
        finally:
            await started.stop()


class _NotifySocket:
    """A datagram socket in a folder that only we and the child may enter."""

    def __init__(self, account: Account | None) -> None:
        self._account = account
        self._folder = tempfile.TemporaryDirectory(prefix="hermesd-notify-")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def __enter__(self) -> tuple[str, socket.socket]:
        path = Path(self._folder.name, "notify")
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        if self._account is not None:
            os.chown(self._folder.name, self._account.uid, self._account.gid)
            os.chown(path, self._account.uid, self._account.gid)
        return str(path), self._socket

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()
        self._folder.cleanup()


def _environment(program: Program, notify_address: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ}
    model = {name: os.environ[name] for name in ("MODEL_NAME", "API_BASE", "API_KEY") if name in os.environ}
    return {**kept, **model, **program.environ, "NOTIFY_SOCKET": notify_address, "PYTHONUNBUFFERED": "1"}


async def _until_ready(started: Child, notify: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.ensure_future(started.process.wait())
    try:
        async with asyncio.timeout(READY_SECONDS):
            while True:
                said = asyncio.ensure_future(loop.sock_recv(notify, 4096))
                await asyncio.wait({said, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not said.done():
                    said.cancel()
                    raise LaunchError(f"{started.name} ended at its start:\n{started.last_words()}")
                if b"READY=1" in said.result().split(b"\n"):
                    return
    except TimeoutError:
        text = f"{started.name} was not ready within {READY_SECONDS:g} s:\n{started.last_words()}"
        raise LaunchError(text) from None
    finally:
        ended.cancel()


async def run_single(
    conf: Sequence[Path], *, executor: Account | None, agent: Account | None, log_folder: Path
) -> int:
    """Run both until a signal comes or one of them ends. Return the exit status."""
    layers = [argument for folder in conf for argument in ("--conf", str(folder))]
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    program = Program()
    async with (
        child(
            "hermesd-executor",
            [*layers, "executor"],
            program=program,
            account=executor,
            log_path=log_folder / "executor.log",
        ) as hands,
        child(
            "hermesd", [*layers, "run"], program=program, account=agent, log_path=log_folder / "agent.log"
        ) as mind,
    ):
        waits = [asyncio.ensure_future(part.process.wait()) for part in (hands, mind)]
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({*waits, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        ended = [part for part in (hands, mind) if part.process.returncode is not None]
        for part in ended:
            print(f"{part.name} ended:\n{part.last_words()}", file=sys.stderr)  # noqa: T201 - the launcher's voice
    return 1 if ended else 0
