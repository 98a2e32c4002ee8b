"""Containers that wait: one for each profile that was used lately, so that a command need not.

A container serves one job and is never used again; what the pool keeps has not been given a job. It is
refilled one at a time, never while a request runs, and what waits too long is ended. A container that
died while it waited is replaced by a cold start, and nobody notices. The pool is itself a sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from time import monotonic
from typing import Final

from hermesd.control.sandbox.base import (
    Container,
    Ended,
    Job,
    Profile,
    Resolved,
    Sandbox,
    SandboxError,
    SelfTest,
)
from hermesd.control.sandbox.folders import Roots, fingerprint

log = logging.getLogger("hermesd.sandbox")

IDLE_SECONDS: Final = 300.0
MAX_WAITING: Final = 4
_REFILL_DELAY_SECONDS: Final = 0.1
"""A runbook's next request comes within this; starting a container meanwhile would only slow it down."""
_CHECK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A container without a job, and what its roots were when it was started."""

    container: Container
    roots: Roots


class Pool:
    """Keeps at most ``size`` containers waiting, each for ``idle_seconds`` after its last use."""

    def __init__(
        self, sandbox: Sandbox, *, size: int = MAX_WAITING, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self.name = sandbox.name
        self._sandbox = sandbox
        self._size = size
        self._idle_seconds = idle_seconds
        self._waiting: dict[Profile, _Waiting] = {}
        self._wanted: dict[Profile, float] = {}
        self._busy = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._refill = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def self_test(self) -> SelfTest:
        """Prove the promises of the sandbox behind it."""
        return await self._sandbox.self_test()

    async def start(self, profile: Profile) -> Container:
        """Return a waiting container of this profile, or start one."""
        self._enter(profile)
        try:
            inner = await self._waiting_one(profile)
            cold = inner is None
            inner = inner or await self._sandbox.start(profile)
        except BaseException:
            self._leave()
            raise
        return _Lent(self, profile, inner, cold=cold)

    async def reap(self) -> int:
        """End what a former life left behind."""
        return await self._sandbox.reap()

    async def ended(self) -> None:
        """Return when the engine behind it is gone."""
        await self._sandbox.ended()

    async def close(self) -> None:
        """End the refilling, what waits, and the sandbox."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        waiting, self._waiting = list(self._waiting.values()), {}
        await asyncio.gather(*(item.container.destroy() for item in waiting))
        await self._sandbox.close()

    async def _waiting_one(self, profile: Profile) -> Container | None:
        """Return a waiting container whose roots still are what they were; another is ended."""
        waiting = self._waiting.pop(profile, None)
        if waiting is None:
            return None
        try:
            roots = await asyncio.to_thread(fingerprint, profile)
        except BaseException:
            await waiting.container.destroy()
            raise
        if roots == waiting.roots:
            return waiting.container
        await waiting.container.destroy()
        return None

    async def start_cold(self, profile: Profile) -> Container:
        """Start a container in place of one that was found dead."""
        return await self._sandbox.start(profile)

    def returned(self) -> None:
        """A lent container has ended."""
        self._leave()

    def _enter(self, profile: Profile) -> None:
        self._busy += 1
        self._quiet.clear()
        self._wanted.pop(profile, None)
        self._wanted[profile] = monotonic()
        while len(self._wanted) > self._size:
            del self._wanted[next(iter(self._wanted))]
        if self._task is None:
            self._task = asyncio.create_task(self._keep_filled(), name="sandbox-pool")

    def _leave(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._quiet.set()
        self._refill.set()

    async def _keep_filled(self) -> None:
        """Start what is missing and end what is not wanted any more, one at a time, while it is quiet."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):  # wait_for of 3.11 can swallow a cancellation
                    await self._refill.wait()
            self._refill.clear()
            await self._expire(monotonic())
            while missing := [profile for profile in self._wanted if profile not in self._waiting]:
                await self._quiet.wait()
                await asyncio.sleep(_REFILL_DELAY_SECONDS)
                if self._quiet.is_set() and not await self._add(missing[-1]):
                    break

    async def _expire(self, now: float) -> None:
        self._wanted = {
            profile: used for profile, used in self._wanted.items() if now - used < self._idle_seconds
        }
        for profile in [profile for profile in self._waiting if profile not in self._wanted]:
            await self._waiting.pop(profile).container.destroy()

    async def _add(self, profile: Profile) -> bool:
        try:
            roots = await asyncio.to_thread(fingerprint, profile)
            container = await self._sandbox.start(profile)
        except SandboxError as error:
            log.warning("no container could be started beforehand: %s", error)
            self._wanted.pop(profile, None)
            return False
        if profile in self._waiting or profile not in self._wanted:
            await container.destroy()
            return True
        self._waiting[profile] = _Waiting(container, roots)
        return True


class _Lent:
    """A container from the pool. Its first word decides whether it was alive; a dead one is replaced once."""

    def __init__(self, pool: Pool, profile: Profile, inner: Container, *, cold: bool) -> None:
        self._pool = pool
        self._profile = profile
        self._inner = inner
        self._cold = cold
        self._back = False

    async def resolve(self, job: Job) -> tuple[Resolved, ...]:
        """Hand the job in; a container that died while it waited is replaced by a new one."""
        try:
            return await self._inner.resolve(job)
        except SandboxError:
            if self._cold:
                raise
        await self._inner.destroy()
        self._inner, self._cold = await self._pool.start_cold(self._profile), True
        return await self._inner.resolve(job)

    async def run(self) -> Ended:
        """Give the word to go and wait for the end."""
        return await self._inner.run()

    async def destroy(self) -> None:
        """End it, and let the pool go on."""
        try:
            await self._inner.destroy()
        finally:
            if not self._back:
                self._back = True
                self._pool.returned()
