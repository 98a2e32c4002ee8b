"""A child process of an engine that has no daemon: started, watched and ended without a doubt.

Its standard input and output are one socket pair, so that a lost owner is an end of input. It is
watched through a process descriptor, never by number alone, and every wait has a bound. It must
be started on the loop's own thread: the kernel ends it when the thread that started it goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

_ERROR_BYTES: Final = 4096
_BUFFER_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose process it is to be; None of it changes anything."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Child:
    """A running child, its stream, and what it said on standard error."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        errors: int,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.pid = process.pid
        self._process = process
        self._errors = errors
        self._reader, self._writer = streams
        self._pidfd = os.pidfd_open(process.pid)

    @classmethod
    async def start(
        cls, argv: Sequence[str], descriptors: Sequence[int], identity: Identity | None = None
    ) -> Self:
        """Start ``argv`` with an empty environment and only ``descriptors`` beside its three streams."""
        ours, theirs = socket.socketpair()
        errors, theirs_errors = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            process = _spawn(argv, theirs.fileno(), theirs_errors, descriptors, identity)
        except BaseException:
            ours.close()
            os.close(errors)
            raise
        finally:
            theirs.close()
            os.close(theirs_errors)
        ours.setblocking(False)
        return cls(process, errors, await asyncio.open_connection(sock=ours, limit=_BUFFER_BYTES))

    async def read_exactly(self, count: int) -> bytes:
        """Read from its standard output."""
        return await self._reader.readexactly(count)

    async def write(self, data: bytes) -> None:
        """Write to its standard input."""
        self._writer.write(data)
        await self._writer.drain()

    def complaint(self) -> str:
        """Return what it wrote to standard error so far, bounded."""
        try:
            return os.read(self._errors, _ERROR_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def hang_up(self) -> None:
        """Close its standard input and output, whatever is unsent."""
        self._writer.transport.abort()

    def kill(self) -> None:
        """End it at once. What it started is ended by the kernel, as it was told to."""
        if self._process.returncode is None:
            self._process.kill()

    async def gone(self, seconds: float) -> bool:
        """Wait until it has ended; False when it still is there."""
        if self._process.returncode is None and await ended(self._pidfd, seconds):
            self._process.wait()
        return self._process.returncode is not None

    def let_go(self) -> None:
        """Close what is still open."""
        self._writer.transport.abort()
        for fd in (self._errors, self._pidfd):
            with contextlib.suppress(OSError):
                os.close(fd)


def _spawn(
    argv: Sequence[str], stream: int, errors: int, descriptors: Sequence[int], identity: Identity | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=stream,
        stdout=stream,
        stderr=errors,
        env={},
        cwd="/",
        pass_fds=descriptors,
        user=None if identity is None else identity.uid,
        group=None if identity is None else identity.gid,
        extra_groups=None if identity is None else identity.groups,
    )


async def ended(pidfd: int, seconds: float) -> bool:
    """Wait until the process behind a descriptor has ended; False when the time is over first."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    loop.add_reader(pidfd, _settle, done)
    try:
        async with asyncio.timeout(seconds):
            await done
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
    return True


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def kill_by(pidfd: int) -> None:
    """Send SIGKILL through a process descriptor; a process that is gone is no error."""
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
