"""Logs for people and metrics for machines, the same in both processes.

Logs go to standard error; under systemd each line carries the priority that journald reads. Metrics
live in a registry that is passed in. This module must never hold a value of the domain and must
never be imported for its side effects: it has none.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


class _Lines(logging.Formatter):
    """One line a record: no newline and no control character of a message reaches the terminal."""

    def __init__(self, *, journald: bool) -> None:
        text = "%(name)s: %(message)s" if journald else "%(asctime)s %(levelname)s %(name)s: %(message)s"
        super().__init__(text)
        self._journald = journald

    def format(self, record: logging.LogRecord) -> str:
        line = visible(super().format(record))
        return f"<{_PRIORITIES.get(record.levelno, 3)}>{line}" if self._journald else line


def configure_logging(level: str = "info", *, journald: bool = False, stream: TextIO | None = None) -> None:
    """Send the program's log lines to ``stream`` (standard error). ``level`` is a logging level's name."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(journald=journald))
    root = logging.getLogger("hermesd")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def visible(text: str) -> str:
    """Return ``text`` on one line with every control, bidi and zero-width character made visible."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    if char == "\n":
        return "\\n"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004


class Metrics:
    """The counters of one process. Names are Prometheus names without the `hermesd_` prefix."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram  # noqa: PLC0415 - 20 ms, daemons only

        self.registry = registry or CollectorRegistry()
        self.events = Counter("hermesd_events", "Events taken in", ["source"], registry=self.registry)
        self.verdicts = Counter(
            "hermesd_verdicts", "What rules made of events", ["rule", "verdict"], registry=self.registry
        )
        self.runs = Counter("hermesd_runs", "Runs ended", ["outcome"], registry=self.registry)
        self.commands = Counter(
            "hermesd_commands", "Command requests ended", ["command", "status"], registry=self.registry
        )
        self.stage_timeouts = Counter(
            "hermesd_stage_timeouts", "Stage clocks that ran out", ["stage"], registry=self.registry
        )
        self.stage_seconds = Histogram(
            "hermesd_stage_seconds",
            "How long stages took",
            ["stage"],
            registry=self.registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60),
        )
        self.planner_fallbacks = Counter(
            "hermesd_planner_fallbacks", "Times another planner took over", ["reason"], registry=self.registry
        )
        self.approvals = Counter(
            "hermesd_approvals", "Pending operations ended", ["outcome"], registry=self.registry
        )
        self.unreadable = Counter(
            "hermesd_unreadable",
            "Input that could not be read as an event",
            ["source"],
            registry=self.registry,
        )
        self.source_restarts = Counter(
            "hermesd_source_restarts", "Sources started again", ["source"], registry=self.registry
        )
