"""What a hostile command tries from inside a container, in each sandbox."""

from __future__ import annotations

import os
import pty
import stat
from pathlib import Path

import pytest

from hermesd.control.sandbox.base import DEFAULT_OUTPUT_BYTES, Job, Mount, Profile

pytestmark = pytest.mark.slow

CALL = """
import _ctypes
class L(_ctypes._SimpleCData): _type_ = "l"
class F(_ctypes.CFuncPtr): _flags_ = 9; _restype_ = L
libc = _ctypes.dlopen(None, 0)
def call(name, *args):
    result = F(_ctypes.dlsym(libc, name))(*(L(a) if isinstance(a, int) else a for a in args))
    return getattr(result, "value", result), _ctypes.get_errno()
"""


async def test_no_key_is_pushed_into_a_terminal_with_whatever_high_bits(execute, python):
    program = (
        CALL
        + """
for request in (0x5412, 0x541C, 0x100005412, 0xdead00005412):
    print(call("ioctl", 0, request, b"x")[1])
"""
    )
    _, ended = await execute(Job(python(program)))
    assert ended.stdout.decode().splitlines() == ["1"] * 4, ended.stderr  # EPERM, not ENOTTY


async def test_no_program_of_usr_gives_more_rights_though_it_is_setuid(execute):
    folders = (Path("/usr/bin"), Path("/usr/sbin"))
    setuid = {
        path.name
        for folder in folders
        for path in folder.iterdir()
        if not path.is_symlink() and path.is_file() and path.stat().st_mode & stat.S_ISUID
    }
    assert {"su", "mount"} <= setuid
    for argv in (
        (b"/usr/bin/su", b"-c", b"id -u"),
        (b"/usr/bin/mount", b"-t", b"tmpfs", b"none", b"/tmp"),
        (b"/usr/bin/newgrp", b"root"),
    ):
        _, ended = await execute(Job(argv))
        assert ended.exit_status != 0, argv
        assert ended.stdout.strip() != b"0"
    _, status = await execute(Job((b"/usr/bin/grep", b"NoNewPrivs", b"/proc/self/status")))
    assert status.stdout.split() == [b"NoNewPrivs:", b"1"]


async def test_no_user_namespace_can_be_made_inside(execute):
    for argv in (b"-Ur", b"-U"), (b"-m", b"-m"), (b"-n", b"-n"):
        _, ended = await execute(Job((b"/usr/bin/unshare", *argv, b"/usr/bin/id", b"-u")))
        assert ended.exit_status != 0
        assert ended.stdout == b""


async def test_files_without_number_end_the_command_and_cost_the_host_little(execute, python):
    program = """
import os
n = 0
while n < 2_000_000:
    os.close(os.open(f"/tmp/{n}", os.O_CREAT | os.O_WRONLY)); n += 1
print("unbounded")
"""
    _, ended = await execute(Job(python(program)), Profile(tmp_mb=2))
    assert not ended.timed_out
    assert ended.exit_status != 0
    assert b"unbounded" not in ended.stdout
    assert ended.ms < 5_000
    program = "import os\nfor n in range(1000): os.close(os.open(f'/tmp/{n}', os.O_CREAT))\nprint('done')"
    _, modest = await execute(Job(python(program)))
    assert modest.stdout == b"done\n"


async def test_a_flood_of_output_is_cut_at_its_bound_and_the_next_command_runs(execute, python):
    program = "import os\nfor _ in range(144): os.write(1, b'x' * 1_000_000)"  # and not one line's end
    _, ended = await execute(Job(python(program), timeout_ms=10_000))
    assert ended.truncated
    assert len(ended.stdout) <= DEFAULT_OUTPUT_BYTES
    assert set(ended.stdout) == {ord("x")}
    _, next_one = await execute(Job((b"/usr/bin/echo", b"here")))
    assert next_one.stdout == b"here\n"


async def test_no_socket_or_state_of_the_host_is_there(execute, python, root):
    program = """
import os
for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock",
             "/run/podman/podman.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
             "/var/lib/hermesd", "/var/lib/hermesd-executor", "/run/hermesd", "/etc/hermesd",
             "/root", "/home"):
    try: print(path, os.listdir(path) if os.path.isdir(path) else os.stat(path))
    except OSError: continue
"""
    _, ended = await execute(Job(python(program)), Profile(mounts=(Mount(str(root)),)))
    assert (ended.exit_status, ended.stdout) == (0, b""), ended.stderr


async def test_a_terminal_that_its_owner_has_is_not_the_commands(execute, python):
    ours, theirs = pty.openpty()
    try:
        program = "import os\ntry: print(os.open('/dev/tty', os.O_RDWR))\nexcept OSError as e: print('none')"
        _, ended = await execute(Job(python(program)))
        program = "import os\nprint([os.isatty(n) for n in (0, 1, 2)])"
        _, streams = await execute(Job(python(program)))
    finally:
        os.close(ours)
        os.close(theirs)
    assert ended.stdout == b"none\n"
    assert streams.stdout == b"[False, False, False]\n"
