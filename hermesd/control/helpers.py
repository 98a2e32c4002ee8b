"""Fixed actions that need root, each behind a helper that an administrator installed by name. Pure.

A helper is a socket-activated unit that runs one command line, written down when it was installed;
whoever may reach its socket can have exactly that done and nothing else. What may become one at all
stands here, in code, with the least that it needs. Nothing of a request chooses what runs: a request
whose values are a helper's is sent to it, any other stays a ticket for a person.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from hermesd.control.catalogue import Command
from hermesd.control.redlines import folder_fault, unit_fault
from hermesd.control.roots import beneath, covering
from hermesd.control.values import argv_text, value_fault
from hermesd.protocol import CommandInfo, Permission

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._+@:,=-]+", re.ASCII)
"""What a text may hold that becomes part of a unit file: nothing that systemd reads as more than itself."""
_REMOVE: Final = "remove"
_RUN: Final = "run"

Where = tuple[str, ...]


class HelperSettings(BaseModel):
    """`[helpers.NAME]` of permissions.toml: a command, and every value that it is ever run with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str
    args: dict[str, JsonValue] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Action:
    """What a command is as a fixed action of root: the argv, and the least that it needs of the host.

    Without ``argv`` it is a removal beneath its path argument, by manifest. ``manages`` says that it only
    speaks with systemd, ``writable`` and ``capabilities`` are all that it gets beside looking.
    """

    argv: tuple[str, ...] = ()
    manages: bool = False
    writable: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


def _unit_action(verb: str) -> Action:
    argv = ("/usr/bin/systemctl", "--no-ask-password", "--no-pager", verb, "--", "{unit}")
    return Action(argv, manages=True)


ACTIONS: Final[Mapping[str, Action]] = {
    "unit:restart": _unit_action("restart"),
    "unit:reload": _unit_action("reload"),
    "unit:reset_failed": _unit_action("reset-failed"),
    "journal:vacuum": Action(
        ("/usr/bin/journalctl", "--no-pager", "--vacuum-size={keep_mb}M"),
        writable=("-/var/log/journal", "-/run/log/journal"),
    ),
    # archives/partial belongs to the user _apt; nothing is changed but beneath these two folders.
    "package:clean_cache": Action(
        ("/usr/bin/apt-get", "clean"),
        writable=("-/var/cache/apt", "-/var/lib/apt/lists"),
        capabilities=("CAP_DAC_OVERRIDE",),
    ),
    # A configuration names owners, a user to become, and whom to tell: a log's service gets a signal.
    "log:rotate": Action(
        ("/usr/sbin/logrotate", "--verbose", "--force", "/etc/logrotate.d/{name}"),
        writable=("/var/log", "-/var/lib/logrotate"),
        capabilities=("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"),
    ),
    "fs:cleanup": Action(capabilities=("CAP_DAC_OVERRIDE",)),
}
"""Every command that may have a helper. There is no other: a file can name one of these, not add to them."""


@dataclass(frozen=True, slots=True)
class Helper:
    """One helper as permissions.toml says it. ``argv`` is what its program is started with, all of it.

    ``values`` are what a request must ask for; ``root`` is the folder that a removal is confined to.
    """

    name: str
    command: str
    values: Mapping[str, JsonValue]
    argv: tuple[str, ...]
    root: str
    writable: tuple[str, ...]
    capabilities: tuple[str, ...]
    manages: bool
    timeout_s: int
    socket: str

    @property
    def unit(self) -> str:
        """The name that its unit files begin with."""
        return f"hermesd-do-{self.name}"

    @property
    def digest(self) -> str:
        """What it is asked by: the program runs nothing when it was installed with other words."""
        return hashlib.sha256("\0".join(self.argv).encode()).hexdigest()

    @property
    def shown(self) -> tuple[str, ...]:
        """What runs, as people are shown it."""
        what = ("remove", "beneath", self.root) if self.root else self.argv[2:]
        return (*what, f"as root, by {self.unit}")

    def serves(self, values: Mapping[str, JsonValue]) -> bool:
        """Say whether a request with these values asks for what this helper does."""
        if self.root:
            return beneath(str(values.get("path", "")), self.root) is not None
        return dict(values) == dict(self.values)


