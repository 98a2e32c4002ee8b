"""The MQTT source, and the one home of aiomqtt: acknowledge after commit, never before.

The broker keeps this client's session while it is away and sends again whatever was not
acknowledged. So a message is acknowledged once its event is durable, or once it is known that it
never will be one (unreadable, retained, not asked for): bad input neither blocks nor kills.

One connection is one life of the source; the supervisor reconnects, with back-off and jitter, for
ever, unless another client has taken the session: then going on would throw that one out in turn.

While it is connected it tells: a retained `PREFIX/HOST/status` with a last will, incidents, and how
runs ended. This module must never discard a message that could become an event, and never hold more of
them than the window.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from hermesd import __version__
from hermesd.events import Event
from hermesd.protocol import ProtocolError
from hermesd.sources.base import (
    Deliver,
    InboxFull,
    Now,
    Sleep,
    SourceFailed,
    SourceHalted,
    Unreadable,
    utc_now,
)
from hermesd.sources.bulletin import Bulletin
from hermesd.sources.fields import cut, storable
from hermesd.sources.secrets import read_secret
from hermesd.sources.sessions import Sessions
from hermesd.sources.settings_mqtt import MqttSettings, Topic
from hermesd.sources.takeover import SESSION_TAKEN_OVER, Churn
from hermesd.sources.topics import Message, MessageReader
from hermesd.telemetry import Metrics

if TYPE_CHECKING:
    import paho.mqtt.client as paho

log = logging.getLogger("hermesd.sources.mqtt")

QOS: Final = 1
REFUSED: Final = 128
"""Reason codes from here on mean that a subscription was refused."""

CONNECTION_LOST: Final = frozenset({7, 128})
"""What paho calls an end of the connection that nobody announced: its own code, and MQTT 5's."""

ANSWER_SECONDS: Final = 10.0
FAREWELL_SECONDS: Final = 1.0
SHORT_LIFE_S: Final = 5.0
KNOWN_TOPICS: Final = 10_000


