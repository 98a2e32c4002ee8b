"""`hermesd check`: reads the configuration as each process would, and then both together.

Each half checks its own files by itself when it starts; only here do they meet: a runbook that names
a command which the catalogue lacks is found before an incident finds it. It must never change anything.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermesd import unit_sync
from hermesd.agent.runbook import check_runbook
from hermesd.confd import ConfigError
from hermesd.config import Config, load_config
from hermesd.control import helper_units
from hermesd.control.quarantine import place_faults
from hermesd.control.sandbox.auto import choose
from hermesd.control.settings import Policy, load_policy
from hermesd.control.toolbox import Toolbox
from hermesd.pipeline.replaying import Replay, replay
from hermesd.state.store import StoreError, reading
from hermesd.telemetry import visible

_NOBODY: Final = (65534, 65534)


@dataclass(frozen=True, slots=True)
class Report:
    """What was found: lines for people, and how many of them are faults."""

    lines: tuple[str, ...]
    faults: int


def check_all(layers: Sequence[Path]) -> Report:
    """Check every file of both processes."""
    config, faults = _config(layers)
    policy, more = _policy(layers)
    faults = sorted({*faults, *more})
    if config is None or policy is None:
        return Report((*faults, f"{len(faults)} faults: nothing would start"), len(faults))
    policy, wrong, unread = _with_tools(policy)
    mismatches = [
        f"runbook {name}: {fault}"
        for name, runbook in sorted(config.runbooks.items())
        for fault in check_runbook(runbook, policy.view())
    ]
    installed = unit_sync.compared(policy, helper_units.UNIT_FOLDER)
    mismatches = [*wrong, *mismatches, *installed.faults]
    notes = [
        *unread,
        *(
            f"note: {name} cannot be used on this host: {command.unusable}"
            for name, command in sorted(policy.commands.items())
            if command.unusable
        ),
    ]
    notes += [f"note: {fault}" for fault in place_faults(policy)]
    notes += [f"note: {line}" for line in installed.notes]
    summary = (
        f"{len(config.sources)} sources, {len(config.rules)} rules, {len(config.runbooks)} runbooks, "
        f"{len(policy.commands)} commands: {len(mismatches) or 'no'} faults"
    )
    return Report((*mismatches, *notes, summary), len(mismatches))


def _with_tools(policy: Policy) -> tuple[Policy, list[str], list[str]]:
    """Return the policy with its tools, as a container read them, the faults, and what was not read."""
    if not policy.tool_files:
        return policy, [], []
    settings = policy.settings

    async def read() -> tuple[Policy, str]:
        choice = await choose(
            settings.sandbox,
            docker_sockets=settings.docker_sockets,
            run_as=_NOBODY if os.geteuid() == 0 else None,
        )
        done = await Toolbox().complete(policy, choice.sandbox)
        if choice.sandbox is not None:
            await choice.sandbox.close()
        return done.policy, choice.self_test.reason

    done, reason = asyncio.run(read())
    notes = [
        f"note: {file.path}: it parses; what it registers was not read, for want of a sandbox: {reason}"
        for file in done.unread
    ]
    return done, sorted(done.tool_faults), notes


def check_against_recent(layers: Sequence[Path], limit: int) -> Report:
    """Judge the last ``limit`` events of this host anew, by the rules as the files have them now."""
    config, faults = _config(layers)
    if config is None:
        return Report((*faults, "nothing was judged: the configuration has faults"), len(faults))
    try:
        with reading(config.agent.store_file) as connection:
            return Report(tuple(_told(replay(connection, config, limit))), 0)
    except StoreError as error:
        return Report((f"{error}: the events of this host cannot be read",), 1)


def _told(found: Replay) -> Iterator[str]:
    """Say what a replay found, the differences first."""
    if found.since is None or found.until is None:
        yield "no event was judged here yet: there is nothing to compare with"
        return
    for one in found.differences:
        yield f"rule {one.rule}: {one.was} -> {one.would_be}: {_counted(one.events, 'event')}"
        first = one.first
        yield (
            f"    the first is {visible(first.event.id)} of {visible(first.event.source)},"
            f" {first.accepted_at:%Y-%m-%d %H:%M:%S} UTC: {visible(one.reason)}"
        )
    yield (
        f"{_counted(found.events, 'event')} from {found.since:%Y-%m-%d %H:%M:%S}"
        f" to {found.until:%Y-%m-%d %H:%M:%S} UTC, judged by the rules as they are written now:"
    )
    yield f"  the same would have come of {found.same} of them"
    yield f"  incidents opened: {found.opened[0]} -> {found.opened[1]}"
    yield f"  runs granted: {found.runs[0]} -> {found.runs[1]}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _config(layers: Sequence[Path]) -> tuple[Config | None, list[str]]:
    try:
        return load_config(layers), []
    except ConfigError as error:
        return None, [str(fault) for fault in error.faults]


def _policy(layers: Sequence[Path]) -> tuple[Policy | None, list[str]]:
    try:
        return load_policy(layers), []
    except ConfigError as error:
        return None, [str(fault) for fault in error.faults]
