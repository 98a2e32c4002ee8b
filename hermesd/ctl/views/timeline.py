"""`hermesctl show`: an incident or a run, told in the order in which it happened. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from hermesd.ctl import messages as m
from hermesd.ctl.messages import Text
from hermesd.ctl.screen import Cell, Column, Item, Line, Table, Tone
from hermesd.ctl.speech import Speech, clock_time, millis, size
from hermesd.ctl.views.fields import (
    number_of,
    pairs,
    reading,
    rows_of,
    table_of,
    text_of,
    texts_of,
    whole_of,
)
from hermesd.ctl.views.lists import run_state, run_tone
from hermesd.ctl.width import cells

_STAGE_TONES: Final = {"ok": Tone.PLAIN, "refused": Tone.WARN, "cancelled": Tone.WARN}
_STEP_MARKS: Final = {"succeeded": ("✓", Tone.GOOD), "sent": ("…", Tone.PLAIN), "planned": ("·", Tone.DIM)}
_ACTING: Final = frozenset({"validate", "confirm", "prepare", "execute"})
"""The stages of a round in which its steps are dealt with; the steps are told behind the last of them."""
_STEP_BAD: Final = ("✗", Tone.BAD)
_SHOWN_ELSEWHERE: Final = frozenset({"seq", "time", "kind", "task_id"})


_DIGEST: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b")
"""People compare the beginning of a hash; programs get the whole one."""


def render_show(payload: dict[str, Any], say: Speech, now: datetime, *, records: bool) -> list[Item]:
    """Return the incident, the run's timeline and report, and the audit records when they are wanted."""
    incident, run = table_of(payload, "incident"), table_of(payload, "run")
    told = rows_of(payload, "records")
    items: list[Item] = []
    if incident:
        items += [*_incident(incident, say, now), Line()]
    if run:
        items += [*_run(run, say, now), *_timeline(run, say), *_report(run, say)]
    if records:
        items += [Line(say(m.RECORDS_HEAD), Tone.HEAD), *(_record(one) for one in told)]
    elif told:
        subject = text_of(run, "task_id") or text_of(incident, "id")
        items.append(Line(say(m.RECORDS, n=len(told), id=subject), Tone.DIM))
    return items


def _incident(incident: dict[str, Any], say: Speech, now: datetime) -> list[Item]:
    head = say(m.INCIDENT_HEAD, id=text_of(incident, "id"), title=text_of(incident, "title"))
    events = say(m.EVENTS_LINE, n=whole_of(incident, "events"), value=reading(incident))
    facts: list[tuple[Text, str]] = [
        (m.L_STATE, say.word(m.INCIDENT_STATUSES, incident.get("status"))),
        (m.L_SEVERITY, say.word(m.SEVERITIES, incident.get("severity"))),
        (m.L_RULE, text_of(incident, "rule")),
        (m.L_LABELS, " ".join(pairs(table_of(incident, "labels")))),
        (m.L_OPENED, say.when(incident.get("opened_at"), now)),
        (m.L_RESOLVED, say.when(incident.get("resolved_at"), now)),
        (m.L_EVENTS, events),
        *((m.L_RUNS, say(m.SEE_RUN, id=task_id)) for task_id in texts_of(incident, "runs")),
    ]
    return [Line(head, Tone.HEAD), *fact_lines(facts, say)]


def _run(run: dict[str, Any], say: Speech, now: datetime) -> list[Item]:
    facts: list[tuple[Text, str]] = [
        (m.L_GOAL, text_of(run, "goal")),
        (m.L_REASON, text_of(run, "reason")),
        (m.L_KIND, say.word(m.RUN_KINDS, run.get("kind"))),
        (m.L_INCIDENT, text_of(run, "incident_id")),
        (m.L_STARTED, say.when(run.get("started_at"), now)),
        (m.L_ENDED, say.when(run.get("ended_at"), now)),
    ]
    hang = label_width([label for label, _text in facts], say)
    state = Line(run_state(run, say), run_tone(run), say(m.L_STATE), hang)
    head = say(m.RUN_HEAD, id=text_of(run, "task_id"))
    return [Line(head, Tone.HEAD), state, *fact_lines(facts, say, hang), Line()]


def label_width(labels: Sequence[Text], say: Speech) -> int:
    """Return how wide the column of these labels is, with the gap behind it."""
    return max(cells(say(label)) for label in labels) + 2


def fact_lines(facts: list[tuple[Text, str]], say: Speech, hang: int = 0) -> list[Item]:
    """Return labelled lines; what is empty is left out, a label said twice is shown once."""
    shown = [(label, text) for label, text in facts if text and text != "–"]
    hang = hang or label_width([label for label, _text in facts], say)
    lines: list[Item] = []
    previous: Text | None = None
    for label, text in shown:
        lines.append(Line(text, label="" if label is previous else say(label), hang=hang))
        previous = label
    return lines


