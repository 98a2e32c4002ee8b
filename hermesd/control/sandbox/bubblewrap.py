"""Containers by bubblewrap: where no engine runs, an ordinary user can still build one.

Each container is one `bwrap` process: all namespaces new, nobody's capabilities, the host's `/usr`
read-only, an otherwise empty read-only root, the profile's roots mounted from descriptors. bwrap
must never be started by uid 0 (its children then keep root's reach into files whatever is dropped
inside): an executor that is root names the uid to become first, in ``run_as``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Callable
from typing import Final

from hermesd.control.sandbox import leftovers, remedies, supply
from hermesd.control.sandbox.base import Container, Ended, Job, Profile, Resolved, SandboxError, SelfTest
from hermesd.control.sandbox.bwrap_options import Options
from hermesd.control.sandbox.cgroups import Group, Groups
from hermesd.control.sandbox.dialogue import Dialogue
from hermesd.control.sandbox.process import Child, Identity, ended, kill_by
from hermesd.control.sandbox.seccomp import build_filter

START_SECONDS: Final = 10.0
END_SECONDS: Final = 2.0


class Bubblewrap:
    """The sandbox. ``instance`` marks our processes, so that a later life finds them."""

    name = "bubblewrap"

    def __init__(
        self,
        executable: str = "/usr/bin/bwrap",
        *,
        run_as: tuple[int, int] | None = None,
        instance: str = "",
        groups: Groups | None = None,
    ) -> None:
        self._executable = executable
        self._run_as = run_as
        self._mark = leftovers.mark(supply.instance_label(instance))
        self._groups = groups if groups is not None else Groups.find()
        self._live: set[_Container] = set()

    async def self_test(self) -> SelfTest:
        """Prove each promise from inside a real container. Bounded; never raises."""
        from hermesd.control.sandbox.selftest import prove  # noqa: PLC0415 - the test starts containers through us

        return await prove(self, self._groups.degraded())

    async def start(self, profile: Profile) -> Container:
        """Start a container whose stub is ready. Raise SandboxError."""
        self._refuse_root()
        if shutil.which(self._executable) is None:
            raise SandboxError(remedies.NO_BWRAP)
        with contextlib.ExitStack() as held:
            parts = Options(profile, held, self._identity_numbers())
            argv = [self._executable, *parts.all(), "--", *supply.program("stub", self._mark)]
            try:
                child = await Child.start(argv, parts.descriptors, self._identity(profile))
            except OSError as error:
                raise SandboxError(f"bwrap could not be started: {error}") from None
            container = _Container(child, profile, self._groups, self._live.discard)
            self._live.add(container)
            await container.ready(parts.info)
        return container

    async def reap(self) -> int:
        """End what a former life of this instance left behind; return how many."""
        ours = {container.inner_pid for container in self._live}
        uid = self._identity_numbers()[0]
        return await asyncio.to_thread(leftovers.end, self._mark, uid, ours) + self._groups.sweep()

    async def ended(self) -> None:
        """Never return: there is no engine that could end."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """End what still runs."""
        await asyncio.gather(*(container.destroy() for container in tuple(self._live)))

    def _refuse_root(self) -> None:
        if 0 in self._identity_numbers():
            raise SandboxError(remedies.NOT_AS_ROOT)

    def _identity_numbers(self) -> tuple[int, int]:
        return self._run_as or (os.geteuid(), os.getegid())

    def _identity(self, profile: Profile) -> Identity | None:
        """Return whom bwrap must become first. Only root can give groups that it has not itself."""
        if self._run_as is None:
            return None
        return Identity(*self._run_as, profile.groups)


class _Container:
    """One bwrap process and the talk with the stub in it."""

    def __init__(
        self, child: Child, profile: Profile, groups: Groups, forget: Callable[[_Container], None]
    ) -> None:
        self.pid = child.pid
        self.inner_pid = 0
        self._child = child
        self._profile = profile
        self._groups = groups
        self._group: Group | None = None
        self._forget = forget
        self._pidfd = -1
        self._ending: asyncio.Task[None] | None = None
        seccomp = build_filter(sockets=bool(profile.files))
        self._dialogue = Dialogue(child, supply.limits_of(profile), seccomp)

    async def ready(self, info: int) -> None:
        """Wait for the stub's first word; end it all and raise SandboxError when it does not come."""
        try:
            await self._dialogue.hello(START_SECONDS)
            self.inner_pid = int(json.loads(os.read(info, 4096))["child-pid"])
            self._pidfd = os.pidfd_open(self.inner_pid)
            self._group = self._groups.create(self.inner_pid, self._profile)
        except (SandboxError, OSError, ValueError) as error:
            await self._child.gone(0.2)
            complaint = self._child.complaint()
            await self.destroy()
            raise SandboxError(remedies.explain(complaint) or f"bwrap: {error}") from None
        except asyncio.CancelledError:
            await self.destroy()
            raise

    async def resolve(self, job: Job) -> tuple[Resolved, ...]:
        """Hand the job in; return what its paths are. Raise PathRefused or SandboxError."""
        return await self._dialogue.resolve(job)

    async def run(self) -> Ended:
        """Give the word to go and wait for the end."""
        try:
            return await self._dialogue.run()
        finally:
            self._begin_end()

    async def destroy(self) -> None:
        """End everything in it, once; whoever calls again waits for the same end."""
        await asyncio.shield(self._begin_end())

    def _begin_end(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name=f"end-container-{self.pid}")
        return self._ending

    async def _end(self) -> None:
        self._child.hang_up()
        self._child.kill()
        await self._child.gone(END_SECONDS)
        if self._pidfd >= 0:
            if not await ended(self._pidfd, END_SECONDS / 2):
                kill_by(self._pidfd)
                await ended(self._pidfd, END_SECONDS / 2)
            os.close(self._pidfd)
        if self._group is not None:
            self._group.end()
        self._child.let_go()
        self._forget(self)
