"""`hermesctl approve`: the conversation in which a person sees one operation and types its token.

Nothing replaces the typing: there is no flag, no pipe, no single key. What was typed is sent to the
executor, which judges it; only what plainly means no (nothing, the end of input, "y", Ctrl-C) is not
sent at all. This module must never send a token that was not typed, and never keep one.
"""

from __future__ import annotations

import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TextIO

from hermesd.ctl import messages as m
from hermesd.ctl.asking import (
    Answer,
    Place,
    Refused,
    Reply,
    Running,
    Silent,
    ask,
    exit_of,
    payload_or_stop,
    stream,
    why_refused,
)
from hermesd.ctl.exits import Exit, Stop
from hermesd.ctl.screen import Screen, Tone
from hermesd.ctl.speech import Speech
from hermesd.ctl.views.approval import render_ending, render_operation, render_word
from hermesd.ctl.views.fields import text_of
from hermesd.ipc.messages import Kind

LOOK_SECONDS: Final = 60.0
"""Showing an operation runs its preview in a container: starting may take 30 s, looking 10 s."""
ENDING_SECONDS: Final = 3700.0
"""The longest silence of an approved operation: no command may run longer than an hour."""

_MEANS_NO: Final = frozenset({"", "y", "yes", "n", "no", "ok", "是", "好", "同意", "确认", "否", "不"})


class Keyboard(Protocol):
    """Where a person types."""

    def line(self) -> str | None:
        """Return the next line without its end, None at the end of input. Raise KeyboardInterrupt."""

    def forget(self) -> None:
        """Drop what was typed before it was asked for."""


class TerminalKeyboard:
    """The terminal behind standard input."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self) -> str | None:
        """Return what was typed, without blanks at its ends."""
        text = self._stream.readline()
        return text.strip() if text else None

    def forget(self) -> None:
        """Drop what lies in the terminal's input."""
        termios.tcflush(self._stream.fileno(), termios.TCIFLUSH)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Who talks: the executor at its place, the person at screen and keyboard."""

    place: Place
    screen: Screen
    keyboard: Keyboard
    say: Speech
    seconds: float
    now: Callable[[], datetime]


def require_terminal(say: Speech) -> None:
    """Raise Stop unless a person is at both ends."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Stop(Exit.REFUSED, "no_terminal", (say(m.NEEDS_TERMINAL), say(m.NO_FLAG)))


def approve(talk: Conversation, operation_id: str) -> Exit:
    """Show the operation, ask for its token, redeem it, and tell how it ended. Raise Stop."""
    talk.screen.say(talk.say(m.PREVIEWING), Tone.DIM)
    shown = _show(talk, operation_id)
    talk.screen.show(render_operation(shown, talk.say, talk.now(), talk.screen.width))
    try:
        typed = _typed(talk, shown)
    except KeyboardInterrupt:
        talk.screen.say("")
        typed = None
    if typed is None:
        raise _nothing_done(talk, operation_id)
    return _redeem(talk, shown, *typed)


def _show(talk: Conversation, operation_id: str) -> dict[str, Any]:
    seconds = max(talk.seconds, LOOK_SECONDS)
    return payload_or_stop(ask(talk.place, Kind.APPROVE_SHOW, {"id": operation_id}, seconds), talk.say)


def _typed(talk: Conversation, shown: dict[str, Any]) -> tuple[str, str] | None:
    """Return the token and the second word as they were typed, None when that means no."""
    token = _answer(talk, talk.say(m.TYPE_TOKEN))
    if token is None or token.lower() in _MEANS_NO:
        return None
    word = text_of(shown, "second_word")
    if not word or token != text_of(shown, "token"):
        return token, ""  # a wrong token is the executor's to judge, and needs no second question
    talk.screen.show(render_word(word, talk.say))
    second = _answer(talk, talk.say(m.TYPE_WORD))
    return None if second is None or second.lower() in _MEANS_NO else (token, second)


def _answer(talk: Conversation, question: str) -> str | None:
    talk.keyboard.forget()
    talk.screen.prompt(question)
    line = talk.keyboard.line()
    if line is None:
        talk.screen.say("")
    return line


def _nothing_done(talk: Conversation, operation_id: str, *reasons: str) -> Stop:
    lines = (*reasons, talk.say(m.NOTHING_DONE), talk.say(m.DECIDE_LATER, id=operation_id))
    return Stop(Exit.REFUSED, "not_approved", lines)


def _redeem(talk: Conversation, shown: dict[str, Any], token: str, second: str) -> Exit:
    operation_id = text_of(shown, "id")
    payload = {"id": operation_id, "token": token, "second": second}
    try:
        reply = _follow(talk, stream(talk.place, Kind.APPROVE_REDEEM, payload, ENDING_SECONDS))
    except KeyboardInterrupt:
        raise _not_seen(talk, shown, Exit.INTERRUPTED) from None
    match reply:
        case Answer(ended):
            talk.screen.show(render_ending(ended, talk.say))
            return Exit.DONE if text_of(ended, "outcome") == "succeeded" else Exit.BAD
        case Refused():
            if exit_of(reply) is Exit.REFUSED:
                reason = "; ".join(why_refused(reply, talk.say))
                raise _nothing_done(talk, operation_id, talk.say(m.NOT_APPROVED, reason=reason))
            payload_or_stop(reply, talk.say)
        case Silent():
            raise _not_seen(talk, shown, Exit.UNREACHABLE)
    raise AssertionError  # pragma: no cover - every reply ends above


def _follow(talk: Conversation, replies: Iterator[Running | Reply]) -> Reply:
    for said in replies:
        if not isinstance(said, Running):
            return said
        if stage := text_of(said.payload, "stage"):
            talk.screen.say(talk.say(m.STAGE_BEGINS, stage=talk.say.word(m.STAGES, stage)), Tone.DIM)
    raise AssertionError  # pragma: no cover - a stream always ends with a reply


def _not_seen(talk: Conversation, shown: dict[str, Any], exit_code: Exit) -> Stop:
    text = talk.say(m.NOT_SEEN_END, task=text_of(shown, "task_id"))
    return Stop(exit_code, "end_not_seen", (text,))
