"""The MQTT source against a real mosquitto: nothing that was published with QoS 1 is lost, whoever dies."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import aiomqtt
import pytest

from hermesd.sources.base import InboxFull, SourceFailed, SourceHalted
from hermesd.sources.bulletin import Bulletin, Notice
from hermesd.sources.mapping import Map
from hermesd.sources.mqtt import MqttSource
from hermesd.sources.sessions import Sessions
from hermesd.sources.settings import MqttSettings, Secret, Topic
from hermesd.sources.settings_mqtt import Publish
from hermesd.telemetry import Metrics

pytestmark = pytest.mark.slow

PROTOCOLS = ["5", "3.1.1"]
TOPICS = (Topic(filter="t/#"),)


class Broker:
    """A mosquitto of our own, on a free port, in a folder of its own."""

    def __init__(self, folder, extra=""):
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self._conf = folder / "mosquitto.conf"
        self._conf.write_text(
            f"listener {self.port} 127.0.0.1\n"
            f"persistence true\npersistence_location {folder}/\nautosave_interval 1\n"
            f"max_queued_messages 0\nuser root\n{extra or 'allow_anonymous true'}\n"
        )
        self._process = None

    def start(self):
        program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, "-c", self._conf], stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)

    def stop(self, number=signal.SIGTERM):
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(10)
            self._process = None

    async def publish(self, *messages, retain=False, qos=1, **more):
        """Publish (topic, payload) pairs, and return when the broker has them."""
        async with aiomqtt.Client("127.0.0.1", self.port, **more) as client:
            for topic, payload in messages:
                await client.publish(topic, payload, qos=qos, retain=retain)


@pytest.fixture
def broker(tmp_path):
    if shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        assert not os.environ.get("CI"), "mosquitto is missing"
        pytest.skip("mosquitto is not installed (Debian package mosquitto)")
    folder = tmp_path / "broker"
    folder.mkdir()
    found = Broker(folder)
    found.start()
    yield found
    found.stop()


def set_password(file, user, password):
    subprocess.run(["mosquitto_passwd", "-b", "-c", file, user, password], check=True)


class Inbox:
    """Keeps events by their key of idempotency, in order; can refuse a number of times."""

    def __init__(self):
        self.events = {}
        self.deliveries = []
        self.faults = []
        self.arrived = asyncio.Event()

    async def deliver(self, events):
        self.deliveries.append([one.id for one in events])
        if self.faults:
            raise self.faults.pop(0)
        self.events |= {(one.source, one.id): one for one in events}
        self.arrived.set()

    @property
    def texts(self):
        return [one.text for one in self.events.values()]

    async def wait_for(self, count, seconds=10):
        async with asyncio.timeout(seconds):
            while len(self.events) < count:
                self.arrived.clear()
                await self.arrived.wait()


def settings_for(broker, protocol="5", topics=TOPICS, **more):
    return MqttSettings(kind="mqtt", name="mqtt", port=broker.port, protocol=protocol, topic=topics, **more)


def source_for(
    broker, *args, sessions=None, sleep=asyncio.sleep, metrics=None, environ=None, bulletin=None, **more
):
    return MqttSource(
        settings_for(broker, *args, **more),
        "web1",
        metrics or Metrics(),
        environ=environ or {},
        sessions=Sessions() if sessions is None else sessions,
        sleep=sleep,
        bulletin=bulletin,
    )


@contextlib.asynccontextmanager
async def running(source, inbox, broker):
    """Run the source until the block ends; enter once it is subscribed."""
    task = asyncio.create_task(source.run(inbox.deliver))
    try:
        await subscribed(broker, source, inbox)
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def subscribed(broker, source, inbox):
    """Wait until a message published now gets through, then forget it."""
    async with asyncio.timeout(10):
        while not (inbox.events or inbox.deliveries):
            await broker.publish(("t/ready", '{"id": "ready"}'))
            await asyncio.sleep(0.05)
    inbox.events.clear()
    inbox.deliveries.clear()


def message(number, **more):
    return f"t/{number % 3}", json.dumps({"id": f"m{number}", "text": str(number), **more})


async def left_unacknowledged(broker, protocol):
    """Return how many messages the broker still owes the session, as a successor receives them."""
    metrics, inbox = Metrics(), Inbox()
    task = asyncio.create_task(source_for(broker, protocol, metrics=metrics).run(inbox.deliver))
    await asyncio.wait({task}, timeout=0.5)
    task.cancel()
    await asyncio.wait({task})
    unreadable = metrics.registry.get_sample_value("hermesd_unreadable_total", {"source": "mqtt"})
    return len(inbox.events) + (unreadable or 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_message_becomes_an_event_and_is_acknowledged(broker, protocol):
    inbox, source = Inbox(), source_for(broker, protocol)
    async with running(source, inbox, broker):
        payload = {"id": "a1", "labels": {"host": "db1"}, "status": "firing", "severity": "critical"}
        await broker.publish(("t/disk", json.dumps(payload)))
        await inbox.wait_for(1)
        (event,) = inbox.events.values()
        assert (event.id, event.type, event.subject) == ("t/disk a1", "mqtt.message", "t/disk")
        assert event.labels == {"host": "db1", "topic": "t/disk"}
        assert event.severity == "critical"
        await asyncio.sleep(0.1)
    assert await left_unacknowledged(broker, protocol) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_could_not_be_committed_is_not_acknowledged_and_comes_again(broker, protocol):
    inbox, source = Inbox(), source_for(broker, protocol)
    async with running(source, inbox, broker) as life:
        inbox.faults = [RuntimeError("the disk is gone")]
        await broker.publish(message(1))
        await asyncio.wait({life}, timeout=10)
        assert isinstance(life.exception(), RuntimeError)
    assert inbox.events == {}
    second = asyncio.create_task(source.run(inbox.deliver))
    await inbox.wait_for(1)
    assert inbox.texts == ["1"]
    second.cancel()
    await asyncio.wait({second})


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_is_published_while_hermesd_is_away_waits_for_it(broker, protocol):
    inbox = Inbox()
    async with running(source_for(broker, protocol), inbox, broker):
        pass
    await broker.publish(*map(message, range(50)))
    task = asyncio.create_task(source_for(broker, protocol).run(inbox.deliver))
    await inbox.wait_for(50)
    assert inbox.texts == [str(number) for number in range(50)]
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_nothing_is_lost_or_doubled_when_hermesd_is_killed_again_and_again(broker, protocol, tmp_path):
    """Another process commits events to a file with fsync, and is killed four times amid 400 messages."""
    ledger = tmp_path / "ledger"
    ledger.touch()
    settings = settings_for(broker, protocol).model_dump_json()
    script = f"""
