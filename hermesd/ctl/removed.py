"""What a confirmed removal took away, file by file: for whoever has to know it afterwards."""

from __future__ import annotations

from typing import Any, Final

import click

from hermesd.ctl.exits import Exit
from hermesd.ctl.messages import OPT_LIMIT, Text
from hermesd.ctl.options import Command, option, with_session
from hermesd.ctl.screen import Cell, Column, Item, Line, Table, Tone
from hermesd.ctl.session import Session
from hermesd.ctl.speech import Speech, size
from hermesd.ctl.views.fields import rows_of, text_of, whole_of
from hermesd.ipc.messages import Kind

HELP_REMOVED: Final = Text("List the files that an operation removed.", "列出某个操作删除的文件。")
OPT_OFFSET: Final = Text("Begin after so many files.", "跳过前面若干个文件。")
HEAD: Final = Text("{id}: {n} files beneath {root}", "{id}：{root} 下 {n} 个文件")
UNNAMED: Final = Text(
    "{n} files that were skipped are not known by name: they are listed as removed",
    "有 {n} 个被跳过的文件无法确定名称，在表中显示为已删除",
)
MORE: Final = Text(
    "go on with: hermesctl removed {id} --offset {n}", "继续：hermesctl removed {id} --offset {n}"
)
FATES: Final = {
    "removed": Text("removed", "已删除"),
    "skipped": Text("skipped", "已跳过"),
    "in_doubt": Text("in doubt", "存疑"),
}
STATE: Final = Text("STATE", "状态")
SIZE: Final = Text("SIZE", "大小")
WRITTEN: Final = Text("WRITTEN", "修改时间")
MODE: Final = Text("MODE", "权限")
OWNER: Final = Text("OWNER", "所有者")
FILE: Final = Text("FILE", "文件")


@click.command("removed", cls=Command, words=HELP_REMOVED)
@click.argument("operation", metavar="ID")
@option("--limit", type=click.IntRange(1, 1000), default=50, words=OPT_LIMIT)
@option("--offset", type=click.IntRange(0, 10_000_000), default=0, words=OPT_OFFSET)
@with_session
def removed(session: Session, operation: str, *, limit: int, offset: int) -> Exit:
    """List what an operation removed."""
    payload = session.ask_executor(Kind.REMOVED, id=operation, limit=limit, offset=offset)
    session.tell(payload, render_removed(payload, session.say))
    return Exit.DONE


def render_removed(payload: dict[str, Any], say: Speech) -> list[Item]:
    """Return the files as a table: what each was, and whether it is gone."""
    name = text_of(payload, "id")
    head = say(HEAD, id=name, n=whole_of(payload, "total"), root=text_of(payload, "root"))
    columns = (
        Column(say(STATE), whole=True),
        Column(say(SIZE), whole=True, right=True),
        Column(say(WRITTEN), whole=True),
        Column(say(MODE), whole=True),
        Column(say(OWNER), whole=True),
        Column(say(FILE)),
    )
    items: list[Item] = [Line(head, Tone.HEAD, cut=True)]
    items.append(Table(columns, tuple(_row(file, say) for file in rows_of(payload, "files"))))
    if unnamed := whole_of(payload, "unnamed"):
        items.append(Line(say(UNNAMED, n=unnamed), Tone.WARN))
    if following := whole_of(payload, "next_offset"):
        items.append(Line(say(MORE, id=name, n=following), Tone.DIM))
    return items


def _row(file: dict[str, Any], say: Speech) -> tuple[Cell, ...]:
    fate = text_of(file, "fate")
    return (
        Cell(say.word(FATES, fate), Tone.PLAIN if fate == "removed" else Tone.WARN),
        Cell(size(file.get("size_bytes"))),
        Cell(text_of(file, "mtime").removesuffix("+00:00").replace("T", " ")),
        Cell(text_of(file, "mode")),
        Cell(f"{whole_of(file, 'uid')}:{whole_of(file, 'gid')}"),
        Cell(text_of(file, "path")),
    )
