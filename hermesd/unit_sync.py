"""`hermesd units sync`, and what `hermesd check` says of the units that it wrote.

Only an administrator's own words come from here: which files were written, what to run next, and what
on the disk is not what permissions.toml says. It must never reload or start a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermesd.confd import ConfigError
from hermesd.control.helper_units import (
    alias_faults,
    differences,
    files_of,
    program_fault,
    sync,
)
from hermesd.control.settings import Policy, load_policy

_DONE: Final = {"missing": "written", "other": "written anew", "left over": "removed"}
_FOREIGN: Final = "is there and was not written by hermesd: left as it is; move it away, or rename the helper"
_DIFFERS: Final = {
    "other": "is not what permissions.toml says: run hermesd units sync",
    "foreign": _FOREIGN,
    "left over": "is of a helper that permissions.toml does not name any more: run hermesd units sync",
}


@dataclass(frozen=True, slots=True)
class Synced:
    """Lines for people, and how many of them are faults."""

    lines: tuple[str, ...]
    faults: int


@dataclass(frozen=True, slots=True)
class Compared:
    """What a check finds of the helpers' units: what is wrong, and what is only not installed."""

    faults: tuple[str, ...]
    notes: tuple[str, ...]


def sync_units(layers: Sequence[Path], folder: Path, *, dry_run: bool) -> Synced:
    """Write what the policy says into the folder, unless something is wrong with it. Never raises."""
    try:
        policy = load_policy(layers)
    except ConfigError as error:
        faults = [str(fault) for fault in error.faults]
        return Synced((*faults, "nothing was written: the configuration has faults"), len(faults))
    wrong = _wrong(policy)
    if wrong:
        return Synced((*wrong, "nothing was written"), len(wrong))
    wanted = files_of(policy.helpers, policy.settings.helper_group)
    try:
        done = sync(wanted, folder, dry_run=dry_run)
    except OSError as error:
        return Synced((f"{folder}: {error.strerror}: {error.filename}; run it as root",), 1)
    foreign = [f"{folder}/{name} {_FOREIGN}" for name, how in done if how == "foreign"]
    would = "would be " if dry_run else ""
    lines = [f"{folder}/{name}: {would}{_DONE[how]}" for name, how in done if how in _DONE]
    if not lines and not foreign:
        lines = [f"{len(policy.helpers)} helpers, all as permissions.toml says"]
    elif lines and not dry_run:
        lines += _next(done, [helper.unit for helper in policy.helpers])
    return Synced((*foreign, *lines), len(foreign))


def _next(done: list[tuple[str, str]], units: list[str]) -> list[str]:
    """Return what the administrator runs next, in order."""
    gone = [name for name, how in done if how == "left over" and name.endswith(".socket")]
    sockets = " ".join(f"{unit}.socket" for unit in units)
    said = ["now run, as root:", *(f"  systemctl stop {name}" for name in gone), "  systemctl daemon-reload"]
    if sockets:
        said += [f"  systemctl enable {sockets}", f"  systemctl restart {sockets}"]
    return [*said, "  systemctl reload hermesd-executor"]


def compared(policy: Policy, folder: Path) -> Compared:
    """Compare what is installed with what the policy says. A helper that is not installed is only noted."""
    wanted = files_of(policy.helpers, policy.settings.helper_group)
    found = list(differences(wanted, folder))
    faults = [f"{folder}/{name} {_DIFFERS[how]}" for name, how in found if how in _DIFFERS]
    absent = {name.partition("@")[0].removesuffix(".socket") for name, how in found if how == "missing"}
    notes = [
        f"helpers.{helper.name} is not installed, so {helper.command} stays a ticket: run hermesd units sync"
        for helper in policy.helpers
        if helper.unit in absent
    ]
    return Compared((*faults, *_wrong(policy)), tuple(notes))


def _wrong(policy: Policy) -> list[str]:
    """Return why root must not run what would be installed."""
    fault = program_fault() if policy.helpers else ""
    return [*alias_faults(policy.helpers), *([fault] if fault else [])]
