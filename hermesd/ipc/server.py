"""A Unix socket that serves envelopes to peers whom the kernel names.

The peer's credentials are checked when it connects: a stranger is closed before one byte of his is
read. Lines, connections, idle time and unread answers are all bounded, so that no peer, however
slow or talkative, takes more than its share.

This module must never know what a message means; it must never let a request's fault reach another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

from hermesd.ipc.messages import MAX_LINE_BYTES, Code, Kind
from hermesd.ipc.peers import Peer, bind, peer_of
from hermesd.protocol import Envelope, ProtocolError, Status, decode_envelope, encode

__all__ = ["Answer", "Bounds", "Peer", "Reply", "RequestError", "SocketServer", "bind", "peer_of"]

log = logging.getLogger("hermesd.ipc")

TELL_SECONDS: Final = 5.0
"""At most one line in the log per this time for peers that were turned away; the count goes on."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one socket gives its peers at most. Past ``idle`` or ``write`` seconds a peer is closed."""

    connections: int = 64
    idle_seconds: float = 300.0
    write_seconds: float = 10.0


class RequestError(Exception):
    """A request that is answered with `failed`: a code for programs, a reason for people."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Reply:
    """The way back to one request: any number of `running` answers, then the server's final one."""

    def __init__(
        self, request: Envelope, sender: str, connection: _Connection, anchor: Callable[[], str]
    ) -> None:
        self._request = request
        self._sender = sender
        self._connection = connection
        self._anchor = anchor

    async def send(self, kind: str, payload: dict[str, Any], status: Status = Status.RUNNING) -> None:
        """Send one answer. A peer that has gone away is not an error: the work goes on without it."""
        await self._connection.write(self.line(kind, payload, status))

    @property
    def gone(self) -> bool:
        """Whether the peer has closed its side: who only tells it something may stop."""
        return self._connection.ended

    def line(self, kind: str, payload: dict[str, Any], status: Status) -> bytes:
        """Return one answer as a line. Raise ValueError when it is longer than a peer would read."""
        answer = Envelope(
            task_id=self._request.task_id,
            sender=self._sender,
            receiver=self._request.sender,
            kind=kind,
            payload=payload,
            status=status,
            anchor=self._anchor(),
        )
        line = encode(answer)
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"an answer of {len(line)} bytes is longer than {MAX_LINE_BYTES}")
        return line


Answer = Callable[[Peer, Envelope, Reply], Awaitable[dict[str, Any]]]
"""Serves one request: returns the payload of the `succeeded` answer, or raises RequestError."""


