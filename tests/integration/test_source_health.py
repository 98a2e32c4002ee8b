"""Health checks against real listeners: refused, silent, answering, and names that do not resolve."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from aiohttp import web

from hermesd.sources.health import HealthSource
from hermesd.sources.health_asking import Asker, reach
from hermesd.sources.health_found import Condition
from hermesd.sources.settings_health import Check, HealthSettings

pytestmark = pytest.mark.slow


@asynccontextmanager
async def serving(status=200, tls=None):
    """A real HTTP server; what it answers can be changed on the way."""
    answers = {"status": status, "text": "all is well", "delay_s": 0.0}

    async def answer(_request):
        await asyncio.sleep(answers["delay_s"])
        headers = {"Location": "http://127.0.0.1:1/"}
        return web.Response(status=answers["status"], text=answers["text"], headers=headers)

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}/", answers
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
            checks = [(one.type, one.status.value) for one in events if one.type == "health.check"]
            if checks:
                told.extend(checks)
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


async def test_an_answer_without_the_expected_body_is_down():
    async with serving() as (url, answers):
        assert (await ask(url, body="is (well|fine)")).condition is Condition.UP
        answers["text"] = "x" * 100_000 + "is well"
        found = await ask(url, body="is (well|fine)")
        assert found.condition is Condition.DOWN
        assert found.reason == "answered 200 without 'is (well|fine)'"


async def test_an_answer_that_comes_too_late_is_down_and_the_latency_is_measured():
    async with serving() as (url, answers):
        answers["delay_s"] = 0.3
        found = await ask(url, within_ms=5000)
        assert found.condition is Condition.UP
        assert 300 <= found.latency_ms < 5000
        late = await ask(url, within_ms=100)
        assert late.condition is Condition.DOWN
        assert late.reason.startswith("answered 200 after 3")
        assert late.reason.endswith("ms, more than 100 ms")


def openssl(folder, *args):
    subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=folder)


@pytest.fixture(scope="module")
def authority(tmp_path_factory, needs):
    """A CA of our own, and a way to certificates of it that end when they are told to."""
    needs(shutil.which("openssl"), "openssl")
    folder = tmp_path_factory.mktemp("ca")
    openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-subj", "/CN=test authority")  # fmt: skip
    (folder / "index").write_text("")
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca=own\n[own]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\n"
        "policy=any\nunique_subject=no\n[any]\ncommonName=supplied\n[names]\nsubjectAltName=IP:127.0.0.1\n"
    )

    def context(days):
        name, now = f"server{days}", datetime.now(UTC)
        openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out",
                f"{name}.csr", "-subj", "/CN=127.0.0.1")  # fmt: skip
        begins, ends = (now - timedelta(days=9), now + timedelta(days=days))
        openssl(folder, "ca", "-batch", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key", "-in",
                f"{name}.csr", "-out", f"{name}.pem", "-extensions", "names",
                "-startdate", f"{begins:%Y%m%d%H%M%SZ}", "-enddate", f"{ends:%Y%m%d%H%M%SZ}")  # fmt: skip
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        return made

    context.ca_file = str(folder / "ca.pem")
    return context


async def test_a_certificate_tells_for_how_many_days_it_is_valid(authority):
    async with serving(tls=authority(3)) as (url, _):
        found = await ask(url, ca_file=authority.ca_file)
        assert (found.condition, found.reason) == (Condition.UP, "answered 200")
        assert 2.99 < found.certificate_days <= 3.0
        by_tls = await ask(url.replace("https", "tls"), ca_file=authority.ca_file)
        assert 2.99 < by_tls.certificate_days <= 3.0


async def test_a_certificate_is_looked_at_now_and_then_and_not_with_each_probe(authority):
    async with serving(tls=authority(3)) as (url, _), aiohttp.ClientSession() as session:
        asker, check = Asker(session), Check(name="x", url=url, ca_file=authority.ca_file)
        found = [await asker.ask(check) for _ in range(3)]
        assert [one.certificate_days is None for one in found] == [False, True, True]


@pytest.mark.parametrize("scheme", ["https", "tls"])
async def test_a_certificate_that_has_expired_is_down_at_once(authority, scheme):
    async with serving(tls=authority(-1)) as (url, _):
        found = await ask(url.replace("https", scheme), ca_file=authority.ca_file)
        assert found.condition is Condition.DOWN
        assert found.reason == "its certificate is refused: certificate has expired"


async def test_a_certificate_for_another_name_is_down(authority):
    async with serving(tls=authority(3)) as (url, _):
        found = await ask(url.replace("127.0.0.1", "localhost"), ca_file=authority.ca_file)
        assert found.condition is Condition.DOWN
        assert "Hostname mismatch" in found.reason


async def test_a_certificate_of_a_stranger_is_unknown_unless_it_is_not_checked(authority):
    async with serving(tls=authority(3)) as (url, _):
        assert (await ask(url)).condition is Condition.UNKNOWN
        found = await ask(url, verify_tls=False)
        assert (found.condition, found.certificate_days) == (Condition.UP, None)


ZONE = {"shop.example.": ["192.0.2.7", "192.0.2.8"]}


class NameServer(asyncio.DatagramProtocol):
    """A real DNS server over UDP that knows one name; others do not exist."""

    def __init__(self, rcode=None):
        self._rcode = rcode

    def connection_made(self, transport):
        self._transport = transport

    def datagram_received(self, data, address):
        query = dns.message.from_wire(data)
        reply = dns.message.make_response(query)
        name = query.question[0].name.to_text()
        if self._rcode is not None or name not in ZONE:
            reply.set_rcode(dns.rcode.NXDOMAIN if self._rcode is None else self._rcode)
        elif query.question[0].rdtype == dns.rdatatype.A:
            reply.answer.append(dns.rrset.from_text(name, 60, "IN", "A", *ZONE[name]))
        self._transport.sendto(reply.to_wire(), address)


@asynccontextmanager
async def name_server(rcode=None):
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: NameServer(rcode), ("127.0.0.1", 0))
    try:
        yield f"dns://127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    finally:
        transport.close()


async def test_a_name_that_the_server_knows_is_up_with_its_answer():
    async with name_server() as server:
        found = await ask(f"{server}/shop.example")
        assert (found.condition, found.reason) == (Condition.UP, "shop.example is 192.0.2.7, 192.0.2.8")
        assert found.latency_ms > 0
        assert (await ask(f"{server}/shop.example", answer="192.0.2.8")).condition is Condition.UP


async def test_another_answer_no_record_and_no_such_name_are_down():
    async with name_server() as server:
        other = await ask(f"{server}/shop.example", answer="192.0.2.9")
        assert other.condition is Condition.DOWN
        assert other.reason == "shop.example is 192.0.2.7, 192.0.2.8, not 192.0.2.9"
        assert (await ask(f"{server}/shop.example", record="MX")).condition is Condition.DOWN
        found = await ask(f"{server}/nothing.example")
        assert (found.condition, found.reason) == (
            Condition.DOWN,
            "nothing.example: 127.0.0.1 answered NXDOMAIN",
        )


async def test_a_server_that_fails_or_stays_silent_says_nothing_about_the_name():
    async with name_server(dns.rcode.SERVFAIL) as server:
        found = await ask(f"{server}/shop.example")
        assert (found.condition, found.reason) == (Condition.UNKNOWN, "127.0.0.1 answered SERVFAIL")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        found = await ask(f"dns://127.0.0.1:{silent.getsockname()[1]}/shop.example", timeout_s=0.2)
        assert (found.condition, found.reason) == (Condition.UNKNOWN, "no answer within 0.2 s")


async def test_the_hosts_own_resolver_is_asked_where_no_server_is_named():
    found = await ask("dns:///localhost", answer="127.0.0.1")
    assert found.condition is Condition.UP
    assert (await ask("dns:///localhost", answer="192.0.2.1")).condition is Condition.DOWN
