"""The webhook source over real HTTP: what is accepted is safe, what is refused says why."""

import asyncio
import gzip
import hmac
import io
import json
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from hermesd.sources.base import InboxFull, SourceFailed
from hermesd.sources.mapping import Map
from hermesd.sources.settings import Secret, WebhookSettings
from hermesd.sources.settings_webhook import Basic, Hmac, Hook, Tls
from hermesd.sources.webhook import MAX_BODY_BYTES, WebhookSource
from hermesd.telemetry import Metrics

pytestmark = pytest.mark.slow

BODIES = Path(__file__).parents[1] / "data" / "alertmanager" / "webhooks-0.25.jsonl"


class Inbox:
    """Keeps events by their key of idempotency; can be full, slow or broken."""

    def __init__(self):
        self.events = {}
        self.full = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def deliver(self, events):
        if self.full:
            raise InboxFull(2.5)
        await self.gate.wait()
        self.events |= {(one.source, one.id): one for one in events}


class Posting:
    def __init__(self, session, base, inbox, metrics):
        self._session = session
        self._base = base
        self.inbox = inbox
        self.metrics = metrics

    async def post(self, path, body, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        async with self._session.post(self._base + path, data=io.BytesIO(data), headers=sent) as answer:
            return answer.status, await answer.json(), answer.headers

    async def get(self, path):
        async with self._session.get(self._base + path) as answer:
            return answer.status


@asynccontextmanager
async def webhook(environ=None, inbox=None, **more):
    settings = WebhookSettings(kind="webhook", name="web", **{"port": 0, **more})
    metrics = Metrics()
    source = WebhookSource(settings, metrics, environ=environ or {})
    inbox = inbox or Inbox()
    task = asyncio.create_task(source.run(inbox.deliver))
    try:
        async with asyncio.timeout(5):
            await source.listening.wait()
        connector = aiohttp.UnixConnector(settings.socket) if settings.socket else None
        base = "http://local" if settings.socket else f"http://127.0.0.1:{source.port}"
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Posting(session, base, inbox, metrics)
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_what_a_real_alertmanager_sent_becomes_events_and_sent_again_becomes_no_more():
    async with webhook() as web:
        for _ in range(2):
            for line in BODIES.read_bytes().splitlines():
                status, answer, _ = await web.post("/alertmanager", line)
                assert (status, answer["accepted"] > 0) == (202, True)
        statuses = sorted(one.status.value for one in web.inbox.events.values())
        assert statuses == ["firing", "firing", "firing", "resolved"]


async def test_202_comes_only_after_the_events_are_safe():
    inbox = Inbox()
    inbox.gate.clear()
    async with webhook(inbox=inbox) as web:
        posting = asyncio.create_task(web.post("/events", {"text": "x"}))
        _done, waiting = await asyncio.wait({posting}, timeout=0.3)
        assert waiting, "it was answered before the events were committed"
        inbox.gate.set()
        assert (await posting)[0] == 202


async def test_a_full_inbox_is_503_with_the_seconds_to_wait():
    async with webhook() as web:
        web.inbox.full = True
        status, answer, headers = await web.post("/events", {"text": "x"})
        assert (status, headers["Retry-After"]) == (503, "3")
        assert "full" in answer["reason"]
        web.inbox.full = False
        assert (await web.post("/events", {"text": "x"}))[0] == 202


async def test_a_store_that_breaks_is_5xx_and_the_next_request_is_served():
    class Broken(Inbox):
        async def deliver(self, events):
            raise RuntimeError("disk gone")

    async with webhook(inbox=Broken()) as web:
        with pytest.raises(aiohttp.ContentTypeError):
            await web.post("/events", {"text": "x"})
        assert await web.get("/healthz") == 200


async def test_plain_objects_and_cloudevents_are_taken_one_or_many():
    cloudevent = {"specversion": "1.0", "id": "7", "source": "/b", "type": "org.b.failed"}
    async with webhook() as web:
        assert (await web.post("/events", {"text": "x"}))[1] == {"accepted": 1}
        kind = "application/cloudevents+json; charset=utf-8"
        assert (await web.post("/events", cloudevent, **{"Content-Type": kind}))[1] == {"accepted": 1}
        many = [cloudevent, {**cloudevent, "id": "8"}]
        kind = "application/cloudevents-batch+json"
        assert (await web.post("/events", many, **{"Content-Type": kind}))[1] == {"accepted": 2}
        assert len(web.inbox.events) == 3


async def test_a_list_with_one_wrong_event_is_refused_as_a_whole():
    async with webhook() as web:
        status, answer, _ = await web.post("/events", [{"text": "x"}, {"value": "y"}])
        assert (status, web.inbox.events) == (400, {})
        assert answer == {"reason": "value is not a number"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not JSON"),
        (b'{"text":"a","text":"b"}', "duplicate keys"),
        (b"[" * 40 + b"]" * 40, "nested deeper"),
        (b'{"value":NaN}', "NaN"),
        (b'{"text":"\xff"}', "not UTF-8"),
        (b'"text"', "want a JSON object"),
        (b'{"type":"host.filesystem"}', "own sources"),
        (b"", "not JSON"),
    ],
)
async def test_a_wrong_body_is_400_with_a_reason_counted_and_the_next_is_served(body, reason):
    async with webhook() as web:
        status, answer, _ = await web.post("/events", body)
        assert (status, reason in answer["reason"]) == (400, True), answer
        count = web.metrics.registry.get_sample_value("hermesd_unreadable_total", {"source": "web"})
        assert count == 1
        assert (await web.post("/events", {"text": "x"}))[0] == 202


