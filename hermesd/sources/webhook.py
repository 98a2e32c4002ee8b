"""The webhook source, and the one home of aiohttp's server: 202 once durable, and never before.

Only 5xx is sent again by those who post here. So what is wrong with a body is said with 4xx, once
and for all, and what is only wrong with the moment (the inbox is full, the store is slow) is 503.

This module must never wait for a run, and never answer for events that are not committed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from hermesd.events import Event
from hermesd.ipc.peers import bind
from hermesd.protocol import ProtocolError, check_json
from hermesd.sources.alertmanager import read_notification
from hermesd.sources.base import (
    Deliver,
    EventIds,
    InboxFull,
    Now,
    SourceFailed,
    Unreadable,
    utc_now,
)
from hermesd.sources.cloudevents import is_cloudevent, read_cloudevent
from hermesd.sources.fields import as_object
from hermesd.sources.plain import Defaults, read_plain
from hermesd.sources.secrets import read_secret
from hermesd.sources.settings import WebhookSettings
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

Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Posted:
    """What a body came to: the events in it, and what the sender should know besides."""

    events: Sequence[Event]
    notes: Mapping[str, Any]


class WebhookSource:
    """Serves `POST /alertmanager`, `POST /events` and `GET /healthz`. ``port`` is the one it got."""

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
        token = await read_secret(self._settings.token, self._environ) if self._settings.token else ""
        runner = web.AppRunner(
            self._application(deliver, token), access_log=None, shutdown_timeout=STOP_SECONDS
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
                await web.TCPSite(runner, settings.listen, settings.port).start()
            except OSError as error:
                where = f"{settings.listen}:{settings.port}"
                raise SourceFailed(f"cannot listen at {where}: {error.strerror or error}") from None
            self.port = next(address[1] for address in runner.addresses if isinstance(address, tuple))

    def _application(self, deliver: Deliver, token: str) -> web.Application:
        async def post_alerts(request: web.Request) -> web.StreamResponse:
            return await self._take_in(request, self._read_alerts, deliver)

        async def post_events(request: web.Request) -> web.StreamResponse:
            return await self._take_in(request, self._read_events, deliver)

        application = web.Application(
            client_max_size=MAX_BODY_BYTES, middlewares=[_reasons_as_json, _only_with(token)]
        )
        application.router.add_post("/alertmanager", post_alerts)
        application.router.add_post("/events", post_events)
        application.router.add_get("/healthz", _healthz)
        return application

    async def _take_in(
        self, request: web.Request, read: Callable[[Any], Posted], deliver: Deliver
    ) -> web.Response:
        body = await _body(request)
        try:
            posted = read(check_json(body))
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
        return _answer(202, accepted=len(posted.events), **posted.notes)

    def _read_alerts(self, body: Any) -> Posted:
        found = read_notification(body, self.name, self._now())
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


async def _body(request: web.Request) -> bytes:
    if request.content_type not in JSON_TYPES:
        raise web.HTTPUnsupportedMediaType(text="want a body of type application/json")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body did not come in time") from None


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


def _only_with(token: str) -> Any:
    """Return a middleware that lets nobody in without the token, but to `/healthz`."""
    wanted = f"Bearer {token}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Respond) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if token and request.path != "/healthz" and not hmac.compare_digest(given, wanted):
            raise web.HTTPUnauthorized(text="want the bearer token", headers={"WWW-Authenticate": "Bearer"})
        return await handler(request)

    return check


def _later(reason: str, seconds: float) -> web.Response:
    answer = _answer(503, reason=reason)
    answer.headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    return answer


def _answer(status: int, /, **content: Any) -> web.Response:
    return web.json_response(content, status=status)
