"""Following a run from afar: what it says line by line, and how it ended."""

from __future__ import annotations

from typing import Any, Final

from hermesd.ctl import messages as m
from hermesd.ctl.asking import Running, payload_or_stop, stream
from hermesd.ctl.exits import Exit, Stop
from hermesd.ctl.screen import Item, Line, Tone
from hermesd.ctl.session import Session
from hermesd.ctl.views.fields import text_of
from hermesd.ctl.views.lists import GOOD_OUTCOMES
from hermesd.ctl.views.timeline import report_lines
from hermesd.ipc.messages import Kind

QUIET_SECONDS: Final = 5 * 3600.0
"""The longest silence of a run that is well: a person may be asked for 4 h."""


def tell_started(session: Session, started: dict[str, Any], *, follow: bool) -> Exit:
    """Tell that a run was started; then follow it, or say how to."""
    task_id = text_of(started, "task_id")
    asked = session.say(m.ASKED, task=task_id)
    if follow:
        if not session.as_json:
            session.screen.say(asked, Tone.DIM)
        return follow_run(session, task_id)
    session.tell(started, [Line(asked), Line(session.say(m.FOLLOW_WITH, task=task_id), Tone.DIM)])
    return Exit.DONE


def follow_run(session: Session, task_id: str) -> Exit:
    """Tell what the run says until it ends. Raise Stop; Ctrl-C ends the watching and not the run."""
    try:
        ended, told = _watch(session, task_id)
    except KeyboardInterrupt:
        lines = (session.say(m.STOPPED_WATCHING), session.say(m.FOLLOW_WITH, task=task_id))
        raise Stop(Exit.INTERRUPTED, "interrupted", lines, task_id=task_id) from None
    if told:
        session.screen.say("")
    session.tell(ended, _ending(ended, task_id, session))
    return Exit.DONE if text_of(ended, "outcome") in GOOD_OUTCOMES else Exit.BAD


def _watch(session: Session, task_id: str) -> tuple[dict[str, Any], bool]:
    """Return how the run ended, and whether anything was told before."""
    told = False
    for said in stream(session.daemon, Kind.FOLLOW, {"task_id": task_id}, QUIET_SECONDS):
        if not isinstance(said, Running):
            return payload_or_stop(said, session.say), told
        if not session.as_json and (line := _line(said.payload, session)):
            session.screen.show([line])
            told = True
    raise AssertionError  # pragma: no cover - a stream always ends with a reply


def _line(payload: dict[str, Any], session: Session) -> Line | None:
    outcome, stage = text_of(payload, "outcome"), text_of(payload, "stage")
    text = text_of(payload, "line") or session.say.word(m.STAGES, stage)
    bad = outcome not in {"", "ok"} | GOOD_OUTCOMES
    return Line(text, Tone.WARN if bad else Tone.PLAIN, hang=2) if text else None


def _ending(ended: dict[str, Any], task_id: str, session: Session) -> list[Item]:
    outcome = text_of(ended, "outcome")
    tone = Tone.GOOD if outcome in GOOD_OUTCOMES else Tone.WARN
    words = session.say.word(m.OUTCOMES, outcome)
    end = Line(session.say(m.FOLLOW_END, task=text_of(ended, "task_id", task_id), outcome=words), tone)
    report = text_of(ended, "report")
    return [*report_lines(report), Line(), end] if report else [end]