class MqttSource:
    """Subscribes, delivers and tells. ``sessions`` outlives the source, so that what goes is unsubscribed."""

    kind = "mqtt"

    def __init__(
        self,
        settings: MqttSettings,
        host: str,
        metrics: Metrics,
        *,
        environ: Mapping[str, str],
        sessions: Sessions,
        bulletin: Bulletin | None = None,
        now: Now = utc_now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.name = settings.name
        self.client_id = settings.client_id or _client_id(host, settings.name)
        self.prefix = f"{settings.publish.prefix}/{_level(host)}"
        self._settings = settings
        self._metrics = metrics
        self._environ = environ
        self._sessions = sessions
        self._bulletin = bulletin or Bulletin()
        self._now = now
        self._sleep = sleep
        self._churn = Churn()
        self._reader = MessageReader(settings.name, now)
        self._known: dict[str, Topic | None] = {}
        sessions.told.setdefault(self.client_id, self._bulletin.last)

    async def run(self, deliver: Deliver) -> None:
        """Serve one connection. Raise SourceFailed when there is none or when it ends."""
        client = await self._client()
        connection = _Connection(client)
        began, established, cancelled = time.monotonic(), False, _cancellations()
        try:
            async with client:
                established = True
                await self._subscribe(client)
                await self._say(client, "online")
                log.info("%s: connected to %s as %s", self.name, self._where, self.client_id)
                _hear_cancellation(cancelled)
                await self._serve(client, connection, deliver)
        except aiomqtt.MqttError as error:
            raise self._end(error, time.monotonic() - began, established=established) from None

    async def _serve(self, client: aiomqtt.Client, connection: _Connection, deliver: Deliver) -> None:
        """Receive and tell until cancelled; a stop that is meant is told as one, which a last will is not."""
        fault: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._receive(connection, deliver), name=f"{self.name}-receive")
                if self._settings.publish.enabled:
                    group.create_task(self._publish(client), name=f"{self.name}-publish")
        except BaseExceptionGroup as ended:
            fault = ended.exceptions[0]
        except asyncio.CancelledError:
            await self._say(client, "stopped", seconds=FAREWELL_SECONDS)
            raise
        if fault is not None:
            raise fault  # out here: its context would be the group that holds it, a ring

    async def _receive(self, connection: _Connection, deliver: Deliver) -> None:
        while True:
            await self._take_in(connection, await connection.next_group(self._settings.window), deliver)

    async def _publish(self, client: aiomqtt.Client) -> None:
        """Tell what the bulletin has, in order; what the broker did not take is told at the next one."""
        told = self._sessions.told
        while True:
            for number, notice in await self._bulletin.after(told[self.client_id]):
                payload = json.dumps(notice.content, ensure_ascii=False)
                await client.publish(f"{self.prefix}/{notice.topic}", payload, qos=QOS)
                told[self.client_id] = number
                _hear_cancellation(0)

    async def _say(self, client: aiomqtt.Client, state: str, seconds: float = ANSWER_SECONDS) -> None:
        """Set the retained status. That it cannot be set is said, and ends nothing by itself."""
        if not self._settings.publish.enabled:
            return
        try:
            async with asyncio.timeout(seconds):
                await client.publish(f"{self.prefix}/status", self._status(state), qos=QOS, retain=True)
        except (TimeoutError, aiomqtt.MqttError) as error:
            log.warning("%s: the status %s could not be told: %s", self.name, state, error or "too slow")

    def _status(self, state: str) -> str:
        since = self._now().isoformat(timespec="seconds")
        return json.dumps({"state": state, "since": since, "source": self.name, "version": __version__})

    @property
    def _where(self) -> str:
        return f"{self._settings.host}:{self._settings.port}"

    async def _client(self) -> aiomqtt.Client:
        settings = self._settings
        five = settings.protocol == "5"
        password = await read_secret(settings.password, self._environ) if settings.password else None
        return aiomqtt.Client(
            settings.host,
            settings.port,
            username=settings.username or None,
            password=password,
            identifier=self.client_id,
            protocol=aiomqtt.ProtocolVersion.V5 if five else aiomqtt.ProtocolVersion.V311,
            **(self._session_of_5() if five else {"clean_session": False}),
            tls_context=await asyncio.to_thread(_tls, settings) if settings.tls else None,
            will=self._will() if settings.publish.enabled else None,
            keepalive=settings.keepalive_s,
            timeout=ANSWER_SECONDS,
        )

    def _will(self) -> aiomqtt.Will:
        return aiomqtt.Will(f"{self.prefix}/status", self._status("lost"), qos=QOS, retain=True)

    def _session_of_5(self) -> dict[str, Any]:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self._settings.session_expiry_s
        properties.ReceiveMaximum = self._settings.window
        return {"clean_start": False, "properties": properties}

    async def _subscribe(self, client: aiomqtt.Client) -> None:
        """Ask for the configured topics, and take back what this session asked for before.

        Always, whether or not the broker kept the session: a broker that lost it is silent otherwise.
        """
        wanted = {topic.filter for topic in self._settings.topic}
        for filter_ in sorted(await self._sessions.filters(self.client_id) - wanted):
            await client.unsubscribe(filter_)
        await self._sessions.keep(self.client_id, wanted)
        for topic in self._settings.topic:
            codes = await client.subscribe(topic.filter, **self._how())
            if any(_code(code) >= REFUSED for code in codes):
                raise SourceFailed(f"the broker refused the subscription to {topic.filter}")

    def _how(self) -> dict[str, Any]:
        """Return the options of a subscription: with MQTT 5 a kept one gets no retained messages again."""
        if self._settings.protocol != "5":
            return {"qos": QOS}
        retained = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        return {"options": SubscribeOptions(qos=QOS, retainHandling=retained)}

    async def _take_in(
        self, connection: _Connection, group: Sequence[aiomqtt.Message], deliver: Deliver
    ) -> None:
        """Deliver a group as one, then acknowledge each of it, in the order in which it came."""
        events = [event for message in group for event in self._events(connection, message)]
        while events:
            try:
                await deliver(events)
                break
            except InboxFull as full:
                log.warning("%s: %d messages wait unacknowledged: %s", self.name, len(group), full)
                await self._sleep(full.retry_after_seconds)
        for message in group:
            connection.acknowledge(message)

    def _events(self, connection: _Connection, message: aiomqtt.Message) -> Sequence[Event]:
        """Return the message's events; none, logged and counted, when it cannot be read."""
        name = str(message.topic)
        if name.startswith(f"{self.prefix}/"):
            return ()  # hermesd's own words: hearing itself it would never come to rest
        topic = self._topic_of(message)
        if topic is None:
            return self._set_aside(name, "no configured topic asks for it")
        sent = Message(
            storable(name),
            message.payload,
            retained=bool(message.retain),
            again=connection.is_sent_again(message),
            attributes=_user_properties(message),
            content_type=getattr(message.properties, "ContentType", "") or "",
        )
        try:
            return self._reader.read(topic, sent)
        except (Unreadable, ProtocolError) as error:
            return self._set_aside(name, str(error))

    def _topic_of(self, message: aiomqtt.Message) -> Topic | None:
        name = str(message.topic)
        if name not in self._known:
            if len(self._known) >= KNOWN_TOPICS:
                self._known.clear()
            asked = (one for one in self._settings.topic if message.topic.matches(one.filter))
            self._known[name] = next(asked, None)
        return self._known[name]

    def _set_aside(self, name: str, reason: str) -> Sequence[Event]:
        log.warning("%s: a message on %s is no event: %s", self.name, cut(name, 200), reason)
        self._metrics.unreadable.labels(self.name).inc()
        return ()

    def _end(self, error: aiomqtt.MqttError, lived: float, *, established: bool) -> SourceFailed:
        """Say why the connection ended, and whether another one may be tried."""
        code = _code(getattr(error.__cause__ or error, "rc", None))
        if not established:
            self._churn.not_established()
        elif code == SESSION_TAKEN_OVER or (code in CONNECTION_LOST and self._churn.ended(self._now())):
            return SourceHalted(
                f"another client took over the session {self.client_id} at {self._where};"
                " not connecting again: give each client a client_id of its own, then reload"
            )
        return SourceFailed(_ending(self._where, self.client_id, lived, error))


