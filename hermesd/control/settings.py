"""The executor's own reading of `conf.d/`: settings, reach and the catalogue, as one frozen policy.

The agent reads its part of the same folder by itself; nothing it says changes what is read here.
A load returns a complete `Policy` or raises ConfigError with every fault: at start nothing runs
then, on reload the old policy stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hermesd.clocks import StageBudgets
from hermesd.confd import ConfigError, Document, Fault, read_file, read_folder
from hermesd.control.catalogue import Command, CommandSpec, read_command
from hermesd.control.helpers import Helper, HelperSettings, read_helper, with_helpers
from hermesd.control.redlines import folder_fault
from hermesd.control.roots import beneath, normal_path_fault, overlap
from hermesd.control.toolfiles import ToolFile, read_tool_files
from hermesd.control.undo import QuarantineSettings
from hermesd.protocol import CatalogueView, Effect, RunKind

M = TypeVar("M", bound=BaseModel)

_MAX_RELOAD_FAULTS: Final = 50


def _root(value: str) -> str:
    fault = normal_path_fault(value)
    if fault:
        raise ValueError(f"{value!r} {fault}")
    return value


Root = Annotated[str, AfterValidator(_root)]


class ExecutorSettings(BaseModel):
    """`[executor]` of daemon.toml: where the executor lives, and who its one client is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_dir: str = "/var/lib/hermesd-executor"
    agent_socket: str = "/run/hermesd-executor/agent.sock"
    operator_socket: str = "/run/hermesd-executor/operator.sock"
    agent_user: str = "hermesd"
    same_user: bool = False
    helper_sockets: Root = "/run/hermesd-do"
    helper_group: str = Field(default="hermesd-executor", pattern="^[a-z_][a-z0-9_-]{0,31}$")
    sandbox: str = Field(default="auto", pattern="^(auto|docker|bubblewrap)$")
    docker_sockets: tuple[str, ...] = ("/run/docker.sock", "/run/podman/podman.sock")
    prestart: bool = True
    parallel_containers: int = Field(default=4, ge=1, le=64)
    artifacts_most: int = Field(default=500, ge=1, le=100_000)
    artifacts_most_mb: int = Field(default=64, ge=1, le=10_000)
    language: str = Field(default="en", pattern="^(en|zh)$")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")


class Reach(BaseModel):
    """`[reach]` of permissions.toml: the folders beneath which commands may look, and may change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    readable_roots: tuple[Root, ...] = ()
    writable_roots: tuple[Root, ...] = ()


class People(BaseModel):
    """`[people]` of permissions.toml: who may approve. Root always may: it could anyway."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operator_groups: tuple[str, ...] = ("hermesd-operators",)
    operator_uids: tuple[int, ...] = ()


class Role(BaseModel):
    """`[roles.NAME]` of permissions.toml: who is meant, and to what their reach is narrowed.

    Members are run kinds, or people by uid and group (its name or number). ``commands`` and ``may_approve``
    are names or patterns such as `fs:*`. Roots that are not given leave the reach as it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[RunKind, ...] = ()
    uids: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    commands: tuple[str, ...] = ("*",)
    readable_roots: tuple[Root, ...] | None = None
    writable_roots: tuple[Root, ...] | None = None
    may_approve: tuple[str, ...] = ("*",)
    approve_own: bool = True


class Permissions(BaseModel):
    """`permissions.toml`: the one place that says how far anything may reach."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reach: Reach = Reach()
    people: People = People()
    roles: dict[str, Role] = Field(default_factory=dict)
    denied_commands: tuple[str, ...] = ()
    quarantine: QuarantineSettings = QuarantineSettings()
    helpers: dict[str, HelperSettings] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """A command that a definition names beside itself. ``reads``: it is asked for as a preview.

    ``fault`` is what is wrong with the definition where there is no such command.
    """

    name: str
    reads: bool
    fault: Fault

    def brought_by(self, commands: Mapping[str, Command]) -> bool:
        """Say whether it is there, as what it is asked for."""
        command = commands.get(self.name)
        return command is not None and (command.spec.effect is Effect.READ or not self.reads)


