"""Asks the targets of health checks: HTTP, TCP, TLS, DNS, and commands through the gate.

An answer says up or down, and a refused connection says down. A probe that failed (no answer in time, a
name that does not resolve) is unknown: what follows from that is decided elsewhere. This module must
never act on a target beyond asking it, and never raise for anything that a target or the network does.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

import aiohttp

from hermesd.sources.health_found import Condition, Found, RunCommand, no_commands
from hermesd.sources.settings_health import Check

if TYPE_CHECKING:
    from hermesd.sources.bus import Unit

CERTIFICATE_EVERY_S: Final = 300.0
"""A certificate is looked at so often, over a connection of its own."""
BODY_BYTES: Final = 1 << 16
"""So much of an answer is looked through."""

_FINE: Final = range(200, 400)
_DAY_S: Final = 86_400.0
_OUR_OWN_FAULT: Final = frozenset({2, 20, 21})
"""OpenSSL's codes for a chain whose root is not known here: that is as likely our own doing."""


_UNIT_CONDITIONS: Final = {
    "active": Condition.UP,
    "reloading": Condition.UP,
    "activating": Condition.UNKNOWN,
    "deactivating": Condition.UNKNOWN,
}


class Asker:
    """Asks targets over one shared HTTP session, each within its check's timeout."""

    def __init__(self, session: aiohttp.ClientSession, run_command: RunCommand = no_commands) -> None:
        self._session = session
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}
        self._looked: dict[str, float] = {}
        self._ways: dict[str, Callable[[Check], Awaitable[Found]]] = {
            "http": self._ask_http,
            "https": self._ask_http,
            "tcp": _ask_tcp,
            "tls": self._ask_tls,
            "dns": _ask_dns,
            "unit": _ask_unit,
            "command": run_command,
        }

    async def ask(self, check: Check) -> Found:
        """Probe once. Never raises for anything that a target or the network does."""
        try:
            async with asyncio.timeout(check.timeout_s):
                began = time.monotonic()
                found = await self._ways[check.scheme](check)
                return _in_time(check, found, 1000 * (time.monotonic() - began))
        except TimeoutError:
            return Found(Condition.UNKNOWN, f"no answer within {check.timeout_s:g} s")
        except (OSError, aiohttp.ClientError, ValueError) as error:
            return _found_in(error)

    async def _ask_http(self, check: Check) -> Found:
        context = await self._context(check) if check.scheme == "https" else True
        began = time.monotonic()
        async with self._session.get(check.url, allow_redirects=False, ssl=context) as answer:
            text = await _read_body(answer) if check.body else ""
        latency_ms = 1000 * (time.monotonic() - began)
        found = Found(Condition.UP, f"answered {answer.status}", latency_ms)
        if answer.status not in (check.expect or _FINE):
            found = replace(found, condition=Condition.DOWN)
        elif check.body and not re.search(check.body, text):
            found = replace(found, condition=Condition.DOWN, reason=f"{found.reason} without {check.body!r}")
        if isinstance(context, ssl.SSLContext) and self._is_due(check):
            days = await self._days_left(urlsplit(check.url), context)
            found = replace(found, certificate_days=days)
        return found

    async def _ask_tls(self, check: Check) -> Found:
        days = await self._days_left(urlsplit(check.url), await self._context(check))
        return Found(Condition.UP, "accepted a TLS connection", certificate_days=days)

    async def _context(self, check: Check) -> ssl.SSLContext:
        """Return how the target's certificate is checked; what it trusts is read once, off the loop."""
        key = (check.ca_file, check.verify_tls)
        if key not in self._contexts:
            context = await asyncio.to_thread(ssl.create_default_context, cafile=check.ca_file or None)
            if not check.verify_tls:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._contexts[key] = context
        return self._contexts[key]

    def _is_due(self, check: Check) -> bool:
        now, looked = time.monotonic(), self._looked.get(check.name)
        if not check.verify_tls or (looked is not None and now - looked < CERTIFICATE_EVERY_S):
            return False
        self._looked[check.name] = now
        return True

    async def _days_left(self, target: SplitResult, context: ssl.SSLContext) -> float | None:
        """Return for how many days the certificate is valid, None where it is not checked."""
        _reader, writer = await asyncio.open_connection(target.hostname, target.port or 443, ssl=context)
        certificate = writer.get_extra_info("peercert") or {}
        await _close(writer)
        ends = certificate.get("notAfter")
        return None if ends is None else (ssl.cert_time_to_seconds(ends) - time.time()) / _DAY_S


