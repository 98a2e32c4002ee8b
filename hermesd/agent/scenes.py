"""Which commands a model is shown: a dozen that fit the scene, never the whole catalogue.

A scene is a word that commands carry (`disk`, `memory`, `load`, `service`, `inspection`). It follows from
what the event is about, else from the words of the goal. Too many tools make a model choose worse and
answer later. This module must never hide a command that the run has already used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from hermesd.protocol import CatalogueView, CommandInfo, Permission

MAX_SHOWN: Final = 12
GENERAL: Final = "inspection"

_BY_TYPE: Final = {
    "host.filesystem": ("disk",),
    "host.folder": ("disk",),
    "host.read_only": ("disk",),
    "host.memory": ("memory",),
    "host.swap": ("memory",),
    "host.inodes": ("disk",),
    "host.full_in": ("disk",),
    "host.load": ("load",),
    "host.cpu": ("load",),
    "host.pressure": ("load", "memory", "disk"),
    "host.oom_kills": ("memory",),
    "host.zombies": ("load",),
    "host.temperature": ("load",),
    "host.probe_stuck": ("disk", "load"),
    "host.unit_failed": ("service",),
    "host.unit_restarts": ("service",),
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
    text = " ".join([goal, str(event.get("text", "")), *(str(value) for value in values)])
    return tuple(dict.fromkeys((*(by_type or scenes_in(text)), GENERAL)))


def scenes_in(text: str) -> tuple[str, ...]:
    """Return the scenes that a text speaks of: English as whole words, Chinese anywhere."""
    return tuple(scene for scene, words in _BY_WORD.items() if any(_says(text, word) for word in words))


def _says(text: str, word: str) -> bool:
    """Say whether the text, in its own capitals, uses the word; `DiskFull` uses disk, `diskette` does not."""
    if not word.isascii():
        return word in text
    return re.search(rf"(?<![a-z0-9]){re.escape(word)}s?(?![a-z0-9])", _apart(text)) is not None


def _apart(text: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower()


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
