"""The agent's ears through the real daemon: a disk that turns read-only, and a sender that falls silent."""

import asyncio
import os
import socket
import subprocess
import urllib.request

import pytest

pytestmark = pytest.mark.slow


def run(*argv):
    subprocess.run(argv, check=True, capture_output=True)


async def titles(pair, status="open"):
    found = (await pair.agent("incidents", all=True, limit=50))["incidents"]
    return {one["rule"] for one in found if one["status"] == status}


async def until_open(pair, *rules, seconds=20.0):
    async def look():
        return await titles(pair) == set(rules) or None

    await pair.until(look, seconds)


@pytest.fixture
def disk(pair, needs):
    """A tmpfs of 20 MB that the agent may look into."""
    needs(os.geteuid() == 0, "root")
    place = pair.folder / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20m,mode=755", "hermesd-test", place]
    done = subprocess.run(mount, capture_output=True, check=False)
    needs(done.returncode == 0, f"the right to mount: {done.stderr.decode().strip()}")
    yield place
    run("umount", place)


async def test_a_full_disk_that_turns_read_only_is_two_incidents_and_each_ends_by_itself(pair, disk):
    off = "".join(
        f"[{one}]\nenabled = false\n"
        for one in ("memory", "swap", "load", "cpu", "pressure", "descriptors", "oom", "temperature")
    )
    pair.write(
        "sources/host.toml",
        f'kind = "host"\ninterval_s = 0.3\n[filesystems]\nonly = ["{disk}"]\n{off}',
    )
    (disk / "filler").write_bytes(b"x" * 18_000_000)
    await pair.start()
    await until_open(pair, "disk-full")
    await asyncio.to_thread(run, "mount", "-o", "remount,ro", disk)
    await until_open(pair, "disk-full", "read-only")
    await asyncio.sleep(1.0)
    assert await titles(pair) == {"disk-full", "read-only"}
    await asyncio.to_thread(run, "mount", "-o", "remount,rw", disk)
    await until_open(pair, "disk-full")
    (disk / "filler").unlink()
    await until_open(pair)
    assert await titles(pair, "resolved") == {"disk-full", "read-only"}


def post(port):
    body = b'{"type": "plant.beat", "status": "resolved"}'
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/events", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.status


async def test_a_silent_sender_is_one_incident_over_a_killed_agent_and_ends_with_its_next_word(
    pair,
):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    pair.write(
        "sources/webhook.toml",
        f'kind = "webhook"\nname = "plant"\nport = {port}\n[[expect]]\nevery_s = 1\ngrace_s = 1\n',
    )
    await pair.start()
    await until_open(pair, "source-silent")
    await pair.kill("agent")
    await pair.start("agent")
    await asyncio.sleep(3.0)
    found = (await pair.agent("incidents", all=True, limit=50))["incidents"]
    assert [(one["rule"], one["labels"]["series"], one["events"]) for one in found] == [
        ("source-silent", "plant", 1)
    ]

    async def heard():
        assert await asyncio.to_thread(post, port) == 202
        return "source-silent" in await titles(pair, "resolved") or None

    await pair.until(heard, 20)