import asyncio, json, os
from hermesd.sources.mqtt import MqttSource
from hermesd.sources.sessions import Sessions
from hermesd.sources.settings import MqttSettings
from hermesd.telemetry import Metrics
file = os.open({str(ledger)!r}, os.O_WRONLY | os.O_APPEND)
async def deliver(events):
    await asyncio.sleep(0.01)
    os.write(file, b"".join(json.dumps([one.source, one.id]).encode() + b"\\n" for one in events))
    os.fsync(file)
settings = MqttSettings.model_validate_json({settings!r})
asyncio.run(MqttSource(settings, "web1", Metrics(), environ={{}}, sessions=Sessions()).run(deliver))
"""

    def start():
        return subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)

    def committed():
        return {tuple(json.loads(line)) for line in ledger.read_text().splitlines()}

    inbox = Inbox()
    async with running(source_for(broker, protocol), inbox, broker):
        pass  # the session exists from here on
    wanted = {("mqtt", f"t/{number % 3} m{number}") for number in range(400)}
    publishing = asyncio.create_task(broker.publish(*map(message, range(400))))
    for kill_at in (40, 120, 200, 300):
        victim = start()
        async with asyncio.timeout(30):
            while len(committed()) < kill_at:
                await asyncio.sleep(0.005)
        victim.kill()
        victim.wait()
    await publishing
    last = start()
    try:
        async with asyncio.timeout(30):
            while not wanted <= committed():
                await asyncio.sleep(0.02)
    finally:
        last.kill()
        last.wait()
    assert committed() - {("mqtt", "t/ready ready")} == wanted


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_nothing_is_lost_when_the_broker_is_stopped_and_started(broker, protocol):
    inbox, source = Inbox(), source_for(broker, protocol)
    async with running(source, inbox, broker) as life:
        inbox.faults = [InboxFull(0.3)] * 3
        await broker.publish(*map(message, range(5)))
        while not inbox.deliveries:
            await asyncio.sleep(0.01)
        broker.stop()
        await asyncio.wait({life}, timeout=10)
        assert isinstance(life.exception(), SourceFailed)
    broker.start()
    task = asyncio.create_task(source.run(inbox.deliver))
    await broker.publish(message(5))
    await inbox.wait_for(6)
    assert sorted(inbox.texts) == ["0", "1", "2", "3", "4", "5"]
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_full_inbox_stops_the_acknowledging_and_the_window_bounds_what_is_held(broker, protocol):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        await asyncio.sleep(0.05)

    inbox, source = Inbox(), source_for(broker, protocol, window=20, sleep=sleep)
    async with running(source, inbox, broker):
        inbox.faults = [InboxFull(2.5)] * 10
        await broker.publish(*map(message, range(200)))
        await inbox.wait_for(200)
    assert pauses == [2.5] * 10
    assert max(len(group) for group in inbox.deliveries) <= 20
    assert inbox.texts == [str(number) for number in range(200)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_bad_input_is_acknowledged_logged_and_counted_and_the_next_message_is_served(
    broker, protocol, caplog
):
    metrics, inbox = Metrics(), Inbox()
    source = source_for(broker, protocol, metrics=metrics)
    bad = [b"{", b'{"a":1,"a":2}', b"\xff\xfe", b"[" * 50_000, b'{"value": "x"}', b"", b'{"value": 1e999}']
    async with running(source, inbox, broker):
        await broker.publish(*(("t/bad", payload) for payload in bad))
        await broker.publish(message(1))
        await inbox.wait_for(1)
        await asyncio.sleep(0.1)
    count = metrics.registry.get_sample_value("hermesd_unreadable_total", {"source": "mqtt"})
    assert count == len(bad) == sum("is no event" in one.getMessage() for one in caplog.records)
    assert await left_unacknowledged(broker, protocol) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_message_that_is_sent_again_to_the_same_process_keeps_its_own_id(broker, protocol):
    """The payload has no identity: the broker's mark "sent before" is what is left to go by."""
    inbox, source = Inbox(), source_for(broker, protocol)
    async with running(source, inbox, broker) as life:
        committed = {}

        async def commit_and_break(events):
            committed.update({one.id: one for one in events})
            raise RuntimeError("between commit and acknowledgement")

        original, inbox.deliver = inbox.deliver, commit_and_break
        life.cancel()
        await asyncio.wait({life})
        first = asyncio.create_task(source.run(commit_and_break))
        await broker.publish(("t/x", '{"text": "DOWN"}'))
        await asyncio.wait({first}, timeout=10)
        assert isinstance(first.exception(), RuntimeError)
        second = asyncio.create_task(source.run(original))
        await inbox.wait_for(1)
        assert [one.id for one in inbox.events.values()] == list(committed)
        await broker.publish(("t/x", '{"text": "DOWN"}'))
        await inbox.wait_for(2)
        second.cancel()
        await asyncio.wait({second})


