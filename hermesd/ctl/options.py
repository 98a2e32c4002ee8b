"""click in two languages, with options that may stand before or after the command.

`hermesctl --json status` and `hermesctl status --json` are the same: every command takes the shared
options, and what was given lies in the context until the session is made from it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click

from hermesd.ctl import messages as m
from hermesd.ctl.exits import Exit
from hermesd.ctl.messages import Text
from hermesd.ctl.session import Session, make_session
from hermesd.ctl.speech import LANGUAGES, Speech

_GIVEN: Final = "hermesctl.given"
SHORTEST_WAIT: Final = 0.05

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


class PipeClosedError(Exception):
    """Whoever read the output went away. click would end with 1, which here means something else."""


class Option(click.Option):
    """An option whose help is a Text."""

    def __init__(self, *args: Any, words: Text, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.words = words


class Command(click.Command):
    """A command whose help is a Text, and which takes the shared options too."""

    def __init__(self, *args: Any, words: Text, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.words = words
        self.params += shared_options(hidden=True)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; a closed pipe is not an error of the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise PipeClosedError from None


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
    group_class = type

    def __init__(
        self, *args: Any, words: Text, ending: Text | None = None, outermost: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.words = words
        self.ending = ending
        self.params += shared_options(hidden=not outermost)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands as they were written down: what is used first comes first."""
        return list(self.commands)


def option(*names: str, words: Text, **kwargs: Any) -> Callable[[F], F]:
    """Decorate a command with an option whose help is ``words``."""
    return click.option(*names, cls=Option, words=words, **kwargs)


def shared_options(*, hidden: bool) -> list[click.Parameter]:
    """Return the options that every command takes; they are listed once, in the outermost help."""
    common: dict[str, Any] = {"expose_value": False, "callback": _keep, "hidden": hidden}
    wait = click.FloatRange(min=SHORTEST_WAIT)
    return [
        Option(["--json"], words=m.OPT_JSON, is_flag=True, **common),
        Option(["--lang"], words=m.OPT_LANG, type=click.Choice(LANGUAGES), is_eager=True, **common),
        Option(["--timeout"], words=m.OPT_TIMEOUT, type=wait, metavar="SECONDS", **common),
        Option(["--control-socket"], words=m.OPT_CONTROL, metavar="PATH", **common),
        Option(["--operator-socket"], words=m.OPT_OPERATOR, metavar="PATH", **common),
    ]


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep what was given: what stands nearer to the end wins."""
    if not value:
        return
    ctx.meta.setdefault(_GIVEN, {})[param.name] = value
    if param.name == "lang":
        speak(ctx.find_root().command, Speech(value))


def speak(command: click.Command, say: Speech) -> None:
    """Give the command and everything beneath it its help in one language."""
    if isinstance(command, Command | Group):
        command.help = say(command.words)
    if isinstance(command, Group) and command.ending is not None:
        command.epilog = say(command.ending)
    for param in command.params:
        if isinstance(param, Option):
            param.help = say(param.words)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            speak(inner, say)


def with_session(function: Callable[Concatenate[Session, P], Exit]) -> Callable[P, Exit]:
    """Give the command its session as the first argument."""

    @functools.wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> Exit:
        given = click.get_current_context().meta.get(_GIVEN, {})
        return function(make_session(given, os.environ), *args, **kwargs)

    return command
