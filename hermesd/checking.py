"""`hermesd check`: reads the configuration as each process would, and then both together.

Each half checks its own files by itself when it starts; only here do they meet: a runbook that names
a command which the catalogue lacks is found before an incident finds it. It must never change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hermesd.agent.runbook import check_runbook
from hermesd.confd import ConfigError
from hermesd.config import Config, load_config
from hermesd.control.settings import Policy, load_policy


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
    mismatches = [
        f"runbook {name}: {fault}"
        for name, runbook in sorted(config.runbooks.items())
        for fault in check_runbook(runbook, policy.view())
    ]
    notes = [
        f"note: {name} cannot be used on this host: {command.unusable}"
        for name, command in sorted(policy.commands.items())
        if command.unusable
    ]
    summary = (
        f"{len(config.sources)} sources, {len(config.rules)} rules, {len(config.runbooks)} runbooks, "
        f"{len(policy.commands)} commands: {len(mismatches) or 'no'} faults"
    )
    return Report((*mismatches, *notes, summary), len(mismatches))


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
