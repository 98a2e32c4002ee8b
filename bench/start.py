"""From the start of a process to its READY, and what it takes while nothing happens."""

from __future__ import annotations

import asyncio
from statistics import median
from time import perf_counter

from figures import Ground, ground, memory_mb, row

STARTS = 7
IDLE_SECONDS = 3


def measure() -> list[dict]:
    with ground() as place:
        return asyncio.run(figures(place))


async def figures(place: Ground) -> list[dict]:
    starts = {
        name: median([await start_seconds(place, name) for _ in range(STARTS)])
        for name in ("executor", "agent")
    }
    async with place.process("executor") as executor, place.process("agent") as agent:
        await asyncio.sleep(IDLE_SECONDS)
        idle = {"agent": memory_mb(agent.pid), "executor": memory_mb(executor.pid)}
    return [
        row("start of the agent to READY, median", starts["agent"], "s", 1.0),
        row("start of the executor to READY, median", starts["executor"], "s", 1.0),
        row("idle memory of the agent", idle["agent"], "MB", 70),
        row("idle memory of the executor", idle["executor"], "MB", 50),
    ]


async def start_seconds(place: Ground, name: str) -> float:
    """Start one process and stop it again. The first start of all writes bytecode; the median forgets it."""
    began = perf_counter()
    async with place.process(name):
        return perf_counter() - began
