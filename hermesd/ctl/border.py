"""The border of hermesctl: every end of a command becomes words and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import pairwise

import click

from hermesd.ctl import messages as m
from hermesd.ctl.exits import Exit, Stop
from hermesd.ctl.options import PipeClosedError, speak
from hermesd.ctl.session import tell_stop
from hermesd.ctl.speech import Speech, language_of


def run(cli: click.Command, given: list[str], environ: Mapping[str, str]) -> int:
    """Run the command line ``given`` and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    speak(cli, Speech(language_of(environ)))
    code = _invoke(cli, given, environ)
    try:
        sys.stdout.flush()
    except OSError:
        _swallow_output()
        return code or Exit.PIPE_CLOSED
    return code


def _invoke(cli: click.Command, given: list[str], environ: Mapping[str, str]) -> int:
    try:
        return int(cli.main(given, prog_name="hermesctl", standalone_mode=False) or 0)
    except Stop as stop:
        return _end(stop, given, environ)
    except click.ClickException as error:
        return _end(Stop(Exit.USAGE, "usage", _usage_lines(error)), given, environ)
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except PipeClosedError:
        _swallow_output()
        return Exit.PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the border of a request
        text = _say(given, environ)(m.INTERNAL, text=f"{type(error).__name__}: {error}")
        return _end(Stop(Exit.BAD, "internal", (text,)), given, environ)


def _end(stop: Stop, given: list[str], environ: Mapping[str, str]) -> int:
    try:
        tell_stop(stop, _say(given, environ), environ, as_json="--json" in given)
    except BrokenPipeError:
        _swallow_output()
    return stop.exit_code


def _say(given: list[str], environ: Mapping[str, str]) -> Speech:
    """Return the language of an early end, at which no session may have been made yet."""
    wanted = [word.removeprefix("--lang=") for word in given if word.startswith("--lang=")]
    wanted += [value for name, value in pairwise(given) if name == "--lang"]
    return Speech(wanted[-1] if wanted else language_of(environ))


def _usage_lines(error: click.ClickException) -> tuple[str, ...]:
    usage = error.ctx.get_usage() if isinstance(error, click.UsageError) and error.ctx else ""
    return tuple(line for line in (error.format_message(), *usage.splitlines()) if line.strip())


def _swallow_output() -> None:
    """Give what is still buffered nowhere to fail: the reader went away."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
