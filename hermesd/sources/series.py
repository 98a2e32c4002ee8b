"""Which series a round measures: what the settings ask for, on what is mounted. Pure.

This module must never look at the host, and never know how a sample is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hermesd.sources import measures
from hermesd.sources.mounts import Mount
from hermesd.sources.readings import Series
from hermesd.sources.settings_host import HostSettings


def series_of(settings: HostSettings, mounts: Sequence[Mount]) -> list[Series]:
    """Return everything that a round measures, quick ones first."""
    return [*_of_the_host(settings), *_of_mounts(settings, mounts), *_of_folders(settings)]


def mount_name(path: str) -> str:
    """Return what stands for a probe's name where the list of mounts has the answer already."""
    return f"mount:{path}"


def _of_the_host(settings: HostSettings) -> Iterator[Series]:
    levels = (
        (settings.memory, measures.MEMORY),
        (settings.swap, measures.SWAP),
        (settings.load, measures.LOAD),
    )
    for level, measure in levels:
        if level.enabled:
            name = measure.type.partition(".")[2]
            yield Series(measure, name, name, min_change=level.min_change)


def _of_mounts(settings: HostSettings, mounts: Sequence[Mount]) -> Iterator[Series]:
    chosen = settings.filesystems
    for mount in mounts:
        path = _clean(mount.path)
        labels = (("path", path), ("device", _clean(mount.device)), ("fstype", mount.fstype))
        yield Series(measures.FILESYSTEM, f"filesystem:{mount.path}", path, labels, chosen.min_change)
        yield Series(measures.READ_ONLY, mount_name(mount.path), path, labels)


def _of_folders(settings: HostSettings) -> Iterator[Series]:
    for folder in settings.folder:
        measure = measures.folder_measure(folder.budget_bytes)
        labels = (("path", folder.path),)
        yield Series(measure, f"folder:{folder.path}", folder.path, labels, folder.min_change)


def _clean(path: str) -> str:
    """Return a path that any store takes: bytes that are no UTF-8 become visible escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