async def test_equal_messages_are_different_events_unless_their_own_time_is_equal(broker):
    inbox, source = Inbox(), source_for(broker)
    async with running(source, inbox, broker):
        await broker.publish(("t/x", '{"text": "DOWN"}'), ("t/x", '{"text": "DOWN"}'))
        await inbox.wait_for(2)
        timed = ("t/x", '{"text": "DOWN", "time": "2026-01-01T00:00:00Z"}')
        await broker.publish(timed, timed, message(1))
        await inbox.wait_for(4)
        await asyncio.sleep(0.1)
    assert inbox.texts == ["DOWN", "DOWN", "DOWN", "1"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_retained_message_updates_what_is_known_and_starts_nothing_unless_a_topic_says_so(
    broker, protocol
):
    await broker.publish(("t/old", '{"text": "old"}'), ("k/old", '{"text": "kept"}'), retain=True)
    topics = (Topic(filter="t/#"), Topic(filter="k/#", retained=True))
    inbox = Inbox()
    task = asyncio.create_task(source_for(broker, protocol, topics).run(inbox.deliver))
    await inbox.wait_for(2)
    await broker.publish(message(1))
    await inbox.wait_for(3)
    types = {one.text: one.type for one in inbox.events.values()}
    assert types == {"1": "mqtt.message", "kept": "mqtt.message", "old": "hermesd.retained"}
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_topic_that_was_taken_out_of_the_settings_is_unsubscribed(broker, protocol):
    sessions, inbox = Sessions(), Inbox()
    before = source_for(broker, protocol, (Topic(filter="t/#"), Topic(filter="old/#")), sessions=sessions)
    async with running(before, inbox, broker):
        pass
    metrics = Metrics()
    after = source_for(broker, protocol, sessions=sessions, metrics=metrics)
    async with running(after, inbox, broker):
        await broker.publish(("old/x", "{}"))
        await broker.publish(message(1))
        await inbox.wait_for(1)
    assert inbox.texts == ["1"]
    assert metrics.registry.get_sample_value("hermesd_unreadable_total", {"source": "mqtt"}) is None


async def test_what_an_older_subscription_still_sends_is_set_aside(broker):
    inbox = Inbox()
    async with running(source_for(broker, "5", (Topic(filter="t/#"), Topic(filter="old/#"))), inbox, broker):
        pass
    metrics = Metrics()
    async with running(source_for(broker, metrics=metrics), inbox, broker):
        await broker.publish(("old/x", "{}"))
        await broker.publish(message(1))
        await inbox.wait_for(1)
    assert metrics.registry.get_sample_value("hermesd_unreadable_total", {"source": "mqtt"}) == 1


async def test_numbers_and_texts_are_read_as_their_topic_says(broker):
    topics = (
        Topic(filter="t/#"),
        Topic(filter="n/+", mode="number", unit="celsius", labels={"room": "a"}, type="sensor.heat"),
        Topic(filter="x/y", mode="text", severity="critical"),
    )
    inbox = Inbox()
    async with running(source_for(broker, "5", topics), inbox, broker):
        await broker.publish(("n/1", "21.5"), ("x/y", "磁盘满了"))
        await inbox.wait_for(2)
    number, text = inbox.events.values()
    assert (number.value, number.unit, number.status, number.type) == (
        21.5,
        "celsius",
        "reading",
        "sensor.heat",
    )
    assert number.labels == {"room": "a", "topic": "n/1"}
    assert (text.text, text.status, text.severity) == ("磁盘满了", "firing", "critical")


async def test_a_broker_that_is_not_there_is_said_in_words(broker):
    broker.stop()
    with pytest.raises(SourceFailed, match=f"no connection to the broker 127.0.0.1:{broker.port}.*refused"):
        await source_for(broker).run(Inbox().deliver)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_twin_with_the_same_client_id_is_suspected_when_the_connection_ends_at_once(broker, protocol):
    first, second = source_for(broker, protocol), source_for(broker, protocol)
    inbox = Inbox()
    async with running(first, inbox, broker) as life:
        other = asyncio.create_task(second.run(inbox.deliver))
        await asyncio.wait({life}, timeout=10)
        with pytest.raises(SourceFailed, match="does another client use the id hermesd-"):
            life.result()
        other.cancel()
        await asyncio.wait({other})


async def test_the_password_is_read_from_its_place_and_a_wrong_one_is_said_in_words(tmp_path):
    if shutil.which("mosquitto_passwd") is None:
        pytest.skip("mosquitto_passwd is not installed")
    folder = tmp_path / "closed"
    folder.mkdir()
    set_password(folder / "users", "hermes", "right")
    closed = Broker(folder, f"allow_anonymous false\npassword_file {folder}/users")
    closed.start()
    try:
        secret = tmp_path / "password"
        more = {"username": "hermes", "password": Secret(file=str(secret))}
        secret.write_text("wrong\n")
        with pytest.raises(SourceFailed, match=r"[Nn]ot authori[sz]ed"):
            await source_for(closed, **more).run(Inbox().deliver)
        secret.write_text("right\n")
        task = asyncio.create_task(source_for(closed, **more).run(Inbox().deliver))
        _done, still_running = await asyncio.wait({task}, timeout=0.5)
        assert still_running
        task.cancel()
        await asyncio.wait({task})
    finally:
        closed.stop()


async def refuse_subscriptions(reader, writer):
    """A broker of few words: it welcomes a client of MQTT 3.1.1 and refuses what it asks for."""
    while head := await reader.read(1):
        body = await reader.readexactly((await reader.readexactly(1))[0])
        if head[0] >> 4 == 1:
            writer.write(b"\x20\x02\x00\x00")
        elif head[0] >> 4 == 8:
            writer.write(b"\x90\x03" + body[:2] + b"\x80")
    writer.close()


async def test_a_subscription_that_the_broker_refuses_is_said_in_words():
    server = await asyncio.start_server(refuse_subscriptions, "127.0.0.1", 0)
    async with server:
        settings = MqttSettings(
            kind="mqtt",
            name="mqtt",
            port=server.sockets[0].getsockname()[1],
            protocol="3.1.1",
            topic=TOPICS,
            publish=Publish(
                enabled=False
            ),  # a last will would make its first packet longer than this broker reads
        )
        source = MqttSource(settings, "web1", Metrics(), environ={}, sessions=Sessions())
        with pytest.raises(SourceFailed, match="refused the subscription to t/#"):
            async with asyncio.timeout(10):
                await source.run(Inbox().deliver)


def test_client_ids_differ_by_host_and_source_and_fit_every_broker():
    def made(host, name):
        settings = MqttSettings(kind="mqtt", name=name, topic=(Topic(filter="a"),))
        return MqttSource(settings, host, Metrics(), environ={}, sessions=Sessions()).client_id

    ids = {made("web1", "mqtt"), made("web2", "mqtt"), made("web1", "other")}
    assert len(ids) == 3
    assert all(len(one) <= 23 for one in ids)
    assert made("web1", "mqtt") in ids


def test_the_private_name_of_aiomqtt_is_used_in_one_place():
    lines = {
        (path.name, line.strip())
        for path in (Path(__file__).parents[2] / "hermesd").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"(?<!self)\._client\b", line)
    }
    assert [name for name, _line in lines] == ["mqtt.py"]


