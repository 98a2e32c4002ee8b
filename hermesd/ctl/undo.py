"""What can be undone and until when, and asking for it: a run proposes it, a person confirms it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import click

from hermesd.ctl.exits import Exit, Stop
from hermesd.ctl.messages import OPT_FOLLOW, Text
from hermesd.ctl.options import Command, option, with_session
from hermesd.ctl.screen import Cell, Column, Item, Line, Table, Tone
from hermesd.ctl.session import Session
from hermesd.ctl.speech import Speech, count, moment_of, size
from hermesd.ctl.views.fields import rows_of, text_of
from hermesd.ipc.messages import Kind

_PATIENCE: Final = timedelta(minutes=15)

HELP_UNDO: Final = Text(
    "List what can be undone; with ID, ask for it.", "列出可以撤销的操作；给出编号则请求撤销。"
)
NOTHING: Final = Text("nothing can be undone: nothing is kept", "没有可以撤销的操作：没有保留任何文件")
NOT_KEPT: Final = Text(
    "nothing is kept of {id}: it was final, was undone, or its time is over",
    "没有保留 {id} 的文件：该操作不可撤销、已经撤销或已超过期限",
)
HOW: Final = Text("bring one back: hermesctl undo {id}", "撤销其中一个：hermesctl undo {id}")
OVERDUE: Final = Text(
    "{id} is over its time and could not be removed: sudo rm -r -- {path}",
    "{id} 已超过期限，但无法删除：sudo rm -r -- {path}",
)
ID: Final = Text("ID", "编号")
UNTIL: Final = Text("UNTIL", "期限")
FILES: Final = Text("FILES", "文件")
SIZE: Final = Text("SIZE", "大小")
ROOT: Final = Text("REMOVED FROM", "原目录")


@click.command("undo", cls=Command, words=HELP_UNDO)
@click.argument("operation", metavar="[ID]", required=False, default="")
@option("--follow/--no-wait", default=True, words=OPT_FOLLOW)
@with_session
def undo(session: Session, operation: str, *, follow: bool) -> Exit:
    """List what can be undone, or ask for it."""
    payload = session.ask_executor(Kind.KEPT)
    if not operation:
        session.tell(payload, render_kept(payload, session.say, session.now()))
        return Exit.DONE
    if operation not in {text_of(kept, "operation") for kept in rows_of(payload, "kept")}:
        raise Stop(Exit.NOT_FOUND, "not_found", (session.say(NOT_KEPT, id=operation),))
    from hermesd.ctl.following import tell_started  # noqa: PLC0415 - only who asks for one pays for it

    return tell_started(session, session.ask_daemon(Kind.UNDO, operation=operation), follow=follow)


def render_kept(payload: dict[str, Any], say: Speech, now: datetime) -> list[Item]:
    """Return what is kept as a table, the one that goes first before the others."""
    kept = rows_of(payload, "kept")
    if not kept:
        return [Line(say(NOTHING), Tone.DIM)]
    columns = (
        Column(say(ID), whole=True),
        Column(say(UNTIL), whole=True),
        Column(say(FILES), whole=True, right=True),
        Column(say(SIZE), whole=True, right=True),
        Column(say(ROOT)),
    )
    rows = tuple(
        (
            Cell(text_of(item, "operation")),
            Cell(say.left(item.get("until"), now)),
            Cell(count(item.get("files"))),
            Cell(size(item.get("size_bytes"))),
            Cell(text_of(item, "root")),
        )
        for item in kept
    )
    hint = Line(say(HOW, id=text_of(kept[-1], "operation")))
    return [Table(columns, rows), Line(), *_overdue(kept, say, now), hint]


def _overdue(kept: list[dict[str, Any]], say: Speech, now: datetime) -> list[Item]:
    """Return what a person is to remove, since the executor could not. It looks every few minutes."""
    names = [
        (text_of(item, "folder"), text_of(item, "operation"), moment_of(item.get("until"))) for item in kept
    ]
    return [
        Line(say(OVERDUE, id=name, path=f"{folder}/{name}"), Tone.BAD)
        for folder, name, until in names
        if until is not None and until + _PATIENCE < now
    ]
