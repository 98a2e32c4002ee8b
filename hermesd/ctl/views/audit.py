"""`hermesctl audit verify`: whether each log is whole, judged with what the other process saw of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hermesd.ctl import messages as m
from hermesd.ctl.asking import Answer, Place, Refused, Reply, Silent, why_refused, why_silent
from hermesd.ctl.exits import Exit
from hermesd.ctl.screen import Item, Line, Tone
from hermesd.ctl.speech import Speech, count
from hermesd.ctl.views.fields import text_of, whole_of
from hermesd.ctl.width import cells


@dataclass(frozen=True, slots=True)
class Checked:
    """One log: whose it is, the anchor that the other process holds of it, and what verifying answered."""

    place: Place
    anchor: str
    reply: Reply

    @property
    def good(self) -> bool:
        """Whether the log was verified."""
        return isinstance(self.reply, Answer) and self.reply.payload.get("ok") is True

    @property
    def records(self) -> int:
        """How many records were verified."""
        return whole_of(self.reply.payload, "records") if isinstance(self.reply, Answer) else 0


def exit_of_audit(logs: list[Checked]) -> Exit:
    """Return how the command ends: a bad log counts more than one that could not be asked for."""
    if any(not log.good and not isinstance(log.reply, Silent) for log in logs):
        return Exit.BAD
    return Exit.DONE if all(log.good for log in logs) else Exit.UNREACHABLE


def render_audit(logs: list[Checked], say: Speech) -> list[Item]:
    """Return the verdict over both logs, then each log's."""
    exit_code = exit_of_audit(logs)
    if exit_code is Exit.DONE:
        verdict = Line(say(m.VERIFIED, n=count(sum(log.records for log in logs))), Tone.GOOD)
    elif exit_code is Exit.BAD:
        verdict = Line(say(m.NOT_VERIFIED), Tone.BAD)
    else:
        verdict = Line(say(m.PARTLY_VERIFIED), Tone.WARN)
    hang = max(cells(log.place.name) for log in logs) + 2
    return [verdict, *(line for log in logs for line in _log_lines(log, say, hang))]


def _log_lines(log: Checked, say: Speech, hang: int) -> list[Item]:
    reply = log.reply
    if isinstance(reply, Silent):
        told = [Line(text, Tone.WARN, hang=hang) for text in why_silent(reply, say)]
    elif isinstance(reply, Refused):
        told = [Line(text, Tone.BAD, hang=hang) for text in why_refused(reply, say)]
    elif log.good:
        told = _good_lines(reply.payload, log.anchor, say, hang)
    else:
        told = _bad_lines(reply.payload, log.anchor, say, hang)
    first = told[0]
    return [Line(first.text, first.tone, log.place.name, hang), *told[1:]]


def _good_lines(found: dict[str, Any], anchor: str, say: Speech, hang: int) -> list[Line]:
    records = count(whole_of(found, "records"))
    head = short_head(text_of(found, "head"))
    if anchor:
        anchored = Line(say(m.LOG_ANCHORED, seq=anchor.partition(":")[0]), Tone.DIM, hang=hang)
    else:
        anchored = Line(say(m.LOG_UNANCHORED), Tone.WARN, hang=hang)
    return [Line(say(m.LOG_GOOD, n=records, head=head), hang=hang), anchored]


def _bad_lines(found: dict[str, Any], anchor: str, say: Speech, hang: int) -> list[Line]:
    reason, first_bad = text_of(found, "reason", "–"), found.get("first_bad")
    text = say(m.LOG_BAD_UNPLACED, reason=reason)
    if first_bad is not None:
        text = say(m.LOG_BAD, seq=first_bad, reason=reason)
    lines = [Line(text, Tone.BAD, hang=hang)]
    if missing := missing_tail(found, anchor):
        lines.append(Line(say(m.LOG_TAIL, first=missing[0], last=missing[1]), Tone.BAD, hang=hang))
    return lines


def missing_tail(found: dict[str, Any], anchor: str) -> tuple[int, int] | None:
    """Return the first and last record that the other process has seen and the log no longer holds."""
    seen, head = anchor.partition(":")[0], text_of(found, "head").partition(":")[0]
    if not (seen.isascii() and seen.isdigit() and head.isascii() and head.isdigit()):
        return None
    whole = whole_of(found, "first_bad") in (0, int(head) + 1)
    return (int(head) + 1, int(seen)) if whole and int(seen) > int(head) else None


def short_head(head: str) -> str:
    """Return an anchor with as much of its hash as people compare."""
    seq, _, digest = head.partition(":")
    return f"{seq}:{digest[:12]}"


def audit_document(logs: list[Checked]) -> dict[str, Any]:
    """Return the same for programs; a log that could not be asked for is null."""
    return {
        "verified": all(log.good for log in logs),
        "records": sum(log.records for log in logs),
        "logs": {
            log.place.name: {**log.reply.payload, "anchor": log.anchor}
            if isinstance(log.reply, Answer)
            else None
            for log in logs
        },
    }
