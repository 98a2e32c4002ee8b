"""Report: what a person is told at a run's end, composed from what really happened.

The planner's words come first, and the figures come from the executor's results, never from the
planner. A run that ended early is reported as well: with the reason, and with what was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hermesd.agent.planner import Observation
from hermesd.incidents import RunKind
from hermesd.pipeline.ending import Ending
from hermesd.pipeline.words import Words, size_text, stages_text
from hermesd.protocol import Finish, StageTiming

MAX_SEEN: Final = 8


def render_report(
    ending: Ending,
    finish: Finish | None,
    observations: Sequence[Observation],
    timings: Sequence[StageTiming],
    kind: RunKind,
    words: Words,
) -> str:
    """Return the report's text."""
    parts = [ending.reason] if ending.reason else []
    if finish is not None:
        if finish.cause and finish.cause not in finish.report:
            parts.append(words.cause.format(cause=finish.cause))
        parts.append(finish.report.strip())
    else:
        parts += _seen(observations, words)
    gains = _gains(observations, words)
    parts += gains
    parts.append(words.stages.format(stages=stages_text(tuple(timings))))
    if gains or (kind is RunKind.PERSON and finish is not None):
        parts.append(words.deeper)
    return "\n".join(parts)


def _gains(observations: Sequence[Observation], words: Words) -> list[str]:
    lines = []
    for seen in observations:
        if seen.gain is not None:
            size = size_text(seen.gain.freed_bytes)
            line = words.gained.format(size=size, files=seen.gain.files_removed, command=seen.command)
            skipped = seen.gain.files_skipped
            lines.append(f"{line} {words.skipped.format(files=skipped)}" if skipped else line)
            if seen.impact is not None and seen.impact.undo_h:
                lines.append(words.undoable.format(hours=seen.impact.undo_h))
        elif seen.impact is not None and not seen.succeeded:
            lines.append(words.would.format(text=seen.impact.text))
    return lines


def _seen(observations: Sequence[Observation], words: Words) -> list[str]:
    """Return what was seen, for a run whose planner never came to a report."""
    return [
        words.last_seen.format(command=seen.command, summary=seen.summary)
        for seen in observations[-MAX_SEEN:]
        if seen.succeeded and seen.summary
    ]
