"""A real HTTP server on a private port that does to its client whatever servers do."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from contextlib import asynccontextmanager
from time import monotonic

import pytest
from aiohttp import web
from pydantic import SecretStr

from hermesd.agent.model import HttpModel, ModelPlanner
from hermesd.agent.planner import Briefing, PlannerUnavailable, Situation, Unavailability
from hermesd.agent.settings import ModelSettings
from hermesd.protocol import CatalogueView, Decision

KEY = "sk-the-key-that-nobody-may-see"
CLOCK = 0.6
DECISION = json.dumps({"thought": "done", "finish": {"cause": "caches", "report": "They grew."}})


def completion(content):
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]}


def good(_request):
    return web.json_response(completion(DECISION))


class Server:
    """Answers each request with the next of its behaviours, the last one for ever."""

    def __init__(self, *behaviours):
        self.behaviours = behaviours
        self.requests = []
        self.bodies = []
        self.busy = self.most_busy = 0

    async def handle(self, request):
        self.requests.append(request)
        self.bodies.append(await request.json())
        behaviour = self.behaviours[min(len(self.requests), len(self.behaviours)) - 1]
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            answer = behaviour(request)
            return await answer if asyncio.iscoroutine(answer) else answer
        finally:
            self.busy -= 1


@asynccontextmanager
async def serving(*behaviours):
    server = Server(*behaviours)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.handle)
    app.router.add_route("*", "/elsewhere", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.base = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client(base, *, seconds=CLOCK, **settings):
    model = HttpModel(
        ModelSettings(model_name="m", api_base=base, api_key=SecretStr(KEY), **settings),
        timeout_seconds=seconds,
        jitter=lambda: 0.0,
    )
    try:
        yield model
    finally:
        await model.close()


def situation():
    return Situation(
        Briefing(task_id="t", goal="g", catalogue=CatalogueView(policy_version="1", sandbox="x"))
    )


async def unavailable(base, **rest):
    """Return what the planner raises, having checked its clock and that it shows no key."""
    began = monotonic()
    async with client(base, **rest) as model:
        with pytest.raises(PlannerUnavailable) as caught:
            await ModelPlanner(model, budget_seconds=CLOCK * 2).decide(situation())
    assert monotonic() - began < CLOCK * 2 + 1
    for shown in (str(caught.value), repr(caught.value), repr(caught.value.__cause__)):
        assert KEY not in shown
        assert "leaked" not in shown
    return caught.value


async def hang(_request):
    await asyncio.Event().wait()


async def hang_up(request):
    request.transport.abort()
    return web.Response()


async def drip(request):
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


async def half(request):
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(json.dumps(completion(DECISION))[:50].encode())
    request.transport.close()
    return response


async def half_chunk(request):
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(b'{"choices": [{"mess')
    request.transport.abort()
    return response


def status(code, **headers):
    return lambda _request: web.Response(status=code, text=f"leaked {KEY}", headers=headers)


def text(body, content_type="application/json"):
    return lambda _request: web.Response(text=body, content_type=content_type)


def packed_bomb(_request):
    return web.Response(body=gzip.compress(b" " * (20 << 20)), headers={"Content-Encoding": "gzip"})


async def huge(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(160):
        await response.write(b"x" * 65536)
    return response


HTML = "<html><title>leaked: 502 Bad Gateway</title></html>"
DUPLICATE = '{"choices": [], "choices": [{"message": {"content": "leaked"}}]}'


@pytest.mark.parametrize(
    ("behaviour", "reason", "says"),
    [
        (hang, Unavailability.LATE, "did not answer within"),
        (drip, Unavailability.LATE, "did not answer within"),
        (hang_up, Unavailability.DOWN, "cannot be reached"),
        (half, Unavailability.DOWN, "cannot be reached"),
        (half_chunk, Unavailability.DOWN, "cannot be reached"),
        (status(500), Unavailability.DOWN, "fault (500)"),
        (status(503), Unavailability.DOWN, "fault (503)"),
        (status(429), Unavailability.DOWN, "busy (429)"),
        (status(429, **{"Retry-After": "30"}), Unavailability.DOWN, "no time left"),
        (status(401), Unavailability.DOWN, "refuses the key (401)"),
        (status(400), Unavailability.DOWN, "refuses the request (400)"),
        (status(204), Unavailability.DOWN, "refuses the request (204)"),
        (status(302, Location="/elsewhere"), Unavailability.DOWN, "refuses the request (302)"),
        (text(HTML, "text/html"), Unavailability.NONSENSE, "not JSON"),
        (text(""), Unavailability.NONSENSE, "not JSON"),
        (text('{"choices": [{"message": {"content": "leaked'), Unavailability.NONSENSE, "not JSON"),
        (text(DUPLICATE), Unavailability.NONSENSE, "duplicate keys"),
        (text("[" * 100_000), Unavailability.NONSENSE, "nested deeper"),
        (text('{"error": "leaked"}'), Unavailability.NONSENSE, "without a choice"),
        (text('{"choices": []}'), Unavailability.NONSENSE, "without a choice"),
        (text('{"choices": {"0": 1}}'), Unavailability.NONSENSE, "without a choice"),
        (text("null"), Unavailability.NONSENSE, "without a choice"),
        (text('{"choices": [{"message": {"content": null}}]}'), Unavailability.NONSENSE, "no text"),
        (text('{"choices": [{"message": {"content": ["leaked"]}}]}'), Unavailability.NONSENSE, "no text"),
        (huge, Unavailability.NONSENSE, "longer than 1048576 bytes"),
        (packed_bomb, Unavailability.NONSENSE, "longer than 1048576 bytes"),
        (text(json.dumps(completion("I am sorry."))), Unavailability.NONSENSE, "text around"),
        (text(json.dumps(completion("x" * 900_000))), Unavailability.NONSENSE, "longer than 65536"),
    ],
)
async def test_a_hostile_server_ends_in_a_named_unavailability_inside_the_clock(behaviour, reason, says):
    async with serving(behaviour) as server:
        error = await unavailable(server.base)
    assert error.reason is reason
    assert says in error.text


async def test_a_server_that_is_not_there_is_down():
    async with serving(good) as server:
        base = server.base
    error = await unavailable(base)
    assert error.reason is Unavailability.DOWN
    assert "asked 3 times" in error.text


@pytest.mark.parametrize(
    "garbage",
    [
        b"leaked, not HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\nleaked",
        b"\x00\xff\xfe" * 100,
        b"",
    ],
)
async def test_a_server_that_does_not_speak_http_is_down(garbage):
    async def answer(reader, writer):
        await reader.read(100)
        writer.write(garbage)
        writer.close()

    raw = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        error = await unavailable(f"http://127.0.0.1:{raw.sockets[0].getsockname()[1]}/v1")
    finally:
        raw.close()
        await raw.wait_closed()
    assert error.reason is Unavailability.DOWN


@pytest.mark.parametrize(
    "behaviour", [hang_up, half, status(500), status(429), status(429, **{"Retry-After": "0"})]
)
async def test_a_passing_fault_is_asked_again_and_then_answered(behaviour):
    async with serving(behaviour, behaviour, good) as server, client(server.base, seconds=5) as model:
        decision = await ModelPlanner(model).decide(situation())
        assert decision == Decision.model_validate_json(DECISION)
        assert len(server.requests) == 3


async def test_the_wait_that_a_busy_server_asks_for_is_kept():
    async with (
        serving(status(429, **{"Retry-After": "1"}), good) as server,
        client(server.base, seconds=5) as model,
    ):
        began = monotonic()
        await model.complete([])
        assert monotonic() - began >= 1


@pytest.mark.parametrize("behaviour", [status(401), status(400), text(HTML), huge])
async def test_what_asking_again_cannot_cure_is_asked_once(behaviour):
    async with serving(behaviour) as server:
        await unavailable(server.base)
        assert len(server.requests) == 1


async def test_a_redirect_never_carries_the_key_anywhere():
    async with serving(status(307, Location="/elsewhere")) as server:
        await unavailable(server.base)
        assert [request.path for request in server.requests] == ["/v1/chat/completions"]


async def test_a_malformed_answer_goes_back_and_the_next_one_counts():
    broken = text(json.dumps(completion(f"Sure: {DECISION}")))
    async with serving(broken, good) as server, client(server.base) as model:
        assert isinstance(await ModelPlanner(model).decide(situation()), Decision)
        assert "text around the object" in server.bodies[1]["messages"][-1]["content"]


async def test_the_request_is_what_the_settings_say():
    async with serving(good) as server, client(server.base, max_tokens=77, json_mode=True) as model:
        await ModelPlanner(model).decide(situation())
    (body,) = server.bodies
    assert (body["model"], body["temperature"], body["max_tokens"], body["stream"]) == ("m", 0, 77, False)
    assert body["response_format"] == {"type": "json_object"}
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


async def test_without_a_key_no_header_claims_one():
    settings = {"model_name": "m"}
    async with serving(good) as server:
        model = HttpModel(ModelSettings(api_base=server.base, **settings))
        try:
            await model.complete([])
        finally:
            await model.close()
        assert "Authorization" not in server.requests[0].headers


async def test_no_more_requests_than_allowed_are_under_way_and_waiting_counts_as_time():
    async def slowly(_request):
        await asyncio.sleep(0.2)
        return web.json_response(completion(DECISION))

    async with serving(slowly) as server, client(server.base, seconds=5, max_concurrent=2) as model:
        await asyncio.gather(*(model.complete([]) for _ in range(8)))
        assert server.most_busy == 2
    async with serving(hang) as server, client(server.base, seconds=0.2, max_concurrent=1) as model:
        results = await asyncio.gather(*(model.complete([]) for _ in range(3)), return_exceptions=True)
        assert [error.reason for error in results] == [Unavailability.LATE] * 3


async def test_the_callers_clock_stops_a_request_and_the_model_can_be_asked_again():
    async with serving(hang, good) as server, client(server.base, seconds=30, max_concurrent=1) as model:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await model.complete([])
        assert await model.complete([]) == DECISION


async def test_the_session_is_shared_closed_and_opened_again():
    async with serving(good) as server, client(server.base) as model:
        await model.complete([])
        shared = model._shared
        await model.complete([])
        assert model._shared is shared
        await model.close()
        await model.close()
        assert shared.closed
        assert await model.complete([]) == DECISION


async def test_the_key_is_in_no_log_line(caplog):
    caplog.set_level(logging.DEBUG)
    for behaviour in (status(500), hang_up, text(HTML), good):
        async with serving(behaviour) as server, client(server.base) as model:
            try:
                await ModelPlanner(model).decide(situation())
            except PlannerUnavailable as error:
                logging.getLogger("test").warning("%s", error, exc_info=error)
    assert KEY not in caplog.text
