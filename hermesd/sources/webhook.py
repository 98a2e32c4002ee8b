"""The webhook source, and the one home of aiohttp's server: 202 once durable, and never before.

Only 5xx is sent again by those who post here. So what is wrong with a body is said with 4xx, once
and for all, and what is only wrong with the moment (the inbox is full, the store is slow) is 503.

This module must never wait for a run, and never answer for events that are not committed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from hermesd.events import Event
from hermesd.ipc.peers import bind
from hermesd.protocol import ProtocolError, check_json
from hermesd.sources.alertmanager import Notification, read_notification
from hermesd.sources.base import (
    Deliver,
    EventIds,
    InboxFull,
    Now,
    SourceFailed,
    Unreadable,
    utc_now,
)
from hermesd.sources.cloudevents import from_binary, is_cloudevent, read_cloudevent
from hermesd.sources.fields import as_object
from hermesd.sources.grafana import read_grafana
from hermesd.sources.mapping import read_mapped
from hermesd.sources.plain import Defaults, read_plain
from hermesd.sources.proofs import Door, Seal, make_seal, open_door
from hermesd.sources.settings_webhook import Hook, Tls, WebhookSettings
from hermesd.telemetry import Metrics

log = logging.getLogger("hermesd.sources.webhook")

MAX_BODY_BYTES: Final = 1 << 20
MAX_EVENTS: Final = 1000
BODY_SECONDS: Final = 10.0
COMMIT_SECONDS: Final = 10.0
STOP_SECONDS: Final = 3.0
SOCKET_MODE: Final = 0o660
JSON_TYPES: Final = frozenset(
    {"application/json", "application/cloudevents+json", "application/cloudevents-batch+json"}
)

COMPRESSED: Final = frozenset({"gzip", "deflate"})
_EITHER_FORMAT: Final = 32 + zlib.MAX_WBITS

BINARY_PREFIX: Final = "ce-"
"""What the headers of a CloudEvent in binary mode begin with."""

Read = Callable[[Any], "Posted"]
Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Posted:
    """What a body came to: the events in it, and what the sender should know besides."""

    events: Sequence[Event]
    notes: Mapping[str, Any]


class WebhookSource:
    """Serves `POST` to `/alertmanager`, `/grafana`, `/events` and its hooks, and `GET /healthz`.

    ``port`` is the one it got.
    """

    kind = "webhook"

    def __init__(
        self,
        settings: WebhookSettings,
        metrics: Metrics,
        *,
        environ: Mapping[str, str],
        now: Now = utc_now,
    ) -> None:
        self.name = settings.name
        self.port = 0
        self.listening = asyncio.Event()
        self._settings = settings
        self._metrics = metrics
        self._environ = environ
        self._now = now
        self._ids = EventIds(settings.name)

    async def run(self, deliver: Deliver) -> None:
        """Serve until cancelled. Raise SourceFailed when an address cannot be taken."""
        door = await open_door(self._settings, self._environ)
        seal = await make_seal(self._settings, self._environ)
        runner = web.AppRunner(
            self._application(deliver, door, seal),
            access_log=None,
            shutdown_timeout=STOP_SECONDS,
            auto_decompress=False,  # a signature is over what was sent, and `inflate` is bounded
        )
        await runner.setup()
        try:
            await self._listen(runner)
            self.listening.set()
            await asyncio.Event().wait()
        finally:
            self.listening.clear()
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> None:
        settings = self._settings
        if settings.socket:
            path = Path(settings.socket)
            try:
                await web.SockSite(runner, bind(path, SOCKET_MODE, -1)).start()
            except OSError as error:
                raise SourceFailed(f"cannot listen at {path}: {error}") from None
        if settings.listen:
            try:
                tls = await asyncio.to_thread(_tls, settings.tls) if settings.tls else None
                await web.TCPSite(runner, settings.listen, settings.port, ssl_context=tls).start()
            except OSError as error:
                where = f"{settings.listen}:{settings.port}"
                raise SourceFailed(f"cannot listen at {where}: {error.strerror or error}") from None
            self.port = next(address[1] for address in runner.addresses if isinstance(address, tuple))

    def _application(self, deliver: Deliver, door: Door, seal: Seal | None) -> web.Application:
        def taking(read: Read) -> Respond:
            async def post(request: web.Request) -> web.StreamResponse:
                return await self._take_in(request, read, deliver, seal)

            return post

        application = web.Application(
            client_max_size=MAX_BODY_BYTES, middlewares=[_reasons_as_json, _only_through(door)]
        )
        application.router.add_post("/alertmanager", taking(self._read_alerts))
        application.router.add_post("/grafana", taking(self._read_grafana))
        application.router.add_post("/events", taking(self._read_events))
        for hook in self._settings.hook:
            application.router.add_post(hook.path, taking(self._reader_of(hook)))
        application.router.add_get("/healthz", _healthz)
        return application

    async def _take_in(
        self, request: web.Request, read: Read, deliver: Deliver, seal: Seal | None
    ) -> web.Response:
        sent, attributes = await _body(request), _attributes(request)
        if seal is not None and (reason := seal.refusal(request.headers, sent, self._now())):
            return _answer(401, reason=reason)
        if seal is not None and seal.was_seen(request.headers):
            return _answer(202, accepted=0, repeated=True)
        try:
            body = inflate(sent) if _encoding(request) in COMPRESSED else sent
            data = from_binary(attributes, request.content_type, body) if attributes else check_json(body)
            posted = read(data)
        except (Unreadable, ProtocolError) as error:
            self._metrics.unreadable.labels(self.name).inc()
            log.warning("%s: refused a body on %s: %s", self.name, request.path, error)
            return _answer(400, reason=str(error))
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                if posted.events:
                    await deliver(posted.events)
        except InboxFull as full:
            return _later(str(full), full.retry_after_seconds)
        except TimeoutError:
            return _later("the events could not be stored in time", 1.0)
        if seal is not None:
            seal.let_through(request.headers, self._now())
        return _answer(202, accepted=len(posted.events), **posted.notes)

    def _read_alerts(self, body: Any) -> Posted:
        return self._posted(read_notification(body, self.name, self._now()))

    def _read_grafana(self, body: Any) -> Posted:
        return self._posted(read_grafana(body, self.name, self._now(), self._ids.next()))

    def _posted(self, found: Notification) -> Posted:
        notes: dict[str, Any] = {}
        if found.truncated:
            notes["truncated"] = found.truncated
            log.warning("%s: %d alerts were cut off by the sender's limit", self.name, found.truncated)
        if found.refused:
            notes["refused"] = found.refused
            self._metrics.unreadable.labels(self.name).inc(len(found.refused))
            log.warning("%s: %s", self.name, "; ".join(found.refused[:8]))
        return Posted(found.events, notes)

    def _read_events(self, body: Any) -> Posted:
        """Read one event or a list of them; a list is taken as a whole or refused as a whole."""
        many = body if isinstance(body, list) else [body]
        if len(many) > MAX_EVENTS:
            raise Unreadable(f"more than {MAX_EVENTS} events in one body")
        return Posted([self._read_event(as_object(one)) for one in many], {})

    def _read_event(self, data: Mapping[str, Any]) -> Event:
        defaults = Defaults(
            source=self.name, type="webhook.event", id=self._ids.next(), now=self._now(), labels={}
        )
        return read_cloudevent(data, defaults) if is_cloudevent(data) else read_plain(data, defaults)

    def _reader_of(self, hook: Hook) -> Read:
        def read(body: Any) -> Posted:
            defaults = Defaults(
                source=self.name,
                type=hook.type,
                fixed_type=not hook.map.type,
                id=self._ids.next(),
                now=self._now(),
                labels=hook.labels,
                severity=hook.severity,
            )
            return Posted(read_mapped(hook.map, body, defaults), {})

        return read


async def _body(request: web.Request) -> bytes:
    if _encoding(request) not in {"", "identity", *COMPRESSED}:
        raise web.HTTPUnsupportedMediaType(text="want a body as it is, or compressed by gzip or deflate")
    if request.content_type not in JSON_TYPES and not _attributes(request):
        raise web.HTTPUnsupportedMediaType(text="want a body of type application/json")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body did not come in time") from None


def _encoding(request: web.Request) -> str:
    return request.headers.get("Content-Encoding", "").strip().lower()


def inflate(packed: bytes) -> bytes:
    """Return what was compressed. Stops at MAX_BODY_BYTES, whatever is in it. Raise Unreadable."""
    unpacking = zlib.decompressobj(_EITHER_FORMAT)
    try:
        body = unpacking.decompress(packed, MAX_BODY_BYTES + 1)
    except zlib.error:
        raise Unreadable("the body cannot be decompressed") from None
    if len(body) > MAX_BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(MAX_BODY_BYTES, len(body))
    if not unpacking.eof or unpacking.unused_data:
        raise Unreadable("the body cannot be decompressed")
    return body


def _attributes(request: web.Request) -> dict[str, str]:
    """Return the attributes of a CloudEvent in binary mode; without `ce-specversion` it is none."""
    if f"{BINARY_PREFIX}specversion" not in request.headers:
        return {}
    found = ((name.lower(), value) for name, value in request.headers.items())
    return {
        name.removeprefix(BINARY_PREFIX): value for name, value in found if name.startswith(BINARY_PREFIX)
    }


def _tls(settings: Tls) -> ssl.SSLContext:
    """Return the server's context; with a CA of clients it asks for their certificate. Raise SourceFailed."""
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings.client_ca_file or None)
        context.load_cert_chain(settings.cert_file, settings.key_file)
    except OSError as error:  # ssl.SSLError is one
        raise SourceFailed(f"cert_file, key_file or client_ca_file cannot be used: {error}") from None
    if settings.client_ca_file:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def _healthz(_request: web.Request) -> web.Response:
    return _answer(200, status="ok")


@web.middleware
async def _reasons_as_json(request: web.Request, handler: Respond) -> web.StreamResponse:
    """Give every refusal the same shape: a JSON object with its reason."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return _answer(413, reason=f"the body is longer than {MAX_BODY_BYTES} bytes")
    except web.HTTPException as refusal:
        answer = _answer(refusal.status, reason=refusal.text or refusal.reason)
        for name in ("Allow", "WWW-Authenticate"):
            if name in refusal.headers:
                answer.headers[name] = refusal.headers[name]
        return answer


def _only_through(door: Door) -> Any:
    """Return a middleware that lets nobody in whom the door does not, but to `/healthz`."""

    @web.middleware
    async def check(request: web.Request, handler: Respond) -> web.StreamResponse:
        if request.path != "/healthz" and not door.lets_in(request.headers):
            wanted = door.challenge.partition(" ")[0]
            raise web.HTTPUnauthorized(
                text=f"want {wanted} authorization", headers={"WWW-Authenticate": door.challenge}
            )
        return await handler(request)

    return check


def _later(reason: str, seconds: float) -> web.Response:
    answer = _answer(503, reason=reason)
    answer.headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    return answer


def _answer(status: int, /, **content: Any) -> web.Response:
    return web.json_response(content, status=status)
