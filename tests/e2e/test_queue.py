"""Tickets and takeovers through the real hermesctl."""

import asyncio
import subprocess

import pytest

pytestmark = pytest.mark.slow

TICKET = """\
name = "unit:restart_by_hand"
description = "Restarts a unit; only a person may do it, so this becomes a ticket."
effect = "read"
permission = "confidential"
executable = "/usr/bin/cat"
argv = ["{unit}"]
[args.unit]
type = "unit"
description = "The unit"
"""


async def hermesctl(pair, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv, environ = pair.theatre.hermesctl(*arguments)
    account = pair.players.operator
    identity = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    return await asyncio.to_thread(
        subprocess.run, argv, env=environ, capture_output=True, text=True, timeout=20, check=False, **identity
    )


async def test_a_person_lists_takes_and_closes_a_ticket_and_gives_a_target_back(pair, as_agent):
    pair.write("commands/ticket.toml", TICKET)
    await pair.start("executor")
    result = await as_agent(pair, "unit:restart_by_hand", "run-1.1.0.1", unit="nginx.service")
    assert result["status"] == "ticketed"
    for number in range(3):
        await as_agent(pair, "no:such", f"run-2.{number}.0.1")
    listed = await hermesctl(pair, "queue", "list")
    assert listed.returncode == 0, listed.stderr
    assert "nginx.service" in listed.stdout
    assert "3 requests in a row were refused" in listed.stdout
    taken = await hermesctl(pair, "queue", "take", "op-run-1.1.0.1")
    assert taken.returncode == 0, taken.stderr
    closed = await hermesctl(pair, "queue", "close", "op-run-1.1.0.1", "--note", "restarted it")
    assert closed.returncode == 0, closed.stderr
    released = await hermesctl(pair, "release", "t1")
    assert released.returncode == 0, released.stderr
    empty = await hermesctl(pair, "queue", "list")
    assert "no tickets" in empty.stdout
    again = await hermesctl(pair, "release", "t1")
    assert again.returncode == 5
