"""The catalogue: one TOML file a command, reviewed like code, read into a frozen `Command`.

The JSON Schema that a model sees and the check that a value passes are both made from the same
file, so they cannot differ. What a definition may never ask for is in `redlines`. This module must
never run anything; it looks at the named program only to say whether it is there and whose it is.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from hermesd.clocks import StageBudgets
from hermesd.confd import ConfigError, Document
from hermesd.control.redlines import (
    BUS_SOCKET,
    file_fault,
    folder_fault,
    link_fault,
    literal_fault,
    program_fault,
)
from hermesd.control.toolfiles import ToolFile
from hermesd.control.values import Argument, is_required, value_fault
from hermesd.protocol import CommandInfo, Effect, Permission

TOOLS_FOLDER: Final = Path(__file__).parent / "tools"
RUNNER: Final = "registered"
"""The one of our tools that runs what operators' files register; no definition of theirs names it."""

_PLACEHOLDER: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Output(_Part):
    """`[output]`: how bytes become rows, and the one line that sums them up.

    ``columns`` are ``name:type`` for `table` (types text, integer, number, percent). ``relative_to``
    names the path argument that a row's `path` is relative to; ``with_args`` adds arguments to rows.
    ``nothing`` is said in place of ``summary`` when no row is there but a total. ``keep``: the whole
    output goes to the shelf, from where `artifact:read` and `chart:render` take it.
    """

    parser: Literal["text", "table", "key_value", "json_lines", "manifest", "gain"] = "text"
    columns: tuple[str, ...] = ()
    skip_lines: int = Field(default=0, ge=0)
    max_lines: int = Field(default=200, ge=1, le=200)
    max_bytes: int = Field(default=1 << 20, ge=1024, le=64 << 20)
    relative_to: str = ""
    with_args: tuple[str, ...] = ()
    summary: str = ""
    nothing: str = "nothing found"
    ok_exits: tuple[int, ...] = (0,)
    keep: bool = True


class SandboxSpec(_Part):
    """`[sandbox]`: what the container gets beside the roots of its path arguments.

    ``mounts`` are folders that must be there, ``mounts_if_there`` and the single ``files`` come along where
    the host has them; a command that names only such things needs at least one of them.
    """

    mounts: tuple[str, ...] = ()
    mounts_if_there: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    network: Literal["none"] = "none"
    dbus: bool = False
    host_pid: bool = False
    groups: tuple[str, ...] = ()
    memory_mb: int = Field(default=64, ge=16, le=2048)
    pids: int = Field(default=32, ge=4, le=512)
    file_mb: int = Field(default=1024, ge=1, le=100_000_000)


