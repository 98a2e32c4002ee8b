"""Which series a round measures: what the settings ask for, on what is mounted. Pure.

This module must never look at the host, and never know how a sample is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hermesd.sources import measures
from hermesd.sources.mounts import Mount
from hermesd.sources.readings import Series
from hermesd.sources.settings_host import HostSettings

_STALLS: Final = (
    ("cpu", "some"),
    ("memory", "some"),
    ("memory", "full"),
    ("io", "some"),
    ("io", "full"),
)


def series_of(settings: HostSettings, mounts: Sequence[Mount]) -> list[Series]:
    """Return everything that a round measures, quick ones first."""
    return [*_of_the_host(settings), *_of_mounts(settings, mounts), *_of_folders(settings)]


def mount_name(path: str) -> str:
    """Return what stands for a probe's name where the list of mounts has the answer already."""
    return f"mount:{path}"


def _of_the_host(settings: HostSettings) -> Iterator[Series]:
    for level, ask, measure in (
        (settings.memory, "memory", measures.MEMORY),
        (settings.swap, "swap", measures.SWAP),
        (settings.load, "load", measures.LOAD),
        (settings.cpu, "cpu", measures.CPU),
        (settings.descriptors, "descriptors", measures.DESCRIPTORS),
        (settings.zombies, "zombies", measures.ZOMBIES),
        (settings.oom, "oom", measures.OOM),
        (settings.temperature, "temperature", measures.TEMPERATURE),
        (settings.clock, "clock", measures.CLOCK_OFFSET),
        (settings.clock, "clock", measures.CLOCK_ERROR),
    ):
        if level.enabled:
            subject = measure.type.partition(".")[2]
            yield Series(measure, ask, subject, min_change=level.min_change)
    if settings.pressure.enabled:
        for resource, stall in _STALLS:
            measure = measures.pressure_measure(resource, stall)
            labels = (("resource", resource), ("stall", stall))
            change = settings.pressure.min_change
            yield Series(measure, "pressure", f"{resource} {stall}", labels, change)


def _of_mounts(settings: HostSettings, mounts: Sequence[Mount]) -> Iterator[Series]:
    for mount in mounts:
        path, ask = _clean(mount.path), f"filesystem:{mount.path}"
        labels = (("path", path), ("device", _clean(mount.device)), ("fstype", mount.fstype))
        yield Series(measures.FILESYSTEM, ask, path, labels, settings.filesystems.min_change)
        if settings.growth.enabled:
            yield Series(measures.FULL_IN, ask, path, labels, settings.growth.min_change)
        if settings.inodes.enabled:
            yield Series(measures.INODES, ask, path, labels, settings.inodes.min_change)
        yield Series(measures.READ_ONLY, mount_name(mount.path), path, labels)


def _of_folders(settings: HostSettings) -> Iterator[Series]:
    for folder in settings.folder:
        measure = measures.folder_measure(folder.budget_bytes)
        labels = (("path", folder.path),)
        yield Series(measure, f"folder:{folder.path}", folder.path, labels, folder.min_change)


def _clean(path: str) -> str:
    """Return a path that any store takes: bytes that are no UTF-8 become visible escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
