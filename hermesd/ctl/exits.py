"""How hermesctl ends: the exit codes, and the one way a command stops early.

The codes are a promise to scripts: docs/hermesctl.md and `hermesctl --help` list them. This module
must never print; whoever catches `Stop` does.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """What an exit code of hermesctl means."""

    DONE = 0  # done, healthy, verified
    BAD = 1  # the thing asked about is bad
    USAGE = 2  # the command line, or the request, was not understood
    UNREACHABLE = 3  # the daemon or the executor does not answer
    REFUSED = 4  # not permitted, a wrong token, denied, not now
    NOT_FOUND = 5  # there is no such thing
    INTERRUPTED = 130  # a person pressed Ctrl-C while only watching
    PIPE_CLOSED = 141  # whoever read the output went away


class Stop(Exception):  # noqa: N818 - an early end with a reason, not somebody's fault
    """End the command with ``exit_code``, telling ``lines`` to people or ``code`` and the lines to programs.

    ``more`` holds further fields for programs.
    """

    def __init__(self, exit_code: Exit, code: str, lines: tuple[str, ...], **more: Any) -> None:
        super().__init__(*lines)
        self.exit_code = exit_code
        self.code = code
        self.lines = lines
        self.more = more