class CommandSpec(_Part):
    """One file of `conf.d/commands/`: what it runs, or (``ticket``) the words that a person is to run.

    ``undo`` names the command that puts back what this one removed, where that was set aside.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}:[a-z][a-z0-9_]{0,31}$")
    description: str = Field(min_length=20)
    effect: Effect
    permission: Permission
    overwrites: bool = False
    costs: bool = False
    timeout_ms: int | None = Field(default=None, ge=100, le=3_600_000)
    concurrency_safe: bool = False
    retryable: bool = False
    fallback: str = ""
    preview: str = ""
    undo: str = ""
    priority: int = Field(default=50, ge=0, le=100)
    scenes: tuple[str, ...] = ()
    executable: str = ""
    tool: str = Field(default="", pattern=r"^[a-z_]*$")
    ticket: str = Field(default="", max_length=500)
    argv: tuple[str, ...] = ()
    args: dict[str, Argument] = Field(default_factory=dict)
    output: Output = Output()
    sandbox: SandboxSpec = SandboxSpec()

    @property
    def needs_person(self) -> bool:
        """Whether anything but reading may follow: then a person confirms, whatever the permission says."""
        return self.effect is not Effect.READ or self.overwrites or self.costs


@dataclass(frozen=True, slots=True)
class Command:
    """A command as the gate uses it: its file, its limit, and whether its program can be used here.

    ``identity`` pins the program by (device, inode, size, mtime in ns) as it was at load. ``code`` is the
    operator's file whose function is called, with the bytes that containers are given.
    """

    spec: CommandSpec
    timeout_ms: int
    identity: tuple[int, int, int, int]
    unusable: str = ""
    code: ToolFile | None = None

    @property
    def name(self) -> str:
        """The name that requests use."""
        return self.spec.name

    @property
    def program(self) -> str:
        """What runs, as people are shown it."""
        return str(self.code.path) if self.code else self.spec.executable or f"hermesd:{self.spec.tool}"

    def leading(self) -> tuple[bytes, ...]:
        """Return what stands before the arguments: the program, or the source whose function is called."""
        if self.code is not None:
            return b"call", self.code.shown_as.encode(), self.code.source, self.name.encode()
        return (self.spec.executable.encode(),) if self.spec.executable else ()

    @property
    def compares(self) -> bool:
        """Whether it compares the world with what a person confirmed, before its first effect."""
        return self.spec.output.parser == "gain" or (self.code is not None and self.spec.needs_person)

    def changed(self) -> bool:
        """Say whether the program is another one now than when the policy was read."""
        now = self.code.identity_now() if self.code else identify(self.spec)[0]
        return now != self.identity

    def info(self) -> CommandInfo:
        """Return what a planner may know."""
        spec = self.spec
        required: list[JsonValue] = [name for name, arg in spec.args.items() if is_required(arg)]
        return CommandInfo(
            name=spec.name,
            description=spec.description,
            effect=spec.effect,
            permission=spec.permission,
            scenes=spec.scenes,
            args_schema={
                "type": "object",
                "properties": {name: arg.json_schema() for name, arg in spec.args.items() if not arg.of},
                "required": required,
                "additionalProperties": False,
            },
            timeout_ms=self.timeout_ms,
            concurrency_safe=spec.concurrency_safe,
            retryable=spec.retryable,
            fallback=spec.fallback,
            preview=spec.preview,
            runs=" ".join((self.program, *spec.argv)) if not spec.ticket else spec.ticket,
            priority=spec.priority,
            usable=not self.unusable,
            unusable_reason=self.unusable,
        )


def read_command(
    file: Document, stages: StageBudgets, protected: tuple[str, ...], code: ToolFile | None = None
) -> Command:
    """Return the command of a definition; ``code`` is the operator's file that gave it.

    Raise ConfigError with file, line and reason of every fault.
    """
    spec = file.read(CommandSpec)
    faults = [file.fault(where, reason) for where, reason in _faults(spec, protected)]
    if spec.tool == RUNNER and code is None:
        faults.append(
            file.fault(("tool",), f"tool: {RUNNER} runs what files of tools.d/ register, and they alone")
        )
    if faults:
        raise ConfigError(faults)
    identity, unusable = (code.identity, _lacking(spec.sandbox)) if code else identify(spec)
    if unusable.startswith("!"):
        raise ConfigError([file.fault(("executable",), unusable[1:])])
    default = stages.execute_read_ms if spec.effect is Effect.READ else stages.execute_change_ms
    return Command(spec, spec.timeout_ms or default, identity, unusable, code)


def _faults(spec: CommandSpec, protected: tuple[str, ...]) -> list[tuple[tuple[str | int, ...], str]]:
    found: list[tuple[tuple[str | int, ...], str]] = []
    if spec.permission is Permission.PUBLIC and spec.needs_person:
        found.append((("permission",), f"permission: a command with effect {spec.effect} is never public"))
    if spec.needs_person and spec.permission is not Permission.CONFIDENTIAL and not spec.preview:
        found.append((("effect",), "preview: a command that changes something names what previews it"))
    if [bool(spec.executable), bool(spec.tool), bool(spec.ticket)].count(True) != 1:
        found.append((("name",), "executable, tool or ticket: exactly one of them is needed"))
    if spec.ticket and (spec.permission is not Permission.CONFIDENTIAL or not spec.ticket.isprintable()):
        found.append((("ticket",), "ticket: one line, and only for a command that is confidential"))
    found.extend(_undo_faults(spec))
    found.extend((("args",), f"args.{name}.after: {fault}") for name, fault in _order_faults(spec))
    if spec.executable and (fault := program_fault(spec.executable)):
        found.append((("executable",), f"executable: {fault}"))
    found.extend((("argv",), f"argv: {fault}") for fault in _argv_faults(spec))
    roots: list[tuple[tuple[str, ...], str, str]] = [
        (("sandbox", "mounts"), root, "ro") for root in (*spec.sandbox.mounts, *spec.sandbox.mounts_if_there)
    ]
    roots += [(("args", name, "roots"), root, "ro") for name, arg in spec.args.items() for root in arg.roots]
    found.extend(
        (where, f"{'.'.join(where)}: {fault}")
        for where, root, how in roots
        if (fault := folder_fault(root, how, protected))
    )
    found.extend(
        (("sandbox", "files"), f"sandbox.files: {fault}")
        for path in spec.sandbox.files
        if (fault := file_fault(path, dbus=False))
    )
    found.extend(_default_faults(spec))
    return found


def _order_faults(spec: CommandSpec) -> list[tuple[str, str]]:
    """Return the arguments that are to come after one that is no point in time."""
    times = {name for name, argument in spec.args.items() if argument.type == "datetime"}
    return [
        (name, f"{argument.after} is no datetime of this command")
        for name, argument in spec.args.items()
        if argument.after and argument.after not in times - {name}
    ]


def _undo_faults(spec: CommandSpec) -> list[tuple[tuple[str | int, ...], str]]:
    """Return what cannot be set aside, and paths that are of no operation."""
    kinds = {name: argument.type for name, argument in spec.args.items()}
    found: list[tuple[tuple[str | int, ...], str]] = [
        (("args", name, "of"), f"args.{name}.of: {argument.of} is no operation of this command")
        for name, argument in spec.args.items()
        if argument.of and kinds.get(argument.of) != "operation"
    ]
    removes = spec.effect is Effect.DESTROY and spec.tool and spec.output.parser == "gain"
    if spec.undo and not (removes and list(kinds.values()).count("path") == 1):
        found.append((("undo",), "undo: only a removal by manifest beneath one path can be undone"))
    return found


def _argv_faults(spec: CommandSpec) -> list[str]:
    faults = [fault for element in spec.argv if (fault := literal_fault(element))]
    used = set(_PLACEHOLDER.findall(spec.ticket))
    for element in spec.argv:
        whole = _PLACEHOLDER.fullmatch(element)
        if whole:
            used.add(whole[1])
        elif "{" in element or "}" in element:
            faults.append(f"{element!r} is neither a literal nor exactly one {{argument}}")
    faults += [f"{{{name}}} is not an argument of this command" for name in sorted(used - set(spec.args))]
    faults += [f"the argument {name} is not used" for name in sorted(set(spec.args) - used)]
    return faults


def _default_faults(spec: CommandSpec) -> list[tuple[tuple[str | int, ...], str]]:
    found: list[tuple[tuple[str | int, ...], str]] = []
    for name, argument in spec.args.items():
        given: list[tuple[str, JsonValue]] = (
            [("default", argument.default)] if argument.default is not None else []
        )
        given += [("examples", example) for example in argument.examples]
        found.extend(
            (("args", name, key), f"args.{name}.{key}: {fault}")
            for key, value in given
            if (fault := value_fault(argument, value, argument.roots))
        )
    return found


def identify(spec: CommandSpec) -> tuple[tuple[int, int, int, int], str]:
    """Return the program's identity and why it cannot be used here ("!" first when that is a fault)."""
    identity, unusable = _program(spec)
    return identity, unusable or _lacking(spec.sandbox)