class SocketServer:
    """One listening socket. Use as an async context manager; leaving it ends every connection."""

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        allow: Callable[[Peer], bool],
        answer: Answer,
        anchor: Callable[[], str] = lambda: "",
        mode: int = 0o660,
        group: int = -1,
        bounds: Bounds = Bounds(),
    ) -> None:
        self._path = path
        self._name = name
        self._allow = allow
        self._answer = answer
        self._anchor = anchor
        self._mode = mode
        self._group = group
        self.bounds = bounds
        self._connections: dict[_Connection, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None
        self._told_at = -TELL_SECONDS
        self.turned_away = 0

    async def __aenter__(self) -> Self:
        listener = bind(self._path, self._mode, self._group)
        self._server = await asyncio.get_running_loop().create_unix_server(self._make, sock=listener)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._connections.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _make(self) -> asyncio.Protocol:
        return _Connection(self)

    def admits(self, peer: Peer) -> bool:
        """Say whether the peer may talk here, and count and log it when not."""
        if not self._allow(peer):
            reason = f"uid {peer.uid} (pid {peer.pid}) may not connect here"
        elif len(self._connections) < self.bounds.connections:
            return True
        else:
            reason = f"{len(self._connections)} connections are open, one more was closed"
        self.turned_away += 1
        self._tell(reason)
        return False

    def _tell(self, reason: str) -> None:
        """Log that a peer was turned away, but let nobody fill the log by knocking."""
        now = monotonic()
        if now - self._told_at >= TELL_SECONDS:
            log.warning("%s: %s (turned away so far: %d)", self._path, reason, self.turned_away)
            self._told_at = now

    def begin(self, connection: _Connection) -> None:
        """Start serving a connection that was admitted."""
        task = asyncio.get_running_loop().create_task(
            self._serve(connection), name=f"{self._name}-connection"
        )
        self._connections[connection] = task
        task.add_done_callback(lambda _done: self._connections.pop(connection, None))

    async def _serve(self, connection: _Connection) -> None:
        try:
            while (line := await connection.next_line()) is not None:
                await self._serve_line(connection, line)
        except TimeoutError:
            log.info("%s: closed a connection that was silent", self._name)
        finally:
            connection.close()

    async def _serve_line(self, connection: _Connection, line: bytes) -> None:
        try:
            request = decode_envelope(line)
        except ProtocolError as error:
            log.warning("%s: refused a message from uid %d: %s", self._name, connection.peer.uid, error)
            await connection.write(encode(_failure(self._name, None, Code.BAD_REQUEST, str(error))))
        else:
            await connection.write(await self._final_answer(connection, request))

    async def _final_answer(self, connection: _Connection, request: Envelope) -> bytes:
        reply = Reply(request, self._name, connection, self._anchor)
        try:
            payload = await self._answer(connection.peer, request, reply)
            return reply.line(request.kind, payload, Status.SUCCEEDED)
        except RequestError as error:
            failure = _failure(self._name, request, error.code, error.reason)
        except ProtocolError as error:
            failure = _failure(self._name, request, Code.BAD_REQUEST, str(error))
        except Exception:
            log.exception("%s: answering %s failed", self._name, request.kind)
            text = "a fault inside hermesd; its log says more"
            failure = _failure(self._name, request, Code.INTERNAL, text)
        return encode(failure)


class _Connection(asyncio.Protocol):
    """One peer. Reads nothing before it is admitted, and holds one unserved line at most."""

    def __init__(self, server: SocketServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._ended = False
        self._cut: asyncio.TimerHandle | None = None
        self.peer = Peer(-1, -1, -1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows asyncio's own type
        self.peer = peer_of(transport.get_extra_info("socket"))
        if not self._server.admits(self.peer):
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_LINE_BYTES)
        self._server.begin(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > MAX_LINE_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._arrived.set()

    def eof_received(self) -> bool:
        self._ended = True
        self._arrived.set()
        return True

    def connection_lost(self, _exc: Exception | None) -> None:
        self._ended = True
        self._arrived.set()
        self._drained.set()
        if self._cut is not None:
            self._cut.cancel()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    @property
    def ended(self) -> bool:
        """Whether the peer has closed its side or the connection is lost."""
        return self._ended

    async def next_line(self) -> bytes | None:
        """Return the next line, None at the end. Raise TimeoutError when the peer stays silent."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                await self.write(
                    encode(
                        _failure(
                            "hermesd", None, Code.BAD_REQUEST, f"message longer than {MAX_LINE_BYTES} bytes"
                        )
                    )
                )
                return None
            if self._ended:
                return None
            self._arrived.clear()
            async with asyncio.timeout(self._server.bounds.idle_seconds):
                await self._arrived.wait()
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        return line

    async def write(self, line: bytes) -> None:
        """Send a line. A peer that does not read is cut off: whoever answers is not held up by it."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(line)
        try:
            async with asyncio.timeout(self._server.bounds.write_seconds):
                await self._drained.wait()
        except TimeoutError:
            log.info(
                "uid %d (pid %d) does not read its answers and was cut off", self.peer.uid, self.peer.pid
            )
            self._transport.abort()

    def close(self) -> None:
        """Close once what was written is read, and at the latest when a write may take no longer."""
        if self._transport is not None:
            self._transport.close()
            loop = asyncio.get_running_loop()
            self._cut = loop.call_later(self._server.bounds.write_seconds, self._transport.abort)


def _failure(sender: str, request: Envelope | None, code: Code, reason: str) -> Envelope:
    return Envelope(
        task_id=request.task_id if request else "none",
        sender=sender,
        receiver=request.sender if request else "unknown",
        kind=request.kind if request else Kind.ERROR,
        payload={"code": code.value, "reason": reason},
        status=Status.FAILED,
    )
