"""What a file of `kind = "mqtt"` may say: the broker, the session, the topics, what is published.

This module must never read a secret or touch the network: it says what is wanted.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hermesd.events import Severity
from hermesd.sources.mapping import Map
from hermesd.sources.settings_base import EventType, NamedSource, Secret, Settings
from hermesd.sources.telegraf import TimestampUnit


class Topic(Settings):
    """A subscription and how its payloads are read.

    ``mode``: `json` (an object whose keys become the event, or what ``map`` finds in it), `number`
    (the payload is the value), `text` (the payload is the event's text), `telegraf` (single or batch)
    or `cloudevents` (structured or binary). ``type`` is the type of the events that it yields.
    """

    filter: str = Field(min_length=1, max_length=1024)
    mode: Literal["json", "number", "text", "telegraf", "cloudevents"] = "json"
    type: EventType = "mqtt.message"
    retained: bool = False
    severity: Severity = Severity.WARNING
    unit: str = Field(default="", max_length=32)
    labels: dict[str, str] = Field(default_factory=dict, max_length=16)
    fields: tuple[str, ...] = ()
    timestamp_unit: TimestampUnit = "s"
    map: Map | None = None

    @model_validator(mode="after")
    def _wildcards_stand_alone(self) -> Self:
        levels = self.filter.split("/")
        misplaced = any(("#" in level or "+" in level) and len(level) > 1 for level in levels)
        if misplaced or "#" in levels[:-1]:
            raise ValueError("in a topic filter '+' is a whole level, and '#' the whole last one")
        return self

    @model_validator(mode="after")
    def _keys_of_its_mode(self) -> Self:
        if self.map is not None and self.mode != "json":
            raise ValueError('map means nothing without mode = "json"')
        if (self.fields or self.timestamp_unit != "s") and self.mode != "telegraf":
            raise ValueError('fields and timestamp_unit mean nothing without mode = "telegraf"')
        return self


class Publish(Settings):
    """What hermesd tells the broker: that it lives (retained, with a last will), incidents, runs' ends.

    Topics stand under ``prefix``/HOST: `status`, `incidents/ID`, `runs/TASK_ID`.
    """

    enabled: bool = True
    prefix: str = Field(
        default="hermes/v1", min_length=1, max_length=256, pattern=r"\A[^+#\x00$][^+#\x00]*\z"
    )


class MqttSettings(NamedSource):
    """`kind = "mqtt"`: messages of a broker.

    ``client_id`` names the session that the broker keeps, so it must be this host's alone; empty
    means one made of the host's name. ``window`` is how many messages may be unacknowledged.
    """

    kind: Literal["mqtt"]
    host: str = Field(default="127.0.0.1", min_length=1)
    port: Annotated[int, Field(ge=1, le=65535)] = 1883
    protocol: Literal["5", "3.1.1"] = "5"
    client_id: str = Field(default="", max_length=64)
    username: str = ""
    password: Secret | None = None
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    keepalive_s: int = Field(default=30, ge=5, le=3600)
    session_expiry_s: int = Field(default=7 * 86_400, ge=60, le=0xFFFFFFFF)
    window: int = Field(default=200, ge=1, le=10_000)
    topic: tuple[Topic, ...] = Field(min_length=1)
    publish: Publish = Publish()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.password is not None and not self.username:
            raise ValueError("a password needs a username")
        if (self.ca_file or self.cert_file) and not self.tls:
            raise ValueError("ca_file and cert_file mean nothing without tls = true")
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file are given together")
        return self
