"""What the wires carry: MQTT with QoS 1 against a bare client's loop, and the webhook at a steady rate.

Both are measured on the daemon's own parts: messages go through the source, the inbox, the store and the
dispatcher, and are acknowledged once they are durable. The bare loop receives the same messages from the
same broker, parses them, and does nothing else.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import aiohttp
import aiomqtt
import orjson
from event import listening
from figures import free_port, ground, percentile, row

MESSAGES = 20_000
HOSTS = 50
RATE = 200
POST_SECONDS = 15
ROUNDS = 3
MQTT_GOAL = 0.6

RULE = """
match = ['type="mqtt.message"']
title = "bench {host}"
group_by = ["host"]
threshold = { op = ">", value = 90 }
clear = { op = "<", value = 10 }
cooldown = "1h"
"""


def measure() -> list[dict]:
    rows = asyncio.run(webhook_rows())
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        return [
            *rows,
            {"name": "MQTT: needs mosquitto", "value": None, "unit": "", "goal": None, "ok": False},
        ]
    return [*rows, *mqtt_rows(program)]


def mqtt_rows(program: str) -> list[dict]:
    bare, ours = [], []
    for _ in range(ROUNDS):
        bare.append(asyncio.run(bare_rate(program)))
        ours.append(asyncio.run(our_rate(program)))
    ratio = percentile(ours, 0.5) / percentile(bare, 0.5)
    return [
        {
            "name": "MQTT QoS 1, decided and acknowledged, of a bare aiomqtt loop",
            "value": round(ratio, 3),
            "unit": "times",
            "goal": MQTT_GOAL,
            "ok": ratio >= MQTT_GOAL,
        },
        _told("MQTT QoS 1, decided and acknowledged", percentile(ours, 0.5)),
        _told("MQTT QoS 1, a bare aiomqtt loop", percentile(bare, 0.5)),
    ]


def _told(name: str, value: float) -> dict:
    return {"name": name, "value": round(value), "unit": "1/s", "goal": None, "ok": True}


@contextmanager
def broker(program: str) -> Iterator[int]:
    """A broker that keeps every message of a session."""
    folder, port = Path(tempfile.mkdtemp(prefix="hermesd-bench-")), free_port()
    (folder / "conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
        "user root\npersistence false\nlog_dest none\n"
    )
    process = subprocess.Popen([program, "-c", folder / "conf"], stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


async def up(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            await asyncio.sleep(0.02)


async def publish(port: int) -> None:
    """Hand all messages to the broker, so that what is measured afterwards is the receiving side."""
    async with aiomqtt.Client(
        "127.0.0.1", port, max_inflight_messages=1000, max_queued_outgoing_messages=0, timeout=60
    ) as client:
        client.pending_calls_threshold = 1000
        for start in range(0, MESSAGES, 500):
            async with asyncio.TaskGroup() as group:
                for number in range(start, start + 500):
                    group.create_task(client.publish("bench/t", payload(number), qos=1))


def payload(number: int) -> bytes:
    return orjson.dumps({"id": f"m{number}", "host": f"h{number % HOSTS}", "value": number % 100})


def session(port: int, name: str) -> aiomqtt.Client:
    return aiomqtt.Client("127.0.0.1", port, identifier=name, clean_session=False)


async def bare_rate(program: str) -> float:
    with broker(program) as port:
        await up(port)
        async with session(port, "bare") as client:
            await client.subscribe("bench/#", qos=1)
        await publish(port)
        count, began = 0, time.monotonic()
        async with session(port, "bare") as client:
            async for message in client.messages:
                orjson.loads(message.payload)
                count += 1
                if count == MESSAGES:
                    return count / (time.monotonic() - began)
    raise RuntimeError("the broker sent too little")


async def our_rate(program: str) -> float:
    """The agent in a process of its own: all messages wait for it, it is timed to the last."""
    with broker(program) as port, ground() as place:
        await up(port)
        place.write("rules/bench.toml", RULE)
        place.write(
            "sources/mqtt.toml.d/bench.toml",
            f'enabled = true\nport = {port}\nprotocol = "3.1.1"\nclient_id = "ours"\nwindow = 1000\n'
            '[[topic]]\nfilter = "bench/#"\n',
        )
        async with session(port, "ours") as client:
            await client.subscribe("bench/#", qos=1)
        await publish(port)
        async with place.process("agent"):
            return await decided_rate(place.folder / "agent" / "state" / "state.sqlite3")


async def decided_rate(path: Path) -> float:
    """Return events decided in a second, from the first one's acceptance to the last one's decision."""
    store = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    where = "FROM events WHERE source = 'mqtt'"
    async with asyncio.timeout(120):
        while store.execute(f"SELECT count(*) {where} AND decided_at IS NOT NULL").fetchone()[0] < MESSAGES:
            await asyncio.sleep(0.2)
    first, last = store.execute(f"SELECT min(accepted_at), max(decided_at) {where}").fetchone()
    store.close()
    return MESSAGES / _seconds(first, last)


def _seconds(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


async def webhook_rows() -> list[dict]:
    port = free_port()
    with ground() as place:
        place.write("sources/webhook.toml.d/bench.toml", f"enabled = true\nport = {port}\n")
        place.write("rules/alertmanager.toml.d/bench.toml", "enabled = false\n")
        async with place.process("agent"):
            await listening(port)
            times = await steady_posts(f"http://127.0.0.1:{port}/alertmanager")
    return [
        row(f"webhook to durable 202 at {RATE}/s, p99", percentile(times, 0.99), "ms", 10),
        _told_ms(f"webhook to durable 202 at {RATE}/s, median", percentile(times, 0.5)),
    ]


def _told_ms(name: str, value: float) -> dict:
    return {"name": name, "value": round(value, 3), "unit": "ms", "goal": None, "ok": True}


async def steady_posts(url: str) -> list[float]:
    """Post at RATE whatever the answers take; return milliseconds from when each was due to its 202."""
    times: list[float] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=50)) as session:
        await asyncio.gather(*(post(session, url, -number, 0.0, []) for number in range(1, 20)))
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(RATE * POST_SECONDS):
                due = began + number / RATE
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(post(session, url, number, due, times))
    return times


async def post(session: aiohttp.ClientSession, url: str, number: int, due: float, times: list[float]) -> None:
    async with session.post(
        url, data=notification(number), headers={"Content-Type": "application/json"}
    ) as got:
        if got.status != 202:
            raise RuntimeError(f"answered {got.status}")
    times.append((time.monotonic() - due) * 1000)


def notification(number: int) -> bytes:
    """What Alertmanager sends for one alert."""
    alert = {
        "status": "firing",
        "labels": {"alertname": "Bench", "instance": f"h{number % HOSTS}", "severity": "info"},
        "annotations": {"summary": "bench"},
        "startsAt": "2026-01-01T00:00:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": f"{number:016x}",
    }
    return orjson.dumps({"version": "4", "groupKey": "{}", "truncatedAlerts": 0, "alerts": [alert]})
