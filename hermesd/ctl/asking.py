"""Asking the two processes: one question over one socket, answered by a value or by silence.

Who asks gets a `Reply` and judges it; whoever cannot go on without the payload calls `payload_or_stop`.
This module must never ask twice by itself, and never print.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hermesd.ctl import messages as m
from hermesd.ctl.exits import Exit, Stop
from hermesd.ctl.speech import Speech
from hermesd.ipc.client import BlockingClient, Unreachable
from hermesd.ipc.messages import Code

OPERATOR_GROUP: Final = "hermesd-operators"

_NOT_RUNNING: Final = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR})
_CLOSED: Final = frozenset({errno.EACCES, errno.EPERM})
_TURNED_AWAY: Final = frozenset({errno.ECONNRESET, errno.EPIPE})

_EXITS: Final[dict[str, Exit]] = {
    Code.BAD_REQUEST: Exit.USAGE,
    Code.NOT_FOUND: Exit.NOT_FOUND,
    Code.REFUSED: Exit.REFUSED,
    Code.NOT_NOW: Exit.REFUSED,
    Code.INTERNAL: Exit.BAD,
}


@dataclass(frozen=True, slots=True)
class Place:
    """A process and the socket at which it answers people."""

    name: str
    unit: str
    socket: Path


@dataclass(frozen=True, slots=True)
class Running:
    """The work goes on; what it says of itself."""

    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """It succeeded."""

    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """It was answered with `failed`: a code for programs, a reason for people."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Silent:
    """Nobody answered. ``errno`` says why; ``text`` is the client's own word for it."""

    place: Place
    errno: int
    text: str = field(default="", compare=False)


Reply = Answer | Refused | Silent


def stream(place: Place, kind: str, payload: dict[str, Any], seconds: float) -> Iterator[Running | Reply]:
    """Yield what is said while the work goes on, then exactly one Reply.

    ``seconds`` bounds each silence, not the whole.
    """
    try:
        with BlockingClient(place.socket, seconds) as client:
            for envelope in client.ask(kind, payload):
                yield _read(envelope)
    except Unreachable as error:
        yield Silent(place, error.code, str(error))
    except OSError as error:  # the machine has no socket left to give
        yield Silent(place, error.errno or errno.EPROTO, str(error))


def ask(place: Place, kind: str, payload: dict[str, Any], seconds: float) -> Reply:
    """Ask one question and return how it was answered, passing over what is said in between."""
    for said in stream(place, kind, payload, seconds):
        if not isinstance(said, Running):
            return said
    return Silent(place, errno.ECONNRESET)


def _read(envelope: dict[str, Any]) -> Running | Reply:
    payload: dict[str, Any] = envelope["payload"]
    match envelope.get("status"):
        case "succeeded":
            return Answer(payload)
        case "failed":
            return Refused(str(payload.get("code", "")), str(payload.get("reason", "")))
        case _:
            return Running(payload)


def payload_or_stop(reply: Reply, say: Speech) -> dict[str, Any]:
    """Return the payload of an answer. Raise Stop with the exit code and words of anything else."""
    if isinstance(reply, Answer):
        return reply.payload
    if isinstance(reply, Silent):
        raise Stop(Exit.UNREACHABLE, "unreachable", why_silent(reply, say), socket=str(reply.place.socket))
    raise Stop(exit_of(reply), reply.code or "failed", why_refused(reply, say))


def exit_of(refused: Refused) -> Exit:
    """Return the exit code that a refusal of the other side means."""
    return _EXITS.get(refused.code, Exit.BAD)


def why_refused(refused: Refused, say: Speech) -> tuple[str, ...]:
    """Return the reason in lines for people; the daemons give a fault a line each."""
    return tuple(line for line in refused.reason.splitlines() if line.strip()) or (say(m.NO_REASON),)


def why_silent(silent: Silent, say: Speech) -> tuple[str, str]:
    """Return in two lines who does not answer at which socket, and what to do about it."""
    place = silent.place
    names = {"name": place.name, "socket": place.socket, "unit": place.unit, "group": OPERATOR_GROUP}
    if silent.errno in _NOT_RUNNING:
        return say(m.NOT_RUNNING, **names), say(m.LOOK_AT_UNIT, **names)
    if silent.errno in _CLOSED:
        return say(m.NOT_PERMITTED, **names), say(m.JOIN_GROUP, **names)
    if silent.errno in _TURNED_AWAY:
        return say(m.TURNED_AWAY, **names), say(m.JOIN_OR_LOOK, **names)
    if silent.errno == errno.ETIMEDOUT:
        return say(m.NO_ANSWER, **names), say(m.LOOK_AT_UNIT, **names)
    return say(m.NOT_REACHED, **names, text=silent.text), say(m.LOOK_AT_UNIT, **names)