async def test_any_json_is_read_by_the_mapping_of_its_topic(broker):
    found = Map(
        each="readings",
        id="no",
        subject="join('/', [site, name])",
        value="to_number(degrees)",
        status="state == 'hot' && 'firing' || 'resolved'",
        labels={"site": "site"},
    )
    topics = (Topic(filter="t/#"), Topic(filter="m/#", map=found, type="sensor.heat"))
    inbox = Inbox()
    async with running(source_for(broker, "5", topics), inbox, broker):
        hot = {"no": 1, "site": "b", "name": "rack", "degrees": "41.5", "state": "hot"}
        await broker.publish(("m/x", json.dumps({"readings": [hot, {**hot, "no": 2, "state": "fine"}]})))
        await inbox.wait_for(2)
    first, second = inbox.events.values()
    assert (first.id, second.id) == ("m/x 1", "m/x 2")
    assert (first.value, first.status, second.status) == (41.5, "firing", "resolved")
    assert first.labels == {"site": "b", "topic": "m/x"}
    assert (first.type, first.subject) == ("sensor.heat", "b/rack")


async def test_what_telegraf_writes_single_and_batch_is_a_reading_for_each_number(broker):
    disk = {
        "fields": {"used_percent": 91.25, "free": 1000, "label": "root"},
        "name": "disk",
        "tags": {"host": "db1", "path": "/"},
        "timestamp": 1767225600,
    }
    topics = (
        Topic(filter="t/#"),
        Topic(filter="telegraf/#", mode="telegraf", fields=("disk.used_percent", "usage_idle")),
    )
    cpu = {**disk, "name": "cpu", "fields": {"usage_idle": 3, "usage_user": 90}}
    inbox = Inbox()
    async with running(source_for(broker, "5", topics), inbox, broker):
        await broker.publish(("telegraf/db1", json.dumps(disk)))
        await broker.publish(("telegraf/db1", json.dumps({"metrics": [disk, cpu]})))
        await inbox.wait_for(2)
    first, second = inbox.events.values()  # the disk's metric came twice and is one event
    assert (first.subject, first.value, first.status) == ("disk.used_percent", 91.25, "reading")
    assert first.labels == {
        "host": "db1",
        "path": "/",
        "metric": "disk",
        "field": "used_percent",
        "topic": "telegraf/db1",
    }
    assert first.time.isoformat() == "2026-01-01T00:00:00+00:00"
    assert (second.subject, second.value) == ("cpu.usage_idle", 3.0)


