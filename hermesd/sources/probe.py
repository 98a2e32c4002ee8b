"""Measures the host from the loop, through workers that may hang without harm.

Names are measured one after the other in one worker. When a worker falls silent past the timeout,
the name it was at is stuck: the worker is killed, the rest goes to a new one, and the stuck name
gets a worker of its own that nobody waits for, until it answers again. There is never more than one
worker to a stuck name, because one that hangs in the kernel outlives its kill.

This module must never wait for a process, only for an answer, and never without a clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hermesd.sources.base import SourceFailed, SourceHalted
from hermesd.sources.zygote import REQUEST_BYTES, Zygote

_CHUNK_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one name: its facts, or an error in words, or stuck."""

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    stuck: bool = False


class _Worker:
    """The agent's end of one worker's channel. The end of the channel is the end of the worker."""

    def __init__(self, number: int, channel: socket.socket) -> None:
        self.number = number
        self.began = time.monotonic()
        self._channel = channel
        self._channel.setblocking(False)
        self._buffer = b""

    async def next_answer(self, seconds: float) -> Answer | None:
        """Return the next answer, None at the worker's end. Raise TimeoutError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            while b"\n" not in self._buffer:
                chunk = await loop.sock_recv(self._channel, _CHUNK_BYTES)
                if not chunk:
                    return None
                self._buffer += chunk
        return self._take()

    def answer_so_far(self) -> Answer | None:
        """Return an answer that has come, without waiting; an error when the worker has ended. Else None."""
        try:
            while b"\n" not in self._buffer and (chunk := self._channel.recv(_CHUNK_BYTES)):
                self._buffer += chunk
        except BlockingIOError:
            return None
        except OSError:
            self._buffer = b""
        return self._take() if b"\n" in self._buffer else Answer("", error="the probe ended")

    def close(self) -> None:
        """Let go of the channel."""
        self._channel.close()

    def _take(self) -> Answer:
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(line)
        return Answer(answer["name"], answer.get("facts", {}), answer.get("error", ""))


class Probe:
    """One asker's view of the zygote: it remembers which of its names are stuck."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._stuck: dict[str, _Worker] = {}

    async def measure(self, names: Sequence[str], timeout: float) -> list[Answer]:  # noqa: ASYNC109 - it is each name's
        """Measure each name within ``timeout`` seconds each; return the answers in the names' order.

        A name that is stuck already costs no time. Raise SourceHalted when the zygote and its
        keeper are gone.
        """
        answers = {name: self._look_again(name, timeout) for name in names if name in self._stuck}
        waiting = [name for name in names if name not in answers]
        while waiting:
            waiting = await self._ask_one_worker(waiting, timeout, answers)
        return [answers[name] for name in names]

    def close(self) -> None:
        """End the workers of stuck names."""
        for worker in self._stuck.values():
            self._kill(worker)
            worker.close()
        self._stuck.clear()

    async def _ask_one_worker(
        self, names: list[str], seconds: float, answers: dict[str, Answer]
    ) -> list[str]:
        """Have one worker measure; return the names that are left when it hung or ended early."""
        worker = self._start(names, seconds)
        left = list(names)
        try:
            while left:
                answer = await worker.next_answer(seconds)
                name = left.pop(0)
                answers[name] = answer or Answer(name, error="the probe ended without an answer")
                if answer is None:
                    break
        except TimeoutError:
            name = left.pop(0)
            answers[name] = Answer(name, stuck=True)
            self._stuck[name] = worker
            self._kill(worker)
        except asyncio.CancelledError:
            self._kill(worker)
            raise
        finally:
            if worker not in self._stuck.values():
                worker.close()
        return left

    def _look_again(self, name: str, seconds: float) -> Answer:
        """See what became of a stuck name's worker, and keep exactly one at it."""
        worker = self._stuck[name]
        answer = worker.answer_so_far()
        if answer is None:
            if time.monotonic() - worker.began > seconds:
                self._kill(worker)
            return Answer(name, stuck=True)
        worker.close()
        if answer.name == name:
            del self._stuck[name]
            return answer
        self._stuck[name] = self._start([name], seconds)
        return Answer(name, stuck=True)

    def _start(self, names: list[str], seconds: float) -> _Worker:
        ours, theirs = socket.socketpair()
        number = next(self._zygote.numbers)
        worker = _Worker(number, ours)
        try:
            self._send({"number": number, "names": names, "seconds": seconds}, [theirs.fileno()])
        except SourceFailed:
            worker.close()
            raise
        finally:
            theirs.close()
        return worker

    def _kill(self, worker: _Worker) -> None:
        with contextlib.suppress(SourceFailed):  # a zygote that is gone has taken its workers along
            self._send({"number": worker.number}, [])

    def _send(self, request: dict[str, Any], descriptors: list[int]) -> None:
        text = json.dumps(request).encode()
        if len(text) > REQUEST_BYTES:
            raise SourceFailed("too many file systems and folders to measure at once")
        try:
            socket.send_fds(self._zygote.control, [text], descriptors)
        except BlockingIOError:
            raise SourceFailed("the measuring process takes no more requests for now") from None
        except OSError as error:  # the keeper went too: nobody is left who could fork another
            words = f"the measuring process and its keeper are gone ({error}); hermesd needs a restart"
            raise SourceHalted(words) from None
