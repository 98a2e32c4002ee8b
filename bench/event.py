"""From an event at the door to its run's last record in the audit log, the commands' own time taken off.

Events come over HTTP as a stranger would send them; the rule starts a runbook with one look in a real
container. Nothing is asked while it runs: the times are read from the audit log afterwards.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from datetime import datetime
from pathlib import Path
from time import time

from figures import Ground, free_port, ground, percentile, row

from hermesd.audit import read_records

EVENTS = 60
FIRST = 5
PAUSE_SECONDS = 0.4
END_SECONDS = 30

RULE = """
match = ['type="bench.event"']
title = "bench {number}"
group_by = ["number"]
cooldown = "0s"
[run]
runbook = "bench"
goal = "Look once."
"""
RUNBOOK = """
description = "One look."
[[steps]]
id = "load"
command = "system:load"
intent = "Look once."
[[report.text]]
en = "Looked."
zh = "看过了。"
"""


def measure() -> list[dict]:
    with ground() as place:
        return asyncio.run(figures(place))


async def figures(place: Ground) -> list[dict]:
    port = free_port()
    place.write("rules/bench.toml", RULE)
    place.write("runbooks/bench.toml", RUNBOOK)
    place.write("sources/webhook.toml.d/bench.toml", f"enabled = true\nport = {port}\n")
    async with place.process("executor"), place.process("agent"):
        await listening(port)
        sent = {}
        for number in range(EVENTS):
            sent[str(number)] = time()
            await asyncio.to_thread(post, port, number)
            await asyncio.sleep(PAUSE_SECONDS)
        ends = await ended(place.folder / "agent" / "state" / "audit")
    beyond = [(end - sent[number]) * 1000 - ms for number, (end, ms) in ends.items()][FIRST:]
    return [
        row("event to audited result, beyond the commands' time, p95", percentile(beyond, 0.95), "ms", 30),
        row("event to audited result, beyond the commands' time, median", percentile(beyond, 0.5), "ms", 30),
    ]


async def listening(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return writer.close()


def post(port: int, number: int) -> None:
    event = {"id": f"bench-{number}", "type": "bench.event", "status": "firing", "number": str(number)}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/events", json.dumps(event).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


async def ended(audit: Path) -> dict[str, tuple[float, float]]:
    """Return for each event's number when its run's end was recorded, and what its commands took."""
    async with asyncio.timeout(END_SECONDS):
        while len(found := ends_in(audit)) < EVENTS:
            await asyncio.sleep(0.5)
    return found


def ends_in(audit: Path) -> dict[str, tuple[float, float]]:
    """Follow each event through the log: its incident, its run, the run's commands and its end."""
    numbers: dict[str, str] = {}
    commands: dict[str, float] = {}
    ends = {}
    for record in read_records(audit):
        task = record["task_id"]
        match record["kind"]:
            case "incident.opened":
                numbers[record["incident"]] = record["labels"]["number"]
            case "run.started":
                numbers[task] = numbers[record["incident"]]
            case "stage.ended" if record["stage"] == "execute":
                commands[task] = commands.get(task, 0.0) + record["ms"]
            case "run.ended":
                end = datetime.fromisoformat(record["time"]).timestamp()
                ends[numbers[task]] = (end, commands[task])
    return ends
