"""Whether a model's finish answers what was asked, before anybody is told that it does.

Every demand of the goal must have been looked at, the figures of the answer must occur in what was
observed, and nothing seen is no answer. What is not so goes back as words, and planning goes on. In
the last round there is nothing to go back to: what was found is reported then, and only figures that
nobody saw are still refused. Pure; this module must never correct an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hermesd.agent.planner import Briefing, Observation
from hermesd.agent.provenance import known_of
from hermesd.agent.scenes import GENERAL, scenes_in
from hermesd.protocol import Finish

_NUMBER: Final = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
_SMALL: Final = 12
"""Figures up to this are counts of list points, steps and the like as often as measurements."""

_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}:\d{2}(?::\d{2})?")
_SCALES: Final = (1, 1e3, 1e6, 1e9, 1e12, 1024, 1024**2, 1024**3, 1024**4, 60, 3600, 86_400)
MAX_NAMED: Final = 4


def unmet(
    finish: Finish, briefing: Briefing, observations: Sequence[Observation], *, last_round: bool
) -> list[str]:
    """Return what keeps the finish from being an answer, in words for the planner; empty when it is one."""
    faults = list(_invented(finish, briefing, observations))
    if not last_round:
        faults += _unlooked(briefing, observations)
    return faults


def _unlooked(briefing: Briefing, observations: Sequence[Observation]) -> Iterator[str]:
    """Yield each demand of the goal at which nobody has looked."""
    if not observations:
        yield "nothing was looked at yet: an answer needs an observation; look first"
        return
    infos = {info.name: info for info in briefing.catalogue.commands}
    looked = {scene for seen in observations if seen.command in infos for scene in infos[seen.command].scenes}
    possible = {scene for info in infos.values() if info.usable for scene in info.scenes}
    for scene in scenes_in(briefing.goal):
        if scene != GENERAL and scene in possible and scene not in looked:
            yield f"the goal asks about {scene}, and no command of that scene was run"


def _invented(finish: Finish, briefing: Briefing, observations: Sequence[Observation]) -> Iterator[str]:
    """Yield the figures of the answer that occur in nothing the run knows."""
    texts = known_of(briefing, observations).texts.values()
    known = {value for text in texts for value in _figures(text)} | set(_counts(observations))
    missing = [
        shown
        for shown, value in _shown(f"{finish.cause}\n{finish.report}")
        if value > _SMALL and not any(_same(value, _last_digit(shown), other) for other in known)
    ]
    if missing:
        yield (
            f"the figures {', '.join(dict.fromkeys(missing[:MAX_NAMED]))} occur in no observation; "
            "say only figures that were observed"
        )


def _counts(observations: Sequence[Observation]) -> Iterator[float]:
    for seen in observations:
        yield float(len(seen.rows))
        for name in seen.rows[0] if seen.rows else ():
            values: list[Any] = [row.get(name) for row in seen.rows]
            if all(isinstance(value, int | float) for value in values):
                yield float(sum(values))


def _shown(text: str) -> Iterator[tuple[str, float]]:
    for found in _NUMBER.finditer(_MOMENT.sub(" ", text)):
        yield found[0], float(found[0].replace(",", ""))


def _figures(text: str) -> set[float]:
    return {value for _shown_as, value in _shown(text)}


def _last_digit(shown: str) -> float:
    """Return what the figure's last digit stands for: 0.1 of `1.2`, 1 of `83`."""
    return float(10 ** -len(shown.partition(".")[2]))


def _same(value: float, last_digit: float, known: float) -> bool:
    """Say whether one may be the other, rounded or in another unit, or what is missing from a hundred."""
    if abs(100 - known - value) < last_digit:
        return True
    return any(abs(value * scale - known) < last_digit * scale for scale in _SCALES)