def _timeline(run: dict[str, Any], say: Speech) -> list[Item]:
    stages, steps = rows_of(run, "stages"), rows_of(run, "steps")
    if not stages and not steps:
        return []
    items: list[Item] = [Line(say(m.TIMELINE), Tone.HEAD)]
    told: set[int] = set()
    for round_no, group in groupby(stages, key=lambda stage: whole_of(stage, "round")):
        rows = list(group)
        if round_no and round_no not in told:
            items.append(Line(say(m.ROUND, n=round_no), Tone.DIM))
        acting = [index for index, row in enumerate(rows) if text_of(row, "name") in _ACTING]
        after = acting[-1] + 1 if acting and round_no not in told else 0
        if after:
            items += [_stage_table(rows[:after], say), *_steps(steps, round_no, say)]
            told.add(round_no)
        if rows[after:]:
            items.append(_stage_table(rows[after:], say))
    for round_no in sorted({whole_of(step, "round") for step in steps} - told):
        items += [Line(say(m.ROUND, n=round_no), Tone.DIM), *_steps(steps, round_no, say)]
    return [*items, Line()]


def _stage_table(stages: list[dict[str, Any]], say: Speech) -> Table:
    columns = (
        Column("", whole=True, least=max(cells(say(name)) for name in m.STAGES.values())),
        Column("", whole=True, right=True, least=8),
        Column("", whole=True, least=8),
        Column(""),
    )
    rows = tuple(_stage_row(stage, say) for stage in stages)
    return Table(columns, rows, indent=2, titles=False)


def _stage_row(stage: dict[str, Any], say: Speech) -> tuple[Cell, ...]:
    name, outcome = say.word(m.STAGES, stage.get("name")), text_of(stage, "outcome")
    tone = _STAGE_TONES.get(outcome, Tone.BAD)
    return (
        Cell(name, tone),
        Cell(millis(stage.get("ms")), tone),
        Cell(say(m.OF_BUDGET, budget=millis(stage.get("budget_ms"))), Tone.DIM),
        Cell("" if outcome == "ok" else say.word(m.STAGE_OUTCOMES, outcome), tone),
    )


def _steps(steps: list[dict[str, Any]], round_no: int, say: Speech) -> list[Item]:
    items: list[Item] = []
    for step in steps:
        if whole_of(step, "round") == round_no:
            items += _step(step, say)
    return items


def _step(step: dict[str, Any], say: Speech) -> list[Item]:
    status = text_of(step, "status")
    mark, tone = _STEP_MARKS.get(status, _STEP_BAD)
    called = " ".join([text_of(step, "command"), *pairs(table_of(step, "args"))])
    lines: list[Item] = [Line(called, Tone.PLAIN, f"    {mark}", 6)]
    why = [say.word(m.RESULTS, status)] if status != "succeeded" else []
    summary = "" if table_of(step, "gain") else text_of(step, "summary")
    why += [text for text in (text_of(step, "reason"), summary) if text]
    if why:
        lines.append(Line(say(m.COLON).join(why), tone if tone is Tone.BAD else Tone.DIM, hang=6))
    if gain := table_of(step, "gain"):
        lines.append(Line(gain_text(gain, say), Tone.GOOD, hang=6))
    elif impact := text_of(table_of(step, "impact"), "text"):
        lines.append(Line(say(m.L_IMPACT) + say(m.COLON) + impact, Tone.WARN, hang=6))
    return lines


def gain_text(gain: dict[str, Any], say: Speech) -> str:
    """Return what an operation really did: `37 files removed, 14.2 MB freed`."""
    figures = {
        "files": whole_of(gain, "files_removed"),
        "skipped": whole_of(gain, "files_skipped"),
        "size": size(number_of(gain, "freed_bytes")),
    }
    return say(m.GAIN_SKIPPED if figures["skipped"] else m.GAIN, **figures)


def _report(run: dict[str, Any], say: Speech) -> list[Item]:
    report = text_of(run, "report")
    if not report:
        return []
    return [Line(say(m.REPORT), Tone.HEAD), *report_lines(report), Line()]


def report_lines(report: str) -> list[Item]:
    """Return a report as it was written, line by line."""
    return [Line(line.rstrip(), hang=2) for line in report.splitlines()]


def _record(record: dict[str, Any]) -> Line:
    rest = {name: value for name, value in record.items() if name not in _SHOWN_ELSEWHERE}
    filled = {name: value for name, value in rest.items() if value not in (None, "", [], {})}
    text = " ".join([text_of(record, "kind"), *pairs(filled)])
    return Line(
        _DIGEST.sub(r"\1…", text),
        label=f"{text_of(record, 'seq'):>6} {clock_time(record.get('time'))}",
        hang=17,
    )