@dataclass(frozen=True, slots=True)
class Policy:
    """All that the gate decides by. ``version`` names this content; tokens are bound to it.

    ``protected`` are the folders of hermesd's own state and the quarantine, which no command may name.
    ``tool_files`` are operators' Python files, whose commands `toolbox` adds once a container has read them:
    those of ``unread`` are not read yet, ``tool_faults`` says what is wrong with the others.
    """

    version: str
    settings: ExecutorSettings
    stages: StageBudgets
    permissions: Permissions
    commands: Mapping[str, Command]
    protected: tuple[str, ...] = ()
    helpers: tuple[Helper, ...] = ()
    tool_files: tuple[ToolFile, ...] = ()
    unread: tuple[ToolFile, ...] = ()
    tool_faults: tuple[str, ...] = ()
    missing: tuple[Link, ...] = ()

    def tool_digests(self) -> dict[str, str]:
        """Return the SHA-256 of each operators' file, for the audit log."""
        return {file.path.name: file.digest for file in self.tool_files}

    def view(
        self, sandbox: str = "", sandbox_reason: str = "", degraded: tuple[str, ...] = ()
    ) -> CatalogueView:
        """Return what a planner may know of it."""
        reach, denied = self.permissions.reach, self.permissions.denied_commands
        return CatalogueView(
            policy_version=self.version,
            sandbox=sandbox,
            sandbox_reason=sandbox_reason,
            degraded=degraded,
            readable_roots=reach.readable_roots,
            writable_roots=reach.writable_roots,
            commands=tuple(
                with_helpers(command.info(), self.helpers)
                for name, command in self.commands.items()
                if name not in denied
            ),
        )


def load_policy(layers: Sequence[Path]) -> Policy:
    """Read every file of the executor. Raise ConfigError with all faults found."""
    faults: list[Fault] = []
    daemon = _document(layers, "daemon.toml", faults)
    permissions_file = _document(layers, "permissions.toml", faults)
    settings = _section(daemon, "executor", ExecutorSettings, faults)
    stages = _section(daemon, "stages", StageBudgets, faults)
    permissions = _whole(permissions_file, Permissions, faults)
    own = (settings.state_dir, *_agent_state(daemon))
    faults.extend(_reach_faults(permissions_file, permissions, own))
    faults.extend(_quarantine_faults(permissions_file, permissions, own))
    quarantine = permissions.quarantine.folder
    protected = (*own, quarantine) if quarantine else own
    files = _folder(layers, "commands", faults)
    tools = read_tool_files(layers, faults)
    missing: list[Link] = []
    commands = _commands(files, stages, protected, faults, missing)
    helpers = _helpers(permissions_file, permissions, settings, commands, protected, faults)
    if not tools:
        faults += [one.fault for one in missing]
    if faults:
        raise ConfigError(faults[:_MAX_RELOAD_FAULTS])
    texts = [text for file in (daemon, permissions_file, *files) if file for _path, text in file.texts]
    texts += [f"{file.path.name}\0{file.digest}" for file in tools]
    return Policy(
        _version(texts),
        settings,
        stages,
        permissions,
        commands,
        protected,
        helpers,
        tool_files=tools,
        unread=tools,
        missing=tuple(missing),
    )


def _commands(
    files: list[Document],
    stages: StageBudgets,
    protected: tuple[str, ...],
    faults: list[Fault],
    missing: list[Link],
) -> dict[str, Command]:
    commands: dict[str, Command] = {}
    origin: dict[str, Document] = {}
    for file in files:
        try:
            command = read_command(file, stages, protected)
        except ConfigError as error:
            faults.extend(error.faults)
            continue
        if command.name in commands:
            faults.append(
                file.fault(("name",), f"{command.name} is defined in {origin[command.name].path} too")
            )
        commands[command.name] = command
        origin[command.name] = file
    for name, command in commands.items():
        for link in links_of(origin[name], command.spec):
            if link.name not in commands:
                missing.append(link)
            elif not link.brought_by(commands):
                faults.append(link.fault)
    return commands


