"""What every sandbox promises about a job: its paths, its output, its end."""

# ruff: noqa: ASYNC220, ASYNC221 - a test may wait for a program that it starts

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from hermesd.control.sandbox.base import (
    GRACE_SECONDS,
    Job,
    Mount,
    PathRefused,
    PathUse,
    Profile,
    SandboxError,
)

pytestmark = pytest.mark.slow

MARK = b"hermesd-contract-marker"
SWAP = """
import os
while True:
    for step in ("real", "spare"), ("link", "real"), ("real", "link"), ("spare", "real"):
        os.rename(*step)
"""
LINGER = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
while True: time.sleep(60)
"""


async def refusal(sandbox, root, beneath):
    container = await sandbox.start(Profile(mounts=(Mount(str(root)),)))
    try:
        with pytest.raises(PathRefused) as refused:
            await container.resolve(
                Job((b"/usr/bin/true",), (PathUse(str(root)), PathUse(str(root), beneath)))
            )
    finally:
        await container.destroy()
    assert refused.value.index == 1
    return refused.value.reason


async def test_a_link_is_refused_at_the_end_and_in_the_middle(sandbox, root):
    (root / "folder").mkdir()
    (root / "folder/file").write_text("x")
    (root / "end").symlink_to("folder/file")
    (root / "middle").symlink_to("folder")
    (root / "out").symlink_to("/etc/passwd")

    assert await refusal(sandbox, root, b"end") == "is a link"
    assert await refusal(sandbox, root, b"middle/file") == "leads through a link"
    assert await refusal(sandbox, root, b"out") == "is a link"


async def test_nothing_leads_out_of_a_root(sandbox, root):
    (root / "folder").mkdir()
    (root.parent / "outside").write_text("x")

    assert "leads out" in await refusal(sandbox, root, b"../outside")
    assert "leads out" in await refusal(sandbox, root, b"folder/../../outside")
    assert await refusal(sandbox, root, b"missing") == "does not exist"
    container = await sandbox.start(Profile(mounts=(Mount(str(root)),)))
    try:
        with pytest.raises(SandboxError, match="relative"):
            await container.resolve(Job((b"/usr/bin/true",), (PathUse(str(root), b"/etc/passwd"),)))
    finally:
        await container.destroy()


async def test_neither_a_pipe_nor_a_socket_nor_a_device_is_opened(sandbox, root):
    os.mkfifo(root / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(root / "socket"))
    server.close()

    assert "neither a folder nor a regular file" in await refusal(sandbox, root, b"pipe")
    assert "neither a folder nor a regular file" in await refusal(sandbox, root, b"socket")
    if os.geteuid() == 0:
        os.mknod(root / "device", 0o20666, os.makedev(1, 5))
        assert "neither a folder nor a regular file" in await refusal(sandbox, root, b"device")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
async def test_another_mount_is_not_entered(sandbox, root):
    inner = root / "inner"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", inner], check=True)
    (inner / "file").write_text("x")
    try:
        reason = await refusal(sandbox, root, b"inner/file")
    finally:
        subprocess.run(["umount", inner], check=True)
    assert reason in ("leads out of its root or into another mount", "does not exist")


async def test_what_was_resolved_is_what_runs_whatever_its_name_leads_to_by_then(sandbox, root, readable):
    (root / "file").write_text("shown to the person")
    (root / "other").write_text("swapped in")
    container = await sandbox.start(readable)
    try:
        await container.resolve(Job((b"/usr/bin/cat", 0), (PathUse(str(root), b"file"),)))
        (root / "other").rename(root / "file")
        ended = await container.run()
    finally:
        await container.destroy()

    assert ended.stdout == b"shown to the person"


async def test_a_race_of_renames_never_leads_through_a_link(execute, root, readable):
    (root / "real").mkdir()
    (root / "real/file").write_text("right")
    (root / "link").symlink_to("/etc")
    swapping = subprocess.Popen(
        [
            *(sys.executable, "-c", SWAP),
        ],
        cwd=root,
    )
    outcomes = set()
    try:
        for _ in range(25):
            try:
                _, ended = await execute(
                    Job((b"/usr/bin/cat", 0), (PathUse(str(root), b"real/file"),)), readable
                )
                outcomes.add(ended.stdout)
            except PathRefused as refused:
                outcomes.add(refused.reason)
    finally:
        swapping.kill()
        swapping.wait()

    assert outcomes <= {b"right", "leads through a link", "does not exist"}


async def test_names_are_bytes_of_any_kind(execute, root, readable):
    for name in (b"bad\xff\xfe", b"new\nline", b"-rf", b" ", b"\xe4\xbd\xa0"):
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(name)
        _, ended = await execute(Job((b"/usr/bin/cat", 0), (PathUse(str(root), name),)), readable)
        assert ended.stdout == name


async def test_arguments_arrive_as_they_are(execute):
    elements = (b"", b"a b", b"$HOME", b"*", b"\xff", b"a\nb", b"--")
    _, ended = await execute(Job((b"/usr/bin/printf", b"[%s]", *elements)))

    assert ended.stdout == b"".join(b"[" + element + b"]" for element in elements)


async def test_a_tool_runs_on_the_descriptor_of_its_path(execute, root, readable):
    (root / "big").write_bytes(b"x" * 5000)
    _, ended = await execute(Job((0, b"1"), (PathUse(str(root)),), tool="fs_largest"), readable)

    assert ended.exit_status == 0, ended.stderr
    assert b'"path": "big", "size_bytes": 5000' in ended.stdout


async def test_a_database_is_looked_into_in_a_container_and_cannot_be_changed(
    execute, root, readable, own_all
):
    connection = sqlite3.connect(root / "app.db")
    connection.executescript("CREATE TABLE jobs (name TEXT); INSERT INTO jobs VALUES ('backup')")
    connection.close()
    own_all(root)
    use = (PathUse(str(root), b"app.db"),)
    _, found = await execute(Job((0, b"10", b"SELECT name FROM jobs"), use, tool="sqlite_query"), readable)
    _, refused = await execute(Job((0, b"10", b"DELETE FROM jobs"), use, tool="sqlite_query"), readable)

    assert (found.exit_status, found.stdout) == (0, b'{"name": "backup"}\n'), found.stderr
    assert (refused.exit_status, refused.stdout) == (1, b"")
    assert b"only reading is allowed" in refused.stderr
    assert [path.name for path in root.iterdir()] == ["app.db"]


async def test_a_previewed_cleanup_removes_what_it_listed_and_no_more(execute, root, own_all):
    for name in ("cache/a", "cache/b", "keep"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"x" * 5000)
    own_all(root)
    arguments = (b"caches", b"0")
    listing = Job((0, *arguments), (PathUse(str(root)),), tool="fs_targets")
    _, listed = await execute(listing, Profile(mounts=(Mount(str(root)),)))
    removal = Job((0, *arguments), (PathUse(str(root)),), tool="fs_remove", stdin=listed.stdout)
    _, refused = await execute(removal, Profile(mounts=(Mount(str(root)),)))
    _, removed = await execute(removal, Profile(mounts=(Mount(str(root), "rw"),)))
    _, again = await execute(removal, Profile(mounts=(Mount(str(root), "rw"),)))

    assert listed.stdout.count(b"\0") == 2
    assert (refused.exit_status, b"read-only" in refused.stderr) == (1, True)
    assert (removed.exit_status, b'"files_removed": 2' in removed.stdout) == (0, True), removed.stderr
    assert again.exit_status == 3
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["keep"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a second file system")
async def test_what_is_set_aside_on_another_file_system_is_put_back_as_it_was(execute, root, place, own_all):
    (root / "cache").mkdir()
    names = (b"new\nline", b"not\xffutf8", b"plain")
    for number, name in enumerate(names):
        path = root / "cache" / os.fsdecode(name)
        path.write_bytes(os.urandom(5000 + number))
        path.chmod(0o604)
        os.utime(path, ns=(10**18 + 1, 10**18 + number))
    own_all(root)
    before = {path.name: (path.read_bytes(), path.stat()) for path in (root / "cache").iterdir()}
    spare = place / "spare"
    spare.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=1733", "hermesd-test", spare], check=True)
    try:
        ro, rw = (
            Profile(mounts=(Mount(str(root), mode), Mount(str(spare), mode)), memory_mb=128)
            for mode in ("ro", "rw")
        )
        beneath = (PathUse(str(spare), b"op-1"), PathUse(str(root)))
        listing = Job((0, b"caches", b"0"), (PathUse(str(root)),), tool="fs_targets")
        _, listed = await execute(listing, ro)
        aside = (0, 1, b"op-1", b"1000000", b"9")
        uses = (PathUse(str(root)), PathUse(str(spare)))
        _, removed = await execute(Job(aside, uses, tool="fs_set_aside", stdin=listed.stdout), rw)
        left = list((root / "cache").iterdir())
        _, shown = await execute(Job((0, 1), beneath, tool="fs_restorable"), ro)
        _, restored = await execute(Job((0, 1, b"9"), beneath, tool="fs_restore", stdin=shown.stdout), rw)
    finally:
        subprocess.run(["umount", "--lazy", spare], check=True)

    assert (removed.exit_status, b'"files_removed": 3' in removed.stdout) == (0, True), removed.stderr
    assert left == []
    assert (restored.exit_status, b'"files_restored": 3' in restored.stdout) == (0, True), restored.stderr
    after = {path.name: (path.read_bytes(), path.stat()) for path in (root / "cache").iterdir()}
    for name, (content, status) in before.items():
        same = after[name][1]
        assert after[name][0] == content
        assert (same.st_mode, same.st_mtime_ns, same.st_uid) == (
            *(status.st_mode, status.st_mtime_ns),
            status.st_uid,
        )


async def test_exit_statuses_are_the_commands_own(execute, python):
    _, ended = await execute(Job(python("import sys; sys.stderr.write('why'); sys.exit(3)")))
    assert (ended.exit_status, ended.stdout, ended.stderr) == (3, b"", b"why")

    _, ended = await execute(Job(python("import os; os.kill(os.getpid(), 9)")))
    assert ended.exit_status == 128 + 9

    _, ended = await execute(Job((b"/usr/bin/there-is-no-such-program",)))
    assert ended.exit_status == 127
    assert b"cannot run" in ended.stderr


async def test_standard_input_of_any_size_reaches_the_command_whole(execute):
    data = os.urandom(1 << 16) * 80
    _, ended = await execute(Job((b"/usr/bin/sha256sum",), stdin=data))
    expected = subprocess.run(["sha256sum"], input=data, capture_output=True, check=True).stdout

    assert ended.stdout == expected


async def test_a_command_that_ignores_its_input_still_ends(execute):
    _, ended = await execute(Job((b"/usr/bin/true",), stdin=b"x" * (4 << 20)))

    assert ended.exit_status == 0


async def test_output_is_bounded_and_its_writer_ended(execute):
    _, ended = await execute(Job((b"/usr/bin/cat", b"/dev/zero"), output_bytes=100_000))

    assert ended.truncated
    assert ended.exit_status is None
    assert ended.stdout == bytes(100_000)
    assert ended.ms < 2000


async def test_output_of_exactly_the_bound_is_not_cut(execute):
    _, ended = await execute(Job((b"/usr/bin/head", b"-c", b"100000", b"/dev/zero"), output_bytes=100_000))

    assert (ended.exit_status, ended.truncated, len(ended.stdout)) == (0, False, 100_000)


async def test_what_was_written_before_the_end_is_kept_when_the_deadline_comes(execute, python):
    program = "import sys, time; print('before', flush=True); time.sleep(60)"
    _, ended = await execute(Job(python(program), timeout_ms=400))

    assert (ended.timed_out, ended.exit_status, ended.stdout) == (True, None, b"before\n")


async def test_a_child_that_ignores_its_end_is_gone_with_the_deadline(execute, python, alive):
    began = time.monotonic()
    _, ended = await execute(Job(python(LINGER, MARK), timeout_ms=300))
    spent = time.monotonic() - began

    assert ended.timed_out
    assert ended.exit_status is None
    assert spent < 0.3 + GRACE_SECONDS + 1  # starting it is part of this
    assert alive(MARK.decode()) == []


async def test_nothing_is_left_when_the_command_ends_before_its_children(execute, python, alive):
    program = "import os\nif os.fork() == 0:\n os.setsid()\n while True: pass\n"
    _, ended = await execute(Job(python(program, MARK)))

    assert ended.exit_status == 0
    assert alive(MARK.decode()) == []


async def test_with_shared_process_ids_nothing_is_left_either(execute, python, alive):
    _, ended = await execute(Job(python(LINGER, MARK), timeout_ms=300), Profile(host_pid=True))

    assert ended.timed_out
    assert alive(MARK.decode()) == []


async def test_a_container_can_be_ended_in_every_state_and_more_than_once(sandbox, python, alive):
    fresh = await sandbox.start(Profile())
    await asyncio.gather(fresh.destroy(), fresh.destroy())
    await fresh.destroy()

    resolved = await sandbox.start(Profile())
    await resolved.resolve(Job((b"/usr/bin/true",)))
    await resolved.destroy()

    running = await sandbox.start(Profile())
    await running.resolve(Job(python(LINGER, MARK)))
    run = asyncio.create_task(running.run())
    while not alive(MARK.decode()):
        await asyncio.sleep(0.01)
    await running.destroy()
    with pytest.raises(SandboxError):
        await run
    assert alive(MARK.decode()) == []


async def test_a_container_takes_one_job(sandbox):
    container = await sandbox.start(Profile())
    with pytest.raises(SandboxError):
        await container.run()
    await container.destroy()
    container = await sandbox.start(Profile())
    try:
        await container.resolve(Job((b"/usr/bin/true",)))
        await container.run()
        with pytest.raises(SandboxError):
            await container.resolve(Job((b"/usr/bin/true",)))
    finally:
        await container.destroy()


async def test_a_run_that_is_cancelled_leaves_nothing_behind(sandbox, python, alive):
    container = await sandbox.start(Profile())
    await container.resolve(Job(python(LINGER, MARK)))
    run = asyncio.create_task(container.run())
    while not alive(MARK.decode()):
        await asyncio.sleep(0.01)
    run.cancel()
    await asyncio.wait([run])
    await container.destroy()

    assert alive(MARK.decode()) == []


OWNER = """
import asyncio, sys
from hermesd.control.sandbox.base import Job, Profile
from hermesd.control.sandbox.bubblewrap import Bubblewrap
from hermesd.control.sandbox.docker import Docker
from hermesd.control.sandbox.pool import Pool