class _Connection:
    """The receiving side of one client. What aiomqtt keeps to itself is reached here, and only here."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._messages = client.messages
        self._waiting = client._queue  # noqa: SLF001 - its public iterator makes a task for each message
        self._paho: paho.Client = client._client  # noqa: SLF001 - manual acknowledgement has no public name
        self._again: set[int] = set()
        self._paho.manual_ack_set(True)
        self._paho.on_message = self._noting_duplicates(self._paho.on_message)

    async def next_group(self, most: int) -> list[aiomqtt.Message]:
        """Wait for a message; return it with those that have come besides, ``most`` at most."""
        group = [await anext(self._messages)]
        while len(group) < most and not self._waiting.empty():
            group.append(self._waiting.get_nowait())
        return group

    def is_sent_again(self, message: aiomqtt.Message) -> bool:
        """Tell whether the broker marked the message as sent before."""
        return message.mid in self._again

    def acknowledge(self, message: aiomqtt.Message) -> None:
        """Tell the broker that the message is safe (or of no use) here."""
        self._again.discard(message.mid)
        if message.qos > 0:
            self._paho.ack(message.mid, message.qos)

    def _noting_duplicates(self, receive: Callable[..., Any] | None) -> Callable[..., Any]:
        def on_message(client: paho.Client, userdata: Any, message: paho.MQTTMessage) -> None:
            if message.dup:
                self._again.add(message.mid)
            try:
                if receive is not None:
                    receive(client, userdata, message)
            except ValueError:  # a topic that is none: kept, it would come again and end every connection
                log.warning("a message without a valid topic is set aside")
                self._paho.ack(message.mid, message.qos)

        return on_message


def _code(code: Any) -> int:
    """Return a SUBACK's code as a number: MQTT 5 wraps it in an object."""
    value: int = getattr(code, "value", code)
    return value


def _client_id(host: str, name: str) -> str:
    """Return an id that is this host's and this source's alone, and short enough for any broker."""
    whole = f"{host}/{name}"
    return f"hermesd-{hashlib.sha256(whole.encode()).hexdigest()[:14]}"


def _ending(where: str, client_id: str, lived: float, error: Exception) -> str:
    cause = error.__cause__ or error
    if lived < SHORT_LIFE_S and "Disconnected" in str(error):
        return f"the broker {where} ended the connection at once; does another client use the id {client_id}?"
    return f"no connection to the broker {where}: {cause}"


def _cancellations() -> int:
    """Return how often this task was cancelled; a task group that failed may leave one behind."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _hear_cancellation(before: int) -> None:
    """Raise CancelledError when this task was cancelled since: `wait_for` of Python 3.11 may swallow that."""
    if _cancellations() > before:
        raise asyncio.CancelledError


def _user_properties(message: aiomqtt.Message) -> Mapping[str, str]:
    return dict(getattr(message.properties, "UserProperty", ()))


def _tls(settings: MqttSettings) -> ssl.SSLContext:
    """Return the context that checks the broker's certificate and shows ours, if any. Raise SourceFailed."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
    except OSError as error:  # ssl.SSLError is one
        raise SourceFailed(f"ca_file, cert_file or key_file cannot be used: {error}") from None
    return context


def _level(host: str) -> str:
    """Return a host's name as one level of a topic."""
    return "".join("_" if char in "/+#" or not char.isprintable() else char for char in host) or "localhost"