async def test_cloudevents_come_structured_and_binary(broker):
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    topics = (Topic(filter="t/#"), Topic(filter="ce/#", mode="cloudevents"))
    event = {"specversion": "1.0", "id": "7", "source": "/backup", "type": "org.backup.failed"}
    inbox = Inbox()
    async with running(source_for(broker, "5", topics), inbox, broker):
        await broker.publish(("ce/x", json.dumps({**event, "data": {"text": "no space", "host": "db1"}})))
        binary = Properties(PacketTypes.PUBLISH)
        binary.UserProperty = list({**event, "id": "8"}.items())
        binary.ContentType = "application/json"
        async with aiomqtt.Client("127.0.0.1", broker.port, protocol=aiomqtt.ProtocolVersion.V5) as client:
            await client.publish("ce/x", b'{"value": 5}', qos=1, properties=binary)
        await inbox.wait_for(2)
    structured, binary = inbox.events.values()
    assert (structured.id, structured.type, structured.text) == ("/backup 7", "org.backup.failed", "no space")
    assert structured.labels == {"host": "db1", "origin": "/backup", "topic": "ce/x"}
    assert (binary.id, binary.value, binary.type) == ("/backup 8", 5.0, "org.backup.failed")


class Listener:
    """Hears what hermesd tells under its prefix, retained messages first."""

    def __init__(self, port):
        self._port = port

    @contextlib.asynccontextmanager
    async def listening(self):
        async with aiomqtt.Client("127.0.0.1", self._port) as client:
            await client.subscribe("hermes/v1/#", qos=1)
            self._messages = client.messages
            yield

    async def next(self):
        async with asyncio.timeout(10):
            found = await anext(self._messages)
        return str(found.topic), json.loads(found.payload)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_retained_status_tells_that_hermesd_lives_and_that_it_was_stopped(broker, protocol):
    inbox, listener = Inbox(), Listener(broker.port)
    async with running(source_for(broker, protocol), inbox, broker), listener.listening():
        topic, status = await listener.next()
        assert (topic, status["state"]) == ("hermes/v1/web1/status", "online")
    async with listener.listening():
        assert (await listener.next())[1]["state"] == "stopped"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_last_will_tells_that_hermesd_is_lost_when_it_was_killed(broker, protocol):
    settings = settings_for(broker, protocol).model_dump_json()
    script = f"""
import asyncio
from hermesd.sources.mqtt import MqttSource
from hermesd.sources.sessions import Sessions
from hermesd.sources.settings import MqttSettings
from hermesd.telemetry import Metrics
settings = MqttSettings.model_validate_json({settings!r})
asyncio.run(MqttSource(settings, "web1", Metrics(), environ={{}}, sessions=Sessions()).run(print))
"""
    listener = Listener(broker.port)

    def start():
        return subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)

    async with listener.listening():
        victim = start()
        assert (await listener.next())[1]["state"] == "online"
        victim.kill()
        victim.wait()
        assert (await listener.next())[1]["state"] == "lost"