async def main(kind, socket, uid, program, mark, state):
    run_as = (uid, uid) if uid else None
    sandbox = Docker([socket], run_as=run_as) if kind == "docker" else Bubblewrap(run_as=run_as)
    sandbox = Pool(sandbox) if kind == "pool" else sandbox
    container = await sandbox.start(Profile(host_pid=state == "shared"))
    inner = getattr(container, "_inner", container)
    print(inner.inner_pid, flush=True)
    if state == "waiting":
        await asyncio.sleep(60)
    await container.resolve(Job((b"/usr/bin/python3", b"-I", b"-S", b"-c", program.encode(), mark.encode())))
    await container.run()

kind, socket, uid, program, mark, state = sys.argv[1:]
asyncio.run(main(kind, socket, int(uid), program, mark, state))
"""


def _runs(pid: int) -> bool:
    """Say whether the process runs. One that ended and that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("state", ["waiting", "running", "shared"])
async def test_when_its_owner_is_killed_a_container_goes_too(make, alive, state):
    uid = "64801" if os.geteuid() == 0 else "0"
    arguments = [make.kind, make.socket, uid, LINGER, MARK.decode(), state]
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), *arguments], stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    stub = int(owner.stdout.readline())
    if state != "waiting":
        while len(alive(MARK.decode())) < 3:  # the owner itself, the command, and its child
            await asyncio.sleep(0.02)
    owner.kill()
    owner.wait()
    owner.stdout.close()

    until = time.monotonic() + GRACE_SECONDS
    while (alive(MARK.decode()) or _runs(stub)) and time.monotonic() < until:
        await asyncio.sleep(0.02)
    assert alive(MARK.decode()) == []
    assert not _runs(stub)


async def test_a_later_life_ends_what_this_instance_left_and_nothing_else(make):
    former, other, later = make("one"), make("two"), make("one")
    left, foreign, own = [await life.start(Profile()) for life in (former, other, later)]
    try:
        assert await later.reap() == 1
        with pytest.raises(SandboxError):
            await getattr(left, "_inner", left).resolve(Job((b"/usr/bin/true",)))
        for container in (foreign, own):
            await container.resolve(Job((b"/usr/bin/true",)))
            assert (await container.run()).exit_status == 0
        assert await later.reap() == 0
    finally:
        for container in (left, foreign, own):
            await container.destroy()
        for life in (former, other, later):
            await life.close()
