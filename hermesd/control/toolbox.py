"""What operators' Python files register: read in a container, made commands, laid over the catalogue.

A policy is read from files without any sandbox; the tools among them are known once a container has
read them. What was read is kept by the file's digest, so that a file that did not change is read once.
A definition of a tool passes what a TOML definition passes. This module must never execute a source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hermesd.confd import ConfigError, Fault
from hermesd.control.catalogue import RUNNER, Command, read_command
from hermesd.control.output import first_line
from hermesd.control.sandbox.base import Ended, Job, Profile, Sandbox, SandboxError
from hermesd.control.settings import Policy, links_of
from hermesd.control.toolfiles import Definition, ToolFile
from hermesd.protocol import Effect, ProtocolError, check_json

READ_MS: Final = 5000
"""How long a file may take to register what it has to."""

_AT_ONCE: Final = 4
_MAX_TOOLS: Final = 64
_OURS: Final = frozenset({"executable", "tool", "ticket", "argv", "undo"})
_READ_IN: Final = Profile(memory_mb=128)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a container said of one file: its definitions, or why there are none."""

    definitions: tuple[Definition, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Completed:
    """A policy with the commands of its tools, and what is wrong with those that are left out."""

    policy: Policy
    faults: tuple[Fault, ...] = ()


class Toolbox:
    """Completes policies. Readings are kept for as long as their file is the one that was read.

    Whoever puts a policy in force holds ``turn`` from reading it until then, so that none overtakes another.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._readings: dict[tuple[Path, str], Reading] = {}

    async def complete(self, policy: Policy, sandbox: Sandbox | None) -> Completed:
        """Return the policy with its tools. Without a sandbox, what is not known yet stays unread."""
        wanted = {(file.path, file.digest): file for file in policy.tool_files}
        known = {key: reading for key, reading in self._readings.items() if key in wanted}
        failed: list[Fault] = []
        if sandbox is not None:
            places = asyncio.Semaphore(_AT_ONCE)
            fresh = [file for key, file in wanted.items() if key not in known]
            for file, reading in zip(
                fresh, await asyncio.gather(*(_read(file, sandbox, places) for file in fresh)), strict=True
            ):
                if isinstance(reading, Reading):
                    known[file.path, file.digest] = reading
                else:
                    failed.append(Fault(file.path, 0, f"its tools could not be read: {reading}"))
        self._readings = known
        done = with_tools(policy, {key[0]: reading for key, reading in known.items()})
        return Completed(done.policy, (*failed, *done.faults))


async def _read(file: ToolFile, sandbox: Sandbox, places: asyncio.Semaphore) -> Reading | SandboxError:
    """Read one file in a container of its own. A sandbox that fails says nothing about the file."""
    argv = (b"read", file.shown_as.encode(), file.source)
    try:
        async with places:
            container = await sandbox.start(_READ_IN)
            try:
                await container.resolve(Job(argv, tool=RUNNER, timeout_ms=READ_MS))
                return read_answer(file, await container.run())
            finally:
                await container.destroy()
    except SandboxError as error:
        return error


def read_answer(file: ToolFile, ended: Ended) -> Reading:
    """Return what a container's answer says; anything that is no answer is a fault of the file."""
    if ended.timed_out:
        return _faulty(file, f"it took longer than {READ_MS / 1000:g} s to register what it has")
    if ended.truncated:
        return _faulty(file, "it wrote more than it may while it was read")
    try:
        answer = check_json(ended.stdout)
        faults = [Fault(file.path, int(line), str(why)) for line, why in answer["faults"]]
        found = tuple(file.document(int(one["line"]), dict(one["definition"])) for one in answer["tools"])
    except (ProtocolError, KeyError, TypeError, ValueError):
        why = first_line(ended.stderr)
        how = f"it ended before it was read (exit status {ended.exit_status}): {why}"
        return _faulty(file, how.rstrip(": "))
    if len(found) > _MAX_TOOLS:
        return _faulty(file, f"it registers more than {_MAX_TOOLS} tools")
    return Reading((), tuple(faults)) if faults else Reading(found)


def _faulty(file: ToolFile, reason: str) -> Reading:
    return Reading((), (Fault(file.path, 0, reason),))


def with_tools(policy: Policy, readings: Mapping[Path, Reading]) -> Completed:
    """Return the policy with the commands of every file that is wholly right. Pure."""
    faults: list[Fault] = []
    good: dict[ToolFile, list[tuple[Definition, Command]]] = {}
    for file in policy.tool_files:
        reading = readings.get(file.path)
        if reading is None:
            continue
        made, wrong = _commands(file, reading, policy)
        taken = {**policy.commands, **{one.name: one for pairs in good.values() for _, one in pairs}}
        wrong += [
            definition.fault(("name",), f"{command.name} is defined by another file too")
            for definition, command in made
            if command.name in taken
        ]
        faults += wrong
        if not wrong:
            good[file] = made
    faults += _drop_unlinked(policy, good)
    commands = {one.name: one for pairs in good.values() for _, one in pairs}
    unread = tuple(file for file in policy.tool_files if file.path not in readings)
    complete = {**policy.commands, **commands}
    if not unread:
        faults += [missing.fault for missing in policy.missing if not missing.brought_by(complete)]
    told = tuple(str(fault) for fault in faults)
    return Completed(replace(policy, commands=complete, unread=unread, tool_faults=told), tuple(faults))


def _commands(
    file: ToolFile, reading: Reading, policy: Policy
) -> tuple[list[tuple[Definition, Command]], list[Fault]]:
    made, faults = [], list(reading.faults)
    for definition in reading.definitions:
        try:
            made.append((definition, _command(file, definition, policy)))
        except ConfigError as error:
            faults += error.faults
    return made, faults


def _command(file: ToolFile, definition: Definition, policy: Policy) -> Command:
    data = definition.data
    if foreign := sorted(_OURS & set(data)):
        raise ConfigError([definition.fault((key,), f"{key}: there is no such setting") for key in foreign])
    arguments = data.get("args")
    argv = [f"{{{name}}}" for name in arguments] if isinstance(arguments, dict) else []
    whole = replace(definition, data={**data, "tool": RUNNER, "argv": argv})
    command = read_command(whole, policy.stages, policy.protected, file)
    spec, path = command.spec, command.spec.args.get("path")
    lists = spec.effect is not Effect.READ or spec.output.parser == "manifest"
    if lists and (path is None or path.type != "path"):
        reason = "a tool that changes something, or lists what would be, has an argument `path` of that type"
        raise ConfigError([definition.fault(("effect",), reason)])
    return command


def _drop_unlinked(policy: Policy, good: dict[ToolFile, list[tuple[Definition, Command]]]) -> list[Fault]:
    """Take out the files whose tools name what is not there, until nothing names what was taken out."""
    faults: list[Fault] = []
    while True:
        commands = {**policy.commands, **{one.name: one for pairs in good.values() for _, one in pairs}}
        unlinked = {
            file: [
                link.fault
                for definition, command in pairs
                for link in links_of(definition, command.spec)
                if not link.brought_by(commands)
            ]
            for file, pairs in good.items()
        }
        if not any(unlinked.values()):
            return faults
        for file, found in unlinked.items():
            faults += found
            if found:
                del good[file]
