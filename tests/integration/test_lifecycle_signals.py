"""A real process with real signals, watched through a notification socket as systemd would."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

PROCESS = """
import asyncio, sys, time
from contextlib import asynccontextmanager
from hermesd.lifecycle import Lifecycle
from hermesd.telemetry import configure_logging

configure_logging()
mode = sys.argv[1]

@asynccontextmanager
async def slow_to_leave(seconds):
    yield
    await asyncio.sleep(seconds)

async def reload():
    if mode == "bad-reload":
        raise ValueError("rules/disk.toml:3: no such setting")
    return "digest 42"

async def main():
    async with Lifecycle(stop_seconds=float(sys.argv[2])) as life:
        if mode == "slow-leave":
            await life.enter("slow", slow_to_leave(30))
        life.on_reload(reload)
        life.ready("at work")
        if mode == "hung-loop":
            await asyncio.sleep(0.3)
            time.sleep(30)
        if mode == "hung-thread":
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
        print(await life.stop_requested(), flush=True)

asyncio.run(main())
"""


class Process:
    """A process under test and the socket on which it notifies."""

    def __init__(self, folder, mode, stop_seconds=10.0, **environ):
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(f"{folder}/notify")
        self.manager.settimeout(10)
        self.child = subprocess.Popen(
            [sys.executable, "-c", PROCESS, mode, str(stop_seconds)],
            env={**os.environ, "NOTIFY_SOCKET": f"{folder}/notify", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, line):
        """Return the lines of the notification that holds ``line``."""
        while line not in (lines := self.manager.recv(4096).decode().splitlines()):
            pass
        return lines

    def end(self):
        out, err = self.child.communicate(timeout=20)
        return out.split(), err


@pytest.fixture
def start() -> Iterator:
    started = []
    with TemporaryDirectory() as folder:

        def begin(mode, **rest):
            started.append(Process(Path(folder), mode, **rest))
            started[-1].wait_for("READY=1")
            return started[-1]

        yield begin
        for process in started:
            process.child.kill()
            process.child.communicate()
            process.manager.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_stop_ends_the_process_with_status_0_and_says_so(start, number):
    process = start("plain")
    process.child.send_signal(number)
    process.wait_for("STOPPING=1")
    assert process.end()[0] == [number.name]
    assert process.child.returncode == 0


def test_a_second_signal_skips_the_waiting(start):
    process = start("slow-leave")
    began = time.monotonic()
    process.child.send_signal(signal.SIGTERM)
    process.wait_for("STOPPING=1")
    process.child.send_signal(signal.SIGTERM)
    _, err = process.end()
    assert time.monotonic() - began < 5
    assert "not waiting any longer" in err
    assert process.child.returncode == 0


def test_the_budget_ends_a_stop_that_takes_too_long(start):
    process = start("slow-leave", stop_seconds=0.3)
    began = time.monotonic()
    process.child.send_signal(signal.SIGTERM)
    _, err = process.end()
    assert time.monotonic() - began < 5
    assert "slow did not leave in" in err


def test_a_thread_that_never_comes_back_does_not_keep_the_process(start):
    process = start("hung-thread", stop_seconds=0.2)
    process.child.send_signal(signal.SIGTERM)
    _, err = process.end()
    assert "ending without waiting for what hangs" in err
    assert process.child.returncode == 75


def test_a_hangup_reloads_and_tells_what_is_in_force(start):
    process = start("plain")
    process.child.send_signal(signal.SIGHUP)
    assert any(line.startswith("MONOTONIC_USEC=") for line in process.wait_for("RELOADING=1"))
    assert "STATUS=reloaded: digest 42" in process.wait_for("READY=1")


def test_a_hangup_over_a_wrong_file_keeps_the_process_and_names_the_fault(start):
    process = start("bad-reload")
    process.child.send_signal(signal.SIGHUP)
    process.wait_for("STATUS=reload refused, the old configuration stays")
    process.child.send_signal(signal.SIGTERM)
    _, err = process.end()
    assert "rules/disk.toml:3: no such setting" in err
    assert process.child.returncode == 0


def test_the_watchdog_is_fed_while_the_loop_turns(start):
    process = start("plain", WATCHDOG_USEC="300000")
    began = time.monotonic()
    for _ in range(4):
        process.wait_for("WATCHDOG=1")
    assert time.monotonic() - began < 2


def test_the_watchdog_starves_when_the_loop_hangs(start):
    process = start("hung-loop", WATCHDOG_USEC="150000")
    time.sleep(0.8)  # past the hang: what was fed before it lies in the socket
    process.manager.settimeout(0.01)
    with suppress(TimeoutError):
        while True:
            process.wait_for("WATCHDOG=1")
    process.manager.settimeout(1)
    with pytest.raises(TimeoutError):
        process.wait_for("WATCHDOG=1")
    assert process.child.poll() is None
