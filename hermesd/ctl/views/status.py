"""`hermesctl status`: one screen that says how both processes stand, faults first.

Works with whatever could be asked: a process that does not answer is a fault with its remedy, and
the other one is shown all the same. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hermesd.ctl import messages as m
from hermesd.ctl.asking import Answer, Refused, Reply, Silent, why_refused, why_silent
from hermesd.ctl.exits import Exit
from hermesd.ctl.messages import Text
from hermesd.ctl.screen import Item, Line, Tone
from hermesd.ctl.speech import Speech, count
from hermesd.ctl.views.fields import number_of, rows_of, table_of, text_of, texts_of, whole_of
from hermesd.ctl.width import cells

SHOWN_APPROVALS: Final = 5
_GOOD_MODEL: Final = frozenset({"", "ok", "ready", "up", "unused", "idle"})


@dataclass(frozen=True, slots=True)
class Standing:
    """What both processes answered: the daemon's status, the executor's, and what waits for a person."""

    daemon: Reply
    executor: Reply
    approvals: Reply


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. A warning alone leaves hermesd healthy. ``remedy`` may be empty."""

    code: str
    text: str
    remedy: str = ""
    warning: bool = False


def payload_in(reply: Reply) -> dict[str, Any]:
    """Return the payload of an answer, an empty one of anything else."""
    return reply.payload if isinstance(reply, Answer) else {}


def find_problems(standing: Standing, say: Speech) -> list[Problem]:
    """Return all that is wrong, the worst first."""
    found = [*_unanswered(standing.daemon, say), *_unanswered(standing.executor, say)]
    if isinstance(standing.executor, Answer):
        found += _executor_problems(standing.executor.payload, say)
    if isinstance(standing.daemon, Answer):
        found += _daemon_problems(standing.daemon.payload, standing, say)
    return sorted(found, key=lambda problem: problem.warning)


def exit_of_standing(standing: Standing, problems: list[Problem]) -> Exit:
    """Return how `status` ends: unreachable before bad before done."""
    if isinstance(standing.daemon, Silent) or isinstance(standing.executor, Silent):
        return Exit.UNREACHABLE
    return Exit.BAD if any(not problem.warning for problem in problems) else Exit.DONE


def _unanswered(reply: Reply, say: Speech) -> list[Problem]:
    if isinstance(reply, Silent):
        text, remedy = why_silent(reply, say)
        return [Problem("unreachable", text, remedy)]
    if isinstance(reply, Refused):
        return [Problem("refused", "; ".join(why_refused(reply, say)))]
    return []


def _executor_problems(executor: dict[str, Any], say: Speech) -> list[Problem]:
    found = []
    if not executor.get("usable"):
        reason = text_of(executor, "reason") or say(m.NOT_KNOWN)
        engines = "; ".join(f"{name}: {why}" for name, why in table_of(executor, "engines").items())
        found.append(Problem("no_sandbox", say(m.BAD_SANDBOX, reason=reason), engines))
    if texts_of(executor, "degraded"):
        found.append(Problem("degraded", say(m.WARN_DEGRADED), warning=True))
    faults = texts_of(executor, "tool_faults")
    return found + [Problem("tool", say(m.WARN_TOOL, fault=fault), warning=True) for fault in faults]


def _daemon_problems(daemon: dict[str, Any], standing: Standing, say: Speech) -> list[Problem]:
    found = []
    if daemon.get("ready") is False:
        found.append(Problem("not_ready", say(m.BAD_NOT_READY)))
    link = table_of(daemon, "executor")
    if link.get("reachable") is False and isinstance(standing.executor, Answer):
        found.append(Problem("no_link", say(m.BAD_LINK)))
    found += [_source_problem(one, say) for one in rows_of(daemon, "sources") if not _source_is_well(one)]
    if daemon.get("paused"):
        found.append(Problem("paused", say(m.WARN_PAUSED), warning=True))
    model = table_of(daemon, "model")
    if model.get("configured") and text_of(model, "state") not in _GOOD_MODEL:
        text = say(m.WARN_MODEL, model=_model_line(model, say))
        found.append(Problem("model", text, warning=True))
    theirs, ours = text_of(link, "policy_version"), text_of(payload_in(standing.executor), "policy_version")
    if theirs and ours and theirs != ours:
        text = say(m.WARN_POLICY, agent=theirs, executor=ours)
        found.append(Problem("policy_differs", text, warning=True))
    return found


def _source_is_well(source: dict[str, Any]) -> bool:
    return text_of(source, "state") in {"running", "off"}


