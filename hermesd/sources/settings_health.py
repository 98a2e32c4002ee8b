"""What a file of `kind = "health"` may say: which targets are asked, how, and what counts as up.

This module must never touch the network: it says what is wanted.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from hermesd.events import Severity
from hermesd.sources.settings_base import AbsolutePath, NamedSource, Settings, SourceName

_COMMAND: Final = re.compile(r"command:[a-z][a-z0-9_]{0,31}:[a-z][a-z0-9_]{0,31}")
_WITH_TLS: Final = ("https", "tls")
_UNIT: Final = re.compile(r"unit:[A-Za-z0-9:_.\\@-]{1,240}\.[a-z]+")
_KEYS: Final = {
    "expect": ("http", "https"),
    "body": ("http", "https", "command"),
    "within_ms": ("http", "https", "tcp", "tls", "dns"),
    "ca_file": _WITH_TLS,
    "record": ("dns",),
    "answer": ("dns",),
    "args": ("command",),
}
"""What means something only where one of these is asked."""

_WANTED: Final = (
    "url: want http://HOST…, https://HOST…, tcp://HOST:PORT, tls://HOST:PORT, dns://SERVER/NAME, "
    "unit:NAME or command:NAME"
)


class Check(Settings):
    """One health check: what is asked, and which answer means up.

    ``times`` failed probes in a row mean down; until then the answer is unknown. ``every_s`` of 0 is the
    source's ``interval_s``. ``body`` is a regular expression that the answer (or a command's output) must
    contain. An answer later than ``within_ms`` is down; 0 gives it the whole ``timeout_s``.
    """

    name: SourceName
    url: str
    expect: tuple[Annotated[int, Field(ge=100, le=599)], ...] = ()
    body: str = Field(default="", max_length=1024)
    within_ms: float = Field(default=0.0, ge=0, le=120_000)
    record: Literal["A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"] = "A"
    answer: str = Field(default="", max_length=1024)
    args: dict[str, Any] = Field(default_factory=dict, max_length=32)
    every_s: float = Field(default=0.0, ge=0, le=86_400)
    timeout_s: float = Field(default=5.0, gt=0, le=120)
    times: int = Field(default=3, ge=1, le=100)
    severity: Severity = Severity.CRITICAL
    verify_tls: bool = True
    ca_file: AbsolutePath | Literal[""] = ""
    labels: dict[str, str] = Field(default_factory=dict, max_length=16)

    @property
    def scheme(self) -> str:
        """Return what kind of target it is."""
        return self.url.partition(":")[0]

    @model_validator(mode="after")
    def _a_target(self) -> Self:
        if self.scheme == "command":
            if not _COMMAND.fullmatch(self.url):
                raise ValueError(_WANTED)
            return self
        if self.scheme == "unit":
            if not _UNIT.fullmatch(self.url):
                raise ValueError(_WANTED)
            return self
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https", "tcp", "tls", "dns"}:
            raise ValueError(_WANTED)
        if parts.scheme == "dns" and (not parts.path.strip("/") or (parts.port and not parts.hostname)):
            raise ValueError(
                "url: dns needs a name: dns://SERVER/NAME, or dns:///NAME for the host's resolver"
            )
        if parts.scheme != "dns" and not parts.hostname:
            raise ValueError(_WANTED)
        if parts.scheme in {"tcp", "tls"} and not parts.port:
            raise ValueError(f"url: {parts.scheme} needs a port")
        if parts.username or parts.password:
            raise ValueError("url: credentials do not belong into it, since it is shown as a label")
        return self

    @model_validator(mode="after")
    def _keys_of_its_target(self) -> Self:
        for key, schemes in _KEYS.items():
            if key in self.model_fields_set and self.scheme not in schemes:
                raise ValueError(f"{key} means nothing for {self.scheme}:")
        if self.scheme == "dns" and self.url.startswith("dns:///") and self.record not in {"A", "AAAA"}:
            raise ValueError("record: the host's resolver is asked for addresses only; name a server")
        if self.ca_file and not self.verify_tls:
            raise ValueError("ca_file means nothing with verify_tls = false")
        try:
            re.compile(self.body)
        except re.error as error:
            raise ValueError(f"body is no regular expression: {error}") from None
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