async def test_what_the_pipeline_tells_is_published_in_order_also_what_was_told_while_the_broker_was_away(
    broker,
):
    bulletin, sessions = Bulletin(), Sessions()
    source = source_for(broker, bulletin=bulletin, sessions=sessions, topics=(Topic(filter="#"),))
    bulletin.tell(Notice("incidents/i1", {"status": "open"}))
    inbox, listener = Inbox(), Listener(broker.port)
    async with listener.listening():
        task = asyncio.create_task(source.run(inbox.deliver))
        assert (await listener.next())[0] == "hermes/v1/web1/status"
        assert await listener.next() == ("hermes/v1/web1/incidents/i1", {"status": "open"})
        bulletin.tell(Notice("runs/r1", {"outcome": "resolved"}))
        assert await listener.next() == ("hermes/v1/web1/runs/r1", {"outcome": "resolved"})
        task.cancel()
        await asyncio.wait({task})
    assert inbox.events == {}, "it heard itself"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_twin_that_keeps_taking_the_session_over_halts_the_source(broker, protocol):
    """mosquitto 2.0.11 ends the connection without a word: the churn is all there is to see."""
    inbox, source = Inbox(), source_for(broker, protocol)
    for number in range(4):
        life = asyncio.create_task(source.run(inbox.deliver))
        await subscribed(broker, source, inbox)
        async with aiomqtt.Client("127.0.0.1", broker.port, identifier=source.client_id):
            await asyncio.wait({life}, timeout=10)
        kind = SourceHalted if number == 3 else SourceFailed
        assert type(life.exception()) is kind
    assert "give each client a client_id of its own" in str(life.exception())