async def test_alerts_that_cannot_be_read_are_named_while_the_others_are_taken():
    alert = {"status": "firing", "labels": {"alertname": "A"}}
    async with webhook() as web:
        body = {"version": "4", "alerts": [alert, {"status": "?"}], "truncatedAlerts": 3}
        status, answer, _ = await web.post("/alertmanager", body)
        assert status == 202
        assert answer == {
            "accepted": 1,
            "truncated": 3,
            "refused": ["alerts.1: status is neither firing nor resolved"],
        }


async def test_a_body_of_another_type_is_415():
    async with webhook() as web:
        status, answer, _ = await web.post("/events", b"{}", **{"Content-Type": "text/plain"})
        assert (status, answer["reason"]) == (415, "want a body of type application/json")


async def test_a_body_beyond_its_limit_is_413_also_when_it_is_compressed():
    import zlib

    async with webhook() as web:
        big = b'{"text":"' + b"x" * MAX_BODY_BYTES + b'"}'
        assert (await web.post("/events", big))[0] == 413
        packed = zlib.compress(big * 20)
        status, answer, _ = await web.post("/events", packed, **{"Content-Encoding": "deflate"})
        assert status == 413, answer
        assert web.inbox.events == {}


async def test_an_unknown_path_or_method_is_refused_as_json():
    async with webhook() as web:
        assert (await web.post("/elsewhere", {}))[0] == 404
        status, answer, headers = await web.post("/healthz", {})
        assert (status, headers["Allow"]) == (405, "GET,HEAD")
        assert "reason" in answer


