"""What is kept of removed files: foreseen before a removal, reserved with it, given back or let go of.

The ledger holds what is kept, written before the effect; the files themselves belong to the containers'
user and are only ever written inside a container. From outside, this module removes what has outlived its
time, and nothing else: it must never read a kept file, and never touch one that the ledger does not name.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from hermesd.control import host
from hermesd.control.binding import Bound
from hermesd.control.ledger import Ledger
from hermesd.control.preview import Preview
from hermesd.control.sandbox.base import Mount, PathUse
from hermesd.control.settings import Policy
from hermesd.control.undo import Kept, put_back, why_not, with_undo
from hermesd.protocol import CommandRequest, CommandResult, Impact, ResultStatus

log = logging.getLogger("hermesd.quarantine")

_TOOL: Final = "fs_set_aside"
_END_SECONDS: Final = 3
"""A copy stops so long before the container's deadline, to tell what became of it."""
_NOTHING_KEPT: Final = frozenset({3, 4, os.EX_USAGE})
"""Exit statuses of `fs_set_aside` before its first effect: a folder that is there is somebody else's."""
_UNTOUCHED: Final = frozenset(
    {ResultStatus.REFUSED, ResultStatus.UNAVAILABLE, ResultStatus.PLAN_CHANGED, ResultStatus.CANCELLED}
)


class Quarantine:
    """What is kept now, by operation. ``load`` it once the ledger is open."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[str, Kept] = {}
        self._stuck: set[str] = set()

    async def load(self) -> None:
        """Take up what earlier lives kept."""
        found = [Kept.model_validate_json(text) for text in await self._ledger.kept()]
        self._kept = {kept.operation: kept for kept in found}

    def find(self, operation: str) -> Kept | None:
        """Return what is kept of an operation, None when there is nothing."""
        return self._kept.get(operation)

    def all(self) -> list[Kept]:
        """Return what is kept, the one that goes first before the others."""
        return sorted(self._kept.values(), key=lambda kept: (kept.until, kept.operation))

    @property
    def held_bytes(self) -> int:
        """What the quarantine holds, as far as it is known: what was reserved where no end was seen."""
        return sum(kept.size_bytes for kept in self._kept.values())

    async def foresee(self, policy: Policy, bound: Bound, preview: Preview) -> Preview:
        """Return the preview with whether it can be undone, as far as the disks say now."""
        spec, settings = bound.command.spec, policy.permissions.quarantine
        if any(argument.type == "operation" for argument in spec.args.values()):
            return replace(preview, impact=put_back(preview.impact))
        if not spec.undo:
            why = "none"
        elif bound.helper is not None:
            why = "helper"
        elif spec.undo in policy.permissions.denied_commands:
            why = "denied"
        else:
            here, there = await asyncio.to_thread(_rooms, preview.impact.root, settings.folder)
            why = why_not(settings, here, there, preview.impact, self.held_bytes)
        return replace(preview, impact=with_undo(preview.impact, why, settings.keep_h))

    async def reserve(
        self, policy: Policy, bound: Bound, impact: Impact, operation: str, now: datetime
    ) -> Bound:
        """Return what runs in place of ``bound``: the same with a copy first, where that was promised."""
        settings = policy.permissions.quarantine
        if not impact.reversible or not bound.command.spec.undo:
            return bound
        left = settings.most_bytes - self.held_bytes
        await self._keep(
            Kept(
                operation=operation,
                folder=settings.folder,
                root=impact.root,
                files=impact.files,
                size_bytes=min(impact.size_bytes, max(left, 0)),
                set_aside_at=now,
                until=now + timedelta(hours=settings.keep_h),
            )
        )
        return set_aside(bound, settings.folder, operation, left, settings.most_mb)

    async def settle(self, request: CommandRequest, operation: str, result: CommandResult) -> None:
        """Write down what is kept after a removal or a restoration has ended, as far as it told."""
        restored = str(request.args.get("operation", ""))
        kept = self._kept.get(restored or operation)
        if kept is None:
            return
        if restored:
            row = result.rows[0] if result.rows else {}
            files, size = row.get("files_left"), row.get("left_bytes")
        else:
            gain = result.gain
            files, size = (gain.files_removed, gain.size_bytes) if gain else (None, None)
            if result.status in _UNTOUCHED or (gain is None and result.exit_status in _NOTHING_KEPT):
                await self._forget(kept)
                return
        if not isinstance(files, int) or not isinstance(size, int):
            return  # it did not tell: what was reserved stays reserved
        if files:
            await self._keep(kept.model_copy(update={"files": files, "size_bytes": size}))
        else:
            await self._let_go(kept)

    async def expire(self, now: datetime) -> list[Kept]:
        """Remove what has outlived its time; return what went. What cannot be removed is told and stays."""
        return [kept for kept in self.all() if kept.until <= now and await self._let_go(kept)]

    async def _keep(self, kept: Kept) -> None:
        await self._ledger.keep(kept.operation, kept.model_dump_json())
        self._kept[kept.operation] = kept

    async def _let_go(self, kept: Kept) -> bool:
        """Remove an operation's folder and forget it. False when it could not be removed."""
        try:
            await asyncio.to_thread(host.remove_flat_folder, kept.folder, kept.operation)
        except OSError as error:
            if kept.operation not in self._stuck:
                path = f"{kept.folder}/{kept.operation}"
                log.warning("%s could not be removed (%s): run: rm -r -- %s", path, error.strerror, path)
            self._stuck.add(kept.operation)
            return False
        await self._forget(kept)
        return True

    async def _forget(self, kept: Kept) -> None:
        await self._ledger.forget(kept.operation)
        self._kept.pop(kept.operation, None)


def set_aside(bound: Bound, folder: str, operation: str, most_bytes: int, most_mb: int) -> Bound:
    """Return a removal that copies each file first: its one path argument, and the quarantine beside it."""
    seconds = max(1, bound.job.timeout_ms // 1000 - _END_SECONDS)
    root = next(element for element in bound.job.argv if isinstance(element, int))
    place = len(bound.job.paths)
    job = replace(
        bound.job,
        tool=_TOOL,
        argv=(root, place, operation.encode(), b"%d" % max(most_bytes, 0), b"%d" % seconds),
        paths=(*bound.job.paths, PathUse(folder)),
    )
    mounts = {mount.root: mount for mount in (*bound.profile.mounts, Mount(folder, "rw"))}
    profile = replace(
        bound.profile,
        mounts=tuple(sorted(mounts.values(), key=lambda mount: mount.root)),
        file_mb=max(bound.profile.file_mb, most_mb),
    )
    shown = (*bound.shown_argv, f"set aside in {folder}/{operation}")
    return replace(bound, job=job, profile=profile, shown_argv=shown)


def place_faults(policy: Policy) -> list[str]:
    """Return why what is removed could not be kept, as the host is now; empty when it could."""
    settings = policy.permissions.quarantine
    if not settings.folder:
        return []
    there = host.room(settings.folder)
    if there is None:
        return [f"quarantine.folder: {settings.folder} is no folder here: nothing can be undone"]
    if there.fault:
        return [f"quarantine.folder: {settings.folder} {there.fault}"]
    return [
        f"quarantine.folder: {settings.folder} shares its file system with {root}: "
        "what is removed there cannot be undone, since nothing would be freed"
        for root in policy.permissions.reach.writable_roots
        if (here := host.room(root)) is not None and here.shares_space_with(there)
    ]


def _rooms(root: str, folder: str) -> tuple[host.Room | None, host.Room | None]:
    return host.room(root), host.room(folder) if folder else None
