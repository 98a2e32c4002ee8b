"""The owner's half of the talk with a stub, the same for every engine.

A `Dialogue` speaks over whatever connection an engine gives it: hands the job in, gives the word to
go, feeds standard input and gathers output, each with a bound. It must never wait without a clock
and must never believe more than the job allows: output beyond the limit ends the talk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from time import monotonic
from typing import Final, Protocol

from hermesd.control.sandbox import wire
from hermesd.control.sandbox.base import GRACE_SECONDS, Ended, Job, Resolved, SandboxError

RESOLVE_SECONDS: Final = 10.0
"""Opening a path may hang on a dead network mount; the container is given up then."""

_FEED_BYTES: Final = 1 << 18


class Link(Protocol):
    """A byte stream to a stub. A lost connection raises ConnectionError or IncompleteReadError."""

    async def read_exactly(self, count: int) -> bytes:
        """Return exactly ``count`` bytes."""
        ...

    async def write(self, data: bytes) -> None:
        """Send all of ``data``, as fast as the other side takes it."""
        ...


class Dialogue:
    """One talk about one job, in its order: hello, resolve, run."""

    def __init__(self, link: Link, limits: Mapping[str, int], seccomp: bytes = b"") -> None:
        self._link = link
        self._limits = limits
        self._seccomp = seccomp
        self._nonce = os.urandom(wire.NONCE_BYTES)
        self._job: Job | None = None

    async def hello(self, seconds: float) -> int:
        """Wait until the stub is ready; return its process id as it sees it. Raise SandboxError."""
        tag, payload = await self._bounded_frame(seconds, "the container did not become ready in time")
        if tag != wire.HELLO:
            raise SandboxError("the container's first word is not its stub's")
        return int(payload)

    async def resolve(self, job: Job) -> tuple[Resolved, ...]:
        """Hand the job in and return what its paths are. Raise PathRefused or SandboxError."""
        if self._job is not None:
            raise SandboxError("a container takes one job")
        wire.check_job(job)
        self._job = job
        request = wire.encode_request(job, self._nonce, self._limits, self._seccomp)
        try:
            await self._link.write(request)
        except OSError:
            raise SandboxError("the container is gone") from None
        tag, payload = await self._bounded_frame(RESOLVE_SECONDS, "a path took too long to open")
        return wire.read_paths(tag, payload, len(job.paths))

    async def run(self) -> Ended:
        """Give the word to go and gather what comes. Raise SandboxError when the container dies."""
        job = self._job
        if job is None:
            raise SandboxError("a container runs what was handed in, and nothing was")
        began = monotonic()
        gathered = _Output(job.output_bytes)
        try:
            async with asyncio.timeout(job.timeout_ms / 1000 + GRACE_SECONDS):
                end = await self._converse(job, gathered)
        except TimeoutError:
            return gathered.ended(None, (monotonic() - began) * 1000, timed_out=True)
        killed = end.how != "exited"
        return gathered.ended(
            None if killed else end.status,
            end.ms,
            timed_out=end.how == "timeout",
            truncated=end.how == "truncated",
        )

    async def _converse(self, job: Job, gathered: _Output) -> wire.End:
        feeding = asyncio.create_task(self._feed(job.stdin), name="sandbox-stdin")
        try:
            while True:
                tag, payload = await self._frame()
                if tag == wire.END:
                    return wire.read_end(payload, self._nonce)
                gathered.take(tag, payload)
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])

    async def _feed(self, data: bytes) -> None:
        """Send the word to go and standard input. A stub that ended meanwhile is the reader's business."""
        try:
            await self._link.write(wire.GO)
            for start in range(0, len(data), _FEED_BYTES):
                await self._link.write(data[start : start + _FEED_BYTES])
        except OSError:
            return

    async def _frame(self) -> tuple[bytes, bytes]:
        try:
            tag, length = wire.read_header(await self._link.read_exactly(wire.HEADER_BYTES))
            return tag, await self._link.read_exactly(length)
        except (asyncio.IncompleteReadError, OSError):
            raise SandboxError("the container ended before its command did") from None

    async def _bounded_frame(self, seconds: float, late: str) -> tuple[bytes, bytes]:
        try:
            async with asyncio.timeout(seconds):
                return await self._frame()
        except TimeoutError:
            raise SandboxError(f"{late} (limit {seconds:g} s)") from None


class _Output:
    """What a command wrote, within its bound."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._began = monotonic()
        self._first_ms: float | None = None
        self._parts: dict[bytes, list[bytes]] = {wire.STDOUT: [], wire.STDERR: []}

    def take(self, tag: bytes, payload: bytes) -> None:
        """Add a piece. Raise SandboxError when it is none, or more than was allowed."""
        self._left -= len(payload)
        if tag not in self._parts or self._left < 0:
            raise SandboxError("the container sent something that is not of the protocol")
        if self._first_ms is None:
            self._first_ms = round((monotonic() - self._began) * 1000, 3)
        self._parts[tag].append(payload)

    def ended(
        self, exit_status: int | None, ms: float, *, timed_out: bool = False, truncated: bool = False
    ) -> Ended:
        """Return the whole as a result."""
        out, err = (b"".join(self._parts[tag]) for tag in (wire.STDOUT, wire.STDERR))
        return Ended(exit_status, out, err, round(ms, 3), timed_out, truncated, self._first_ms)
