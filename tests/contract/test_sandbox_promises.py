"""What every sandbox promises about a container's walls."""

# ruff: noqa: ASYNC220, ASYNC221 - a test may wait for a program that it starts

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from hermesd.control.sandbox.base import Job, Mount, PathUse, Profile, SandboxError

pytestmark = pytest.mark.slow

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


async def test_each_sandbox_proves_every_promise_of_its_self_test(sandbox):
    test = await sandbox.self_test()

    assert test.usable, test.reason
    assert set(test.promises) == {
        *("uid", "capabilities", "no_new_privileges", "network", "read_only_root"),
        *("environment", "memory", "pids", "deadline"),
    }
    assert set(test.promises.values()) == {""}


async def test_a_command_is_nobody_inside_and_outside(sandbox):
    container = await sandbox.start(Profile())
    inner = getattr(container, "_inner", container)
    try:
        uids = next(
            line.split()[1:]
            for line in Path(f"/proc/{inner.inner_pid}/status").read_text().splitlines()
            if line.startswith("Uid:")
        )
        await container.resolve(Job((b"/usr/bin/id", b"-u")))
        ended = await container.run()
    finally:
        await container.destroy()

    assert "0" not in uids
    assert int(ended.stdout) != 0


async def test_a_command_has_no_capability_and_can_gain_none(execute):
    _, ended = await execute(Job((b"/usr/bin/cat", b"/proc/self/status")))
    status = dict(line.split(":\t", 1) for line in ended.stdout.decode().splitlines() if ":\t" in line)

    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


async def test_a_command_cannot_make_namespaces_mount_or_trace(execute, python):
    program = """
import _ctypes, os
class L(_ctypes._SimpleCData): _type_ = "l"
class F(_ctypes.CFuncPtr): _flags_ = 9; _restype_ = L
libc = _ctypes.dlopen(None, 0)
def call(name, *args):
    result = F(_ctypes.dlsym(libc, name))(*(L(a) if isinstance(a, int) else a for a in args))
    print(name, result, _ctypes.get_errno())
call("unshare", 0x10000000)
call("mount", b"x", b"/tmp", b"tmpfs", 0, 0)
call("ptrace", 0, 0, 0, 0)
call("chroot", b"/tmp")
"""
    _, ended = await execute(Job(python(program)))

    assert ended.stdout.decode().splitlines() == ["unshare -1 1", "mount -1 1", "ptrace -1 1", "chroot -1 1"]


async def test_a_command_has_no_network_and_no_socket(execute, python):
    program = """
import _socket
print([line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]])
for family in (_socket.AF_INET, _socket.AF_INET6, _socket.AF_UNIX, _socket.AF_NETLINK):
    try:
        _socket.socket(family, _socket.SOCK_DGRAM); print("made")
    except OSError as error:
        print(error.errno)
"""
    _, ended = await execute(Job(python(program)))

    assert ended.stdout.decode().splitlines() == ["['lo']", "1", "1", "1", "1"]


async def test_a_service_is_reached_only_through_the_socket_that_was_given(execute, python, place, own_all):
    path = place / "service.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    path.chmod(0o666)
    own_all(place)
    answering = threading.Thread(target=_say_hello, args=(server,), daemon=True)
    answering.start()
    program = """
import _socket, sys
s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM); s.connect(sys.argv[1]); print(s.recv(9))
try: _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
except OSError as error: print(error.errno)
"""
    _, ended = await execute(Job(python(program, str(path).encode())), Profile(files=(str(path),)))
    answering.join(5)
    server.close()

    assert ended.stdout.decode().splitlines() == ["b'hello'", "1"], ended.stderr


async def test_systemctl_would_ask_over_the_bus_and_finds_nothing_of_the_hosts_systemd(execute):
    _, there = await execute(Job((b"/usr/bin/find", b"/run/systemd")))
    assert there.stdout.split() == [b"/run/systemd", b"/run/systemd/system"]


def _say_hello(server):
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"hello")


async def test_nothing_can_be_written_but_the_bounded_tmp(execute, python):
    program = """
import os
for top, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if top != "/" or f not in ("proc", "usr", "sys")]
    for folder in (top, ):
        try:
            fd = os.open(folder + "/x", os.O_WRONLY | os.O_CREAT, 0o600)
            print(folder)
        except OSError:
            pass
for folder in ("/usr", "/usr/bin", "/usr/lib", "/proc", "/proc/sys", "/sys"):
    try: os.open(folder + "/x", os.O_WRONLY | os.O_CREAT, 0o600); print(folder)
    except OSError: pass
try:
    with open("/tmp/big", "wb") as file:
        for _ in range(64): file.write(bytes(1 << 20)); file.flush()
    print("unbounded")
except OSError as error:
    print("full", error.errno in (27, 28))
"""
    _, ended = await execute(Job(python(program)), Profile(tmp_mb=4))

    assert ended.stdout.decode().splitlines() == ["/tmp", "full True"], ended.stderr