def _source_problem(source: dict[str, Any], say: Speech) -> Problem:
    state = say.word(m.SOURCE_STATES, source.get("state"))
    name, error = text_of(source, "name"), text_of(source, "error", "–")
    return Problem("source", say(m.BAD_SOURCE, name=name, state=state, error=error))


def render_status(standing: Standing, problems: list[Problem], say: Speech, now: datetime) -> list[Item]:
    """Return the screen: faults, then each part under its label."""
    parts = [
        *_daemon_parts(payload_in(standing.daemon), say, now),
        *_executor_parts(payload_in(standing.executor), say),
        *_approval_parts(payload_in(standing.approvals), say, now),
        *_hands_parts(payload_in(standing.executor), say),
        *_book_parts(payload_in(standing.daemon), payload_in(standing.executor), say),
    ]
    hang = max(cells(say(label)) for label, _text, _tone in parts) + 2
    lines: list[Item] = [*_problem_lines(problems, say), Line()]
    previous = None
    for label, text, tone in parts:
        lines.append(Line(text, tone, "" if label is previous else say(label), hang))
        previous = label
    return lines


Part = tuple[Text, str, Tone]


def _problem_lines(problems: list[Problem], say: Speech) -> list[Item]:
    lines: list[Item] = []
    for problem in problems:
        mark, tone = ("!", Tone.WARN) if problem.warning else ("✗", Tone.BAD)
        lines.append(Line(problem.text, tone, mark, 2))
        if problem.remedy:
            lines.append(Line(problem.remedy, Tone.PLAIN, "", 2))
    return lines or [Line(say(m.ALL_WELL), Tone.GOOD, "✓", 2)]


def _daemon_parts(daemon: dict[str, Any], say: Speech, now: datetime) -> list[Part]:
    if not daemon:
        return [(m.DAEMON, say(m.NOT_KNOWN), Tone.DIM)]
    ready, paused = daemon.get("ready") is not False, bool(daemon.get("paused"))
    state = say(m.PAUSED if paused else m.READY if ready else m.STARTING)
    values = {
        "state": state,
        "version": text_of(daemon, "version", "?"),
        "pid": text_of(daemon, "pid", "?"),
        "up": say.span(number_of(daemon, "uptime_s")),
    }
    tone = Tone.GOOD if ready and not paused else Tone.WARN
    inbox = table_of(daemon, "inbox")
    amounts = {name: count(whole_of(inbox, name)) for name in ("undecided", "accepted")}
    return [
        (m.DAEMON, say(m.DAEMON_LINE, **values), tone),
        *_source_parts(rows_of(daemon, "sources"), say, now),
        (m.INBOX, say(m.INBOX_LINE, **amounts), Tone.PLAIN),
        _figure(m.INCIDENTS, m.OPEN_LINE, whole_of(daemon, "incidents_open"), say),
        _figure(m.RUNS, m.ACTIVE_LINE, whole_of(daemon, "runs_active"), say),
        (m.MODEL, _model_line(table_of(daemon, "model"), say), Tone.PLAIN),
    ]


def _figure(label: Text, line: Text, number: int, say: Speech) -> Part:
    return (label, say(line, n=number), Tone.WARN if number and label is m.INCIDENTS else Tone.PLAIN)


def _source_parts(sources: list[dict[str, Any]], say: Speech, now: datetime) -> list[Part]:
    if not sources:
        return [(m.SOURCES, say(m.NO_SOURCES), Tone.WARN)]
    return [(m.SOURCES, _source_line(source, say, now), _source_tone(source)) for source in sources]


def _source_line(source: dict[str, Any], say: Speech, now: datetime) -> str:
    name, kind = text_of(source, "name", "?"), text_of(source, "kind", "?")
    named = name if name == kind else say(m.SOURCE_KIND, name=name, kind=kind)
    names = {"source": named, "state": say.word(m.SOURCE_STATES, source.get("state"))}
    if text_of(source, "state") == "off":
        return say(m.SOURCE_OFF, **names)
    error, restarts = text_of(source, "error"), whole_of(source, "restarts")
    if not _source_is_well(source):
        return say(m.SOURCE_DEAD, **names, n=restarts)
    heard = source.get("last_event_at")
    last = say(m.LAST_EVENT, ago=say.ago(heard, now)) if heard else say(m.NO_EVENT)
    if error:
        last = say(m.SOURCE_REVIVED, n=restarts, error=error)
    return say(m.SOURCE_LINE, **names, span=say.lasting(source.get("since"), now), last=last)


