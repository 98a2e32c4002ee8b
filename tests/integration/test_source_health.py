"""Health checks against real listeners: refused, silent, answering, and names that do not resolve."""

import asyncio
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from hermesd.sources.health import Asker, Condition, HealthSource, reach
from hermesd.sources.settings import Check, HealthSettings

pytestmark = pytest.mark.slow


@asynccontextmanager
async def serving(status=200):
    """A real HTTP server; what it answers can be changed on the way."""
    answers = {"status": status}

    async def answer(_request):
        return web.Response(status=answers["status"], headers={"Location": "http://127.0.0.1:1/"})

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", answers
    finally:
        await runner.cleanup()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


async def ask(url, **more):
    async with aiohttp.ClientSession() as session:
        return await Asker(session).ask(Check(name="x", url=url, **more))


@pytest.mark.parametrize(
    ("status", "condition"), [(200, "up"), (204, "up"), (302, "up"), (404, "down"), (503, "down")]
)
async def test_the_status_of_an_answer_says_up_or_down(status, condition):
    async with serving(status) as (url, _):
        found = await ask(url)
        assert (found.condition, found.reason) == (condition, f"answered {status}")


async def test_only_the_expected_statuses_are_up_where_some_are_given():
    async with serving(401) as (url, _):
        assert (await ask(url, expect=(401,))).condition is Condition.UP
        assert (await ask(url, expect=(200,))).condition is Condition.DOWN


@pytest.mark.parametrize("scheme", ["http", "tcp"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_is_down(scheme, host):
    found = await ask(f"{scheme}://{host}:{free_port()}")
    assert (found.condition, found.reason) == (Condition.DOWN, "refused the connection")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_listener_that_stays_silent_is_unknown(scheme):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = await ask(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.2)
        assert (found.condition, found.reason) == (Condition.UNKNOWN, "no answer within 0.2 s")


async def test_a_target_with_several_addresses_is_refused_only_when_all_refuse():
    port = free_port()
    with pytest.raises(ConnectionRefusedError):
        await reach([("127.0.0.1", port), ("127.0.0.2", port)])
    with socket.create_server(("127.0.0.2", port)):
        await reach([("127.0.0.1", port), ("127.0.0.2", port)])


async def test_a_listener_that_accepts_is_up_for_tcp():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert (await ask(f"tcp://127.0.0.1:{listener.getsockname()[1]}")).condition is Condition.UP


@pytest.mark.parametrize("scheme", ["http", "tcp"])
async def test_a_name_that_does_not_resolve_is_unknown(scheme):
    found = await ask(f"{scheme}://no-such-host.invalid:80", timeout_s=5)
    assert found.condition is Condition.UNKNOWN


async def test_a_server_that_speaks_no_http_or_hangs_up_is_unknown():
    async def hang_up(_reader, writer):
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert (await ask(f"http://127.0.0.1:{port}/")).condition is Condition.UNKNOWN
        assert (await ask(f"https://127.0.0.1:{port}/")).condition is Condition.UNKNOWN


async def test_a_server_that_breaks_and_recovers_fires_and_resolves():
    async with serving() as (url, answers):
        check = Check(name="shop", url=url)
        settings = HealthSettings(kind="health", name="health", interval_s=0.2, check=(check,))
        told = []
        arrived = asyncio.Queue()

        async def deliver(events):
            told.extend((one.type, one.status.value) for one in events)
            arrived.put_nowait(None)

        task = asyncio.create_task(HealthSource(settings, "web1").run(deliver))
        async with asyncio.timeout(10):
            for status in (503, 200, None):
                await arrived.get()
                answers["status"] = status or 200
        task.cancel()
        await asyncio.wait({task})
        assert told == [
            ("health.check", "resolved"),
            ("health.check", "firing"),
            ("health.check", "resolved"),
        ]


async def test_one_silent_target_does_not_delay_the_others():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with serving() as (url, _):
            slow = Check(name="slow", url=f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=60)
            settings = HealthSettings(
                kind="health", name="health", check=(slow, Check(name="quick", url=url))
            )
            told = asyncio.Queue()

            async def deliver(events):
                told.put_nowait(events[0].subject)

            task = asyncio.create_task(HealthSource(settings, "web1").run(deliver))
            async with asyncio.timeout(5):
                assert await told.get() == "quick"
            task.cancel()
            await asyncio.wait({task})
