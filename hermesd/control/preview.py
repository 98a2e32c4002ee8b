"""What a person is shown before a change: the preview's list and its meaning, never the model's words.

The preview is a command of the catalogue that only reads; what it printed becomes the manifest as it
is. This module must never run anything, and must never take a list that is cut for a whole one.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermesd.control.binding import Bound
from hermesd.control.manifest import ManifestError, impact_of
from hermesd.control.outcome import Stopped
from hermesd.control.output import first_line, read_output
from hermesd.control.redaction import Redactor
from hermesd.control.sandbox.base import Ended
from hermesd.protocol import Impact, ResultStatus


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would touch, as its preview listed it: the manifest's bytes and their meaning."""

    manifest: bytes
    impact: Impact


def read_preview(bound: Bound, ended: Ended) -> Preview:
    """Return what a preview's job listed. Raise Stopped when it failed, or nothing is there to do."""
    if ended.exit_status != 0 or ended.truncated:
        why = "it lists too much; ask for less" if ended.truncated else first_line(ended.stderr)
        raise Stopped(ResultStatus.FAILED, f"the preview did not succeed: {why}")
    try:
        impact = impact_of(ended.stdout, str(bound.values.get("path", "")))
    except ManifestError as error:
        raise Stopped(ResultStatus.FAILED, str(error)) from None
    if not impact.files:
        raise Stopped(ResultStatus.SUCCEEDED, "nothing there to be done", impact=impact)
    return Preview(ended.stdout, impact)


def looked_at(bound: Bound, look: tuple[Bound, Ended] | None, redactor: Redactor) -> Preview:
    """Return what a person is shown of a helper's action: how things are now, and what would run.

    That they cannot be looked at is said, and keeps nobody from deciding.
    """
    if look is None:
        now = "how it is now cannot be looked at here"
    elif look[1].exit_status == 0:
        now = f"now {read_output(look[0].command.spec.output, look[1], look[0].values, redactor).summary}"
    else:
        now = f"how it is now is not known: {first_line(look[1].stderr)}"
    text = f"{now}; runs {' '.join(bound.shown_argv)}"
    return Preview(b"", Impact(files=0, size_bytes=0, root="", undo="none", text=text))


def unpreviewed(bound: Bound) -> Preview:
    """Return what a person is shown of a command that only reads, when one is asked all the same."""
    text = f"{'runs' if bound.helper else 'only reads; runs'} {' '.join(bound.shown_argv)}"
    root = str(bound.values.get("path", ""))
    return Preview(b"", Impact(files=0, size_bytes=0, root=root, reversible=bound.helper is None, text=text))