def _source_tone(source: dict[str, Any]) -> Tone:
    if not _source_is_well(source):
        return Tone.BAD
    return Tone.DIM if text_of(source, "state") == "off" else Tone.PLAIN


def _model_line(model: dict[str, Any], say: Speech) -> str:
    if not model.get("configured"):
        return say(m.MODEL_NONE)
    name, state = text_of(model, "name", "?"), text_of(model, "state")
    return say(m.MODEL_LINE, name=name, state=state) if state else name


def _executor_parts(executor: dict[str, Any], say: Speech) -> list[Part]:
    if not executor:
        return [(m.EXECUTOR, say(m.NOT_KNOWN), Tone.DIM)]
    usable = bool(executor.get("usable"))
    commands = count(whole_of(executor, "commands"))
    parts: list[Part] = [
        (m.EXECUTOR, say(m.EXECUTOR_LINE, commands=commands), Tone.GOOD),
        (m.SANDBOX, _sandbox_line(executor, say), Tone.GOOD if usable else Tone.BAD),
        *((m.DEGRADED, why, Tone.WARN) for why in texts_of(executor, "degraded")),
    ]
    if separation := text_of(executor, "separation"):
        parts.append((m.SEPARATION, separation, Tone.PLAIN))
    return parts


def _sandbox_line(executor: dict[str, Any], say: Speech) -> str:
    name, reason = text_of(executor, "sandbox"), text_of(executor, "reason") or say(m.NOT_KNOWN)
    if not executor.get("usable"):
        return say(m.SANDBOX_NONE)
    return reason if name in reason else say(m.SANDBOX_GOOD, name=name, reason=reason)


def _approval_parts(approvals: dict[str, Any], say: Speech, now: datetime) -> list[Part]:
    waiting = rows_of(approvals, "operations")
    if not waiting:
        none = say(m.PENDING_NONE) if "operations" in approvals else say(m.NOT_KNOWN)
        return [(m.APPROVALS, none, Tone.DIM)]
    parts: list[Part] = []
    for operation in waiting[:SHOWN_APPROVALS]:
        left = say.left(operation.get("expires_at"), now)
        what = f"{text_of(operation, 'command')}: {text_of(operation, 'text')}"
        parts.append((m.APPROVALS, say(m.PENDING_LINE, text=what, left=left), Tone.WARN))
        parts.append((m.APPROVALS, say(m.TYPE_NEXT, id=text_of(operation, "id")), Tone.HEAD))
    if len(waiting) > SHOWN_APPROVALS:
        parts.append((m.APPROVALS, say(m.PENDING_MORE, n=len(waiting) - SHOWN_APPROVALS), Tone.PLAIN))
    return parts


def _hands_parts(executor: dict[str, Any], say: Speech) -> list[Part]:
    """Return what a person has, and what waits for a person's own hands."""
    held, tickets = texts_of(executor, "takeovers"), whole_of(executor, "tickets")
    parts: list[Part] = []
    if held:
        parts.append((m.IN_HANDS, say(m.IN_HANDS_LINE, targets=", ".join(held)), Tone.WARN))
    if tickets:
        parts.append((m.TICKETS, say(m.TICKETS_LINE, n=tickets), Tone.WARN))
    return parts


def _book_parts(daemon: dict[str, Any], executor: dict[str, Any], say: Speech) -> list[Part]:
    if not daemon and not executor:
        return []
    records = [
        count(whole_of(table_of(side, "audit"), "records")) if side else "?" for side in (daemon, executor)
    ]
    policy = text_of(executor, "policy_version") or text_of(
        table_of(daemon, "executor"), "policy_version", "?"
    )
    return [
        (m.AUDIT, say(m.AUDIT_LINE, agent=records[0], executor=records[1]), Tone.PLAIN),
        (m.CONFIG, say(m.CONFIG_LINE, config=text_of(daemon, "config", "?"), policy=policy), Tone.DIM),
    ]


def status_document(standing: Standing, problems: list[Problem], exit_code: Exit) -> dict[str, Any]:
    """Return the same for programs: the payloads as they came, null where nobody answered."""
    return {
        "ok": exit_code is Exit.DONE,
        "problems": [
            {"code": problem.code, "text": problem.text, "remedy": problem.remedy, "warning": problem.warning}
            for problem in problems
        ],
        "daemon": payload_in(standing.daemon) or None,
        "executor": payload_in(standing.executor) or None,
        "approvals": rows_of(payload_in(standing.approvals), "operations")
        if isinstance(standing.approvals, Answer)
        else None,
    }