async def test_the_environment_holds_nothing_of_ours(execute):
    os.environ["HERMESD_CONTRACT_SECRET"] = "leaked"
    try:
        _, ended = await execute(Job((b"/usr/bin/env",)))
    finally:
        del os.environ["HERMESD_CONTRACT_SECRET"]

    assert sorted(ended.stdout.decode().split()) == [
        *("HOME=/tmp", "LANG=C.UTF-8", "PATH=/usr/bin:/usr/sbin:/bin:/sbin", "TZ=UTC")
    ]


async def test_a_tool_sees_no_secret_in_its_environment_either(execute, root, readable):
    os.environ["HERMESD_CONTRACT_SECRET"] = "leaked"
    try:
        _, ended = await execute(Job((0, b"5"), (PathUse(str(root)),), tool="fs_largest"), readable)
    finally:
        del os.environ["HERMESD_CONTRACT_SECRET"]

    assert ended.exit_status == 0
    assert b"leaked" not in ended.stdout + ended.stderr


async def test_a_command_gets_its_streams_and_its_paths_and_no_other_descriptor(execute, root, readable):
    (root / "a").write_text("a")
    job = Job((b"/usr/bin/ls", b"-l", b"/proc/self/fd"), (PathUse(str(root), b"a"), PathUse(str(root))))
    _, ended = await execute(job, readable)
    links = {line.split()[-3]: line.split()[-1] for line in ended.stdout.decode().splitlines()[1:]}

    assert set(links) == {"0", "1", "2", "3", "4", "5"}  # 5 is the folder that ls reads
    assert links["3"] == f"{root}/a"
    assert links["4"] == str(root)
    assert links["5"].startswith("/proc/")


async def test_a_command_cannot_speak_in_the_stubs_name(execute, python):
    program = """
import os, sys
for path in ("/proc/1/fd/1", "/proc/1/fd/0", "/proc/1/mem", "/proc/1/environ", f"/proc/{os.getppid()}/fd/1"):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try: os.open(path, flags); print("opened", path)
        except OSError: pass
try: print(os.listdir(f"/proc/{os.getppid()}/fd"))
except OSError: pass
sys.stdout.flush()
os.write(1, b"X" + (30).to_bytes(4, "big") + bytes(16) + b"exited 0 1.0")
sys.exit(7)
"""
    _, ended = await execute(Job(python(program)))

    assert ended.exit_status == 7
    assert ended.stdout == b"X" + (30).to_bytes(4, "big") + bytes(16) + b"exited 0 1.0"


async def test_memory_is_bounded(execute, python):
    program = "b = []\nfor _ in range(400): b.append(bytearray(b'x') * (1 << 20))\nprint('filled')"
    _, ended = await execute(Job(python(program)), Profile(memory_mb=64))

    assert ended.exit_status != 0
    assert b"filled" not in ended.stdout


async def test_processes_are_bounded(execute, python):
    program = """
import os, time
n = 0
try:
    while n < 500:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        n += 1
except OSError: pass
print(n)
"""
    _, ended = await execute(Job(python(program)), Profile(pids=16))

    assert 0 < int(ended.stdout) < 16


async def test_a_root_is_writable_only_when_it_is_mounted_so(execute, root, own_all):
    (root / "a").write_text("a")
    own_all(root)
    job = Job((b"/usr/bin/rm", b"-f", b"--", os.fsencode(root / "a")))

    _, refused = await execute(job, Profile(mounts=(Mount(str(root)),)))
    assert refused.exit_status != 0
    assert (root / "a").exists()

    _, done = await execute(job, Profile(mounts=(Mount(str(root), "rw"),)))
    assert done.exit_status == 0
    assert not (root / "a").exists()


async def test_only_the_roots_of_the_profile_are_there(execute, root, readable, place):
    (place / "other").write_text("other")
    _, ended = await execute(Job((b"/usr/bin/cat", os.fsencode(place / "other"), b"/etc/shadow")), readable)

    assert ended.exit_status != 0
    assert ended.stdout == b""


