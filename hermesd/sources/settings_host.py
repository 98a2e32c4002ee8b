"""What a file of `kind = "host"` may say: what is measured, how often, and which changes are told.

This module must never measure anything: it says what is wanted.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hermesd.sources.settings_base import AbsolutePath, NamedSource, Settings


class Level(Settings):
    """A measure of the host. A change below ``min_change``, in the measure's unit, waits for the refresh."""

    enabled: bool = True
    min_change: float = Field(default=2.0, ge=0)


class Filesystems(Settings):
    """Which file systems are measured. ``only`` and ``exclude`` are mount points or shell patterns."""

    enabled: bool = True
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    min_change: float = Field(default=0.1, ge=0)


class Folder(Settings):
    """A folder with a budget: its reading is the percent of ``budget_bytes`` in use, as `du` counts."""

    path: AbsolutePath
    budget_bytes: int = Field(ge=1)
    min_change: float = Field(default=0.1, ge=0)


class HostSettings(NamedSource):
    """`kind = "host"`: what this machine measures of itself.

    ``probe_timeout_s`` bounds each single measurement; one that takes longer is ended and told as stuck.
    """

    kind: Literal["host"]
    interval_s: float = Field(default=15.0, ge=0.2, le=86_400)
    refresh_s: float = Field(default=300.0, ge=0.2)
    probe_timeout_s: float = Field(default=5.0, gt=0, le=600)
    filesystems: Filesystems = Filesystems()
    folder: tuple[Folder, ...] = ()
    memory: Level = Level()
    swap: Level = Level()
    load: Level = Level()
    growth: Level = Level(min_change=0.1)
    inodes: Level = Level(min_change=0.5)
    cpu: Level = Level(min_change=5.0)
    pressure: Level = Level()
    descriptors: Level = Level()
    zombies: Level = Level(enabled=False, min_change=1.0)
    oom: Level = Level(min_change=1.0)
    temperature: Level = Level()
    clock: Level = Level(enabled=False, min_change=0.05)
