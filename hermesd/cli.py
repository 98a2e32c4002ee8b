"""`hermesd`: run the processes, check the configuration, show the main job.

Thin: each command reads its options, calls one function and turns what comes back into words and an
exit status. A traceback is never what a user sees.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from hermesd import __version__
from hermesd.confd import ConfigError, shipped

LOCAL_CONF: Final = Path("/etc/hermesd/conf.d")

EXIT_CONFIG: Final = 78
"""sysexits' EX_CONFIG: systemd does not start a unit again that ends with it."""
EXIT_NO_SANDBOX: Final = 3

RECENT_EVENTS: Final = 1000


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hermesd")
@click.option(
    "--conf",
    "conf",
    multiple=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="A layer of configuration, later ones over earlier ones. Default: shipped, then /etc/hermesd.",
)
@click.pass_context
def main(context: click.Context, conf: tuple[Path, ...]) -> None:
    """An on-call engineer that lives on a Linux server."""
    context.obj = conf or (shipped(), LOCAL_CONF)


@main.command()
@click.option(
    "--single", is_flag=True, help="Start both processes, as systemd would, and stop both together."
)
@click.option("--executor-user", default="hermesd-executor", show_default=True, help="With --single as root.")
@click.option("--agent-user", default="hermesd", show_default=True, help="With --single as root.")
@click.pass_obj
def run(conf: tuple[Path, ...], *, single: bool, executor_user: str, agent_user: str) -> None:
    """Run the agent process: it hears, opens incidents, plans and reports."""
    if single:
        sys.exit(_single(conf, executor_user, agent_user))
    from hermesd import app  # noqa: PLC0415 - each process imports its own half

    _serve(lambda: app.main(conf))


@main.command()
@click.pass_obj
def executor(conf: tuple[Path, ...]) -> None:
    """Run the executor: the gate through which anything is done, and the containers behind it."""
    from hermesd.executor import serve  # noqa: PLC0415 - each process imports its own half

    _serve(lambda: asyncio.run(serve(conf)))


@main.command()
@click.option(
    "--against-recent",
    "recent",
    type=click.IntRange(1),
    is_flag=False,
    flag_value=RECENT_EVENTS,
    help=f"Judge this host's last events (default {RECENT_EVENTS}) anew by the rules as they are written now,"
    " and say what would have come out otherwise.",
)
@click.pass_obj
def check(conf: tuple[Path, ...], recent: int | None) -> None:
    """Check every file of the configuration, as both processes would read it."""
    from hermesd import checking  # noqa: PLC0415 - needs both halves, at no other time

    report = checking.check_against_recent(conf, recent) if recent else checking.check_all(conf)
    for line in report.lines:
        click.echo(line)
    sys.exit(EXIT_CONFIG if report.faults else 0)


@main.group()
def units() -> None:
    """The helper units through which a few fixed actions of root may be asked for."""


@units.command()
@click.option(
    "--into",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/etc/systemd/system"),
    show_default=True,
    help="Where the unit files lie.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.pass_obj
def sync(conf: tuple[Path, ...], into: Path, *, dry_run: bool) -> None:
    """Write the units of each [helpers.NAME] in permissions.toml, and remove those no longer named."""
    from hermesd import unit_sync  # noqa: PLC0415 - reads the executor's half, at no other time

    report = unit_sync.sync_units(conf, into, dry_run=dry_run)
    for line in report.lines:
        click.echo(line)
    sys.exit(EXIT_CONFIG if report.faults else 0)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else.")
@click.option("--lang", type=click.Choice(["en", "zh"]), default=None, help="Default: from LANG.")
def demo(*, as_json: bool, lang: str | None) -> None:
    """Fill a small disk, and watch hermesd notice, look, ask and repair. Leaves nothing behind."""
    from hermesd.demo.story import tell  # noqa: PLC0415 - no daemon imports the demo

    language = lang or (
        "zh" if os.environ.get("LC_ALL", os.environ.get("LANG", "")).startswith("zh") else "en"
    )
    sys.exit(asyncio.run(tell(as_json=as_json, language=language)))


def _serve(work: Callable[[], None]) -> None:
    from hermesd.audit import AuditError  # noqa: PLC0415 - not needed by check and demo

    try:
        work()
    except ConfigError as error:
        for fault in error.faults:
            click.echo(str(fault), err=True)
        sys.exit(EXIT_CONFIG)
    except (AuditError, OSError) as error:
        click.echo(f"hermesd: {error}", err=True)
        sys.exit(1)


def _single(conf: tuple[Path, ...], executor_user: str, agent_user: str) -> int:
    import pwd  # noqa: PLC0415 - only the launcher looks users up

    from hermesd.launcher import Account, LaunchError, run_single  # noqa: PLC0415 - the same

    accounts: list[Account | None] = [None, None]
    if os.geteuid() == 0:
        try:
            found = [pwd.getpwnam(name) for name in (executor_user, agent_user)]
        except KeyError as error:
            click.echo(f"hermesd: {error.args[0]}; see sysusers.d/hermesd.conf", err=True)
            return 1
        accounts = [Account(entry.pw_uid, entry.pw_gid) for entry in found]
    with tempfile.TemporaryDirectory(prefix="hermesd-single-") as folder:
        try:
            work = run_single(conf, executor=accounts[0], agent=accounts[1], log_folder=Path(folder))
            return asyncio.run(work)
        except LaunchError as error:
            click.echo(f"hermesd: {error}", err=True)
            return 1
