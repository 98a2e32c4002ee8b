"""What runs say to people, in the languages that are spoken here.

One sentence per field, so that a language that lacks one does not load. This module must never
decide which sentence is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hermesd.protocol import StageOutcome, StageTiming

_KILO: Final = 1000


@dataclass(frozen=True, slots=True)
class Words:
    """The sentences of one language; places in braces are filled with `str.format`."""

    slow: str
    no_planner: str
    hands_over: str
    refused: str
    repeats: str
    same_thought: str
    no_news: str
    tokens_over: str
    cost_over: str
    rounds_over: str
    actions_over: str
    time_over: str
    time_over_in_doubt: str
    fault: str
    cancelled: str
    in_doubt: str
    executor_away: str
    not_cleared: str
    nothing_seen: str
    ticketed: str
    cause: str
    gained: str
    undoable: str
    skipped: str
    would: str
    last_seen: str
    deeper: str
    stages: str
    asks: str
    proposes: str
    finishes: str
    takes_over: str
    briefed: str
    resolved: str
    waits: str
    nobody: str


EN: Final = Words(
    slow="The response is slow at the moment; please try again later.",
    no_planner="No planner could go on: {reason}",
    hands_over="A person takes over: {reason}",
    refused="{count} plans in a row were refused, the last one because: {reason}",
    repeats="the same action was proposed again and again: {reason}",
    same_thought="the planner has thought the same {count} times in a row",
    no_news="your thought is the one of the round before: say what the newest observation changed, or finish",
    tokens_over="the {count} tokens of a run are used up",
    cost_over="the {cost:g} that a run may cost are used up",
    rounds_over="all {count} rounds are used up",
    actions_over="all {count} actions are used up",
    time_over="The run's working time of {minutes:g} min is over.",
    time_over_in_doubt="The run's working time is over while a change was under way; look at what it did.",
    fault="A fault inside hermesd ended this run; its log says more.",
    cancelled="Withdrawn by {who}.",
    in_doubt="Whether {command} took effect is not known; a person must look before anything is done again.",
    executor_away="The executor cannot be reached: {reason}",
    not_cleared="The condition was not seen to clear.",
    nothing_seen="Nothing could be looked at: {reason}",
    ticketed="Only a person may do the rest: {reason}",
    cause="Cause: {cause}",
    gained="Gained: {size} given back by {files} removed files ({command}).",
    undoable="What was removed can be brought back for {hours} h: hermesctl undo",
    skipped="{files} files were left alone.",
    would="Not done: {text}",
    last_seen="Seen last: {command}: {summary}",
    deeper='Shall I look deeper? hermesctl ask "..."',
    stages="Stages: {stages}.",
    asks="a person is asked: {text}; see hermesctl approve {operation}",
    proposes="{planner}: {actions}",
    finishes="{planner}: nothing more to do",
    takes_over="{planner} cannot go on ({reason}), {next} takes over",
    briefed="{commands} commands, {facts} facts, {past} earlier runs",
    resolved="the condition has cleared",
    waits="the condition still holds",
    nobody="nobody is left",
)

ZH: Final = Words(
    slow="当前响应较慢，请稍后重试",
    no_planner="没有可用的规划器：{reason}",
    hands_over="转人工处理：{reason}",
    refused="连续 {count} 次方案未通过校验，最近一次原因：{reason}",
    repeats="反复提出同一操作：{reason}",
    same_thought="规划器连续 {count} 次给出相同的想法",
    no_news="你的想法与上一轮相同：请说明最新观察带来了什么变化，或者结束",
    tokens_over="本次处理的 {count} 个 token 已用完",
    cost_over="本次处理的费用上限 {cost:g} 已用完",
    rounds_over="已用完 {count} 轮",
    actions_over="已用完 {count} 次操作",
    time_over="本次处理的工作时间（{minutes:g} 分钟）已用完。",
    time_over_in_doubt="工作时间用完时有变更正在执行，请查看其结果。",
    fault="hermesd 内部故障，本次处理结束，详见日志。",
    cancelled="已由 {who} 撤回。",
    in_doubt="无法确定 {command} 是否已生效，再次操作前须由人工查看。",
    executor_away="无法连接执行器：{reason}",
    not_cleared="未观察到条件解除。",
    nothing_seen="什么都无法查看：{reason}",
    ticketed="其余操作只能由人工完成：{reason}",
    cause="原因：{cause}",
    gained="成果：删除 {files} 个文件，释放 {size}（{command}）。",
    undoable="{hours} 小时内可以恢复已删除的文件：hermesctl undo",
    skipped="{files} 个文件未动。",
    would="未执行：{text}",
    last_seen="最近看到：{command}：{summary}",
    deeper="是否需要进一步检查？hermesctl ask “……”",
    stages="阶段：{stages}。",
    asks="等待人工确认：{text}；查看 hermesctl approve {operation}",
    proposes="{planner}：{actions}",
    finishes="{planner}：没有更多要做的",
    takes_over="{planner} 无法继续（{reason}），由 {next} 接手",
    briefed="{commands} 条命令，{facts} 条事实，{past} 次历史处理",
    resolved="条件已解除",
    waits="条件仍然成立",
    nobody="已无可用者",
)


def words_of(language: str) -> Words:
    """Return the sentences of a configured language: `zh`, or `en` for anything else."""
    return ZH if language == "zh" else EN


def size_text(size_bytes: int) -> str:
    """Return a size as people write it, with decimal units: `14.2 MB`."""
    value = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < _KILO:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _KILO
    return f"{value:.1f} TB"


def time_text(ms: float) -> str:
    """Return a time as people write it: `3 ms`, `1.2 s`, `12 min`."""
    if ms < _KILO:
        return f"{ms:.0f} ms"
    seconds = ms / _KILO
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.0f} min"  # noqa: PLR2004


def stage_line(timing: StageTiming, text: str = "") -> str:
    """Return the line that tells of a stage's end; ``text`` says what came of it."""
    outcome = "" if timing.outcome is StageOutcome.OK else f" [{timing.outcome}]"
    return f"{timing.name:<8} {time_text(timing.ms):>7}{outcome}  {text}".rstrip()


def stages_text(timings: tuple[StageTiming, ...]) -> str:
    """Return the stages in the order they first occurred, each with its times added up."""
    totals: dict[str, list[float]] = {}
    for timing in timings:
        totals.setdefault(timing.name.value, []).append(timing.ms)
    return ", ".join(
        f"{name} {time_text(sum(times))}" + (f" ({len(times)}×)" if len(times) > 1 else "")
        for name, times in totals.items()
    )
