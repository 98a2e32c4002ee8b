"""An engine's attached stream: standard output and error in one connection, told apart by headers.

Each piece has eight bytes before it: the stream's number, three zeros, the length. What a container
writes cannot forge them, since the engine writes them; they are checked all the same, and what they
announce is bounded. This module must never buffer more than one piece and what it was asked for.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final, Self

from hermesd.control.sandbox.base import SandboxError

_HEADER_BYTES: Final = 8
_STDOUT: Final = 1
_STDERR: Final = 2
_MAX_PIECE: Final = 1 << 20
_COMPLAINT_BYTES: Final = 4096


class Multiplexed:
    """The link to a stub behind an engine: reads its standard output, keeps the beginning of its errors."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._complaint = b""

    @classmethod
    async def over(cls, connection: socket.socket) -> Self:
        """Take a connection over."""
        connection.setblocking(False)
        return cls(*await asyncio.open_connection(sock=connection, limit=_MAX_PIECE))

    async def read_exactly(self, count: int) -> bytes:
        """Return exactly ``count`` bytes of standard output."""
        while len(self._buffer) < count:
            stream, length = read_header(await self._reader.readexactly(_HEADER_BYTES))
            piece = await self._reader.readexactly(length)
            if stream == _STDOUT:
                self._buffer += piece
            else:
                self._complaint = (self._complaint + piece)[:_COMPLAINT_BYTES]
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def write(self, data: bytes) -> None:
        """Send to standard input."""
        self._writer.write(data)
        await self._writer.drain()

    def complaint(self) -> str:
        """Return the beginning of what came on standard error."""
        return self._complaint.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """End the connection, whatever is unsent: standard input ends, and with it the stub."""
        self._writer.transport.abort()


def read_header(header: bytes) -> tuple[int, int]:
    """Return a piece's stream and length. Raise SandboxError for what no engine writes."""
    stream, length = header[0], int.from_bytes(header[4:], "big")
    if stream not in (_STDOUT, _STDERR) or header[1:4] != bytes(3) or length > _MAX_PIECE:
        raise SandboxError("the engine's stream is not what an attached stream is")
    return stream, length