async def test_a_broker_that_restarts_again_and_again_is_not_taken_for_a_twin(broker):
    inbox, source = Inbox(), source_for(broker)
    for _ in range(5):
        life = asyncio.create_task(source.run(inbox.deliver))
        await subscribed(broker, source, inbox)
        broker.stop()
        await asyncio.wait({life}, timeout=10)
        with pytest.raises(SourceFailed):
            await source.run(inbox.deliver)
        assert type(life.exception()) is SourceFailed
        broker.start()


def remaining_length(size):
    assert size < 128
    return bytes([size])


async def tell_of_a_takeover(reader, writer):
    """A broker of MQTT 5 that welcomes a client and then says that another one has its session."""
    while head := await reader.read(1):
        size, shift = 0, 0
        while True:
            byte = (await reader.readexactly(1))[0]
            size |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        body = await reader.readexactly(size)
        if head[0] >> 4 == 1:
            writer.write(b"\x20" + remaining_length(3) + b"\x01\x00\x00")
        elif head[0] >> 4 == 8:
            writer.write(b"\x90" + remaining_length(4) + body[:2] + b"\x00\x01")
            writer.write(b"\xe0" + remaining_length(2) + b"\x8e\x00")
    writer.close()


async def test_a_broker_that_says_session_taken_over_halts_the_source_at_once():
    server = await asyncio.start_server(tell_of_a_takeover, "127.0.0.1", 0)
    async with server:
        settings = MqttSettings(
            kind="mqtt",
            name="mqtt",
            port=server.sockets[0].getsockname()[1],
            topic=TOPICS,
            publish=Publish(enabled=False),
        )
        source = MqttSource(settings, "web1", Metrics(), environ={}, sessions=Sessions())
        with pytest.raises(SourceHalted, match="another client took over the session"):
            async with asyncio.timeout(10):
                await source.run(Inbox().deliver)


async def test_it_subscribes_again_when_the_broker_has_lost_the_session(broker):
    inbox, source = Inbox(), source_for(broker)
    async with running(source, inbox, broker):
        pass
    broker.stop()
    for kept in broker.folder.glob("*.db"):
        kept.unlink()
    broker.start()
    async with running(source, inbox, broker):
        await broker.publish(message(1))
        await inbox.wait_for(1)
    assert inbox.texts == ["1"]


