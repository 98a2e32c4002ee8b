"""The pure parts behind the sandboxes: roots, filters, settings, images, streams, remedies."""

import asyncio
import io
import os
import socket
import tarfile
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.control.sandbox import folders, remedies, seccomp, supply
from hermesd.control.sandbox.base import Ended, Mount, Profile, SandboxError
from hermesd.control.sandbox.cgroups import Groups, delegated
from hermesd.control.sandbox.docker import create_settings
from hermesd.control.sandbox.engine import Engine, EngineError, in_time
from hermesd.control.sandbox.image import image_tag, image_tar
from hermesd.control.sandbox.multiplexed import Multiplexed, read_header
from hermesd.control.sandbox.selftest import PROMISES, read_report

MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 / /srv/app/data rw - tmpfs none rw
31 27 0:31 / /srv/with\\040blank/inner rw - tmpfs none rw
"""


def test_mounts_beneath_a_root_are_found_by_whole_components():
    assert folders.submounts("/srv/app", MOUNTINFO) == ("/srv/app/data",)
    assert folders.submounts("/srv/with blank", MOUNTINFO) == ("/srv/with blank/inner",)
    assert folders.submounts("/srv/ap", MOUNTINFO) == ()
    assert folders.submounts("/srv/app/data", MOUNTINFO) == ()


def test_a_root_with_another_mount_in_it_may_be_read_and_not_written():
    assert folders.root_fault(Mount("/srv/app"), MOUNTINFO) == ""
    assert "/srv/app/data" in folders.root_fault(Mount("/srv/app", "rw"), MOUNTINFO)


@pytest.mark.parametrize(
    "root", ["", "srv", "/", "/srv/", "/srv//x", "/srv/../etc", "/./srv", "/run", "/proc/1", "/dev/shm"]
)
def test_what_is_no_root_has_a_reason(root):
    assert folders.root_fault(Mount(root), MOUNTINFO)


def test_a_link_in_a_roots_path_is_not_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    os.close(folders.open_root(Mount(str(tmp_path / "real")), ""))
    for path in (tmp_path / "link", tmp_path / "link" / "x", tmp_path / "missing"):
        with pytest.raises(SandboxError, match="cannot be given"):
            folders.open_root(Mount(str(path)), "")


def test_a_roots_fingerprint_changes_with_the_folder_behind_its_name(tmp_path):
    root = tmp_path / "root"
    profile = Profile(mounts=(Mount(str(root)),))
    unborn = folders.fingerprint(profile)
    root.mkdir()
    born = folders.fingerprint(profile)
    root.rename(tmp_path / "old")
    root.mkdir()

    assert len({unborn, born, folders.fingerprint(profile)}) == 3


class Machine:
    """Runs a filter as the kernel does: enough of it for the instructions that are used."""

    def __init__(self, program):
        self.steps = [program[at : at + 8] for at in range(0, len(program), 8)]

    def answer(self, number, *args, arch=0xC000003E):
        data = number.to_bytes(4, "little") + arch.to_bytes(4, "little") + bytes(8)
        data += b"".join(arg.to_bytes(8, "little") for arg in (*args, *[0] * (6 - len(args))))
        at = value = 0
        while True:
            step = self.steps[at]
            code, yes, no = int.from_bytes(step[:2], "little"), step[2], step[3]
            operand = int.from_bytes(step[4:], "little")
            at += 1
            if code == 0x20:
                value = int.from_bytes(data[operand : operand + 4], "little")
            elif code == 0x06:
                return operand
            else:
                holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
                at += yes if holds else no


ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def test_the_filter_denies_what_it_names_and_lets_the_rest_pass():
    machine = Machine(seccomp.build_filter(sockets=False, machine="x86_64"))

    assert [machine.answer(number) for number in (0, 1, 59, 257)] == [
        ALLOW
    ] * 4  # read, write, execve, openat
    assert [machine.answer(number) for number in (101, 165, 272, 308, 321)] == [EPERM] * 5
    assert machine.answer(435) == ENOSYS  # clone3: its flags cannot be seen
    assert machine.answer(56, 0x10000000) == EPERM  # a new user namespace
    assert machine.answer(56, 0x11) == ALLOW
    assert machine.answer(16, 0, 0x5412) == machine.answer(16, 0, 0x541C) == EPERM  # the terminal's input
    assert machine.answer(16, 0, 0x5401) == ALLOW
    assert machine.answer(41, 1) == machine.answer(41, 2) == EPERM
    assert machine.answer(53, 1) == ALLOW  # a pair of sockets reaches nobody
    assert machine.answer(0x40000000) == EPERM  # x32
    assert machine.answer(0, arch=0x40000003) == KILL  # i386


def test_with_a_service_in_sight_only_unix_sockets_can_be_made():
    machine = Machine(seccomp.build_filter(sockets=True, machine="x86_64"))

    assert machine.answer(41, 1) == ALLOW
    assert [machine.answer(41, family) for family in (2, 10, 16, 17)] == [EPERM] * 4


def test_the_filter_knows_both_architectures_and_no_other():
    machine = Machine(seccomp.build_filter(sockets=False, machine="aarch64"))

    assert machine.answer(97, arch=0xC00000B7) == EPERM
    assert machine.answer(63, arch=0xC00000B7) == ALLOW
    assert seccomp.build_filter(sockets=False, machine="riscv64") == b""


def test_an_engine_is_told_every_limit():
    profile = Profile(
        mounts=(Mount("/srv", "rw"), Mount("/tmp")), masks=("/srv/own",), groups=(4,), pids=7, memory_mb=50
    )
    settings = create_settings(profile, "sha256:x", (1000, 1000), "one")
    host = settings["HostConfig"]

    assert settings["Image"] == "sha256:x"
    assert settings["User"] == "1000:1000"
    assert settings["Labels"] == {"hermesd.instance": "one"}
    assert (host["NetworkMode"], host["IpcMode"], host["ReadonlyRootfs"], host["AutoRemove"]) == (
        "none",
        "none",
        True,
        True,
    )
    assert (host["CapDrop"], host["SecurityOpt"], host["GroupAdd"]) == (["ALL"], ["no-new-privileges"], ["4"])
    assert (host["PidsLimit"], host["LogConfig"]["Type"]) == (8, "none")
    assert host["Memory"] == host["MemorySwap"] < 100 << 20
    assert "/tmp" not in host["Tmpfs"]
    assert host["Tmpfs"]["/srv/own"].startswith("ro,")
    assert {mount["Target"]: mount["ReadOnly"] for mount in host["Mounts"]} == {
        "/usr": True,
        "/srv": False,
        "/tmp": True,
    }
    assert all(mount["BindOptions"]["NonRecursive"] for mount in host["Mounts"])
    assert not {"Privileged", "CapAdd", "Devices", "PidMode", "Binds"} & set(host)


def test_with_the_hosts_processes_in_sight_an_engines_command_is_nobody():
    assert create_settings(Profile(host_pid=True), "x", (1000, 1000), "")["User"] == "65534:65534"


def test_the_image_is_the_same_each_time_and_holds_no_program():
    layer = image_tar(1000, 1000)
    image_tar.cache_clear()
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        entries = {entry.name: entry for entry in tar.getmembers()}

    assert image_tar(1000, 1000) == layer
    assert image_tag(layer) != image_tag(image_tar(1001, 1001))
    assert entries["bin"].linkname == "usr/bin"
    assert not [name for name, entry in entries.items() if entry.isfile() and entry.mode & 0o111]
    assert {name.split("/")[0] for name, entry in entries.items() if entry.isfile()} == {"etc", "hermes"}


def test_containers_get_the_stub_and_every_tool():
    names = {name.rpartition(".")[0] for name in supply.programs()}

    assert {
        "hermes/stub",
        "hermes/tools/__init__",
        "hermes/tools/fs_remove",
        "hermes/tools/self_test",
    } <= names


def test_an_instance_without_a_name_is_never_found_again():
    assert supply.instance_label("one") == supply.instance_label("one") != supply.instance_label("two")
    assert supply.instance_label("") != supply.instance_label("")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("bwrap: Creating new namespace failed: Operation not permitted", "user.max_user_namespaces"),
        ("bwrap: No permissions to create new namespace, likely because ...", "user.max_user_namespaces"),
        ("bwrap: setting up uid map: Permission denied", "user.max_user_namespaces"),
        ("bwrap: execvp /usr/bin/python3: No such file or directory", "apt-get install"),
        ("bwrap: Unexpected capabilities but not setuid, old file caps config?", "AmbientCapabilities"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "network namespace"),
        ("bwrap: something new", "something new"),
        ("", ""),
    ],
)
def test_a_complaint_becomes_a_remedy(said, remedy):
    assert remedy in remedies.explain(said)


def test_a_promise_that_nothing_was_said_about_does_not_hold():
    report = b"".join(name.encode() + b"\t\n" for name in PROMISES if name not in ("memory", "deadline"))
    found = read_report(Ended(1, report, b"Traceback\nBoom", 1.0))

    assert found.pop("memory") == "its check did not finish (Boom)"
    assert set(found.values()) == {""}


@given(st.binary(min_size=8, max_size=8))
def test_any_stream_header_is_read_or_refused(header):
    try:
        stream, length = read_header(header)
    except SandboxError:
        return
    assert stream in (1, 2)
    assert length <= 1 << 20


async def test_an_engines_two_streams_are_told_apart():
    ours, theirs = socket.socketpair()
    link = await Multiplexed.over(ours)

    def piece(stream, data):
        return bytes((stream, 0, 0, 0)) + len(data).to_bytes(4, "big") + data

    theirs.sendall(piece(1, b"ab") + piece(2, b"oops") + piece(1, b"cdef"))
    assert await link.read_exactly(3) == b"abc"
    assert await link.read_exactly(3) == b"def"
    assert link.complaint() == "oops"
    theirs.sendall(b"\x01\x00\x00\x01" + bytes(4))
    with pytest.raises(SandboxError, match="attached stream"):
        await link.read_exactly(1)
    link.close()
    theirs.close()


async def test_a_call_to_an_engine_that_hangs_ends_with_its_clock():
    release = threading.Event()
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"did not answer within 0.05 s \(ping\)"):
        await in_time(lambda: release.wait(5), 0.05, "ping")
    assert time.monotonic() - began < 1
    release.set()
    await asyncio.sleep(0.01)


async def test_what_an_engine_refuses_is_said_in_one_bounded_line():
    def refuse():
        raise ValueError("first\nsecond" + "x" * 1000)

    with pytest.raises(EngineError, match=r"refused \(create\): first$"):
        await in_time(refuse, 1, "create")


def yes(_path):
    return True


def test_a_cgroup_is_used_only_when_it_is_delegated(tmp_path):
    unit = tmp_path / "system.slice/hermesd-executor.service"
    unit.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (unit / "cgroup.controllers").write_text("memory pids\n")
    own = "0::/system.slice/hermesd-executor.service\n"

    assert delegated(tmp_path, own, yes) is None  # nothing there to write to
    (unit / "cgroup.subtree_control").write_text("")
    assert delegated(tmp_path, own, yes) == unit
    assert delegated(tmp_path, own) is None  # a session's own cgroup holds other people's processes
    assert delegated(tmp_path, f"{own.strip()}/executor\n", yes) == unit  # a second life in the same unit
    (unit / "cgroup.controllers").write_text("pids\n")
    assert delegated(tmp_path, own, yes) is None
    assert delegated(tmp_path, "9:memory:/x\n0::/\n", yes) is None


def test_a_container_gets_its_limits_in_a_delegated_cgroup(tmp_path):
    unit = tmp_path / "unit"
    unit.mkdir()
    for name, text in (
        ("cgroup.controllers", "memory pids"),
        ("cgroup.subtree_control", ""),
        ("cgroup.procs", "17\n18\n"),
    ):
        (unit / name).write_text(text)
    (tmp_path / "cgroup.controllers").write_text("memory pids")
    (tmp_path / "own").write_text("0::/unit\n")
    groups = Groups.find(tmp_path, tmp_path / "own", yes)

    assert (unit / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (unit / "executor/cgroup.procs").read_text() == "18"  # each process was moved, one write each
    assert groups.degraded() == ()
    groups.create(4711, Profile(memory_mb=64, tmp_mb=8, pids=32))
    (made,) = unit.glob("container-*")
    assert (made / "memory.max").read_text() == str((64 + 8 + 32) << 20)
    assert (made / "pids.max").read_text() == "33"
    assert (made / "cgroup.procs").read_text() == "4711"


def test_without_a_delegated_cgroup_status_says_what_is_weaker():
    (weaker,) = Groups(None).degraded()

    assert "not for their sum" in weaker
    assert "Delegate=yes" in weaker
    assert Groups(None).create(1, Profile()) is None


@pytest.mark.parametrize(("answer", "gone"), [(b"HTTP/1.1 200 OK", True), (b"HTTP/1.1 403 Forbidden", False)])
async def test_an_engine_is_gone_when_its_stream_ends_and_not_when_it_refuses_one(tmp_path, answer, gone):
    async def serve(_reader, writer):
        writer.write(answer + b"\r\n\r\n")
        await writer.drain()
        writer.close()

    path = str(tmp_path / "engine.sock")
    async with await asyncio.start_unix_server(serve, path):
        watching = asyncio.create_task(Engine(path, None).until_gone())
        done, _ = await asyncio.wait([watching], timeout=2 if gone else 0.2)
        watching.cancel()
        await asyncio.wait([watching])
    assert bool(done) == gone
