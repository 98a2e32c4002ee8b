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

from hermesd.sources.base import InboxFull, SourceFailed
from hermesd.sources.mqtt import MqttSource
from hermesd.sources.sessions import Sessions
from hermesd.sources.settings import MqttSettings, Secret, Topic
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


def source_for(broker, *args, sessions=None, sleep=asyncio.sleep, metrics=None, environ=None, **more):
    return MqttSource(
        settings_for(broker, *args, **more),
        "web1",
        metrics or Metrics(),
        environ=environ or {},
        sessions=Sessions() if sessions is None else sessions,
        sleep=sleep,
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
            kind="mqtt", name="mqtt", port=server.sockets[0].getsockname()[1], protocol="3.1.1", topic=TOPICS
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