class Kept:
    """What outlives the process: a value."""

    def __init__(self):
        self.state = {}

    async def recall(self):
        return self.state

    async def remember(self, state):
        self.state = json.loads(json.dumps(state))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_topics_that_changed_between_two_lives_keep_the_session_and_its_messages(broker, protocol):
    """A persistent session ignores a changed list of topics unless what went is unsubscribed by name."""
    kept, inbox, metrics = Kept(), Inbox(), Metrics()
    old = (Topic(filter="t/#"), Topic(filter="old/#"))
    async with running(source_for(broker, protocol, old, sessions=Sessions(kept)), inbox, broker):
        pass
    await broker.publish(message(1))  # while nobody is there
    new = (Topic(filter="t/#"), Topic(filter="new/#"))
    source = source_for(broker, protocol, new, sessions=Sessions(kept), metrics=metrics)
    task = asyncio.create_task(source.run(inbox.deliver))
    await inbox.wait_for(1)
    await broker.publish(("old/x", "{}"), ("new/x", '{"text": "new"}'), message(2))
    await inbox.wait_for(3)
    assert inbox.texts == ["1", "new", "2"]
    assert metrics.registry.get_sample_value("hermesd_unreadable_total", {"source": "mqtt"}) is None
    task.cancel()
    await asyncio.wait({task})


def run_openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def certificates(folder):
    """Make a CA, and certificates of a server and of a client signed by it."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    files = ("-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem")
    run_openssl("req", "-x509", *key, *files, "-subj", "/CN=ca")
    for name in ("server", "client"):
        run_openssl(
            *("req", *key, "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.csr"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
        )
        run_openssl(
            *("x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/ca.pem", "-days", "2"),
            *("-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-copy_extensions", "copy"),
            *("-out", f"{folder}/{name}.pem"),
        )


# The MQTT library leaves the socket of a handshake that failed to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_tls_checks_the_broker_and_shows_a_certificate_and_the_password_is_a_systemd_credential(
    tmp_path, needs
):
    needs(shutil.which("openssl"), "openssl")
    needs(shutil.which("mosquitto_passwd"), "mosquitto")
    certificates(tmp_path)
    set_password(tmp_path / "users", "hermes", "s3cret")
    broker = Broker(
        tmp_path,
        f"allow_anonymous false\npassword_file {tmp_path}/users\ncafile {tmp_path}/ca.pem\n"
        f"certfile {tmp_path}/server.pem\nkeyfile {tmp_path}/server.key\nrequire_certificate true",
    )
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "mqtt_password").write_text("s3cret\n")
    environ = {"CREDENTIALS_DIRECTORY": str(credentials)}
    more = {
        "tls": True,
        "ca_file": f"{tmp_path}/ca.pem",
        "cert_file": f"{tmp_path}/client.pem",
        "key_file": f"{tmp_path}/client.key",
        "username": "hermes",
        "password": Secret(credential="mqtt_password"),
    }
    broker.start()
    try:
        task = asyncio.create_task(source_for(broker, environ=environ, **more).run(Inbox().deliver))
        async with (
            aiomqtt.Client(
                "127.0.0.1",
                broker.port,
                username="hermes",
                password="s3cret",
                tls_params=aiomqtt.TLSParameters(more["ca_file"], more["cert_file"], more["key_file"]),
            ) as client,
            asyncio.timeout(10),
        ):
            await client.subscribe("hermes/v1/web1/status")
            assert json.loads((await anext(client.messages)).payload)["state"] == "online"
        task.cancel()
        await asyncio.wait({task})
        stranger = {**more, "ca_file": ""}
        with pytest.raises(SourceFailed, match="certificate verify failed"):
            await source_for(broker, environ=environ, **stranger).run(Inbox().deliver)
        with pytest.raises(SourceFailed, match="ca_file, cert_file or key_file cannot be used"):
            await source_for(broker, environ=environ, **{**more, "ca_file": "/nowhere"}).run(Inbox().deliver)
    finally:
        broker.stop()


async def test_one_task_lives_through_many_connections(broker):
    """A supervisor runs one life after the other in its task: what ended one must not end the next."""
    inbox, source = Inbox(), source_for(broker)
    ends = []

    async def lives():
        while True:
            try:
                await source.run(inbox.deliver)
            except SourceFailed as error:
                ends.append(error)
                await asyncio.sleep(0.1)

    task = asyncio.create_task(lives())
    await subscribed(broker, source, inbox)
    broker.stop()
    while not ends:
        await asyncio.sleep(0.01)
    broker.start()
    await subscribed(broker, source, inbox)
    await broker.publish(message(1))
    await inbox.wait_for(1)
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})