def _program(spec: CommandSpec) -> tuple[tuple[int, int, int, int], str]:
    if spec.ticket:
        return (0, 0, 0, 0), ""
    path = TOOLS_FOLDER / f"{spec.tool}.py" if spec.tool else Path(spec.executable)
    try:
        found = path.stat()
        if spec.executable and (fault := link_fault(spec.executable, str(path.resolve()))):
            return (0, 0, 0, 0), f"!executable: {fault}"
    except OSError:
        missing = f"tool: there is no {spec.tool}" if spec.tool else ""
        return (0, 0, 0, 0), f"!{missing}" if missing else f"{path} is not installed on this host"
    identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    return identity, "" if spec.tool else _program_file_fault(path, found)


def _program_file_fault(path: Path, found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & 0o111:
        return f"!executable: {path} is not a program"
    if found.st_uid != 0 or found.st_mode & 0o022:
        return f"!executable: {path} must belong to root and be writable by root alone"
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return f"!executable: {path} is set-user-id or set-group-id"
    return ""


def _lacking(sandbox: SandboxSpec) -> str:
    """Return what of a container's parts this host does not have; "" when a command can run."""
    if sandbox.dbus and not Path(BUS_SOCKET).exists():
        return f"{BUS_SOCKET} does not exist: systemd's bus does not run on this host"
    for root in sandbox.mounts:
        if not Path(root).is_dir():
            return f"{root} does not exist on this host"
    either = (*sandbox.mounts_if_there, *sandbox.files)
    if either and not sandbox.mounts and not any(Path(path).exists() for path in either):
        return f"none of {', '.join(either)} exists on this host"
    return ""


def in_words(template: str, texts: Mapping[str, str]) -> str:
    """Return what a person is to run: each argument quoted, so that a shell takes it as one word."""
    return _PLACEHOLDER.sub(lambda found: shlex.quote(texts[found[1]]), template)


def placeholder(element: str) -> str:
    """Return the argument that an argv element stands for; "" for a literal."""
    found = _PLACEHOLDER.fullmatch(element)
    return found[1] if found else ""
