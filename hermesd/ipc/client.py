"""The asking end: for hermesctl (blocking, standard library only) and for the agent (asyncio).

It must never retry by itself: only who asked knows whether asking twice is harmless.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

from hermesd.ipc.messages import MAX_LINE_BYTES, read_line, request_line


class Unreachable(Exception):  # noqa: N818 - it is a state of the other side
    """Nobody answers at the socket. ``str()`` names the socket and why; ``code`` is an errno.

    ENOENT and ECONNREFUSED: it is not running. EACCES: the folder is closed to this user. ECONNRESET:
    the connection was closed unanswered, which is how a stranger is turned away. ETIMEDOUT: silence.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code or errno.EPROTO


class BlockingClient:
    """One connection of a person's command line. Use as a context manager."""

    def __init__(self, path: Path, timeout_seconds: float = 10.0) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_seconds)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise Unreachable(f"{path}: {error.strerror or error}", error.errno) from None
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, kind: str, payload: dict[str, Any], task_id: str = "") -> Iterator[dict[str, Any]]:
        """Yield the answers to one request; the last has status `succeeded` or `failed`.

        Raise Unreachable when the other side closes or stays silent past the timeout.
        """
        receiver = self._path.stem
        try:
            self._socket.sendall(
                request_line(kind, payload, sender="hermesctl", receiver=receiver, task_id=task_id)
            )
            while line := self._file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    raise ValueError(f"an answer longer than {MAX_LINE_BYTES} bytes")  # noqa: TRY301
                answer = read_line(line)
                yield answer
                if answer.get("status") in ("succeeded", "failed"):
                    return
        except TimeoutError:
            raise Unreachable(f"{self._path}: no answer in time", errno.ETIMEDOUT) from None
        except OSError as error:
            raise Unreachable(f"{self._path}: {error.strerror or error}", error.errno) from None
        except ValueError as error:
            raise Unreachable(f"{self._path}: {error}") from None
        closed = f"{self._path}: closed the connection (are you permitted to connect?)"
        raise Unreachable(closed, errno.ECONNRESET)


async def ask(path: Path, line: bytes) -> AsyncIterator[bytes]:
    """Send one request line and yield answer lines until the peer closes or the caller stops.

    The caller reads envelopes and knows which is the last. Raise Unreachable.
    """
    import asyncio  # noqa: PLC0415 - 45 ms that hermesctl would pay on every start

    try:
        reader, writer = await asyncio.open_unix_connection(str(path), limit=MAX_LINE_BYTES)
    except OSError as error:
        raise Unreachable(f"{path}: {error.strerror or error}") from None
    try:
        writer.write(line)
        await writer.drain()
        while answer := await reader.readline():
            yield answer
    except (OSError, ValueError) as error:
        raise Unreachable(f"{path}: {error}") from None
    finally:
        writer.close()
