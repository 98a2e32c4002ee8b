"""How who posts proves who they are: a bearer token, a user with a password, or a signature.

Alertmanager can send the first two, Grafana and most others sign too; certificates are checked below
this, by TLS. Every comparison takes the same time whatever was sent. This module must never say in a
refusal what would have been right.
"""

from __future__ import annotations

import base64
import hmac
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from hermesd.sources.secrets import read_secret
from hermesd.sources.settings_webhook import Hmac, WebhookSettings

MOST_SEEN: Final = 100_000
"""Signatures that are remembered within a window; beyond that the oldest are forgotten."""


class Door:
    """Who may enter by their headers. ``wanted`` is the whole Authorization header; empty: anybody."""

    def __init__(self, wanted: str, challenge: str) -> None:
        self._wanted = wanted.encode()
        self.challenge = challenge

    def lets_in(self, headers: Mapping[str, str]) -> bool:
        """Say whether the request may be read at all."""
        given = headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        return not self._wanted or hmac.compare_digest(given, self._wanted)


async def open_door(settings: WebhookSettings, environ: Mapping[str, str]) -> Door:
    """Return the door that the settings ask for. Raise SourceFailed when its secret cannot be read."""
    if settings.token is not None:
        return Door(f"Bearer {await read_secret(settings.token, environ)}", "Bearer")
    if settings.basic is not None:
        pair = f"{settings.basic.username}:{await read_secret(settings.basic.password, environ)}"
        return Door(f"Basic {base64.b64encode(pair.encode()).decode()}", 'Basic realm="hermesd"')
    return Door("", "")


class Seal:
    """Signatures over bodies. Those that carry a time are good for a window, and once."""

    def __init__(self, settings: Hmac, secret: str) -> None:
        self._settings = settings
        self._secret = secret.encode()
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def refusal(self, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
        """Return why the body is not believed, empty when it is."""
        settings = self._settings
        stamp = headers.get(settings.timestamp_header, "") if settings.timestamp_header else ""
        if settings.timestamp_header and not _is_close(stamp, now, settings.window_s):
            return f"{settings.timestamp_header} is not a time within {settings.window_s} s of now"
        wanted = hmac.new(self._secret, self._signed(stamp, body), settings.algorithm).hexdigest()
        given = self._given(headers)
        if not hmac.compare_digest(given, f"{settings.prefix}{wanted}".encode()):
            return f"{settings.header} does not sign this body"
        return ""

    def was_seen(self, headers: Mapping[str, str]) -> bool:
        """Say whether this very signature was let through before: a sender's second try, or a replay."""
        return bool(self._settings.timestamp_header) and self._given(headers) in self._seen

    def let_through(self, headers: Mapping[str, str], now: datetime) -> None:
        """Remember a signature whose body is durable, for as long as its time would be believed."""
        if not self._settings.timestamp_header:
            return
        self._seen[self._given(headers)] = now.timestamp()
        oldest = now.timestamp() - 2 * self._settings.window_s
        while len(self._seen) > MOST_SEEN or next(iter(self._seen.values())) < oldest:
            self._seen.popitem(last=False)

    def _given(self, headers: Mapping[str, str]) -> bytes:
        return headers.get(self._settings.header, "").encode("utf-8", "surrogateescape")

    def _signed(self, stamp: str, body: bytes) -> bytes:
        if not self._settings.timestamp_header:
            return body
        before, _, after = self._settings.signed.partition("{body}")
        return (
            before.replace("{timestamp}", stamp).encode()
            + body
            + after.replace("{timestamp}", stamp).encode()
        )


async def make_seal(settings: WebhookSettings, environ: Mapping[str, str]) -> Seal | None:
    """Return what checks signatures, None where the settings ask for none. Raise SourceFailed."""
    if settings.hmac is None:
        return None
    return Seal(settings.hmac, await read_secret(settings.hmac.secret, environ))


def _is_close(stamp: str, now: datetime, window_s: int) -> bool:
    if not stamp.isascii() or not stamp.isdigit() or len(stamp) > len("99999999999"):
        return False
    return abs(now.timestamp() - int(stamp)) <= window_s
