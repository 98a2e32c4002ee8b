"""What a person emits at the desk becomes an event, like any other, with who it was in its labels.

Pure. This module must never let a person speak in the name of a source, or of another person.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any, Final

from hermesd.events import Event
from hermesd.ipc.messages import Code
from hermesd.ipc.server import RequestError
from hermesd.sources.base import Unreadable
from hermesd.sources.plain import Defaults, read_plain

SOURCE: Final = "hermesctl"
TYPE: Final = "hermesctl.event"
_FIELDS: Final = ("id", "type", "subject", "labels", "status", "severity", "value", "unit", "text")


def read_emitted(payload: dict[str, Any], uid: int, now: datetime) -> Event:
    """Return the event that a person's words describe. Raise RequestError."""
    unknown = sorted(set(payload) - set(_FIELDS))
    if unknown:
        raise RequestError(Code.BAD_REQUEST, f"{unknown[0][:40]}: an event has no such field")
    defaults = Defaults(
        source=SOURCE,
        type=TYPE,
        id=f"emit-{secrets.token_hex(6)}",
        now=now,
        labels={"asked_by": str(uid)},
    )
    given = {name: payload[name] for name in _FIELDS if payload.get(name) not in (None, "")}
    try:
        return read_plain(given, defaults)
    except Unreadable as error:
        raise RequestError(Code.BAD_REQUEST, str(error)) from None
