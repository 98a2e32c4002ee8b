"""The container engine's API, through the `docker` package, with a clock on every call.

A stopped engine keeps a call hanging for as long as it is let: each call runs in a thread of its own,
which is left behind when its time is up and can hold nobody's exit. The package's client is passed in
(`docker.py` is its one home). This module must never pull an image and never log into a registry.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from hermesd.control.sandbox.base import SandboxError

T = TypeVar("T")

CALL_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 3.0
_NOT_THERE: Final = (404, 409)
"""Not found, or being removed."""

LABEL: Final = "hermesd.instance"
_WATCH: Final = b"GET /events?filters=%7B%22event%22%3A%5B%22none%22%5D%7D HTTP/1.1\r\nHost: engine\r\n\r\n"
"""Asks for a stream of events of a kind that never happens: the stream's end is the engine's."""


class EngineError(SandboxError):
    """The engine refused, failed, or did not answer. ``missing``: what was asked for is not there."""

    def __init__(self, text: str, *, missing: bool = False) -> None:
        super().__init__(text)
        self.missing = missing


async def in_time(work: Callable[[], T], seconds: float, what: str) -> T:
    """Return what ``work`` returns, run in a thread that nothing waits for. Raise EngineError."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]  # no error means that it is the result
        else:
            done.set_exception(error)

    def call() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - it is raised again on the loop
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=call, name=f"engine-{what}", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            return await done
    except TimeoutError:
        raise EngineError(f"the container engine did not answer within {seconds:g} s ({what})") from None
    except SandboxError:
        raise
    except Exception as error:  # noqa: BLE001 - the package raises whatever its transport does
        raise _explained(error, what) from None


def _explained(error: Exception, what: str) -> EngineError:
    """Return an error of the package in words; its text may hold the engine's, which is bounded here."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    text = str(getattr(error, "explanation", "") or error).strip()
    words = text.splitlines()[0][:300] if text else type(error).__name__
    return EngineError(f"the container engine refused ({what}): {words}", missing=status in _NOT_THERE)


class Engine:
    """One engine that answered, by its socket's path."""

    def __init__(self, path: str, client: Any) -> None:
        self.path = path
        self._client = client

    @classmethod
    async def connect(cls, path: str, client: Callable[[str], Any]) -> Engine:
        """Return the engine behind a socket; ``client`` makes one that has agreed on a version with it."""
        return cls(path, await in_time(lambda: _client_at(path, client), CONNECT_SECONDS, "connect"))

    async def image(self, tag: str) -> str:
        """Return an image's id. Raise EngineError, ``missing`` when it is not there."""
        found = await in_time(lambda: self._client.inspect_image(tag), CALL_SECONDS, "inspect image")
        return str(found["Id"])

    async def import_image(self, data: bytes, tag: str) -> str:
        """Make an image of a tar and return its id. Nothing is pulled."""
        repository, _, version = tag.partition(":")
        await in_time(
            lambda: self._client.import_image_from_data(data, repository=repository, tag=version),
            CALL_SECONDS,
            "import image",
        )
        return await self.image(tag)

    async def create(self, settings: dict[str, Any]) -> str:
        """Create a container from the API's own words; return its id."""
        made = await in_time(
            lambda: self._client.create_container_from_config(settings), CALL_SECONDS, "create container"
        )
        return str(made["Id"])

    async def attach(self, container: str) -> socket.socket:
        """Return the stream of a container that is not started yet: its input, output and errors."""
        return await in_time(lambda: _attached(self._client, container), CALL_SECONDS, "attach")

    async def start(self, container: str) -> int:
        """Start a container; return the host's id of its first process (0 when it ended already)."""

        def call() -> int:
            self._client.start(container)
            return int(self._client.inspect_container(container)["State"]["Pid"])

        return await in_time(call, CALL_SECONDS, "start container")

    async def remove(self, container: str) -> None:
        """Kill and remove a container; one that is gone, or going, is no error."""
        try:
            await in_time(
                lambda: self._client.remove_container(container, force=True, v=True), CALL_SECONDS, "remove"
            )
        except EngineError as error:
            if not error.missing:
                raise

    async def labelled(self, instance: str) -> list[str]:
        """Return the ids of all containers of an instance."""
        wanted = {"label": f"{LABEL}={instance}"}
        found = await in_time(
            lambda: self._client.containers(all=True, filters=wanted), CALL_SECONDS, "list containers"
        )
        return [str(item["Id"]) for item in found]

    async def until_gone(self) -> None:
        """Return when the engine's process has ended. One that hangs is not gone.

        An engine (or what stands before it) that refuses to be watched is never said to be gone.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(self.path)
        except OSError:
            return
        try:
            writer.write(_WATCH)
            if (await reader.readline()).split()[1:2] not in ([], [b"200"]):
                await asyncio.Event().wait()
            while await reader.read(4096):
                pass
        except OSError:
            return
        finally:
            writer.close()

    def close(self) -> None:
        """Let go of the engine's connections."""
        self._client.close()


def _client_at(path: str, client: Callable[[str], Any]) -> Any:
    if not Path(path).exists():
        raise EngineError(f"there is no container engine at {path}", missing=True)
    return client(path)


def _attached(client: Any, container: str) -> socket.socket:
    """Return the raw connection behind an attach.

    The package's own handle is closed: only the copy keeps the connection, so that its end is an end.
    """
    params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
    handle = client.attach_socket(container, params=params)
    raw = socket.socket(fileno=os.dup(handle.fileno()))
    handle._response.close()  # noqa: SLF001 - the package hands out nothing else that closes it for good
    return raw
