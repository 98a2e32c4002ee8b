"""hermesctl: the command line of hermesd. Each command asks, shows, and ends with an exit code.

It answers within the time of the standard library and click: nothing heavier may be imported here,
and of hermesd only `ipc.messages` and `ipc.client`. What one command alone needs is imported by it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import click

import hermesd
from hermesd.ctl import messages as m
from hermesd.ctl.asking import Answer, Refused, Silent, ask, payload_or_stop, why_refused
from hermesd.ctl.border import run
from hermesd.ctl.events import emit, explain, schedules
from hermesd.ctl.exits import Exit, Stop
from hermesd.ctl.options import Group, option, with_session
from hermesd.ctl.queue import HELP_RELEASE, queue, release_target
from hermesd.ctl.removed import removed
from hermesd.ctl.screen import Line, Tone
from hermesd.ctl.session import Session
from hermesd.ctl.silence import silence
from hermesd.ctl.undo import undo
from hermesd.ctl.views.fields import text_of
from hermesd.ctl.views.lists import render_approvals, render_incidents, render_runs
from hermesd.ctl.views.status import Standing, exit_of_standing, find_problems, render_status, status_document
from hermesd.ipc.messages import Code, Kind

STATUS_SECONDS: Final = 2.0
"""How long `status` waits for either process: a hung one must not hide the other."""
VERIFY_SECONDS: Final = 600.0
"""A log of tens of millions of records takes minutes to walk."""


@click.group("hermesctl", cls=Group, words=m.HELP, ending=m.EPILOG, outermost=True)
def cli() -> None:
    """Hold the commands; the options are kept by `options`."""


@cli.command("status", words=m.HELP_STATUS)
@with_session
def status(session: Session) -> Exit:
    """Ask both processes, each with a short clock, and show what is known."""
    seconds = min(session.seconds, STATUS_SECONDS)
    executor = ask(session.executor, Kind.STATUS, {}, seconds)
    approvals = (
        ask(session.executor, Kind.APPROVALS, {}, seconds) if isinstance(executor, Answer) else executor
    )
    standing = Standing(ask(session.daemon, Kind.STATUS, {}, seconds), executor, approvals)
    problems = find_problems(standing, session.say)
    exit_code = exit_of_standing(standing, problems)
    items = render_status(standing, problems, session.say, session.now())
    session.tell(status_document(standing, problems, exit_code), items)
    return exit_code


@cli.command("incidents", words=m.HELP_INCIDENTS)
@option("--all", "everything", is_flag=True, words=m.OPT_ALL)
@option("--limit", type=click.IntRange(1, 1000), default=50, words=m.OPT_LIMIT)
@with_session
def incidents(session: Session, *, everything: bool, limit: int) -> Exit:
    """List incidents."""
    payload = session.ask_daemon(Kind.INCIDENTS, all=everything, limit=limit)
    session.tell(payload, render_incidents(payload, session.say, session.now(), everything=everything))
    return Exit.DONE


@cli.command("runs", words=m.HELP_RUNS)
@option("--incident", metavar="ID", default="", words=m.OPT_INCIDENT)
@option("--limit", type=click.IntRange(1, 1000), default=50, words=m.OPT_LIMIT)
@with_session
def runs(session: Session, incident: str, limit: int) -> Exit:
    """List runs."""
    payload = session.ask_daemon(Kind.RUNS, incident=incident, limit=limit)
    session.tell(payload, render_runs(payload, session.say, session.now()))
    return Exit.DONE


@cli.command("show", words=m.HELP_SHOW)
@click.argument("subject", metavar="ID")
@option("--records", is_flag=True, words=m.OPT_RECORDS)
@with_session
def show(session: Session, subject: str, *, records: bool) -> Exit:
    """Show an incident or a run."""
    from hermesd.ctl.views.timeline import render_show  # noqa: PLC0415 - only this command pays for it

    payload = session.ask_daemon(Kind.SHOW, id=subject)
    session.tell(payload, render_show(payload, session.say, session.now(), records=records))
    return Exit.DONE


@cli.command("approvals", words=m.HELP_APPROVALS)
@with_session
def approvals(session: Session) -> Exit:
    """List what waits for a person."""
    payload = session.ask_executor(Kind.APPROVALS)
    session.tell(payload, render_approvals(payload, session.say, session.now()))
    return Exit.DONE


@cli.command("approve", words=m.HELP_APPROVE)
@click.argument("operation", metavar="ID")
@with_session
def approve_command(session: Session, operation: str) -> Exit:
    """Hold the conversation in which an operation is approved."""
    from hermesd.ctl import approve as talking  # noqa: PLC0415 - only this command pays for it

    if session.as_json:
        raise Stop(Exit.USAGE, "no_json", (session.say(m.NO_JSON),))
    talking.require_terminal(session.say)
    keyboard = talking.TerminalKeyboard(sys.stdin)
    talk = talking.Conversation(
        session.executor, session.screen, keyboard, session.say, session.seconds, session.now
    )
    return talking.approve(talk, operation)


@cli.command("deny", words=m.HELP_DENY)
@click.argument("operation", metavar="ID")
@option("--reason", default="", words=m.OPT_REASON)
@with_session
def deny(session: Session, operation: str, reason: str) -> Exit:
    """Say no to an operation."""
    payload = session.ask_executor(Kind.DENY, id=operation, reason=reason)
    session.tell(payload, [Line(session.say(m.DENIED, id=operation))])
    return Exit.DONE


cli.add_command(queue)
cli.add_command(silence)
cli.add_command(undo)
cli.add_command(removed)


@cli.command("release", words=HELP_RELEASE)
@click.argument("target")
@with_session
def release(session: Session, target: str) -> Exit:
    """Give a taken-over target back."""
    return release_target(session, target)


for command in (schedules, emit, explain):
    cli.add_command(command)


@cli.command("pause", words=m.HELP_PAUSE)
@click.argument("task", metavar="[ID]", required=False, default="")
@with_session
def pause(session: Session, task: str) -> Exit:
    """Pause a run, or the starting of new ones."""
    return _steer(session, Kind.PAUSE, task)


@cli.command("resume", words=m.HELP_RESUME)
@click.argument("task", metavar="[ID]", required=False, default="")
@with_session
def resume(session: Session, task: str) -> Exit:
    """Resume a run, or the starting of new ones."""
    return _steer(session, Kind.RESUME, task)


@cli.command("cancel", words=m.HELP_CANCEL)
@click.argument("task", metavar="ID")
@with_session
def cancel(session: Session, task: str) -> Exit:
    """Cancel a run."""
    return _steer(session, Kind.CANCEL, task)


def _steer(session: Session, kind: Kind, task: str) -> Exit:
    payload = session.ask_daemon(kind, **({"task_id": task} if task else {}))
    text = session.say(m.ALL_PAUSED if kind is Kind.PAUSE else m.ALL_RESUMED)
    if task:
        status = session.say.word(m.RUN_STATUSES, payload.get("status"))
        text = session.say(m.RUN_NOW, id=text_of(payload, "task_id", task), status=status)
    session.tell(payload, [Line(text)])
    return Exit.DONE


@cli.command("ask", words=m.HELP_ASK)
@click.argument("text")
@option("--follow/--no-wait", default=True, words=m.OPT_FOLLOW)
@with_session
def ask_command(session: Session, text: str, *, follow: bool) -> Exit:
    """Ask hermesd to look at something."""
    from hermesd.ctl.following import tell_started  # noqa: PLC0415 - only this command pays for it

    if not text.strip():
        raise Stop(Exit.USAGE, "empty", (session.say(m.EMPTY_QUESTION),))
    return tell_started(session, session.ask_daemon(Kind.ASK, text=text), follow=follow)


@cli.command("follow", words=m.HELP_FOLLOW)
@click.argument("task", metavar="ID")
@with_session
def follow(session: Session, task: str) -> Exit:
    """Follow a run until it ends."""
    from hermesd.ctl.following import follow_run  # noqa: PLC0415 - only this command pays for it

    return follow_run(session, task)


@cli.command("commands", words=m.HELP_COMMANDS)
@click.argument("name", metavar="[NAME]", required=False, default="")
@with_session
def commands(session: Session, name: str) -> Exit:
    """List the catalogue, or show one command of it."""
    from hermesd.ctl.views.catalogue import find_command, render_command, render_commands  # noqa: PLC0415 - only this command pays for it

    view = session.ask_executor(Kind.COMMANDS)
    if not name:
        session.tell(view, render_commands(view, session.say))
        return Exit.DONE
    command = find_command(view, name)
    if command is None:
        raise Stop(Exit.NOT_FOUND, "not_found", (session.say(m.NO_SUCH_COMMAND, name=name),))
    session.tell(command, render_command(command, session.say))
    return Exit.DONE


@cli.command("reload", words=m.HELP_RELOAD)
@with_session
def reload(session: Session) -> Exit:
    """Have hermesd read its configuration again."""
    reply = ask(session.daemon, Kind.RELOAD, {}, session.seconds)
    if isinstance(reply, Refused) and reply.code != Code.NOT_NOW:
        lines = (session.say(m.NOT_RELOADED), *why_refused(reply, session.say))
        raise Stop(Exit.BAD, reply.code, lines)
    payload = payload_or_stop(reply, session.say)
    session.tell(payload, [Line(session.say(m.RELOADED, digest=text_of(payload, "digest")), Tone.GOOD)])
    return Exit.DONE


@cli.group("audit", cls=Group, words=m.HELP_AUDIT)
def audit() -> None:
    """Hold the commands about the audit logs."""


@audit.command("verify", words=m.HELP_AUDIT_VERIFY)
@with_session
def verify(session: Session) -> Exit:
    """Verify each log with the head of it that the other process has seen."""
    from hermesd.ctl.views.audit import Checked, audit_document, exit_of_audit, render_audit  # noqa: PLC0415 - only this command pays for it

    seconds = max(session.seconds, VERIFY_SECONDS)
    seen_by_daemon = _peer_anchor(ask(session.daemon, Kind.AUDIT_VERIFY, {"anchor": ""}, seconds))
    executor = ask(session.executor, Kind.AUDIT_VERIFY, {"anchor": seen_by_daemon}, seconds)
    seen_by_executor = _peer_anchor(executor)
    daemon = ask(session.daemon, Kind.AUDIT_VERIFY, {"anchor": seen_by_executor}, seconds)
    logs = [
        Checked(session.daemon, seen_by_executor, daemon),
        Checked(session.executor, seen_by_daemon, executor),
    ]
    session.tell(audit_document(logs), render_audit(logs, session.say))
    return exit_of_audit(logs)


def _peer_anchor(reply: Answer | Refused | Silent) -> str:
    return text_of(reply.payload, "peer_anchor") if isinstance(reply, Answer) else ""


@cli.command("version", words=m.HELP_VERSION)
@with_session
def version(session: Session) -> Exit:
    """Show the version of hermesctl and of the daemon that answers."""
    reply = ask(session.daemon, Kind.STATUS, {}, min(session.seconds, STATUS_SECONDS))
    running = text_of(reply.payload, "version") if isinstance(reply, Answer) else ""
    unknown = session.say(m.VERSION_UNKNOWN, name=session.daemon.name)
    told = session.say(m.VERSION, name=session.daemon.name, version=running) if running else unknown
    own = session.say(m.VERSION, name="hermesctl", version=hermesd.__version__)
    document = {"hermesctl": hermesd.__version__, "hermesd": running or None}
    session.tell(document, [Line(own), Line(told, Tone.PLAIN if running else Tone.DIM)])
    return Exit.DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run hermesctl and return its exit code."""
    return run(cli, list(sys.argv[1:] if arguments is None else arguments), os.environ)


if __name__ == "__main__":
    sys.exit(main())
