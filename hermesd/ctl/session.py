"""One invocation of hermesctl: whom it asks, in which language it answers, and in which form.

With `--json` one document goes to standard output, errors too; without it, lines and tables. This
module must never know a command.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hermesd.ctl import messages as m
from hermesd.ctl.asking import Place, ask, payload_or_stop
from hermesd.ctl.exits import Stop
from hermesd.ctl.screen import Item, Line, Screen, Tone, screen_of
from hermesd.ctl.speech import Speech, language_of
from hermesd.ctl.width import cells

CONTROL_SOCKET: Final = "/run/hermesd/control.sock"
OPERATOR_SOCKET: Final = "/run/hermesd-executor/operator.sock"
ANSWER_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Session:
    """What every command needs."""

    say: Speech
    screen: Screen
    daemon: Place
    executor: Place
    seconds: float
    as_json: bool

    @staticmethod
    def now() -> datetime:
        """Return the time at which something is shown."""
        return datetime.now(UTC)

    def ask_daemon(self, kind: str, **payload: Any) -> dict[str, Any]:
        """Ask hermesd. Raise Stop when there is no answer."""
        return payload_or_stop(ask(self.daemon, kind, payload, self.seconds), self.say)

    def ask_executor(self, kind: str, **payload: Any) -> dict[str, Any]:
        """Ask hermesd-executor. Raise Stop when there is no answer."""
        return payload_or_stop(ask(self.executor, kind, payload, self.seconds), self.say)

    def tell(self, document: Mapping[str, Any], items: Iterable[Item]) -> None:
        """Give the answer: the document to a program, the items to a person."""
        if self.as_json:
            print_document(document)
        else:
            self.screen.show(items)


def make_session(given: Mapping[str, Any], environ: Mapping[str, str]) -> Session:
    """Return the session that the options ask for; the environment fills what they leave open."""
    control = given.get("control_socket") or environ.get("HERMESD_CONTROL_SOCKET") or CONTROL_SOCKET
    operator = given.get("operator_socket") or environ.get("HERMESD_OPERATOR_SOCKET") or OPERATOR_SOCKET
    return Session(
        say=Speech(given.get("lang") or language_of(environ)),
        screen=screen_of(sys.stdout, environ),
        daemon=Place("hermesd", "hermesd.service", Path(control)),
        executor=Place("hermesd-executor", "hermesd-executor.service", Path(operator)),
        seconds=given.get("timeout") or ANSWER_SECONDS,
        as_json=bool(given.get("json")),
    )


def print_document(document: Mapping[str, Any]) -> None:
    """Print one JSON document, in ASCII: nothing in it can steer a terminal."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()


def tell_stop(stop: Stop, say: Speech, environ: Mapping[str, str], *, as_json: bool) -> None:
    """Say why a command ended early: on standard error to people, as the document to programs."""
    if as_json:
        reason = "\n".join(stop.lines)
        error = {"code": stop.code, "reason": reason, "exit": int(stop.exit_code), **stop.more}
        print_document({"error": error})
        return
    label = say(m.ERROR)
    hang = cells(label)
    first, *rest = stop.lines
    lines = [Line(first, Tone.BAD, label, hang), *(Line(line, hang=hang) for line in rest)]
    screen_of(sys.stderr, environ).show(lines)
