"""What is measured of the host: one Measure for each kind of reading, with its unit and its words.

Everything here is pure: a sample, and what is kept of the samples before it, give a reading. This
module must never measure, and never judge a value: rules do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hermesd.sources.readings import Facts, Measure, Read, Reading, Sample, bytes_in_words

PERCENT: Final = "percent"
FLAG: Final = "flag"
"""1 for yes, 0 for no."""


def _now(read: Callable[[Facts], Reading | str | None]) -> Read:
    """Return a reader that needs no earlier sample."""
    return lambda sample, _earlier: read(sample.facts)


def _fill(facts: Facts) -> Reading | None:
    if not facts["size_bytes"]:
        return None
    used, size = bytes_in_words(facts["used_bytes"]), bytes_in_words(facts["size_bytes"])
    free = bytes_in_words(facts["available_bytes"])
    return Reading(facts["percent"], f"{used} of {size} in use, {free} available")


def _load(facts: Facts) -> Reading:
    words = f"load {facts['one']:.2f} over one minute on {facts['processors']} processors"
    return Reading(facts["percent"], words)


def _read_only(facts: Facts) -> Reading:
    turned = facts["read_only"]
    return Reading(float(turned), "is read-only: nothing can be written" if turned else "can be written to")


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
