"""What the demo says, in English and Chinese."""

from __future__ import annotations

from typing import Final

_TEXTS: Final = {
    "disk": (
        "a small world: {kind} at {path}",
        "一个小世界：{kind}，位于 {path}",
    ),
    "own_disk": ("a file system of 24 MB of its own", "独立的 24 MB 文件系统"),
    "budget_folder": ("a folder with a budget of 24 MB", "预算为 24 MB 的目录"),
    "executor": (
        "executor ready (pid {pid}, {who}): {sandbox} passed its self-test",
        "执行器就绪（pid {pid}，{who}）：{sandbox} 已通过自检",
    ),
    "degraded": ("kept by weaker means", "以较弱的方式保证"),
    "agent": (
        "agent ready (pid {pid}, {who}): watching, with no power to act",
        "代理就绪（pid {pid}，{who}）：正在观察，没有执行权",
    ),
    "filled": (
        "the application fills {path}: caches and rotated logs grow; from here on we only watch",
        "应用正在写满 {path}：缓存和轮转日志不断增长；从现在起我们只旁观",
    ),
    "noticed": (
        "noticed: {title}  (rule {rule}, incident {id})",
        "已发现：{title}（规则 {rule}，事件 {id}）",
    ),
    "asked": ("a person is asked: {text}", "请求人工确认：{text}"),
    "operator_screen": ("the operator's terminal:", "运维人员的终端："),
    "report": ("REPORT", "报告"),
    "stages": (
        "STAGES: how often, time in all, the clock of each, how they ended",
        "各阶段：次数、总耗时、每次的时限、结果",
    ),
    "clock": ("clock", "时限"),
    "live_kept": (
        "the application's live files in {path} are untouched",
        "{path} 中应用正在使用的文件完好无损",
    ),
    "live_lost": ("the application's live files in {path} CHANGED", "{path} 中应用正在使用的文件被改动了"),
    "resolved": ("incident {id}: {status}", "事件 {id}：{status}"),
    "verified": ("audit verified, {records} records", "审计已验证，共 {records} 条记录"),
    "not_verified": ("audit NOT verified: {reason}", "审计验证失败：{reason}"),
    "no_sandbox": (
        "hermesd demo: no usable sandbox, so nothing may run here.\n  {reason}",
        "hermesd demo：没有可用的沙箱，因此什么都不会执行。\n  {reason}",
    ),
    "broke": ("hermesd demo: {reason}", "hermesd demo：{reason}"),
    "too_slow": ("it did not end in time", "未在限定时间内结束"),
}


class Texts:
    """The demo's texts in one language; each is an attribute."""

    def __init__(self, language: str) -> None:
        self._index = 1 if language == "zh" else 0

    def __getattr__(self, name: str) -> str:
        try:
            return _TEXTS[name][self._index]
        except KeyError:
            raise AttributeError(name) from None
