"""Silences: what may happen without a run, until when, by whom and why."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from hermesd.ctl.exits import Exit
from hermesd.ctl.messages import Text
from hermesd.ctl.options import Group, option, with_session
from hermesd.ctl.screen import Cell, Column, Item, Line, Table, Tone
from hermesd.ctl.session import Session
from hermesd.ctl.speech import Speech
from hermesd.ctl.views.fields import rows_of, text_of, texts_of
from hermesd.ipc.messages import Kind

HELP_SILENCE: Final = Text(
    "What may happen without a run: add, list, end.", "哪些事件不启动运行：添加、列出、结束。"
)
HELP_ADD: Final = Text(
    "Silence what all MATCHERs match, as alertname=Down.", "静默符合全部条件的事件，例如 alertname=Down。"
)
HELP_LIST: Final = Text("List silences.", "列出静默。")
HELP_END: Final = Text("End a silence before its time.", "提前结束静默。")
OPT_FOR: Final = Text("How long, as 2h or 1d12h.", "时长，例如 2h 或 1d12h。")
OPT_REASON: Final = Text("Why, for whoever wonders later.", "原因，供他人查阅。")
OPT_ALL: Final = Text("Those that ended too.", "包括已结束的。")
ADDED: Final = Text("{id}: in force until {until}", "{id}：生效至 {until}")
ENDED: Final = Text("{id}: ended", "{id}：已结束")
NOTHING: Final = Text("no silences", "没有静默")
ID: Final = Text("ID", "编号")
WHAT: Final = Text("WHAT", "条件")
ENDS: Final = Text("ENDS", "结束于")
BY: Final = Text("BY", "操作人")
WHY: Final = Text("WHY", "原因")


@click.group("silence", cls=Group, words=HELP_SILENCE)
def silence() -> None:
    """Hold the commands about silences."""


@silence.command("add", words=HELP_ADD)
@click.argument("matchers", metavar="MATCHER...", nargs=-1, required=True)
@option("--for", "span", metavar="DURATION", required=True, words=OPT_FOR)
@option("--reason", metavar="TEXT", required=True, words=OPT_REASON)
@with_session
def add(session: Session, matchers: tuple[str, ...], span: str, reason: str) -> Exit:
    """Add a silence."""
    asked = {"matchers": list(matchers), "for": span, "reason": reason}
    payload = session.ask_daemon(Kind.SILENCE_ADD, **asked)
    told = session.say(ADDED, id=text_of(payload, "id"), until=_moment(payload))
    session.tell(payload, [Line(told)])
    return Exit.DONE


@silence.command("list", words=HELP_LIST)
@option("--all", "everything", is_flag=True, words=OPT_ALL)
@with_session
def list_silences(session: Session, *, everything: bool) -> Exit:
    """List silences."""
    payload = session.ask_daemon(Kind.SILENCES, all=everything)
    session.tell(payload, render_silences(payload, session.say))
    return Exit.DONE


@silence.command("end", words=HELP_END)
@click.argument("silence_id", metavar="ID")
@with_session
def end(session: Session, silence_id: str) -> Exit:
    """End a silence."""
    payload = session.ask_daemon(Kind.SILENCE_END, id=silence_id)
    session.tell(payload, [Line(session.say(ENDED, id=silence_id))])
    return Exit.DONE


def render_silences(payload: dict[str, Any], say: Speech) -> list[Item]:
    """Return the silences as a table."""
    found = rows_of(payload, "silences")
    if not found:
        return [Line(say(NOTHING), Tone.DIM)]
    columns = (
        Column(say(ID), whole=True),
        Column(say(ENDS), whole=True),
        Column(say(BY)),
        Column(say(WHAT)),
        Column(say(WHY)),
    )
    return [Table(columns, tuple(_row(item) for item in found))]


def _row(item: dict[str, Any]) -> tuple[Cell, ...]:
    tone = Tone.PLAIN if item.get("in_force") else Tone.DIM
    return (
        Cell(text_of(item, "id"), tone),
        Cell(_moment(item), tone),
        Cell(text_of(item, "author"), tone),
        Cell(" ".join(texts_of(item, "matchers")), tone),
        Cell(text_of(item, "reason"), tone),
    )


def _moment(item: dict[str, Any]) -> str:
    """Return the end in UTC, to the minute: what is silenced for days needs its date."""
    text = text_of(item, "ends_at")
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return text
