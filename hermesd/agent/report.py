"""From a runbook's report section to the words that a person reads at the end of a run.

A line whose references stand for nothing is left out; what was left undone, and why, follows by
itself, so that nothing is hidden by leaving out. This module must never invent a figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from hermesd.agent.conditions import judge_all
from hermesd.agent.planner import cut, visible
from hermesd.agent.position import Note, Position
from hermesd.agent.references import Reference, Scope, Unresolved, look_up, parse_template, render
from hermesd.agent.runbook_file import Line, Runbook
from hermesd.protocol import Finish

MAX_CAUSE: Final = 2000
MAX_REPORT: Final = 8000
MAX_REASON: Final = 400

_NOTES: Final = {
    "unusable": (
        "{step}: left out, its command cannot be used here{reason}",
        "{step}：命令在此不可用，已跳过{reason}",
    ),
    "refused": ("{step}: refused{reason}", "{step}：被拒绝{reason}"),
    "failed": ("{step}: it ran and failed{reason}", "{step}：已执行但失败{reason}"),
    "denied": ("{step}: a person said no{reason}", "{step}：人工已拒绝{reason}"),
    "expired": ("{step}: nobody decided in time{reason}", "{step}：在时限内无人确认{reason}"),
    "plan_changed": (
        "{step}: not done, the world had changed since it was shown{reason}",
        "{step}：未执行，展示之后情况已变化{reason}",
    ),
    "undeliverable": ("{step}: there was nobody to ask{reason}", "{step}：无人可询问{reason}"),
    "taken_over": (
        "{step}: not done, it is in a person's hands{reason}",
        "{step}：未执行，已由人接管{reason}",
    ),
    "ticketed": ("{step}: it waits in the queue for a person{reason}", "{step}：已进入人工处理队列{reason}"),
    "timed_out": ("{step}: its time ran out{reason}", "{step}：超时{reason}"),
    "unavailable": ("{step}: nothing could be run{reason}", "{step}：当前无法执行任何命令{reason}"),
    "cancelled": ("{step}: withdrawn{reason}", "{step}：已撤回{reason}"),
    "unknown": (
        "{step}: it is not known whether it happened; a person must look{reason}",
        "{step}：无法确定是否已执行，需要人工检查{reason}",
    ),
    "stopped": ("stopped before {step}{reason}", "在 {step} 之前停止{reason}"),
}
_NOTHING: Final = ("Nothing could be found out.", "未能查到任何信息。")
_HANDS_OVER: Final = ("A person must take over from here.", "需要人工接管。")
_NO_ROUNDS: Final = ("the run's limits were reached", "已达到本次运行的上限")


def finish(runbook: Runbook, position: Position) -> Finish:
    """Return the runbook's finish, in the briefing's language."""
    lines = [*position.said, *_lines(runbook.report.text, position), *note_lines(position)]
    report = "\n".join(lines) or _in(position.language, _NOTHING)
    return Finish(cause=cut(_cause(runbook, position), MAX_CAUSE), report=cut(report, MAX_REPORT))


def stopped(position: Position) -> Note:
    """Return the note that limits ended the run before its next step."""
    return Note(position.next[0].step, "stopped", _in(position.language, _NO_ROUNDS))


def hand_over_text(position: Position) -> str:
    """Return why a person must take over, and what else is worth knowing."""
    return cut("\n".join([_in(position.language, _HANDS_OVER), *note_lines(position)]), MAX_REPORT)


def note_lines(position: Position) -> list[str]:
    """Return what happened to steps that did not succeed, a line each."""
    return [_note(note, position.language) for note in position.notes]


def _note(note: Note, language: str) -> str:
    words = _in(language, _NOTES.get(note.kind, _NOTES["failed"]))
    colon = "：" if language == "zh" else ": "
    reason = f"{colon}{cut(visible(note.reason), MAX_REASON)}" if note.reason else ""
    return words.format(step=note.step, reason=reason)


def _in(language: str, texts: tuple[str, str]) -> str:
    return texts[1] if language == "zh" else texts[0]


def _cause(runbook: Runbook, position: Position) -> str:
    return next(_lines(runbook.report.cause, position), "")


def _lines(lines: Sequence[Line], position: Position) -> Iterator[str]:
    for line in lines:
        if judge_all(line.when, position.scope).holds:
            yield from _said(line, position.scope, position.language)


def _said(line: Line, scope: Scope, language: str) -> Iterator[str]:
    for inner in _scopes(line, scope):
        text = render(line.of(language), inner)
        if not isinstance(text, Unresolved):
            yield text


def _scopes(line: Line, scope: Scope) -> Iterator[Scope]:
    if not line.each:
        yield scope
        return
    for row in _rows(line.each, scope)[: line.limit]:
        yield {**scope, "row": row}


def _rows(each: str, scope: Scope) -> Sequence[Any]:
    (reference,) = parse_template(each)
    found = look_up(reference, scope) if isinstance(reference, Reference) else None
    return found if isinstance(found, list | tuple) else ()
