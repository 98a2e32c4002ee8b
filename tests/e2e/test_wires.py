"""The wires through both real processes: topics that change, what is told, and how a source stands."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time

import aiomqtt
import pytest

pytestmark = pytest.mark.slow

RULE = """
match = ['type="mqtt.message"']
title = "{machine} says {text}"
group_by = ["machine"]
"""


@contextlib.contextmanager
def broker(folder, needs, port=0):
    """A real mosquitto, on a port of its own unless one is named."""
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    needs(program, "mosquitto")
    with socket.create_server(("127.0.0.1", port)) as found:
        port = found.getsockname()[1]
    (folder / "conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
    process = subprocess.Popen([program, "-c", folder / "conf"], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def listen(pair, port, *filters, **more):
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    topics = "".join(f'[[topic]]\nfilter = "{one}"\n' for one in filters)
    pair.write("sources/mqtt.toml", f'kind = "mqtt"\nport = {port}\n{keys}{topics}')


async def publish(port, topic, **content):
    async with aiomqtt.Client("127.0.0.1", port) as client:
        await client.publish(topic, json.dumps(content), qos=1)


async def next_told(messages, kind):
    """Return the content of the next message under a host's ``kind``."""
    async with asyncio.timeout(20):
        async for message in messages:
            if str(message.topic).split("/")[3] == kind:
                return json.loads(message.payload)
    return None


async def incidents(pair):
    found = (await pair.agent("incidents", all=True))["incidents"]
    return sorted(one["labels"]["machine"] for one in found)


async def test_a_reload_changes_topics_in_the_same_session_and_what_follows_is_published(
    pair, tmp_path, needs
):
    with broker(tmp_path, needs) as port:
        pair.write("rules/plant.toml", RULE + '[run]\nrunbook = "inspect"\ngoal = "Look."\n')
        listen(pair, port, "old/#")
        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe("hermes/v1/#", qos=1)
            await pair.start()
            assert (await next_told(client.messages, "status"))["state"] == "online"
            listen(pair, port, "new/#")
            await pair.agent("reload")
            states = [(await next_told(client.messages, "status"))["state"] for _ in range(2)]
            assert states == ["stopped", "online"]
            await publish(port, "old/x", id="1", machine="press", text="hot")
            await publish(port, "new/x", id="2", machine="lathe", text="hot")
            opened = await next_told(client.messages, "incidents")
            assert (opened["status"], opened["labels"]["machine"]) == ("open", "lathe")
            ended = await next_told(client.messages, "runs")
            assert (ended["incident"], ended["kind"]) == (opened["id"], "event")
            assert ended["outcome"]
        assert await incidents(pair) == ["lathe"]


async def test_a_broker_that_is_away_shows_in_the_status_and_is_found_again(pair, tmp_path, needs):
    pair.write("rules/plant.toml", RULE)
    with broker(tmp_path, needs) as port:
        listen(pair, port, "plant/#")
        await pair.start()

        async def stands(state):
            sources = (await pair.agent("status"))["sources"]
            return [one for one in sources if one["name"] == "mqtt" and one["state"] == state]

        await pair.until(lambda: stands("running"))
    (waiting,) = await pair.until(lambda: stands("waiting"))
    assert f"127.0.0.1:{port}" in waiting["error"]
    with broker(tmp_path, needs, port):
        await pair.until(lambda: stands("running"))
        await publish_until_heard(pair, port)


async def publish_until_heard(pair, port):
    """The broker lost the session with its memory: what is sent before the subscription goes nowhere."""

    async def look():
        await publish(port, "plant/x", id="3", machine="saw", text="loud")
        return await incidents(pair) == ["saw"]

    await pair.until(look)
