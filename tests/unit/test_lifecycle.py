"""A life in one process: parts leave in reverse and in time, reloads keep what was in force."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hermesd.lifecycle import Lifecycle, Notifier, StoppedEarly, watchdog_seconds


@asynccontextmanager
async def part(name, told, leave_seconds=0.0):
    told.append(f"{name} entered")
    try:
        yield name
    finally:
        await asyncio.sleep(leave_seconds)
        told.append(f"{name} left")


async def live_and_break(only_part):
    async with Lifecycle() as life:
        await life.enter("part", only_part)
        raise LookupError("broken")


@pytest.fixture
def systemd() -> Iterator[socket.socket]:
    """A notification socket as systemd's, named by NOTIFY_SOCKET as the package reads it."""
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        path = Path(folder) / "notify"
        manager.bind(str(path))
        manager.setblocking(False)
        os.environ["NOTIFY_SOCKET"] = str(path)
        yield manager
        del os.environ["NOTIFY_SOCKET"]


def heard(manager):
    lines = []
    with suppress(BlockingIOError):
        while True:
            lines += manager.recv(4096).decode().splitlines()
    return lines


async def test_parts_are_left_in_the_reverse_order_of_their_entering():
    told = []
    async with Lifecycle() as life:
        assert await life.enter("store", part("store", told)) == "store"
        await life.enter("sources", part("sources", told))
        life.request_stop("enough")
        assert await life.stop_requested() == "enough"
    assert told == ["store entered", "sources entered", "sources left", "store left"]


async def test_a_part_that_does_not_leave_is_cut_off_and_the_others_still_leave():
    told = []
    began = asyncio.get_running_loop().time()
    async with Lifecycle(stop_seconds=0.2) as life:
        await life.enter("store", part("store", told))
        await life.enter("stuck", part("stuck", told, leave_seconds=60))
    assert told[-1] == "store left"
    assert "stuck left" not in told
    assert asyncio.get_running_loop().time() - began < 5


async def test_a_part_of_the_past_does_not_eat_the_time_of_the_next_one():
    told = []
    async with Lifecycle(stop_seconds=0.1) as life:
        await life.enter("store", part("store", told, leave_seconds=0.1))
        await life.enter("stuck", part("stuck", told, leave_seconds=60))
    assert "store left" in told


async def test_a_stop_that_comes_while_a_part_is_being_entered_ends_the_entering():
    told = []

    @asynccontextmanager
    async def slow():
        await asyncio.sleep(60)
        yield

    async with Lifecycle() as life:
        await life.enter("store", part("store", told))
        asyncio.get_running_loop().call_later(0.01, life.request_stop, "SIGTERM")
        await life.enter("slow", slow())
        told.append("never")
    assert told == ["store entered", "store left"]


async def test_no_part_is_entered_once_a_stop_was_asked_for():
    life = Lifecycle()
    async with life:
        life.request_stop("early")
        with pytest.raises(StoppedEarly, match="early"):
            await life.enter("late", part("late", []))


async def test_what_a_part_raises_goes_through_after_all_parts_have_left():
    told = []
    with pytest.raises(LookupError, match="broken"):
        await live_and_break(part("store", told))
    assert told == ["store entered", "store left"]


async def test_a_part_sees_the_error_that_ends_the_life():
    seen = []

    class Witness:
        async def __aenter__(self):
            return self

        async def __aexit__(self, kind, error, trace):
            seen.append(kind)

    with pytest.raises(LookupError):
        await live_and_break(Witness())
    assert seen == [LookupError]


async def test_a_reload_that_fails_is_told_and_the_process_goes_on(systemd):
    async def broken() -> str:
        raise ValueError("rules/x.toml:3: no\nrules/y.toml:1: no")

    async with Lifecycle() as life:
        life.on_reload(broken)
        await life.reload()
        await life.reload()
        life.request_stop("enough")
    lines = heard(systemd)
    assert lines.count("RELOADING=1") == 2
    assert lines.count("STATUS=reload refused, the old configuration stays") == 2


async def test_a_reload_that_hangs_is_bounded():
    async def hanging() -> str:
        await asyncio.sleep(60)
        return "never"

    async with Lifecycle(reload_seconds=0.02) as life:
        life.on_reload(hanging)
        async with asyncio.timeout(5):
            await life.reload()


async def test_ready_is_said_when_asked_and_never_before(systemd):
    async with Lifecycle() as life:
        await asyncio.sleep(0.01)
        assert heard(systemd) == []
        life.ready("watching 3 sources")
        assert heard(systemd) == ["READY=1", "STATUS=watching 3 sources"]
    assert heard(systemd)[0] == "STOPPING=1"


async def test_a_status_in_any_script_arrives_as_utf_8_on_one_line(systemd):
    async with Lifecycle() as life:
        life.status("磁盘\nREADY=1")
        assert heard(systemd) == ["STATUS=磁盘\\nREADY=1"]


def test_without_a_notification_socket_nothing_is_sent_and_nothing_breaks():
    notifier = Notifier({})
    notifier.tell("READY=1")
    notifier.close()


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_for_this_process_only_and_only_when_it_is_asked_for(environ, seconds):
    assert watchdog_seconds(environ, pid=7) == seconds
