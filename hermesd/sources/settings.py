"""What `conf.d/sources/*.toml` may say: one model for each kind of source.

A file names its `kind`; the rest of it is read by that kind's model, and anything that the model
does not know is a fault with its line. This module must never read a secret or touch the network:
it says what is wanted, and nothing is opened here.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from hermesd.confd import ConfigError, Document
from hermesd.events import Severity
from hermesd.sources.settings_base import RESERVED, NamedSource, Secret, Settings, SourceName
from hermesd.sources.settings_host import Filesystems, Folder, HostSettings, Level
from hermesd.sources.settings_mqtt import MqttSettings, Topic
from hermesd.sources.settings_webhook import WebhookSettings

__all__ = [
    "RESERVED",
    "BuiltIn",
    "Check",
    "Filesystems",
    "Folder",
    "HealthSettings",
    "HostSettings",
    "Level",
    "MqttSettings",
    "Secret",
    "SourceSettings",
    "Topic",
    "WebhookSettings",
    "read_source",
]


class Check(Settings):
    """One health check: `http://…`, `https://…` or `tcp://HOST:PORT`.

    ``expect`` are the HTTP statuses that mean up (none given: any of 200 to 399; redirects are not
    followed). ``times`` failed probes in a row mean down; until then the answer is unknown.
    """

    name: SourceName
    url: str
    expect: tuple[Annotated[int, Field(ge=100, le=599)], ...] = ()
    timeout_s: float = Field(default=5.0, gt=0, le=120)
    times: int = Field(default=3, ge=1, le=100)
    severity: Severity = Severity.CRITICAL
    verify_tls: bool = True
    labels: dict[str, str] = Field(default_factory=dict, max_length=16)

    @model_validator(mode="after")
    def _a_target(self) -> Self:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https", "tcp"} or not parts.hostname:
            raise ValueError("url: want http://HOST…, https://HOST… or tcp://HOST:PORT")
        if parts.scheme == "tcp" and not parts.port:
            raise ValueError("url: tcp needs a port")
        if parts.username or parts.password:
            raise ValueError("url: credentials do not belong into it, since it is shown as a label")
        return self


class HealthSettings(NamedSource):
    """`kind = "health"`: whether things answer. What is down is told again each ``refresh_s``."""

    kind: Literal["health"]
    interval_s: float = Field(default=15.0, ge=0.2, le=86_400)
    refresh_s: float = Field(default=300.0, ge=0.2)
    check: tuple[Check, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if len({check.name for check in self.check}) < len(self.check):
            raise ValueError("two checks have the same name")
        return self


class BuiltIn(Settings):
    """A source of the daemon's own, which no file names: it is there when something needs it."""

    name: str
    kind: Literal["schedule", "deadman"]
    enabled: bool = True


SourceSettings = HostSettings | MqttSettings | WebhookSettings | HealthSettings | BuiltIn

_KINDS: Final[dict[str, type[HostSettings | MqttSettings | WebhookSettings | HealthSettings]]] = {
    "host": HostSettings,
    "mqtt": MqttSettings,
    "webhook": WebhookSettings,
    "health": HealthSettings,
}


def read_source(document: Document) -> SourceSettings:
    """Return the settings that the file gives. Raise ConfigError with file and line."""
    kind = document.data.get("kind")
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        wanted = ", ".join(_KINDS)
        raise ConfigError([document.fault(("kind",), f"kind: want one of {wanted}")])
    return document.read(model, {"name": document.name, **document.data})
