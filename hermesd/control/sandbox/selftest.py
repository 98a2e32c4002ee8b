"""What a sandbox proves of itself before anything is run in it: from inside, and from outside.

Two containers are started side by side: one looks at each promise from within and tries to break it,
one does not end when it is asked to. Outside, the kernel's own word on whose processes they are is
read. This module must never raise for a sandbox that does not work: it says why, and what to do.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Final, Protocol, runtime_checkable

from hermesd.control.sandbox import remedies, supply
from hermesd.control.sandbox.base import (
    GRACE_SECONDS,
    Container,
    Ended,
    Job,
    PathRefused,
    PathUse,
    Profile,
    Sandbox,
    SandboxError,
    SelfTest,
)

PROMISES: Final = (
    *("uid", "capabilities", "no_new_privileges", "network", "read_only_root"),
    *("environment", "memory", "pids", "deadline"),
)

LIMIT_SECONDS: Final = 25.0
_MEMORY_MB: Final = 32
_PIDS: Final = 8
_CHECK_MS: Final = 5000
_LINGER_MS: Final = 80


@runtime_checkable
class Observed(Protocol):
    """A container whose first process can be looked at from outside."""

    inner_pid: int


async def prove(sandbox: Sandbox, degraded: tuple[str, ...] = ()) -> SelfTest:
    """Return which promises hold. Bounded; a sandbox that does not start is unusable, with its reason."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            promises = await _promises(sandbox)
    except TimeoutError:
        late = f"{sandbox.name} did not finish its self-test in {LIMIT_SECONDS:g} s"
        return SelfTest(usable=False, reason=late)
    except SandboxError as error:
        return SelfTest(usable=False, reason=str(error))
    broken = [f"{name}: {what}" for name, what in promises.items() if what]
    reason = f"{sandbox.name} does not keep what it promises ({'; '.join(broken)})" if broken else ""
    return SelfTest(usable=not broken, reason=reason, promises=promises, degraded=degraded)


async def _promises(sandbox: Sandbox) -> dict[str, str]:
    """Run both containers to their ends and return each promise with what was seen of it."""
    looked, lingered = await asyncio.gather(_look(sandbox), _linger(sandbox), return_exceptions=True)
    if isinstance(looked, BaseException):
        raise looked
    if isinstance(lingered, BaseException):
        raise lingered
    seen, outside = looked
    return {**seen, "uid": seen["uid"] or outside, "deadline": lingered}


async def _look(sandbox: Sandbox) -> tuple[dict[str, str], str]:
    """Return what each promise looks like from inside, and whose process it is from outside."""
    job = replace(
        _job("check", str(_MEMORY_MB), str(_PIDS), timeout_ms=_CHECK_MS), paths=(PathUse("/usr", b"bin"),)
    )
    container = await sandbox.start(Profile(memory_mb=_MEMORY_MB, pids=_PIDS))
    try:
        outside = await asyncio.to_thread(seen_from_outside, container)
        await container.resolve(job)
        return read_report(await container.run()), outside
    except PathRefused as refusal:
        raise SandboxError(remedies.NO_PATHS.format(reason=refusal.reason)) from None
    finally:
        await container.destroy()


def _job(*arguments: str, timeout_ms: int) -> Job:
    argv = supply.program("tools/self_test", *arguments)
    return Job(tuple(part.encode() for part in argv), timeout_ms=timeout_ms)


def read_report(ended: Ended) -> dict[str, str]:
    """Return the promises as they were seen; one that nothing was said about does not hold."""
    lines = (line.partition("\t") for line in ended.stdout.decode("utf-8", "replace").splitlines())
    found = {name: seen for name, _, seen in lines}
    complaint = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    silent = f"its check did not finish ({complaint[-1][:200] if complaint else 'it said nothing'})"
    return {name: found.get(name, silent) for name in PROMISES if name != "deadline"}


def seen_from_outside(container: Container) -> str:
    """Say whether the container's first process is root's in the kernel's own eyes."""
    if not isinstance(container, Observed):
        return ""
    try:
        text = Path(f"/proc/{container.inner_pid}/status").read_text(encoding="utf-8")
    except OSError:
        return "its first process cannot be seen from outside"
    uids = next((line.split()[1:] for line in text.splitlines() if line.startswith("Uid:")), ["0"])
    return "outside it is uid 0" if "0" in uids else ""


async def _linger(sandbox: Sandbox) -> str:
    """Say whether a program that does not go is gone in time, with the child that it left behind."""
    job = _job("linger", timeout_ms=_LINGER_MS)
    container = await sandbox.start(Profile(memory_mb=_MEMORY_MB, pids=_PIDS))
    try:
        await container.resolve(job)
        began = monotonic()
        ended = await container.run()
    finally:
        await container.destroy()
    late = monotonic() - began - _LINGER_MS / 1000
    if not ended.timed_out:
        return f"a program that does not end was not ended (exit status {ended.exit_status})"
    return f"it was gone {late:.1f} s after its deadline" if late > GRACE_SECONDS else ""
