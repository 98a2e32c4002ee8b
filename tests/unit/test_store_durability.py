"""What was said to be written is there after kill -9, and a full disk is told and survived."""

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from hermesd.state.settings import read_setting, write_setting
from hermesd.state.store import StoreError, open_store

WRITER = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from hermesd.events import Event
from hermesd.state.events import insert_event
from hermesd.state.store import open_store

async def main() -> None:
    store = open_store(Path(sys.argv[1]))
    now = datetime.now(UTC)

    async def one(number: int) -> None:
        event = Event(id=f"{sys.argv[2]}-{number}", source="s", type="t", time=now, text="x" * 200)
        await store.write(lambda connection: insert_event(connection, event, now))
        sys.stdout.write(event.id + "\\n")
        sys.stdout.flush()

    number = 0
    while True:
        await asyncio.gather(*(one(number + k) for k in range(1 + number % 7)))
        number += 7

asyncio.run(main())
"""


@pytest.mark.slow
def test_every_event_that_was_confirmed_is_there_after_kill_9(tmp_path):
    path, confirmed, chance = tmp_path / "state.db", set(), random.Random(7)
    for generation in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(generation)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.4))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
        writer.wait()
        writer.stdout.close()
        confirmed |= {line.decode() for line in (first + rest).split(b"\n")[:-1]}
    open_store(path).close()
    found = sqlite3.connect(path)
    kept = {row[0] for row in found.execute("SELECT id FROM events")}
    assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found.close()
    assert len(confirmed) > 100
    assert confirmed <= kept


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False).returncode != 0:
        if os.environ.get("CI") == "true":
            pytest.fail("a small tmpfs cannot be mounted here")
        pytest.skip("a small tmpfs cannot be mounted here: it needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(fd, b"\0" * 4096):
            pass
    os.close(fd)


async def test_on_a_full_disk_every_waiting_writer_is_told_and_nothing_pretends_to_be_durable(small_disk):
    store = open_store(small_disk / "state.db")

    def put(number):
        def work(connection):
            write_setting(connection, f"n{number}", "x" * 20_000)
            return number

        return work

    endings = []
    for batch in range(20):
        works = (store.write(put(batch * 10 + k)) for k in range(10))
        endings += await asyncio.gather(*works, return_exceptions=True)
    failures = [ending for ending in endings if isinstance(ending, BaseException)]
    assert failures
    assert all(isinstance(failure, StoreError) for failure in failures)

    def names(connection):
        return {row[0] for row in connection.execute("SELECT name FROM settings")}

    told = {f"n{ending}" for ending in endings if isinstance(ending, int)}
    assert told
    assert await store.read(names) == told
    store.close()
    again = open_store(small_disk / "state.db")
    assert await again.read(names) == told
    again.close()


async def test_once_there_is_room_again_the_store_goes_on(small_disk):
    store = open_store(small_disk / "state.db")
    ballast = small_disk / "ballast"
    fill(ballast)
    with pytest.raises(StoreError):
        await store.write(lambda connection: write_setting(connection, "a", "x" * 200_000))
    ballast.unlink()
    await store.write(lambda connection: write_setting(connection, "b", 1))
    assert await store.read(lambda connection: read_setting(connection, "b")) == 1
    assert await store.read(lambda connection: read_setting(connection, "a")) is None
    store.close()
