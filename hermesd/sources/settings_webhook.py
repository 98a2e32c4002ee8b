"""What a file of `kind = "webhook"` may say: where it listens, who may post, how bodies are read.

This module must never read a secret or touch the network: it says what is wanted.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from hermesd.events import Severity
from hermesd.sources.mapping import Map
from hermesd.sources.settings_base import EventType, NamedSource, Secret, Settings

Port = Annotated[int, Field(ge=0, le=65535)]
HeaderName = Annotated[str, Field(pattern=r"\A[A-Za-z0-9-]{1,64}\z")]

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
TAKEN_PATHS: Final = frozenset({"/alertmanager", "/grafana", "/events", "/healthz"})


class Basic(Settings):
    """HTTP Basic: one user and where the password stands."""

    username: str = Field(min_length=1, max_length=128, pattern=r"\A[^:\x00]+\z")
    password: Secret


class Hmac(Settings):
    """A signature over the body as it was sent, in a header, as hexadecimal digits.

    ``prefix`` stands before the digits. With a ``timestamp_header`` (seconds since 1970) what is signed
    is ``signed``, and a body older or newer than ``window_s``, or seen before, starts nothing.
    """

    secret: Secret
    header: HeaderName = "X-Hub-Signature-256"
    prefix: str = Field(default="sha256=", max_length=32)
    algorithm: Literal["sha256", "sha512"] = "sha256"
    timestamp_header: HeaderName | Literal[""] = ""
    signed: str = Field(default="{timestamp}:{body}", max_length=128)
    window_s: int = Field(default=300, ge=1, le=86_400)

    @model_validator(mode="after")
    def _both_are_signed(self) -> Self:
        if self.signed.count("{body}") != 1 or self.signed.count("{timestamp}") != 1:
            raise ValueError("signed: want {timestamp} and {body} in it, once each")
        return self


class Tls(Settings):
    """The server's certificate; with ``client_ca_file``, who has no certificate of that CA gets nowhere."""

    cert_file: str = Field(min_length=1)
    key_file: str = Field(min_length=1)
    client_ca_file: str = ""


class Hook(Settings):
    """A path of one's own whose bodies are read by a mapping: any sender's JSON."""

    path: str = Field(pattern=r"\A/[A-Za-z0-9._~/-]{1,200}\z")
    map: Map
    type: EventType = "webhook.event"
    severity: Severity = Severity.WARNING
    labels: dict[str, str] = Field(default_factory=dict, max_length=16)

    @model_validator(mode="after")
    def _a_free_path(self) -> Self:
        if self.path in TAKEN_PATHS:
            raise ValueError(f"path: {self.path} is there already")
        return self


class WebhookSettings(NamedSource):
    """`kind = "webhook"`: alerts and events that are posted here over HTTP.

    ``listen`` and ``port`` give the TCP address (an empty ``listen``: none), ``socket`` a Unix socket.
    Of ``token``, ``basic`` and ``hmac`` at most one is given: how senders of this source prove who they are.
    """

    kind: Literal["webhook"]
    listen: str = "127.0.0.1"
    port: Port = 9096
    socket: str = Field(default="", pattern=r"^(/.*)?$")
    token: Secret | None = None
    basic: Basic | None = None
    hmac: Hmac | None = None
    tls: Tls | None = None
    hook: tuple[Hook, ...] = ()

    @model_validator(mode="after")
    def _reachable_but_not_open(self) -> Self:
        if not self.listen and not self.socket:
            raise ValueError("listen and socket are both empty: nobody could reach it")
        proofs = sum(one is not None for one in (self.token, self.basic, self.hmac))
        if proofs > 1:
            raise ValueError("of token, basic and hmac name one: a source has one kind of sender")
        certified = self.tls is not None and bool(self.tls.client_ca_file)
        if self.listen and self.listen not in _LOOPBACK and not proofs and not certified:
            raise ValueError("listening beyond loopback needs a token, basic, hmac or client certificates")
        if self.tls is not None and not self.listen:
            raise ValueError("tls means nothing without listen")
        return self

    @model_validator(mode="after")
    def _paths_differ(self) -> Self:
        if len({hook.path for hook in self.hook}) < len(self.hook):
            raise ValueError("two hooks have the same path")
        return self
