"""Events as people put them in and ask about them, and the schedules that make some of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from hermesd.ctl.exits import Exit, Stop
from hermesd.ctl.messages import L_LABELS, L_RUNS, SEE_RUN, Text
from hermesd.ctl.options import Command, option, with_session
from hermesd.ctl.screen import Cell, Column, Item, Line, Table, Tone
from hermesd.ctl.session import Session
from hermesd.ctl.speech import Speech
from hermesd.ctl.views.fields import pairs, reading, rows_of, table_of, text_of, texts_of, whole_of
from hermesd.ctl.views.lists import run_state, run_tone
from hermesd.ctl.views.timeline import fact_lines
from hermesd.ipc.messages import Kind

HELP_SCHEDULES: Final = Text(
    "List schedules: next times, last run, misses.", "列出定时任务：下次时间、上次运行、错过次数。"
)
HELP_EMIT: Final = Text(
    "Put in an event of your own; it is judged as any other.", "提交一个事件，与其他事件一样接受规则判断。"
)
HELP_EXPLAIN: Final = Text(
    "Say why something or nothing followed from an event.", "说明一个事件为何引发或没有引发后续。"
)
OPT_TYPE: Final = Text("The event's type.", "事件类型。")
OPT_LABEL: Final = Text("A label; may be given again.", "标签，可重复。")
OPT_VALUE: Final = Text("A measured value; the event is then a reading.", "测量值；此时事件为读数。")
OPT_UNIT: Final = Text("The value's unit.", "值的单位。")
OPT_EVENT_STATUS: Final = Text(
    "firing (default), resolved or reading.", "firing（默认）、resolved 或 reading。"
)
OPT_SEVERITY: Final = Text("info, warning (default) or critical.", "info、warning（默认）或 critical。")
OPT_SUBJECT: Final = Text("What it is about.", "事件对象。")
OPT_ID: Final = Text("The event's id: put in twice, it is one event.", "事件编号：重复提交仍为同一事件。")
OPT_SOURCE: Final = Text(
    "The event's source, where several have that id.", "事件来源（多个来源有此编号时）。"
)
BAD_LABEL: Final = Text("{label}: a label is written as name=value", "{label}：标签写作 name=value")
EMITTED: Final = Text("{id}: accepted", "{id}：已接受")
EXPLAIN_WITH: Final = Text("→ hermesctl explain {id}", "→ hermesctl explain {id}")
NO_SCHEDULES: Final = Text("no schedules", "没有定时任务")
NAME: Final = Text("NAME", "名称")
WHEN: Final = Text("WHEN", "时间表")
NEXT: Final = Text("NEXT", "下次")
LAST: Final = Text("LAST RUN", "上次运行")
MISSED: Final = Text("MISSED", "错过")
OFF: Final = Text("off", "停用")
NEVER: Final = Text("none yet", "尚无")
RULE: Final = Text("RULE", "规则")
VERDICT: Final = Text("VERDICT", "结论")
WHY: Final = Text("WHY", "原因")
EVENT_HEAD: Final = Text("event {id}", "事件 {id}")
L_WHAT: Final = Text("what", "内容")
WHAT: Final = Text(
    "{type} from {source}, {status}, {severity}", "{type}，来自 {source}，{status}，{severity}"
)
L_VALUE: Final = Text("value", "值")
L_TEXT: Final = Text("text", "文字")
L_ACCEPTED: Final = Text("accepted", "接受")
L_DECIDED: Final = Text("judged", "判断")
NOT_DECIDED: Final = Text("not yet: it waits in the inbox", "尚未：仍在收件箱中")
CONCERNED: Final = Text("What was made of it", "判断结果")
NOBODY: Final = Text("It concerned no rule, so nothing followed.", "没有规则涉及此事件，因此没有后续。")
NOT_CONCERNED: Final = Text("Rules that it does not concern", "不涉及的规则")
BY_SCHEDULE: Final = Text("schedule {name}", "定时 {name}")
VERDICTS: Final[dict[str, Text]] = {
    "ignored": Text("ignored", "忽略"),
    "below": Text("nothing wrong", "无异常"),
    "pending": Text("pending", "待定"),
    "opened": Text("opened", "新事故"),
    "absorbed": Text("absorbed", "并入"),
    "resolved": Text("resolved", "已解决"),
    "started": Text("started", "已启动"),
    "queued": Text("queued", "排队"),
    "skipped": Text("skipped", "跳过"),
    "fault": Text("fault", "故障"),
}
_TONES: Final = {"opened": Tone.BAD, "fault": Tone.BAD, "resolved": Tone.GOOD, "skipped": Tone.WARN}


@click.command("schedules", cls=Command, words=HELP_SCHEDULES)
@with_session
def schedules(session: Session) -> Exit:
    """List the schedules."""
    payload = session.ask_daemon(Kind.SCHEDULES)
    session.tell(payload, render_schedules(payload, session.say, session.now()))
    return Exit.DONE


@click.command("emit", cls=Command, words=HELP_EMIT)
@click.argument("text", required=False, default="")
@option("--type", "kind", metavar="TYPE", default="", words=OPT_TYPE)
@option("--label", "labels", metavar="NAME=VALUE", multiple=True, words=OPT_LABEL)
@option("--value", type=float, default=None, words=OPT_VALUE)
@option("--unit", default="", words=OPT_UNIT)
@option(
    "--status", type=click.Choice(("firing", "resolved", "reading")), default=None, words=OPT_EVENT_STATUS
)
@option("--severity", type=click.Choice(("info", "warning", "critical")), default=None, words=OPT_SEVERITY)
@option("--subject", default="", words=OPT_SUBJECT)
@option("--id", "event_id", default="", words=OPT_ID)
@with_session
def emit(
    session: Session, /, text: str, kind: str, labels: tuple[str, ...], event_id: str, **given: Any
) -> Exit:
    """Put an event into hermesd's inbox."""
    fields = {"text": text, "type": kind, "id": event_id, "labels": _labels(session, labels), **given}
    payload = session.ask_daemon(
        Kind.EMIT, **{name: value for name, value in fields.items() if value not in (None, "")}
    )
    event = text_of(payload, "id")
    session.tell(
        payload, [Line(session.say(EMITTED, id=event)), Line(session.say(EXPLAIN_WITH, id=event), Tone.DIM)]
    )
    return Exit.DONE