def helper_for(helpers: Iterable[Helper], command: str, values: Mapping[str, JsonValue]) -> Helper | None:
    """Return the helper that does what a request with these bound values asks for, None when none does."""
    return next((one for one in helpers if one.command == command and one.serves(values)), None)


def with_helpers(info: CommandInfo, helpers: Iterable[Helper]) -> CommandInfo:
    """Return what a planner may know of a command, with what helpers do of it here."""
    served = [described(one).removeprefix(info.name).strip() for one in helpers if one.command == info.name]
    if not served or info.permission is not Permission.CONFIDENTIAL:
        return info
    told = "; ".join(values or "no arguments" for values in served)
    words = f"{info.description} On this host it is done, once a person confirmed it, for: {told}."
    return info.model_copy(update={"permission": Permission.INTERNAL, "description": words})


def read_helper(
    name: str,
    settings: HelperSettings,
    commands: Mapping[str, Command],
    writable_roots: tuple[str, ...],
    protected: tuple[str, ...],
    sockets: str,
) -> Helper | list[tuple[Where, str]]:
    """Return a helper as its section says it, or its faults with the keys where they lie."""
    action, command = ACTIONS.get(settings.command), commands.get(settings.command)
    if not _NAME.fullmatch(name):
        return [((), f"{name!r} is no name of a helper: small letters, digits and '-', at most 40")]
    if action is None or command is None:
        known = ", ".join(one for one in ACTIONS if one in commands)
        return [(("command",), f"command: {settings.command} can have no helper; these can: {known}")]
    texts, faults = _texts(settings, command, removal=not action.argv)
    if not faults:
        faults = _red_lines(settings.command, texts, writable_roots, protected)
    if faults:
        return faults
    root = "" if action.argv else texts["path"]
    seconds = -(-command.timeout_ms // 1000)
    words = tuple(word.format(**texts) for word in action.argv)
    return Helper(
        name=name,
        command=settings.command,
        values=settings.args,
        argv=(_REMOVE, str(seconds), root) if root else (_RUN, str(seconds), *words),
        root=root,
        writable=(root,) if root else action.writable,
        capabilities=action.capabilities,
        manages=action.manages,
        timeout_s=seconds,
        socket=f"{sockets}/{name}.sock",
    )


def _texts(
    settings: HelperSettings, command: Command, *, removal: bool
) -> tuple[dict[str, str], list[tuple[Where, str]]]:
    """Return each value as text. Every argument of the command is fixed; of a removal only its folder."""
    arguments = command.spec.args
    needed = {"path"} if removal else set(arguments)
    texts: dict[str, str] = {}
    faults: list[tuple[Where, str]] = [
        (("args", name), f"args.{name}: {settings.command} has no such argument to fix")
        for name in sorted(set(settings.args) - needed)
    ]
    for name in sorted(needed):
        value = settings.args.get(name)
        if name not in settings.args:
            faults.append((("args",), f"args.{name} is missing: a helper does one thing with fixed values"))
        elif fault := value_fault(arguments[name], value, arguments[name].roots):
            faults.append((("args", name), f"args.{name}: {fault}"))
        elif not _PLAIN.fullmatch(text := argv_text(arguments[name], value)):
            faults.append((("args", name), f"args.{name}: {text!r} holds a character that no unit file may"))
        else:
            texts[name] = text
    return texts, faults


def _red_lines(
    command: str, texts: dict[str, str], writable_roots: tuple[str, ...], protected: tuple[str, ...]
) -> list[tuple[Where, str]]:
    if command.startswith("unit:") and (fault := unit_fault(texts["unit"])):
        return [(("args", "unit"), f"args.unit: {fault}")]
    if command == "fs:cleanup":
        root = texts["path"]
        fault = folder_fault(root, "rw", protected)
        if not fault and covering(root, writable_roots) is None:
            fault = f"{root} lies beneath no writable root of [reach], so nobody could ask for it"
        if fault:
            return [(("args", "path"), f"args.path: {fault}")]
    return []


def described(helper: Helper) -> str:
    """Return the helper's command and values on one line, for people."""
    values = " ".join(f"{name}={json.dumps(value)}" for name, value in sorted(helper.values.items()))
    return f"{helper.command} {values}".rstrip()
