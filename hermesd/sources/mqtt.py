"""The MQTT source, and the one home of aiomqtt: acknowledge after commit, never before.

The broker keeps this client's session while it is away and sends again whatever was not
acknowledged. So a message is acknowledged once its event is durable, or once it is known that it
never will be one (unreadable, retained, not asked for): bad input neither blocks nor kills.

Identity of a message: the `id` in its payload, else topic, payload and the time in the payload,
else nothing. A message of the last kind is delivered at least once: sent again to the process that
took it in, it keeps its id; sent again to a successor of that process, it becomes a second event of
the same incident.

One connection is one life of the source; the supervisor reconnects, with back-off and jitter. This
module must never discard a message that could become an event, and never hold more of them than
the window.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from hermesd.events import Event
from hermesd.protocol import ProtocolError, check_json
from hermesd.sources.base import (
    Deliver,
    EventIds,
    InboxFull,
    Now,
    Sleep,
    SourceFailed,
    Unreadable,
    utc_now,
)
from hermesd.sources.fields import as_object, cut, digest, read_id, storable
from hermesd.sources.plain import Defaults, read_plain
from hermesd.sources.secrets import read_secret
from hermesd.sources.settings import MqttSettings, Topic
from hermesd.telemetry import Metrics

if TYPE_CHECKING:
    import paho.mqtt.client as paho

log = logging.getLogger("hermesd.sources.mqtt")

QOS: Final = 1
REFUSED: Final = 128
"""Reason codes from here on mean that a subscription was refused."""

ANSWER_SECONDS: Final = 10.0
SHORT_LIFE_S: Final = 5.0
REMEMBERED: Final = 1000
MAX_PAYLOAD_BYTES: Final = 1 << 20

Sessions = dict[str, set[str]]
"""The topic filters that each client id has subscribed to, as far as this process knows."""


class MqttSource:
    """Subscribes and delivers. ``sessions`` outlives the source, so that filters that go are unsubscribed."""

    kind = "mqtt"

    def __init__(
        self,
        settings: MqttSettings,
        host: str,
        metrics: Metrics,
        *,
        environ: Mapping[str, str],
        sessions: Sessions,
        now: Now = utc_now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.name = settings.name
        self.client_id = settings.client_id or _client_id(host, settings.name)
        self._settings = settings
        self._metrics = metrics
        self._environ = environ
        self._sessions = sessions
        self._now = now
        self._sleep = sleep
        self._ids = EventIds(settings.name)
        self._given: OrderedDict[str, str] = OrderedDict()

    async def run(self, deliver: Deliver) -> None:
        """Serve one connection. Raise SourceFailed when there is none or when it ends."""
        client = await self._client()
        connection = _Connection(client)
        where = f"{self._settings.host}:{self._settings.port}"
        began = time.monotonic()
        try:
            async with client:
                await self._subscribe(client)
                log.info("%s: connected to %s as %s", self.name, where, self.client_id)
                while True:
                    await self._take_in(
                        connection, await connection.next_group(self._settings.window), deliver
                    )
        except aiomqtt.MqttError as error:
            lived = time.monotonic() - began
            raise SourceFailed(_ending(where, self.client_id, lived, error)) from None

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
            tls_params=aiomqtt.TLSParameters(ca_certs=settings.ca_file or None) if settings.tls else None,
            keepalive=settings.keepalive_s,
            timeout=ANSWER_SECONDS,
        )

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
        for filter_ in sorted(self._sessions.get(self.client_id, set()) - wanted):
            await client.unsubscribe(filter_)
        self._sessions[self.client_id] = wanted
        for topic in self._settings.topic:
            codes = await client.subscribe(topic.filter, **self._how(topic))
            if any(_code(code) >= REFUSED for code in codes):
                raise SourceFailed(f"the broker refused the subscription to {topic.filter}")

    def _how(self, topic: Topic) -> dict[str, Any]:
        if self._settings.protocol != "5":
            return {"qos": QOS}
        retained = (
            SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
            if topic.retained
            else SubscribeOptions.RETAIN_DO_NOT_SEND
        )
        return {"options": SubscribeOptions(qos=QOS, retainHandling=retained)}

    async def _take_in(
        self, connection: _Connection, group: Sequence[aiomqtt.Message], deliver: Deliver
    ) -> None:
        """Deliver a group as one, then acknowledge each of it, in the order in which it came."""
        events = [event for message in group if (event := self._event(connection, message)) is not None]
        while events:
            try:
                await deliver(events)
                break
            except InboxFull as full:
                log.warning("%s: %d messages wait unacknowledged: %s", self.name, len(group), full)
                await self._sleep(full.retry_after_seconds)
        for message in group:
            connection.acknowledge(message)

    def _event(self, connection: _Connection, message: aiomqtt.Message) -> Event | None:
        """Return the message's event; None, logged and counted, when there is none in it."""
        topic = next((one for one in self._settings.topic if message.topic.matches(one.filter)), None)
        if topic is None:
            self._set_aside(message, "no configured topic asks for it")
        elif message.retain and not topic.retained:
            log.debug("%s: a retained message on %s starts nothing", self.name, message.topic)
        else:
            try:
                return self._read(topic, message, again=connection.is_sent_again(message))
            except (Unreadable, ProtocolError) as error:
                self._set_aside(message, str(error))
        return None

    def _set_aside(self, message: aiomqtt.Message, reason: str) -> None:
        log.warning("%s: a message on %s is no event: %s", self.name, cut(str(message.topic), 200), reason)
        self._metrics.unreadable.labels(self.name).inc()

    def _read(self, topic: Topic, message: aiomqtt.Message, *, again: bool) -> Event:
        payload, name = bytes(message.payload), storable(str(message.topic))
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise Unreadable(f"longer than {MAX_PAYLOAD_BYTES} bytes")
        data = read_payload(topic.mode, payload)
        defaults = Defaults(
            source=self.name,
            type=topic.type,
            fixed_type=True,
            id=self._own_id(name, payload, has_time="time" in data or "timestamp" in data, again=again),
            now=self._now(),
            labels={**topic.labels, "topic": cut(name, 1024)},
            severity=topic.severity,
            unit=topic.unit,
            subject=cut(name, 1024),
        )
        sent_id = read_id(data.get("id"))
        return read_plain({**data, "id": f"{name} {sent_id}" if sent_id else None}, defaults)

    def _own_id(self, topic: str, payload: bytes, *, has_time: bool, again: bool) -> str:
        """Return the id of a message whose payload has none, as the module's first lines say."""
        content = digest(topic.encode(), payload)
        if has_time:
            return content
        if again and content in self._given:
            return self._given[content]
        self._given[content] = self._ids.next()
        self._given.move_to_end(content)
        if len(self._given) > REMEMBERED:
            self._given.popitem(last=False)
        return self._given[content]


class _Connection:
    """The receiving side of one client. What aiomqtt keeps to itself is reached here, and only here."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._messages = client.messages
        self._paho: paho.Client = client._client  # noqa: SLF001 - manual acknowledgement has no public name
        self._again: set[int] = set()
        self._paho.manual_ack_set(True)
        self._paho.on_message = self._noting_duplicates(self._paho.on_message)

    async def next_group(self, most: int) -> list[aiomqtt.Message]:
        """Wait for a message; return it with those that have come besides, ``most`` at most."""
        group = [await anext(self._messages)]
        while len(group) < most and len(self._messages):
            group.append(await anext(self._messages))
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


def read_payload(mode: str, payload: bytes) -> Mapping[str, Any]:
    """Return a payload as the plain object that it stands for. Raise Unreadable or ProtocolError."""
    if mode == "json":
        found = check_json(payload)
        return {"value": found} if _is_number(found) else as_object(found)
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from None
    if mode == "text":
        return {"text": text}
    try:
        return {"value": float(text)}
    except ValueError:
        raise Unreadable("not a number") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
