"""From a request to what would run: pure, so that the same request is always the same job.

`bind` checks the request against the catalogue and the reach, and returns either a `Bound` (the job,
the container's profile, what a person is shown) or every reason why not. It opens nothing; the
questions about the host that it must ask are put to a `Host` that is passed in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pydantic import JsonValue

from hermesd.control.artifacts import FOLDER
from hermesd.control.catalogue import Command, SandboxSpec, in_words, placeholder
from hermesd.control.helpers import Helper, helper_for
from hermesd.control.permits import Permit, permit_for
from hermesd.control.redlines import BUS_SOCKET, secret_fault
from hermesd.control.roots import beneath, covering, intersect, nearest
from hermesd.control.sandbox.base import Job, Mount, PathUse, Profile
from hermesd.control.settings import Policy
from hermesd.control.undo import Kept
from hermesd.control.values import OUTSIDE, Argument, argv_text, is_required, order_fault, value_fault
from hermesd.protocol import CommandRequest, Effect, Permission, Rejection

Find = Callable[[str], Kept | None]
"""What is kept of an operation, by its id; None when there is nothing."""


class Host(Protocol):
    """The few things about the host that a binding must know; `control.host` answers them."""

    def stand_in(self, path: str) -> str | None:
        """Return a folder on the file system of ``path`` that may be mounted in its place."""
        ...

    def group_id(self, name: str) -> int | None:
        """Return a group's number, None when the host has none of that name."""
        ...

    def group_names(self, uid: int) -> frozenset[str]:
        """Return the names of a user's groups."""
        ...

    def is_folder(self, path: str) -> bool:
        """Say whether a folder is there."""
        ...

    def is_file(self, path: str) -> bool:
        """Say whether a regular file is there."""
        ...

    def is_socket(self, path: str) -> bool:
        """Say whether a socket is there."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """A request that may go on: what runs, in which container, and how it is shown to a person.

    With ``helper`` no container runs it but an installed helper, as root.
    """

    command: Command
    values: dict[str, JsonValue]
    job: Job
    profile: Profile
    shown_argv: tuple[str, ...]
    helper: Helper | None = None

    @property
    def looks(self) -> bool:
        """Whether a person is shown how things are now, in place of a list of files."""
        return self.helper is not None and not self.helper.root

    @property
    def is_ticket(self) -> bool:
        """Whether only a person's own hands may do it."""
        return self.command.spec.permission is Permission.CONFIDENTIAL and self.helper is None

    def confirmations(self, extra: int) -> int:
        """Return how many times a person confirms before it runs; ``extra`` is what the asker adds.

        Once more where something is destroyed, or where a service is changed: it may not come back.
        """
        spec = self.command.spec
        base = int(spec.needs_person or spec.permission is not Permission.PUBLIC)
        service = spec.needs_person and any(one.type == "unit" for one in spec.args.values())
        return base + int(spec.effect is Effect.DESTROY or service) + extra

    def digest(self, **more: Any) -> str:
        """Return a digest over all that a confirmation is bound to; ``more`` adds to it."""
        facts = {
            "command": self.command.name,
            "identity": self.command.identity,
            "code": self.command.code.digest if self.command.code else "",
            "argv": self.shown_argv,
            "mounts": [[mount.root, mount.mode] for mount in self.profile.mounts],
            **more,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def bind(
    policy: Policy, request: CommandRequest, host: Host, find: Find = lambda _operation: None
) -> Bound | tuple[Rejection, ...]:
    """Return what the request would run, or why it may not. ``find`` knows what was set aside."""
    command = policy.commands.get(request.command)
    if command is None:
        return (Rejection(field="command", reason="there is no such command in the catalogue"),)
    permit = permit_for(policy.permissions, request.origin, request.asked_by, host.group_names)
    if command.name in policy.permissions.denied_commands or not permit.allows(command.name):
        return (Rejection(field="command", reason="this command is not permitted here"),)
    if command.unusable:
        return (Rejection(field="command", reason=command.unusable),)
    reach = _reach(permit, command)
    quarantine = policy.permissions.quarantine.folder
    known, unknown = _known(command, request.args, quarantine, find)
    values, rejected = _values(command, request.args, known, reach)
    if rejected or unknown:
        return (*rejected, *unknown)
    if field := _protected(policy, command, values):
        return (Rejection(field=field, reason=OUTSIDE),)
    hidden = tuple(folder for folder in policy.protected if host.is_folder(folder))
    shelves = {"artifact": f"{policy.settings.state_dir}/{FOLDER}", "operation": quarantine}
    bound = _assemble(command, values, request.timeout_ms, reach, hidden, shelves, host)
    return _by_helper(policy, bound, host) if isinstance(bound, Bound) else bound


def _by_helper(policy: Policy, bound: Bound, host: Host) -> Bound:
    """Return the request as an installed helper would do it; as it is, where none is for exactly this."""
    helper = helper_for(policy.helpers, bound.command.name, bound.values)
    if helper is None or not host.is_socket(helper.socket):
        return bound
    inner = beneath(str(bound.values["path"]), helper.root) if helper.root else ""
    job = replace(bound.job, argv=((inner or "").encode(),), paths=(), tool="")
    return replace(bound, helper=helper, job=job, profile=Profile(), shown_argv=helper.shown)


def _reach(permit: Permit, command: Command) -> dict[str, tuple[str, ...]]:
    """Return, for each path argument, what its own roots and the permitted ones have in common."""
    reading = command.spec.effect is Effect.READ
    permitted = (*permit.readable_roots, *permit.writable_roots) if reading else permit.writable_roots
    return {
        name: intersect(argument.roots, permitted)
        for name, argument in command.spec.args.items()
        if argument.type == "path"
    }


def _protected(policy: Policy, command: Command, values: dict[str, JsonValue]) -> str:
    """Return the path argument that lies in hermesd's own state or names a secret, "" when none does."""
    return next(
        (
            name
            for name, argument in command.spec.args.items()
            if argument.type == "path"
            and (
                secret_fault(str(values[name]))
                or any(beneath(str(values[name]), folder) is not None for folder in policy.protected)
            )
        ),
        "",
    )


def _known(
    command: Command, given: dict[str, JsonValue], quarantine: str, find: Find
) -> tuple[dict[str, JsonValue], list[Rejection]]:
    """Return the paths that the operations named here were about, which nobody may say otherwise."""
    known: dict[str, JsonValue] = {}
    unknown: list[Rejection] = []
    for name, argument in command.spec.args.items():
        if argument.of:
            kept = find(str(given.get(argument.of, "")))
            if kept is None or kept.folder != quarantine:
                reason = "nothing is kept of this operation, or not any more"
                unknown.append(Rejection(field=argument.of, reason=reason))
            else:
                known[name] = kept.root
    return known, unknown


def _values(
    command: Command,
    given: dict[str, JsonValue],
    known: dict[str, JsonValue],
    reach: dict[str, tuple[str, ...]],
) -> tuple[dict[str, JsonValue], list[Rejection]]:
    arguments = {name: argument for name, argument in command.spec.args.items() if not argument.of}
    rejected = [
        Rejection(field=name, reason="there is no such argument") for name in given if name not in arguments
    ]
    arguments |= {name: command.spec.args[name] for name in known}
    given = {**given, **known}
    values: dict[str, JsonValue] = {}
    for name, argument in arguments.items():
        if name not in given and is_required(argument):
            rejected.append(Rejection(field=name, reason="is missing"))
            continue
        value = given.get(name, argument.default)
        if fault := value_fault(argument, value, reach.get(name, ())):
            rejected.append(Rejection(field=name, reason=fault))
        values[name] = value
    if not rejected:
        name, fault = order_fault(arguments, values)
        rejected += [Rejection(field=name, reason=fault)] if fault else []
    return values, rejected


def _assemble(
    command: Command,
    values: dict[str, JsonValue],
    timeout_ms: int | None,
    reach: dict[str, tuple[str, ...]],
    hidden: tuple[str, ...],
    shelves: dict[str, str],
    host: Host,
) -> Bound | tuple[Rejection, ...]:
    spec = command.spec
    paths: list[PathUse] = []
    index: dict[str, int] = {}
    for name, argument in spec.args.items():
        if argument.type == "path":
            use = _path_use(argument, str(values[name]), reach[name], host)
            if use is None:
                return (Rejection(field=name, reason=OUTSIDE),)
            index[name] = len(paths)
            paths.append(use)
        elif argument.type in shelves:  # the folders of our own that a container may see, one name deep
            index[name] = len(paths)
            paths.append(PathUse(shelves[argument.type], str(values[name]).encode()))
    mode = "ro" if spec.effect is Effect.READ else "rw"
    mounts = {use.root: Mount(use.root, mode) for use in paths}
    for root in _given(spec.sandbox, host):
        mounts.setdefault(root, Mount(root, "ro"))
    job = Job(
        argv=(
            *command.leading(),
            *(_element(element, spec.args, values, index) for element in spec.argv),
        ),
        paths=tuple(paths),
        tool=spec.tool,
        timeout_ms=min(command.timeout_ms, timeout_ms or command.timeout_ms),
        output_bytes=spec.output.max_bytes,
    )
    profile = Profile(
        mounts=tuple(sorted(mounts.values(), key=lambda mount: mount.root)),
        files=(BUS_SOCKET,) if spec.sandbox.dbus else (),
        masks=tuple(
            folder for folder in hidden if folder not in mounts and covering(folder, mounts) is not None
        ),
        host_pid=spec.sandbox.host_pid,
        groups=tuple(gid for name in spec.sandbox.groups if (gid := host.group_id(name)) is not None),
        memory_mb=spec.sandbox.memory_mb,
        pids=spec.sandbox.pids,
        file_mb=spec.sandbox.file_mb,
    )
    shown = (
        command.program,
        *(_shown(part, spec.args, values) for part in spec.argv),
    )
    if spec.ticket:
        texts = {name: argv_text(argument, values[name]) for name, argument in spec.args.items()}
        shown = (in_words(spec.ticket, texts),)
    return Bound(command, values, job, profile, shown)


def _given(sandbox: SandboxSpec, host: Host) -> list[str]:
    """Return what a command always gets: its folders, and of the optional ones those that are there."""
    folders = (root for root in sandbox.mounts_if_there if host.is_folder(root))
    return [*sandbox.mounts, *folders, *(path for path in sandbox.files if host.is_file(path))]


def _path_use(argument: Argument, path: str, roots: tuple[str, ...], host: Host) -> PathUse | None:
    root = nearest(path, roots)
    if root is not None:
        return PathUse(root, (beneath(path, root) or "").encode())
    stand_in = host.stand_in(path) if path in argument.exact else None
    return PathUse(stand_in) if stand_in else None


def _element(
    element: str, arguments: dict[str, Argument], values: dict[str, JsonValue], index: dict[str, int]
) -> bytes | int:
    name = placeholder(element)
    if name in index:
        return index[name]
    return _shown(element, arguments, values).encode()


def _shown(element: str, arguments: dict[str, Argument], values: dict[str, JsonValue]) -> str:
    name = placeholder(element)
    return argv_text(arguments[name], values[name]) if name else element