async def _read_body(answer: aiohttp.ClientResponse) -> str:
    body = b""
    while len(body) < BODY_BYTES and (chunk := await answer.content.read(BODY_BYTES - len(body))):
        body += chunk
    return body.decode("utf-8", "replace")


async def _ask_tcp(check: Check) -> Found:
    target = urlsplit(check.url)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.hostname, target.port, type=socket.SOCK_STREAM)
    await reach([address[:2] for *_rest, address in found])
    return Found(Condition.UP, "accepted a connection")


async def _ask_dns(check: Check) -> Found:
    target = urlsplit(check.url)
    name = target.path.strip("/")
    if target.hostname is None:
        return _judge_names(check, name, await _resolve(name, check.record))
    from hermesd.sources.health_dns import ask_server  # noqa: PLC0415 - dnspython only where a server is asked

    return _judge_names(check, name, await ask_server(target.hostname, target.port or 53, name, check.record))


async def _resolve(name: str, record: str) -> list[str] | str:
    """Ask the host's own resolver for addresses; a text says that there is no such name."""
    family = socket.AF_INET6 if record == "AAAA" else socket.AF_INET
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            name, None, family=family, type=socket.SOCK_STREAM
        )
    except socket.gaierror as error:
        if error.errno in {socket.EAI_NONAME, socket.EAI_NODATA}:
            return "there is no such name"
        raise
    return [str(address[0]) for *_rest, address in found]


def _judge_names(check: Check, name: str, found: list[str] | str) -> Found:
    if isinstance(found, str):
        return Found(Condition.DOWN, f"{name}: {found}")
    words = ", ".join(sorted(found))
    if not found or (check.answer and check.answer not in found):
        wanted = check.answer or f"a record {check.record}"
        return Found(Condition.DOWN, f"{name} is {words or 'without an answer'}, not {wanted}")
    return Found(Condition.UP, f"{name} is {words}")


async def _ask_unit(check: Check) -> Found:
    from hermesd.sources.bus import BusFailed, SystemBus  # noqa: PLC0415 - dbus-fast only where a unit is asked

    try:
        async with SystemBus() as bus:
            return judge_unit(await bus.unit(check.url.removeprefix("unit:")))
    except BusFailed as failed:
        return Found(Condition.UNKNOWN, str(failed))


def judge_unit(unit: Unit) -> Found:
    """Return what a unit's state says: one that is starting is not known to be up, nor to be down."""
    if unit.load == "not-found":
        return Found(Condition.DOWN, "there is no such unit")
    condition = _UNIT_CONDITIONS.get(unit.active, Condition.DOWN)
    return Found(condition, f"is {unit.active} ({unit.sub})")


async def reach(addresses: Sequence[tuple[Any, ...]]) -> None:
    """Connect to the first address that accepts. Raise what the others did: a refusal if all refused."""
    faults: list[OSError] = []
    for host, port in addresses:
        try:
            _reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            faults.append(error)
            continue
        await _close(writer)
        return
    raise next((one for one in faults if not isinstance(one, ConnectionRefusedError)), faults[0])


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):  # how it ends changes nothing: it was accepted
        await writer.wait_closed()


def _in_time(check: Check, found: Found, took_ms: float) -> Found:
    """Give a found answer its latency, and call it down when it came too late."""
    latency_ms = took_ms if found.latency_ms is None else found.latency_ms
    found = replace(found, latency_ms=latency_ms)
    if check.within_ms and found.condition is Condition.UP and latency_ms > check.within_ms:
        late = f"{found.reason} after {latency_ms:.0f} ms, more than {check.within_ms:g} ms"
        return replace(found, condition=Condition.DOWN, reason=late)
    return found


def _found_in(error: Exception) -> Found:
    """Read a failed attempt: a refusal, and a certificate that is wrong, are the target's own answer."""
    certificate = _certificate_fault(error)
    if certificate is not None:
        ours = certificate.verify_code in _OUR_OWN_FAULT
        condition = Condition.UNKNOWN if ours else Condition.DOWN
        return Found(condition, f"its certificate is refused: {certificate.verify_message}")
    number = getattr(error, "errno", None)
    if number == errno.ECONNREFUSED or isinstance(error, ConnectionRefusedError):
        return Found(Condition.DOWN, "refused the connection")
    return Found(Condition.UNKNOWN, str(error) or type(error).__name__)


def _certificate_fault(error: Exception) -> ssl.SSLCertVerificationError | None:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    return error if isinstance(error, ssl.SSLCertVerificationError) else None
