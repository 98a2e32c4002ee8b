"""Which commands a model is shown: a dozen that fit the scene, never the whole catalogue.

A scene is a word that commands carry (`disk`, `memory`, `load`, `service`, `inspection`). It follows from
what the event is about, else from the words of the goal. Too many tools make a model choose worse and
answer later. This module must never hide a command that the run has already used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from hermesd.protocol import CatalogueView, CommandInfo, Permission

MAX_SHOWN: Final = 12
GENERAL: Final = "inspection"

_BY_TYPE: Final = {
    "host.filesystem": ("disk",),
    "host.folder": ("disk",),
    "host.memory": ("memory",),
    "host.swap": ("memory",),
    "host.load": ("load",),
    "host.probe_stuck": ("disk", "load"),
    "health.check": ("service",),
    "health.unknown": ("service",),
}
_BY_WORD: Final = {
    "disk": ("disk", "filesystem", "inode", "space left", "storage", "磁盘", "硬盘", "空间", "清理"),
    "memory": ("memory", "oom", "swap", "内存"),
    "load": ("load", "cpu", "slow", "负载", "卡"),
    "service": ("service", "unit", "health", "down", "restart", "服务", "健康", "宕"),
}


def scenes_of(event: Mapping[str, Any], goal: str) -> tuple[str, ...]:
    """Return the scenes of an event and a goal, most fitting first; the general one is always there."""
    by_type = _BY_TYPE.get(str(event.get("type", "")), ())
    labels = event.get("labels")
    values = labels.values() if isinstance(labels, Mapping) else ()
    text = " ".join([goal, str(event.get("text", "")), *(str(value) for value in values)]).lower()
    by_word = (scene for scene, words in _BY_WORD.items() if any(word in text for word in words))
    return tuple(dict.fromkeys((*(by_type or by_word), GENERAL)))


def choose_commands(
    view: CatalogueView, scenes: tuple[str, ...], used: Collection[str] = ()
) -> tuple[CommandInfo, ...]:
    """Return at most a dozen commands that can be used: those used already, then by scene and priority."""
    usable = [
        info for info in view.commands if info.usable and info.permission is not Permission.CONFIDENTIAL
    ]
    usable.sort(key=lambda info: (info.name not in used, _rank(info, scenes), -info.priority, info.name))
    return tuple(usable[:MAX_SHOWN])


def _rank(info: CommandInfo, scenes: tuple[str, ...]) -> int:
    return min((scenes.index(scene) for scene in info.scenes if scene in scenes), default=len(scenes))
