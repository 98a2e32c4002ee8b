"""What is measured of the host: one Measure for each kind of reading, with its unit and its words.

Everything here is pure: a sample, and what is kept of the samples before it, give a reading. This
module must never measure, and never judge a value: rules do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hermesd.sources.growth import EVERY_S, WINDOW_S, full_in
from hermesd.sources.readings import Facts, Measure, Read, Reading, Sample, bytes_in_words

PERCENT: Final = "percent"
FLAG: Final = "flag"
"""1 for yes, 0 for no."""
COUNT: Final = "count"
SECONDS: Final = "seconds"
CELSIUS: Final = "celsius"
HOURS: Final = "hours"

OOM_WINDOW_S: Final = 600.0
"""An OOM kill is told for so long, so that a rule that asks for none clears after it."""

_STALLS: Final = {"some": "at least one program waits", "full": "every program that could work waits"}


def _now(read: Callable[[Facts], Reading | str | None]) -> Read:
    """Return a reader that needs no earlier sample."""
    return lambda sample, _earlier: read(sample.facts)


def _fill(facts: Facts) -> Reading | None:
    if not facts["size_bytes"]:
        return None
    used, size = bytes_in_words(facts["used_bytes"]), bytes_in_words(facts["size_bytes"])
    free = bytes_in_words(facts["available_bytes"])
    return Reading(facts["percent"], f"{used} of {size} in use, {free} available")


def _inodes(facts: Facts) -> Reading | None:
    size = facts["inodes"]
    if not size:
        return None
    free = facts["inodes_free"]
    return Reading(100.0 * (size - free) / size, f"{size - free} of {size} inodes in use")


def _read_only(facts: Facts) -> Reading:
    turned = facts["read_only"]
    return Reading(float(turned), "is read-only: nothing can be written" if turned else "can be written to")


def _load(facts: Facts) -> Reading:
    words = f"load {facts['one']:.2f} over one minute on {facts['processors']} processors"
    return Reading(facts["percent"], words)


def _cpu(sample: Sample, earlier: Sequence[Sample]) -> Reading | None:
    if not earlier:
        return None
    now, before = sample.facts, earlier[0].facts
    total = now["total"] - before["total"]
    if total <= 0:
        return None
    busy, iowait, steal = (100.0 * (now[key] - before[key]) / total for key in ("busy", "iowait", "steal"))
    stolen, waiting = f"{steal:.0f} % taken by other machines", f"{iowait:.0f} % waiting for disks"
    return Reading(max(busy, 0.0), f"processors {busy:.0f} % busy ({stolen}), {waiting}")


def _descriptors(facts: Facts) -> Reading:
    used, most = facts["used"], facts["most"]
    return Reading(100.0 * used / most if most else 0.0, f"{used} of {most} file descriptors open")


def _zombies(facts: Facts) -> Reading:
    count = facts["count"]
    if not count:
        return Reading(0.0, "no zombies")
    parent = f"{facts['of_parent']} of them of {facts['parent']} ({facts['parent_pid']})"
    return Reading(float(count), f"{count} processes ended and were not taken notice of, {parent}")


def _oom_kills(sample: Sample, earlier: Sequence[Sample]) -> Reading | None:
    if not sample.facts:
        return None
    first = earlier[0] if earlier else sample
    killed = sample.facts["kills"] - first.facts["kills"]
    if not killed:
        return Reading(0.0, "no process was killed for want of memory in the last 10 min")
    return Reading(float(killed), f"{killed} processes were killed for want of memory in the last 10 min")


def _temperature(facts: Facts) -> Reading | None:
    if not facts:
        return None
    return Reading(facts["celsius"], f"{facts['celsius']:.0f} °C at {facts['sensor']}, the hottest sensor")


def _clock_offset(facts: Facts) -> Reading | None:
    if not facts["kept"]:
        return None
    offset = facts["offset_s"]
    return Reading(abs(offset), f"the clock is {abs(offset):.6f} s {'behind' if offset > 0 else 'ahead'}")


def _clock_error(facts: Facts) -> Reading:
    kept = "" if facts["kept"] else "; nothing keeps the clock"
    return Reading(facts["most_s"], f"the clock may be wrong by {facts['most_s']:.3f} s{kept}")


def pressure_measure(resource: str, stall: str) -> Measure:
    """Return the measure of how much is waited for a resource: `some` programs, or all in `full`."""

    def read(facts: Facts) -> Reading | None:
        value = facts.get(f"{resource}_{stall}")
        if value is None:
            return None
        return Reading(value, f"{_STALLS[stall]} for {resource} {value:.1f} % of the time")

    return Measure("host.pressure", PERCENT, _now(read))


FULL_IN: Final = Measure("host.full_in", HOURS, full_in, keep_s=WINDOW_S, every_s=EVERY_S)
INODES: Final = Measure("host.inodes", PERCENT, _now(_inodes))
CPU: Final = Measure("host.cpu", PERCENT, _cpu, keep_s=1.0)
DESCRIPTORS: Final = Measure("host.descriptors", PERCENT, _now(_descriptors))
ZOMBIES: Final = Measure("host.zombies", COUNT, _now(_zombies))
OOM: Final = Measure("host.oom_kills", COUNT, _oom_kills, keep_s=OOM_WINDOW_S)
TEMPERATURE: Final = Measure("host.temperature", CELSIUS, _now(_temperature))
CLOCK_OFFSET: Final = Measure("host.clock_offset", SECONDS, _now(_clock_offset))
CLOCK_ERROR: Final = Measure("host.clock_error", SECONDS, _now(_clock_error))
FILESYSTEM: Final = Measure("host.filesystem", PERCENT, _now(_fill))
READ_ONLY: Final = Measure("host.read_only", FLAG, _now(_read_only))
MEMORY: Final = Measure("host.memory", PERCENT, _now(_fill))
SWAP: Final = Measure("host.swap", PERCENT, _now(_fill))
LOAD: Final = Measure("host.load", PERCENT, _now(_load))


def folder_measure(budget_bytes: int) -> Measure:
    """Return the measure of a folder with a budget.

    A folder that was not walked to its end is a lower bound: above its budget that is a reading,
    below it nothing is known.
    """

    def read(sample: Sample, _earlier: Sequence[Sample]) -> Reading | str:
        facts = sample.facts
        used: int = facts["used_bytes"]
        if not facts["complete"] and used < budget_bytes:
            return f"too large to measure: stopped after {facts['entries']} entries"
        words = f"{bytes_in_words(used)} of a budget of {bytes_in_words(budget_bytes)} in use"
        if not facts["complete"]:
            words = f"at least {words}"
        if facts["unreadable"]:
            words += f"; {facts['unreadable']} folders could not be read"
        return Reading(100.0 * used / budget_bytes, words)

    return Measure("host.folder", PERCENT, read)
