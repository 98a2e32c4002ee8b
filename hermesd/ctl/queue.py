"""What waits for a person's own hands: tickets, and targets that a person has taken over."""

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
from hermesd.ctl.views.fields import rows_of, text_of
from hermesd.ipc.messages import Kind

HELP_QUEUE: Final = Text(
    "What only a person may do: list, take, close.", "只能由人完成的事项：列出、领取、关闭。"
)
HELP_LIST: Final = Text("List tickets, and what a person has taken over.", "列出工单以及由人接管的目标。")
HELP_TAKE: Final = Text("Say that you are at it.", "声明由你处理。")
HELP_CLOSE: Final = Text("Close a ticket, with a note of what you did.", "关闭工单，并附上处理说明。")
HELP_RELEASE: Final = Text("Give a taken-over target back to hermesd.", "将接管的目标交还给 hermesd。")
OPT_NOTE: Final = Text("What was done, for the record.", "处理说明，写入记录。")
NOTHING: Final = Text("no tickets, and nothing is taken over", "没有工单，也没有被接管的目标")
ID: Final = Text("ID", "编号")
TASK: Final = Text("TASK", "内容")
STATE: Final = Text("STATE", "状态")
SINCE: Final = Text("SINCE", "时间")
TARGET: Final = Text("IN A PERSON'S HANDS", "由人接管")
WHY: Final = Text("WHY", "原因")
OPEN: Final = Text("open", "待处理")
TAKEN: Final = Text("taken by uid {uid}", "uid {uid} 处理中")
TAKEN_NOW: Final = Text("{id}: yours", "{id}：由你处理")
CLOSED_NOW: Final = Text("{id}: closed", "{id}：已关闭")
RELEASED_NOW: Final = Text("{target}: given back", "{target}：已交还")


@click.group("queue", cls=Group, words=HELP_QUEUE)
def queue() -> None:
    """Hold the commands about tickets."""


@queue.command("list", words=HELP_LIST)
@with_session
def list_tickets(session: Session) -> Exit:
    """List what waits for a person's own hands."""
    payload = session.ask_executor(Kind.QUEUE)
    session.tell(payload, render_queue(payload, session.say, session.now()))
    return Exit.DONE


@queue.command("take", words=HELP_TAKE)
@click.argument("ticket", metavar="ID")
@with_session
def take(session: Session, ticket: str) -> Exit:
    """Take a ticket."""
    payload = session.ask_executor(Kind.QUEUE_TAKE, id=ticket)
    session.tell(payload, [Line(session.say(TAKEN_NOW, id=ticket))])
    return Exit.DONE


@queue.command("close", words=HELP_CLOSE)
@click.argument("ticket", metavar="ID")
@option("--note", default="", words=OPT_NOTE)
@with_session
def close(session: Session, ticket: str, note: str) -> Exit:
    """Close a ticket."""
    payload = session.ask_executor(Kind.QUEUE_CLOSE, id=ticket, note=note)
    session.tell(payload, [Line(session.say(CLOSED_NOW, id=ticket))])
    return Exit.DONE


def release_target(session: Session, target: str) -> Exit:
    """Give a target back."""
    payload = session.ask_executor(Kind.RELEASE, target=target)
    session.tell(payload, [Line(session.say(RELEASED_NOW, target=target))])
    return Exit.DONE


def render_queue(payload: dict[str, Any], say: Speech, now: datetime) -> list[Item]:
    """Return tickets and takeovers as tables."""
    tickets, held = rows_of(payload, "tickets"), rows_of(payload, "takeovers")
    items: list[Item] = [_tickets(tickets, say, now)] if tickets else []
    if held:
        items += [Line(), _takeovers(held, say, now)] if items else [_takeovers(held, say, now)]
    return items or [Line(say(NOTHING), Tone.DIM)]


def _tickets(tickets: list[dict[str, Any]], say: Speech, now: datetime) -> Table:
    columns = (
        Column(say(ID), whole=True),
        Column(say(STATE)),
        Column(say(SINCE), whole=True),
        Column(say(TASK)),
    )
    return Table(columns, tuple(_ticket_row(ticket, say, now) for ticket in tickets))


def _takeovers(held: list[dict[str, Any]], say: Speech, now: datetime) -> Table:
    columns = (Column(say(TARGET)), Column(say(SINCE), whole=True), Column(say(WHY)))
    rows = tuple(
        (
            Cell(text_of(item, "target"), Tone.WARN),
            Cell(say.ago(item.get("since"), now)),
            Cell(text_of(item, "reason")),
        )
        for item in held
    )
    return Table(columns, rows)


def _ticket_row(ticket: dict[str, Any], say: Speech, now: datetime) -> tuple[Cell, ...]:
    uid = ticket.get("taken_by")
    state = say(TAKEN, uid=str(uid)) if uid is not None else say(OPEN)
    return (
        Cell(text_of(ticket, "id")),
        Cell(state, Tone.PLAIN if uid is not None else Tone.WARN),
        Cell(say.ago(ticket.get("created_at"), now)),
        Cell(text_of(ticket, "text")),
    )