async def test_what_is_masked_is_empty_even_beneath_a_root(execute, python, root, own_all):
    (root / "state").mkdir()
    (root / "state/secret").write_text("secret")
    (root / "other").write_text("other")
    own_all(root)
    program = """
import os, sys
top = sys.argv[1]
for name in ("other", "state/secret"):
    try: print(open(f"{top}/{name}").read())
    except OSError: print("nothing")
for attempt in (lambda: os.listdir(f"{top}/state"), lambda: os.open(f"{top}/state/x", os.O_CREAT)):
    try: print(attempt() or "nothing")
    except OSError: print("nothing")
"""
    for mode in ("ro", "rw"):
        profile = Profile(mounts=(Mount(str(root), mode),), masks=(str(root / "state"),))
        _, ended = await execute(Job(python(program, os.fsencode(root))), profile)
        assert ended.stdout.decode().split() == ["other", "nothing", "nothing", "nothing"], ended.stderr


@pytest.mark.parametrize(
    "path", ["/", "/proc", "/proc/self", "/sys", "/dev", "/run", "/hermes", "/a/../etc", "relative"]
)
async def test_some_folders_are_never_mounted(sandbox, path):
    with pytest.raises(SandboxError, match="cannot be given"):
        await sandbox.start(Profile(mounts=(Mount(path),)))


async def test_a_root_that_is_or_leads_through_a_link_is_not_mounted(sandbox, root, place):
    (root / "inner").mkdir()
    (place / "link").symlink_to(root)

    for path in (place / "link", place / "link/inner"):
        with pytest.raises(SandboxError, match="cannot be given"):
            await sandbox.start(Profile(mounts=(Mount(str(path)),)))


async def test_a_file_that_is_given_is_a_file_or_a_socket(sandbox, root):
    with pytest.raises(SandboxError, match="neither a file nor a socket"):
        await sandbox.start(Profile(files=(str(root),)))


@needs_root
async def test_a_root_with_another_mount_in_it_is_never_writable(sandbox, root):
    inner = root / "inner"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", inner], check=True)
    try:
        with pytest.raises(SandboxError, match="another mount"):
            await sandbox.start(Profile(mounts=(Mount(str(root), "rw"),)))
    finally:
        subprocess.run(["umount", inner], check=True)


@needs_root
async def test_a_read_only_root_is_read_only_through_every_mount_in_it(execute, root):
    inner = root / "inner"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", inner], check=True)
    try:
        job = Job((b"/usr/bin/touch", os.fsencode(inner / "x")))
        _, ended = await execute(job, Profile(mounts=(Mount(str(root)),)))
        assert ended.exit_status != 0
        assert not (inner / "x").exists()
    finally:
        subprocess.run(["umount", inner], check=True)


async def test_with_the_hosts_processes_in_sight_none_can_be_touched(execute, python):
    sleeper = subprocess.Popen(["/usr/bin/sleep", "60"], user=os.geteuid() or 64801)
    program = """
import os, sys
pid = int(sys.argv[1])
print(open(f"/proc/{pid}/comm").read().strip())
for attempt in (lambda: os.kill(pid, 15), lambda: os.kill(pid, 0), lambda: os.setpriority(0, pid, 19),
                lambda: os.sched_setaffinity(pid, {0}), lambda: open(f"/proc/{pid}/environ").read(),
                lambda: os.listdir(f"/proc/{pid}/root")):
    try: attempt(); print("could")
    except OSError: print("could not")
"""
    try:
        _, ended = await execute(Job(python(program, b"%d" % sleeper.pid)), Profile(host_pid=True))
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()

    assert ended.stdout.decode().splitlines() == ["sleep", *["could not"] * 6], ended.stderr


async def test_the_resolved_identity_is_the_hosts_own(execute, root, readable):
    (root / "a").write_text("a")
    job = Job((b"/usr/bin/true",), (PathUse(str(root), b"a"), PathUse(str(root))))
    (file, folder), _ = await execute(job, readable)

    assert (file.dev, file.ino) == ((root / "a").stat().st_dev, (root / "a").stat().st_ino)
    assert stat.S_ISREG(file.mode)
    assert (folder.dev, folder.ino) == (root.stat().st_dev, root.stat().st_ino)
    assert stat.S_ISDIR(folder.mode)


async def test_containers_run_side_by_side(execute):
    jobs = [execute(Job((b"/usr/bin/echo", b"%d" % number))) for number in range(6)]
    ends = await asyncio.gather(*jobs)

    assert sorted(int(ended.stdout) for _, ended in ends) == list(range(6))
