"""A one-shot container by bubblewrap with its stub: from a validated request to its first output byte.

Cold: namespaces, mounts, the stub's interpreter and the command, all after the request came.
Waiting: as the executor serves it, where one container of each lately used kind waits for a job.
"""

from __future__ import annotations

import asyncio
import os
from time import perf_counter

from figures import percentile, row

from hermesd.control.sandbox.base import Job, Profile, Sandbox
from hermesd.control.sandbox.bubblewrap import Bubblewrap
from hermesd.control.sandbox.pool import Pool

ROUNDS = 100
PAUSE_SECONDS = 0.15
JOB = Job(argv=(b"/usr/bin/echo", b"ready"))


def measure() -> list[dict]:
    return asyncio.run(figures())


async def figures() -> list[dict]:
    run_as = (65534, 65534) if os.geteuid() == 0 else None
    cold = await milliseconds(Bubblewrap(run_as=run_as), pause=0)
    waiting = await milliseconds(Pool(Bubblewrap(run_as=run_as)), pause=PAUSE_SECONDS)
    return [
        row("bubblewrap with the stub, cold, p95", percentile(cold, 0.95), "ms", 15),
        row("bubblewrap with the stub, waiting, p95", percentile(waiting, 0.95), "ms", 15),
    ]


async def milliseconds(sandbox: Sandbox, pause: float, rounds: int = ROUNDS) -> list[float]:
    try:
        return [await once(sandbox, pause) for _ in range(rounds)][5:]
    finally:
        await sandbox.close()


async def once(sandbox: Sandbox, pause: float) -> float:
    await asyncio.sleep(pause)  # a waiting container is made between requests, never during one
    began = perf_counter()
    container = await sandbox.start(Profile())
    try:
        await container.resolve(JOB)
        asked_ms = (perf_counter() - began) * 1000
        first_ms = (await container.run()).first_ms
        assert first_ms is not None
        return asked_ms + first_ms
    finally:
        await container.destroy()
