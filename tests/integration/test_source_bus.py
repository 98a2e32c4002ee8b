"""The bus's client against a real dbus-daemon that has no systemd, against silence, and against nothing."""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hermesd.sources.bus import BusFailed, SystemBus

pytestmark = pytest.mark.slow

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path={path}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_type="method_return"/>
<allow receive_type="error"/><allow receive_type="signal"/><allow user="*"/></policy></busconfig>
"""


@pytest.fixture
def daemon(tmp_path, needs):
    """A dbus-daemon of the test's own, on which no service is known."""
    program = shutil.which("dbus-daemon")
    needs(program, "dbus-daemon (Debian package dbus)")
    path = tmp_path / "bus"
    (tmp_path / "bus.conf").write_text(CONFIG.format(path=path))
    with subprocess.Popen(
        [program, "--nofork", f"--config-file={tmp_path}/bus.conf"], stderr=subprocess.DEVNULL
    ) as process:
        end = time.monotonic() + 10
        while not path.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        yield f"unix:path={path}", process
        process.terminate()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def said(bus):
    """Return the words of the failure to list units."""
    with pytest.raises(BusFailed) as failed:
        async with bus as connected:
            await connected.units()
    return str(failed.value)


async def test_a_bus_without_systemd_is_said_in_words_and_no_connection_is_left_behind(daemon):
    address, _process = daemon
    await said(SystemBus(address))
    before = descriptors()
    for _ in range(10):
        assert (await said(SystemBus(address))).startswith("systemd refused ListUnitsByPatterns: The name")
    await asyncio.sleep(0.1)
    assert descriptors() <= before + 1


async def test_a_bus_that_is_not_there_is_said_in_words(tmp_path):
    words = await said(SystemBus(f"unix:path={tmp_path}/none"))
    assert words == "the system bus cannot be reached: [Errno 2] No such file or directory"
    assert "cannot be reached" in await said(SystemBus("nonsense"))


async def test_a_bus_that_accepts_and_stays_silent_is_left_in_time_and_holds_no_descriptor(tmp_path):
    held = []
    server = await asyncio.start_unix_server(lambda *pair: held.append(pair), tmp_path / "silent")
    async with server:
        before, began = descriptors(), time.monotonic()
        for _ in range(3):
            bus = SystemBus(f"unix:path={tmp_path}/silent", answer_s=0.2)
            assert await said(bus) == "the system bus cannot be reached: nothing came within 0.2 s"
        assert time.monotonic() - began < 3
        await asyncio.sleep(0.1)
        for _reader, writer in held:
            writer.close()
        await asyncio.sleep(0.1)
        assert descriptors() <= before + 1


async def test_a_bus_that_hangs_while_it_is_asked_is_left_in_time(daemon):
    address, process = daemon
    async with SystemBus(address, answer_s=0.3) as bus:
        process.send_signal(19)
        try:
            with pytest.raises(BusFailed, match="nothing came within"):
                await bus.units()
        finally:
            process.send_signal(18)


def test_nothing_of_the_bus_is_loaded_where_no_unit_is_asked_for():
    script = "import sys, hermesd.app; print('dbus_fast' in sys.modules, 'dns' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False False"
