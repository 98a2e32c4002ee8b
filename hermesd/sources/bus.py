"""The system bus: what systemd says of its units and of the clock, asked from the agent's own process.

Each question has a clock; whatever goes wrong is one exception with words. This module must never call a
method that changes anything: it lists units and reads properties.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, DBusError, InvalidAddressError

from hermesd.sources.base import SourceFailed

ADDRESS: Final = "unix:path=/run/dbus/system_bus_socket"
ANSWER_S: Final = 5.0

_SYSTEMD: Final = "org.freedesktop.systemd1"
_TIMEDATE: Final = "org.freedesktop.timedate1"
_MANAGER: Final = "/org/freedesktop/systemd1"


class BusFailed(SourceFailed):
    """The bus, or systemd behind it, gave no answer. ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as systemd lists it. ``path`` is its object on the bus."""

    name: str
    description: str
    load: str
    active: str
    sub: str
    path: str


class SystemBus:
    """A connection to the bus, open between `async with`. Raises BusFailed from everything.

    ``answer_s`` bounds each answer, the connection's among them.
    """

    def __init__(self, address: str = "", answer_s: float = ANSWER_S) -> None:
        self._address = address or os.environ.get("DBUS_SYSTEM_BUS_ADDRESS", ADDRESS)
        self._answer_s = answer_s
        self._bus: MessageBus | None = None

    async def __aenter__(self) -> Self:
        """Connect."""
        try:
            self._bus = MessageBus(bus_address=self._address)
            async with asyncio.timeout(self._answer_s):
                await self._bus.connect()
        except (OSError, EOFError, AuthError, InvalidAddressError) as error:
            self._let_go()
            raise BusFailed(f"the system bus cannot be reached: {self._words(error)}") from None
        except asyncio.CancelledError:
            self._let_go()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the connection."""
        self._let_go()

    def _let_go(self) -> None:
        if self._bus is not None:
            self._bus.disconnect()
            self._bus = None

    async def units(self, states: Sequence[str] = (), patterns: Sequence[str] = ()) -> list[Unit]:
        """Return the loaded units in one of the states that match one of the patterns; none given: all."""
        body = [list(states), list(patterns)]
        return _units(await self._ask(_MANAGER, f"{_SYSTEMD}.Manager", "ListUnitsByPatterns", "asas", body))

    async def unit(self, name: str) -> Unit:
        """Return one unit, loaded or not: ``load`` says whether there is a file of it."""
        body = [[name]]
        (found,) = _units(await self._ask(_MANAGER, f"{_SYSTEMD}.Manager", "ListUnitsByNames", "as", body))
        return found

    async def restarts(self, unit: Unit) -> int:
        """Return how often systemd started a service again by itself since a person did."""
        body = [f"{_SYSTEMD}.Service", "NRestarts"]
        found = await self._ask(unit.path, "org.freedesktop.DBus.Properties", "Get", "ss", body)
        return int(found.value)

    async def clock_is_kept(self) -> bool:
        """Return whether something keeps the clock, as the kernel told systemd."""
        body = [_TIMEDATE, "NTPSynchronized"]
        path, properties = "/org/freedesktop/timedate1", "org.freedesktop.DBus.Properties"
        found = await self._ask(path, properties, "Get", "ss", body, destination=_TIMEDATE)
        return bool(found.value)

    async def _ask(
        self,
        path: str,
        interface: str,
        member: str,
        signature: str,
        body: list[Any],
        destination: str = _SYSTEMD,
    ) -> Any:
        if self._bus is None:
            raise BusFailed("the system bus is not connected")
        question = Message(
            destination=destination,
            path=path,
            interface=interface,
            member=member,
            signature=signature,
            body=body,
        )
        try:
            async with asyncio.timeout(self._answer_s):
                answer = await self._bus.call(question)
        except (OSError, EOFError, DBusError) as error:  # TimeoutError is an OSError
            raise BusFailed(f"systemd did not answer {member}: {self._words(error)}") from None
        if answer is None or answer.message_type is MessageType.ERROR:
            words = answer.body[0] if answer is not None and answer.body else "no answer"
            raise BusFailed(f"systemd refused {member}: {words}")
        return answer.body[0]

    def _words(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"nothing came within {self._answer_s:g} s"
        return str(error) or type(error).__name__


def _units(rows: Sequence[Sequence[Any]]) -> list[Unit]:
    return [Unit(row[0], row[1], row[2], row[3], row[4], row[6]) for row in rows]
