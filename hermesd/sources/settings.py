"""What `conf.d/sources/*.toml` may say: one model for each kind of source.

A file names its `kind`; the rest of it is read by that kind's model, and anything that the model
does not know is a fault with its line. This module must never read a secret or touch the network:
it says what is wanted, and nothing is opened here.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from hermesd.confd import ConfigError, Document
from hermesd.events import Severity

SourceName = Annotated[str, StringConstraints(pattern=r"\A[a-z0-9][a-z0-9_-]{0,47}\z")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"\A/[^\x00]*\z")]
Port = Annotated[int, Field(ge=0, le=65535)]

RESERVED: Final = frozenset({"schedule", "deadman", "hermesctl"})
"""Names under which the daemon itself tells events: no file may give one to a source."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _SourceSettings(_Settings):
    """What every source has: a name (the file's, unless it says another) and a switch."""

    name: SourceName
    enabled: bool = True

    @model_validator(mode="after")
    def _not_the_daemons_own(self) -> Self:
        if self.name in RESERVED:
            raise ValueError(f"{self.name} is a name of the daemon's own: events under it are told by itself")
        return self


class Secret(_Settings):
    """Where a secret stands: a file, or a credential that systemd passes. Never the secret itself."""

    file: str = ""
    credential: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]*$")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if bool(self.file) == bool(self.credential):
            raise ValueError("a secret stands either in a file or in a credential: name exactly one")
        return self


class Level(_Settings):
    """A measure of the whole host. A change below ``min_change`` percentage points is not told."""

    enabled: bool = True
    min_change: float = Field(default=2.0, ge=0)


class Filesystems(_Settings):
    """Which file systems are measured. ``only`` and ``exclude`` are mount points or shell patterns."""

    enabled: bool = True
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    min_change: float = Field(default=0.1, ge=0)


class Folder(_Settings):
    """A folder with a budget: its reading is the percent of ``budget_bytes`` in use, as `du` counts."""

    path: AbsolutePath
    budget_bytes: int = Field(ge=1)
    min_change: float = Field(default=0.1, ge=0)


class HostSettings(_SourceSettings):
    """`kind = "host"`: what this machine measures of itself.

    ``probe_timeout_s`` bounds each single measurement; one that takes longer is ended and told as stuck.
    """

    kind: Literal["host"]
    interval_s: float = Field(default=15.0, ge=0.2, le=86_400)
    refresh_s: float = Field(default=60.0, ge=0.2)
    probe_timeout_s: float = Field(default=5.0, gt=0, le=600)
    filesystems: Filesystems = Filesystems()
    folder: tuple[Folder, ...] = ()
    memory: Level = Level()
    swap: Level = Level()
    load: Level = Level()


class Topic(_Settings):
    """A subscription and how its payloads are read.

    ``mode``: `json` (an object whose keys become the event), `number` (the payload is the value),
    `text` (the payload is the event's text). ``type`` is the type of the events that it yields.
    """

    filter: str = Field(min_length=1, max_length=1024)
    mode: Literal["json", "number", "text"] = "json"
    type: str = Field(default="mqtt.message", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$")
    retained: bool = False
    severity: Severity = Severity.WARNING
    unit: str = Field(default="", max_length=32)
    labels: dict[str, str] = Field(default_factory=dict, max_length=16)

    @model_validator(mode="after")
    def _wildcards_stand_alone(self) -> Self:
        levels = self.filter.split("/")
        misplaced = any(("#" in level or "+" in level) and len(level) > 1 for level in levels)
        if misplaced or "#" in levels[:-1]:
            raise ValueError("in a topic filter '+' is a whole level, and '#' the whole last one")
        return self


class MqttSettings(_SourceSettings):
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
    keepalive_s: int = Field(default=30, ge=5, le=3600)
    session_expiry_s: int = Field(default=7 * 86_400, ge=60, le=0xFFFFFFFF)
    window: int = Field(default=20, ge=1, le=1000)
    topic: tuple[Topic, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.password is not None and not self.username:
            raise ValueError("a password needs a username")
        if self.ca_file and not self.tls:
            raise ValueError("ca_file means nothing without tls = true")
        return self


class WebhookSettings(_SourceSettings):
    """`kind = "webhook"`: alerts and events that are posted here over HTTP.

    ``listen`` and ``port`` give the TCP address (an empty ``listen``: none), ``socket`` a Unix socket.
    """

    kind: Literal["webhook"]
    listen: str = "127.0.0.1"
    port: Port = 9096
    socket: str = Field(default="", pattern=r"^(/.*)?$")
    token: Secret | None = None

    @model_validator(mode="after")
    def _reachable_but_not_open(self) -> Self:
        if not self.listen and not self.socket:
            raise ValueError("listen and socket are both empty: nobody could reach it")
        if self.listen and self.listen not in _LOOPBACK and self.token is None:
            raise ValueError("listening beyond loopback needs a token")
        return self


class Check(_Settings):
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


class HealthSettings(_SourceSettings):
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


class BuiltIn(_Settings):
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