def links_of(file: Document, spec: CommandSpec) -> Iterator[Link]:
    """Yield every other command that a definition names."""
    if spec.preview:
        reason = f"preview: {spec.preview} is not a command of the catalogue that only reads"
        yield Link(spec.preview, reads=True, fault=file.fault(("preview",), reason))
    for key, name in (("undo", spec.undo), ("fallback", spec.fallback)):
        if name:
            yield Link(name, reads=False, fault=file.fault((key,), f"{key}: there is no command {name}"))


def _helpers(
    file: Document | None,
    permissions: Permissions,
    settings: ExecutorSettings,
    commands: Mapping[str, Command],
    protected: tuple[str, ...],
    faults: list[Fault],
) -> tuple[Helper, ...]:
    helpers: list[Helper] = []
    roots = permissions.reach.writable_roots
    for name, section in sorted(permissions.helpers.items()):
        read = read_helper(name, section, commands, roots, protected, settings.helper_sockets)
        if isinstance(read, Helper):
            helpers.append(read)
        elif file is not None:
            faults += [file.fault(("helpers", name, *at), f"helpers.{name}: {why}") for at, why in read]
    return tuple(helpers)


def _reach_faults(file: Document | None, permissions: Permissions, protected: tuple[str, ...]) -> list[Fault]:
    if file is None:
        return []
    return [
        file.fault(("reach", "writable_roots"), f"reach.writable_roots: {fault}")
        for root in permissions.reach.writable_roots
        if (fault := folder_fault(root, "rw", protected))
    ]


def _quarantine_faults(file: Document | None, permissions: Permissions, own: tuple[str, ...]) -> list[Fault]:
    """Return why the quarantine may not lie where it does: where a command could reach what is kept."""
    folder = permissions.quarantine.folder
    if file is None or not folder:
        return []
    reason = normal_path_fault(folder) or folder_fault(folder, "rw", own)
    for root in permissions.reach.writable_roots:
        if not reason and overlap(folder, root) is not None:
            reason = f"{folder} and the writable root {root} lie in one another"
    for root in permissions.reach.readable_roots:
        if not reason and beneath(root, folder) is not None:
            reason = f"the readable root {root} lies in it"
    return [file.fault(("quarantine", "folder"), f"quarantine.folder: {reason}")] if reason else []


def _agent_state(daemon: Document | None) -> tuple[str, ...]:
    """The agent's state folder is a red line for commands, though nothing else of `[agent]` is read here."""
    agent = daemon.data.get("agent", {}) if daemon else {}
    state_dir = agent.get("state_dir", "/var/lib/hermesd") if isinstance(agent, dict) else ""
    return (state_dir,) if isinstance(state_dir, str) and PurePosixPath(state_dir).is_absolute() else ()


def _document(layers: Sequence[Path], name: str, faults: list[Fault]) -> Document | None:
    try:
        return read_file(layers, name)
    except ConfigError as error:
        faults.extend(error.faults)
        return None


def _folder(layers: Sequence[Path], name: str, faults: list[Fault]) -> list[Document]:
    try:
        return read_folder(layers, name)
    except ConfigError as error:
        faults.extend(error.faults)
        return []


def _section(file: Document | None, name: str, model: type[M], faults: list[Fault]) -> M:
    if file is not None and name in file.data:
        try:
            return file.read(model, file.data[name], (name,))
        except ConfigError as error:
            faults.extend(error.faults)
    return model()


def _whole(file: Document | None, model: type[M], faults: list[Fault]) -> M:
    if file is not None:
        try:
            return file.read(model)
        except ConfigError as error:
            faults.extend(error.faults)
    return model()


def _version(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