async def test_without_its_token_nobody_gets_in_but_to_healthz(tmp_path):
    (tmp_path / "webhook_token").write_text("s3cret\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    async with webhook(environ, token=Secret(credential="webhook_token")) as web:
        status, _, headers = await web.post("/events", {"text": "x"})
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        for wrong in ("Bearer", "Bearer s3cret2", "Basic s3cret", "bearer s3cret", "Bearer \u00fc"):
            assert (await web.post("/events", {"text": "x"}, Authorization=wrong))[0] == 401
        assert web.inbox.events == {}
        assert (await web.post("/events", {"text": "x"}, Authorization="Bearer s3cret"))[0] == 202
        assert await web.get("/healthz") == 200


@pytest.mark.parametrize("text", [None, "", "\n"])
async def test_a_token_that_cannot_be_read_stops_the_source_and_never_opens_the_door(tmp_path, text):
    if text is not None:
        (tmp_path / "token").write_text(text)
    settings = WebhookSettings(kind="webhook", name="web", port=0, token=Secret(file=str(tmp_path / "token")))
    source = WebhookSource(settings, Metrics(), environ={})
    with pytest.raises(SourceFailed, match="the secret in"):
        await source.run(Inbox().deliver)
    assert source.port == 0


async def test_a_unix_socket_serves_the_same_and_replaces_a_stale_one(tmp_path):
    place = tmp_path / "webhook.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(place))
    async with webhook(listen="", socket=str(place)) as web:
        assert (await web.post("/events", {"text": "x"}))[0] == 202
        assert place.stat().st_mode & 0o777 == 0o660


async def test_a_port_that_is_taken_is_said_in_words():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = WebhookSettings(kind="webhook", name="web", port=port)
        with pytest.raises(SourceFailed, match=f"cannot listen at 127.0.0.1:{port}"):
            await WebhookSource(settings, Metrics(), environ={}).run(Inbox().deliver)


async def test_a_source_that_was_stopped_has_left_its_port():
    async with webhook() as web:
        port = int(web._base.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        pass


DATA = Path(__file__).parents[1] / "data"


async def test_what_grafana_posts_is_taken_unified_and_legacy():
    async with webhook() as web:
        for file in sorted((DATA / "grafana").glob("*.json")):
            status, answer, _ = await web.post("/grafana", file.read_bytes())
            assert (status, answer["accepted"] > 0) == (202, True), file.name
        assert len(web.inbox.events) == 6
        status, answer, _ = await web.post("/grafana", {"hello": 1})
        assert (status, "neither alerts" in answer["reason"]) == (400, True)


async def test_cloudevents_are_taken_structured_in_a_batch_and_binary():
    one, batch = (
        DATA.joinpath("cloudevents", name).read_bytes() for name in ("structured.json", "batch.json")
    )
    async with webhook() as web:
        kind = {"Content-Type": "application/cloudevents+json"}
        assert (await web.post("/events", one, **kind))[1] == {"accepted": 1}
        kind = {"Content-Type": "application/cloudevents-batch+json"}
        assert (await web.post("/events", batch, **kind))[1] == {"accepted": 2}
        assert len(web.inbox.events) == 2, "the first is in both"
        binary = {
            "ce-specversion": "1.0",
            "ce-id": "9",
            "ce-source": "/backups/db1",
            "ce-type": "example.note",
            "Content-Type": "text/plain",
        }
        assert (await web.post("/events", b"the tape is full", **binary))[1] == {"accepted": 1}
        event = web.inbox.events["web", "/backups/db1 9"]
        assert (event.type, event.text) == ("example.note", "the tape is full")
        status, answer, _ = await web.post("/events", b"{", **{**binary, "Content-Type": "application/json"})
        assert (status, "not JSON" in answer["reason"]) == (400, True)


async def test_any_json_is_taken_on_a_path_of_its_own_by_its_mapping():
    found = Map(each="events", id="uuid", text="name", severity="level", labels={"host": "node"})
    hook = Hook(path="/hooks/plant", map=found, type="plant.alarm", labels={"site": "b"})
    async with webhook(hook=(hook,)) as web:
        body = {"events": [{"uuid": "u1", "name": "door", "level": "critical", "node": "n1"}, {"uuid": "u2"}]}
        assert (await web.post("/hooks/plant", body))[1] == {"accepted": 2}
        first = web.inbox.events["web", "u1"]
        assert (first.type, first.text, first.severity) == ("plant.alarm", "door", "critical")
        assert first.labels == {"host": "n1", "site": "b"}
        status, answer, _ = await web.post("/hooks/plant", {"events": 5})
        assert (status, answer["reason"]) == (400, "each: there is no list where it looks")


async def test_a_compressed_body_is_taken_and_one_that_is_not_what_it_says_is_refused():
    async with webhook() as web:
        packed = gzip.compress(b'{"text":"x"}')
        assert (await web.post("/events", packed, **{"Content-Encoding": "gzip"}))[0] == 202
        status, answer, _ = await web.post("/events", b'{"text":"x"}', **{"Content-Encoding": "gzip"})
        assert (status, answer) == (400, {"reason": "the body cannot be decompressed"})
        status, answer, _ = await web.post("/events", packed, **{"Content-Encoding": "compress"})
        assert status == 415
        assert "gzip or deflate" in answer["reason"]
        bomb = gzip.compress(b" " * (200 << 20))
        assert len(bomb) < MAX_BODY_BYTES
        assert (await web.post("/events", bomb, **{"Content-Encoding": "gzip"}))[0] == 413


async def test_basic_lets_in_one_user_with_one_password(tmp_path):
    (tmp_path / "password").write_text("pa:ss\n")
    basic = Basic(username="am", password=Secret(file=str(tmp_path / "password")))
    async with webhook(basic=basic) as web:
        status, _, headers = await web.post("/events", {"text": "x"})
        assert (status, headers["WWW-Authenticate"]) == (401, 'Basic realm="hermesd"')
        wrong = aiohttp.encode_basic_auth("am", "pass")
        assert (await web.post("/events", {"text": "x"}, Authorization=wrong))[0] == 401
        right = aiohttp.encode_basic_auth("am", "pa:ss")
        assert (await web.post("/events", {"text": "x"}, Authorization=right))[0] == 202


async def test_a_body_is_believed_by_its_signature_alone(tmp_path):
    (tmp_path / "secret").write_text("k3y\n")
    signed = Hmac(secret=Secret(file=str(tmp_path / "secret")))
    async with webhook(hmac=signed) as web:
        body = b'{"text":"x"}'
        right = "sha256=" + hmac.new(b"k3y", body, "sha256").hexdigest()
        status, answer, _ = await web.post("/events", body)
        assert (status, answer["reason"]) == (401, "X-Hub-Signature-256 does not sign this body")
        headers = {"X-Hub-Signature-256": right}
        assert (await web.post("/events", b'{"text":"y"}', **headers))[0] == 401
        assert web.inbox.events == {}
        assert (await web.post("/events", body, **headers))[0] == 202


async def test_a_signed_time_bounds_how_long_a_body_is_believed_and_a_replay_starts_nothing(tmp_path):
    (tmp_path / "secret").write_text("k3y")
    signed = Hmac(
        secret=Secret(file=str(tmp_path / "secret")),
        header="X-Grafana-Alerting-Signature",
        prefix="",
        timestamp_header="X-Grafana-Alerting-Timestamp",
        window_s=60,
    )

    def headers(at, body):
        seal = hmac.new(b"k3y", f"{at}:".encode() + body, "sha256").hexdigest()
        return {"X-Grafana-Alerting-Signature": seal, "X-Grafana-Alerting-Timestamp": str(at)}

    body, now = b'{"text":"x"}', int(time.time())
    async with webhook(hmac=signed) as web:
        for late in (now - 120, now + 120, ""):
            status, answer, _ = await web.post("/events", body, **headers(late, body))
            assert (status, "within 60 s" in answer["reason"]) == (401, True)
        web.inbox.full = True
        assert (await web.post("/events", body, **headers(now, body)))[0] == 503
        web.inbox.full = False
        assert (await web.post("/events", body, **headers(now, body)))[1] == {"accepted": 1}
        assert (await web.post("/events", body, **headers(now, body)))[1] == {
            "accepted": 0,
            "repeated": True,
        }
        assert len(web.inbox.events) == 1
        moved = {**headers(now, body), "X-Grafana-Alerting-Timestamp": str(now - 1)}
        assert (await web.post("/events", body, **moved))[0] == 401


def run_openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


async def test_with_a_ca_of_clients_who_has_no_certificate_of_it_gets_nowhere(tmp_path, needs):
    needs(shutil.which("openssl"), "openssl")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    for name in ("one", "other"):  # each its own CA: enough for one side to trust the other
        files = ("-keyout", f"{tmp_path}/{name}.key", "-out", f"{tmp_path}/{name}.pem")
        run_openssl("req", "-x509", *key, *files, "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1")
    tls = Tls(
        cert_file=f"{tmp_path}/one.pem",
        key_file=f"{tmp_path}/one.key",
        client_ca_file=f"{tmp_path}/one.pem",
    )
    async with webhook(tls=tls) as web:
        for name, enters in (("one", True), ("other", False), (None, False)):
            context = ssl.create_default_context(cafile=f"{tmp_path}/one.pem")
            if name:
                context.load_cert_chain(f"{tmp_path}/{name}.pem", f"{tmp_path}/{name}.key")
            url = web._base.replace("http:", "https:") + "/events"
            try:
                async with web._session.post(url, json={"text": "x"}, ssl=context) as answer:
                    entered = answer.status == 202
            except aiohttp.ClientError:
                entered = False
            assert entered is enters
        assert len(web.inbox.events) == 1


async def test_a_certificate_that_cannot_be_read_is_said_in_words(tmp_path):
    tls = Tls(cert_file=f"{tmp_path}/none.pem", key_file=f"{tmp_path}/none.key")
    settings = WebhookSettings(kind="webhook", name="web", port=0, tls=tls)
    with pytest.raises(SourceFailed, match="cert_file, key_file or client_ca_file cannot be used"):
        await WebhookSource(settings, Metrics(), environ={}).run(Inbox().deliver)
