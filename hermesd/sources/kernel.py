"""What the kernel says of the whole host: processor, pressure, descriptors, zombies, OOM kills, heat, clock.

Called in the probe's worker only, as `facts` is. Counters are given as they are: what a rate is made of
two of them is the reader's business. This module must never import what the workers do not need.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections import Counter
from typing import Final

KernelFacts = dict[str, float | int | bool | str]

_STA_UNSYNC: Final = 0x0040
_STA_NANO: Final = 0x2000
_STATE_AND_PARENT: Final = slice(0, 2)
_NO_PRESSURE: Final = (errno.ENOENT, errno.EOPNOTSUPP)


def cpu() -> KernelFacts:
    """Return the ticks of all processors together since the start: busy, waiting for disks, stolen, all."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, _read("/proc/stat").split()[1:9])
    busy = user + nice + system + irq + softirq + steal
    return {"busy": busy, "iowait": iowait, "steal": steal, "total": busy + idle + iowait}


def pressure() -> KernelFacts:
    """Return the percent of the last minute in which programs waited for cpu, memory and io.

    `some`: at least one waited; `full`: all did. Empty where the kernel does not count it.
    """
    found: KernelFacts = {}
    for resource in ("cpu", "memory", "io"):
        try:
            text = _read(f"/proc/pressure/{resource}")
        except OSError as error:
            if error.errno in _NO_PRESSURE:
                return {}
            raise
        for line in text.splitlines():
            kind, *parts = line.split()
            found[f"{resource}_{kind}"] = float(dict(part.split("=") for part in parts)["avg60"])
    return found


def descriptors() -> KernelFacts:
    """Return how many file descriptors the whole host has open, and how many it may."""
    used, unused, most = map(int, _read("/proc/sys/fs/file-nr").split())
    return {"used": used - unused, "most": most}


def zombies() -> KernelFacts:
    """Return how many processes ended and wait for their parent to notice, and whose most of them are.

    Raise OSError where other users' processes are hidden: a count of our own would be a lie.
    """
    if not os.path.exists("/proc/1/stat"):  # noqa: PTH110 - pathlib costs an import in every worker
        words = "processes of others are hidden (ProtectProc=default in the unit shows them)"
        raise OSError(errno.EACCES, words)
    parents: Counter[str] = Counter()
    for name in os.listdir("/proc"):  # noqa: PTH208 - the same
        if name.isdecimal() and (parent := _parent_of_zombie(name)):
            parents[parent] += 1
    found: KernelFacts = {"count": parents.total()}
    for pid, count in parents.most_common(1):
        found |= {"parent": _name_of(pid), "parent_pid": int(pid), "of_parent": count}
    return found


def oom() -> KernelFacts:
    """Return how many processes the kernel has killed for want of memory since the start."""
    for line in _read("/proc/vmstat").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return {"kills": int(count)}
    return {}


def temperature() -> KernelFacts:
    """Return the hottest sensor in degrees Celsius, and its name. Empty where there is none."""
    import psutil  # noqa: PLC0415 - see facts.prepare

    hottest: KernelFacts = {}
    for chip, sensors in psutil.sensors_temperatures().items():
        for sensor in sensors:
            if sensor.current is not None and sensor.current > float(hottest.get("celsius", -273.15)):
                hottest = {"celsius": sensor.current, "sensor": f"{chip} {sensor.label}".strip()}
    return hottest


class _Timex(ctypes.Structure):
    """The beginning of adjtimex(2)'s struct, and room for the rest of it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock() -> KernelFacts:
    """Return what the kernel knows of its clock's fault: offset and bound in seconds, and if it is kept.

    Nothing is asked of the network: the figures are those of whoever keeps the clock (chrony, timesyncd).
    """
    timex = _Timex()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return {
        "offset_s": timex.offset / (1e9 if timex.status & _STA_NANO else 1e6),
        "most_s": timex.maxerror / 1e6,
        "kept": not timex.status & _STA_UNSYNC,
    }


def _parent_of_zombie(pid: str) -> str:
    """Return the parent of a process that is a zombie, else an empty text."""
    try:
        state, parent = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[_STATE_AND_PARENT]
    except OSError:
        return ""  # it ended while we looked
    return parent if state == "Z" else ""


def _name_of(pid: str) -> str:
    try:
        return _read(f"/proc/{pid}/comm").strip()
    except OSError:
        return "a process that ended"


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib costs an import
        return file.read()
