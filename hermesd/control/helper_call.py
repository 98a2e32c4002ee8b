"""A call to an installed helper: to a flight it is one more container that runs one job.

Connecting starts the helper's unit, which does nothing until a whole request has come; so what is
prepared and never let go has no effect, whoever dies. The clocks are the flight's. This module must
never send anything but a job that a flight gives it.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic
from typing import Final

from hermesd.control.helpers import Helper
from hermesd.control.host_action import ANSWER, GREETING, MAX_ANSWER_BYTES, MAX_PAYLOAD_BYTES, TIMED_OUT
from hermesd.control.sandbox.base import GRACE_SECONDS, Ended, Job, Resolved, SandboxError

_LINE_BYTES: Final = 256
_CONNECT_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 1.0


class HelperCall:
    """One connection to a helper's socket. ``resolve`` opens it, ``run`` asks and waits for the answer."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._job: Job | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def resolve(self, job: Job) -> tuple[Resolved, ...]:
        """Connect. There are no paths to compare: what the helper may touch is in its unit."""
        if len(job.stdin) > MAX_PAYLOAD_BYTES:
            raise SandboxError(f"the list is larger than {MAX_PAYLOAD_BYTES >> 20} MB: ask for less")
        socket = self._helper.socket
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                self._reader, self._writer = await asyncio.open_unix_connection(socket, limit=_LINE_BYTES)
        except PermissionError:
            raise SandboxError(f"{socket} is not for this user: see helper_group in daemon.toml") from None
        except OSError as error:  # TimeoutError is one
            what = error.strerror or "no answer"
            raise SandboxError(f"{socket}: {what}: systemctl status {self._helper.unit}.socket") from None
        self._job = job
        return ()

    async def run(self) -> Ended:
        """Send the request and wait for its answer. Raise SandboxError when none comes."""
        job, reader, writer = self._job, self._reader, self._writer
        if job is None or reader is None or writer is None:
            raise SandboxError("a helper is connected to before it is asked")
        began = monotonic()
        try:
            async with asyncio.timeout(job.timeout_ms / 1000 + GRACE_SECONDS):
                writer.write(self._request(job))
                await writer.drain()
                status, out, err = await self._answer(reader)
        except TimeoutError:
            return Ended(None, b"", b"", _ms_since(began), timed_out=True)
        except (OSError, ValueError, asyncio.IncompleteReadError):
            reason = f"{self._helper.unit} ended without an answer: journalctl -u '{self._helper.unit}@*'"
            raise SandboxError(reason) from None
        if status == TIMED_OUT:
            return Ended(None, out, err, _ms_since(began), timed_out=True)
        return Ended(status, out, err, _ms_since(began))

    async def destroy(self) -> None:
        """Close the connection; a helper that runs ends its command by its own clock."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._writer.wait_closed()

    def _request(self, job: Job) -> bytes:
        beneath = job.argv[0] if job.argv and isinstance(job.argv[0], bytes) else b""
        line = f"{GREETING} 1 {self._helper.digest} {len(job.stdin)} -{beneath.hex()}\n"
        return line.encode() + job.stdin

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
        fields = (await reader.readline()).split()
        if len(fields) != 4 or fields[0] != ANSWER.encode():  # noqa: PLR2004 - the answer's fields
            raise ValueError("no answer")
        status, out_bytes, err_bytes = (int(field) for field in fields[1:])
        if not (0 <= out_bytes <= MAX_ANSWER_BYTES and 0 <= err_bytes <= MAX_ANSWER_BYTES):
            raise ValueError("no answer")
        return status, await reader.readexactly(out_bytes), await reader.readexactly(err_bytes)


def _ms_since(began: float) -> float:
    return round((monotonic() - began) * 1000, 3)