def _labels(session: Session, given: tuple[str, ...]) -> dict[str, str]:
    wrong = next((label for label in given if "=" not in label[1:]), None)
    if wrong is not None:
        raise Stop(Exit.USAGE, "usage", (session.say(BAD_LABEL, label=wrong),))
    return dict(label.split("=", 1) for label in given)


@click.command("explain", cls=Command, words=HELP_EXPLAIN)
@click.argument("event", metavar="EVENT_ID")
@option("--source", default="", words=OPT_SOURCE)
@with_session
def explain(session: Session, event: str, source: str) -> Exit:
    """Tell what was made of an event."""
    payload = session.ask_daemon(Kind.EXPLAIN, id=event, source=source)
    session.tell(payload, render_explanation(payload, session.say, session.now()))
    return Exit.DONE


def render_schedules(payload: dict[str, Any], say: Speech, now: datetime) -> list[Item]:
    """Return the schedules, one row each. Pure."""
    found = rows_of(payload, "schedules")
    if not found:
        return [Line(say(NO_SCHEDULES), Tone.DIM)]
    columns = (
        Column(say(NAME), whole=True),
        Column(say(WHEN)),
        Column(say(NEXT)),
        Column(say(LAST)),
        Column(say(MISSED), whole=True, right=True),
    )
    return [Table(columns, tuple(_schedule_row(one, say, now) for one in found))]


def _schedule_row(schedule: dict[str, Any], say: Speech, now: datetime) -> tuple[Cell, ...]:
    following, run, missed = (
        texts_of(schedule, "next"),
        table_of(schedule, "run"),
        whole_of(schedule, "missed"),
    )
    next_time = Cell(say.left(following[0], now)) if following else Cell(say(OFF), Tone.DIM)
    last = f"{say.ago(run.get('created_at'), now)}: {run_state(run, say)}" if run else say(NEVER)
    return (
        Cell(text_of(schedule, "name")),
        Cell(f"{text_of(schedule, 'when')} {text_of(schedule, 'timezone')}"),
        next_time,
        Cell(last, run_tone(run) if run else Tone.DIM),
        Cell(str(missed), Tone.WARN if missed else Tone.PLAIN),
    )


def render_explanation(payload: dict[str, Any], say: Speech, now: datetime) -> list[Item]:
    """Return an event, what each rule made of it, and why the others made nothing of it. Pure."""
    event, verdicts = table_of(payload, "event"), rows_of(payload, "verdicts")
    runs = [text_of(run, "task_id") for run in rows_of(payload, "runs")]
    decided = text_of(payload, "decided_at")
    facts = [
        (
            L_WHAT,
            say(WHAT, **{name: text_of(event, name) for name in ("type", "source", "status", "severity")}),
        ),
        (L_LABELS, " ".join(pairs(table_of(event, "labels")))),
        (L_VALUE, reading(event, "value") if event.get("value") is not None else ""),
        (L_TEXT, text_of(event, "text")),
        (L_ACCEPTED, say.when(payload.get("accepted_at"), now)),
        (L_DECIDED, say.when(decided, now) if decided else say(NOT_DECIDED)),
        *((L_RUNS, say(SEE_RUN, id=run)) for run in runs),
    ]
    items: list[Item] = [Line(say(EVENT_HEAD, id=text_of(event, "id")), Tone.HEAD), *fact_lines(facts, say)]
    told = [
        one
        for one in verdicts
        if text_of(one, "rule") or text_of(one, "schedule") or one.get("kind") == "fault"
    ]
    if told:
        items += [Line(), Line(say(CONCERNED), Tone.HEAD), _verdicts(told, say)]
    elif decided:
        items += [Line(), Line(say(NOBODY))]
    if others := rows_of(payload, "not_concerned"):
        rows = tuple((Cell(text_of(one, "rule")), Cell(text_of(one, "reason"))) for one in others)
        columns = (Column(say(RULE)), Column(say(WHY)))
        items += [Line(), Line(say(NOT_CONCERNED), Tone.HEAD), Table(columns, rows)]
    return items


def _verdicts(verdicts: list[dict[str, Any]], say: Speech) -> Table:
    columns = (Column(say(RULE)), Column(say(VERDICT), whole=True), Column(say(WHY)))
    return Table(columns, tuple(_verdict_row(one, say) for one in verdicts))


def _verdict_row(verdict: dict[str, Any], say: Speech) -> tuple[Cell, ...]:
    kind, incident = text_of(verdict, "kind"), text_of(verdict, "incident_id") or text_of(verdict, "run")
    who = text_of(verdict, "rule") or say(BY_SCHEDULE, name=text_of(verdict, "schedule"))
    why = text_of(verdict, "reason")
    return (
        Cell(who),
        Cell(say.word(VERDICTS, kind), _TONES.get(kind, Tone.PLAIN)),
        Cell(f"{why} → {incident}" if incident else why),
    )
