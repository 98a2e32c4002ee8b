"""The person of the demo: a real hermesctl on a pseudo-terminal, typed into as a person types.

What is typed comes from what stands on the screen, and from nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from hermesd.launcher import Account

SCREEN_SECONDS: Final = 20.0
_COLUMNS: Final = 100
_ROWS: Final = 40
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WORD: Final = re.compile(r"^\S+ +([a-z]{4,10})\s*$", re.MULTILINE)
PROMPT: Final = re.compile(r"[:：]\s*$")
TOKEN: Final = re.compile(r"\b([A-HJ-NP-Z2-9]{4}-[A-HJ-NP-Z2-9]{4})\b")


class OperatorError(Exception):
    """The conversation did not go as a person would expect. ``str()`` says what stood on the screen."""


class Terminal:
    """A program on a pseudo-terminal: what it shows, and what is typed."""

    def __init__(self, fd: int, process: asyncio.subprocess.Process) -> None:
        self._fd = fd
        self.process = process
        self.raw = ""

    @property
    def screen(self) -> str:
        """What stands there, as plain text."""
        return _ESCAPES.sub("", self.raw)

    async def until(self, pattern: re.Pattern[str], after: int = 0) -> re.Match[str]:
        """Wait until ``pattern`` stands on the screen beyond ``after``. Raise OperatorError."""
        try:
            async with asyncio.timeout(SCREEN_SECONDS):
                while not (found := pattern.search(self.screen, after)):
                    if not await self._read():
                        raise OperatorError(f"the program ended without {pattern.pattern!r}:\n{self.screen}")
        except TimeoutError:
            raise OperatorError(f"{pattern.pattern!r} never appeared:\n{self.screen}") from None
        return found

    async def type(self, text: str) -> None:
        """Type a line, at the pace of a quick person."""
        await asyncio.sleep(0.3)
        os.write(self._fd, text.encode() + b"\n")

    async def rest(self) -> int:
        """Read on until the program ends. Return its exit status."""
        async with asyncio.timeout(SCREEN_SECONDS * 4):
            while await self._read():
                pass
            return await self.process.wait()

    async def _read(self) -> bool:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        try:
            data = os.read(self._fd, 4096)
        except OSError:  # EIO: the program closed its end
            return False
        self.raw += data.decode("utf-8", "replace").replace("\r", "")
        return bool(data)


@asynccontextmanager
async def terminal(
    argv: Sequence[str], environ: Mapping[str, str], account: Account | None
) -> AsyncIterator[Terminal]:
    """Run a program on a pseudo-terminal, as ``account``."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (_ROWS, _COLUMNS))
    if account is not None:
        os.fchown(theirs, account.uid, account.gid)
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=dict(environ),
        start_new_session=True,
        cwd="/",
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        os.close(ours)
