"""The zygote and its workers, for real: forked, hung, killed, and measured against the system's own tools."""

import asyncio
import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermesd.sources import facts
from hermesd.sources.base import SourceFailed, SourceHalted
from hermesd.sources.host import HostSource
from hermesd.sources.mounts import Mount
from hermesd.sources.probe import Probe
from hermesd.sources.settings_host import Filesystems, Folder, HostSettings, Level
from hermesd.sources.zygote import start_zygote

OFF = {
    name: Level(enabled=False)
    for name, field in HostSettings.model_fields.items()
    if field.annotation is Level
}


def hang(folder):
    """Return a measure in which `hang…` hangs while a file says so, and anything else answers."""

    def measure(name, _seconds):
        if name.startswith("hang"):
            if (folder / "pids").is_dir():
                (folder / "pids" / str(os.getpid())).touch()
            while (folder / name).exists():
                time.sleep(0.01)
        if name == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if name == "die":
            os._exit(1)
        return {"pid": os.getpid()}

    return measure


@pytest.fixture
def started():
    zygotes = []

    def start(measure=facts.measure):
        zygotes.append(start_zygote(measure))
        return zygotes[-1]

    yield start
    for zygote in zygotes:
        zygote.stop()


def child_of(pid):
    """Return the only child of a process, once it has one: the zygote of a keeper."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: children.read_text().split())
    (child,) = children.read_text().split()
    return int(child)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


def output_of(*argv):
    return subprocess.run(argv, capture_output=True, check=True, text=True).stdout


async def measure(probe, names, seconds):
    return {answer.name: answer for answer in await probe.measure(names, seconds)}


async def test_memory_swap_and_load_are_measured_in_another_process(started):
    found = await measure(Probe(started()), ["memory", "swap", "load"], 5)
    assert 0 < found["memory"].facts["percent"] < 100
    assert found["load"].facts["processors"] == os.cpu_count()
    assert set(found["swap"].facts) >= {"size_bytes", "percent"}


async def test_a_folder_is_counted_as_du_counts_it(started, tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "big").write_bytes(b"x" * 300_000)
    (inner / "linked twice").hardlink_to(inner / "big")
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(10_000_000)
    (tmp_path / "link out").symlink_to("/usr")
    found = await measure(Probe(started()), [f"folder:{tmp_path}"], 5)
    du = output_of("du", "-sx", "--block-size=1", tmp_path)
    assert found[f"folder:{tmp_path}"].facts["used_bytes"] == int(du.split()[0])


def test_a_walk_stops_at_its_bounds_and_says_so(tmp_path):
    for number in range(600):
        (tmp_path / str(number)).touch()
    assert facts.folder(str(tmp_path), 5)["complete"]
    assert not facts.folder(str(tmp_path), 5, most_entries=599)["complete"]
    assert not facts.folder(str(tmp_path), -1)["complete"]


async def test_a_path_that_is_not_there_is_an_error_in_words(started):
    found = await measure(Probe(started()), ["filesystem:/no/such/place", "nonsense"], 5)
    assert found["filesystem:/no/such/place"].error == "No such file or directory"
    assert found["nonsense"].error == "there is no such measure"


@pytest.mark.parametrize("how", ["hang", "stop"])
async def test_a_probe_that_hangs_is_killed_and_the_rest_still_comes(started, tmp_path, how):
    (tmp_path / "hang").touch()
    probe = Probe(started(hang(tmp_path)))
    began = time.monotonic()
    found = await measure(probe, ["a", how, "b", "c"], 0.3)
    assert time.monotonic() - began < 3
    assert [found[name].stuck for name in ("a", how, "b", "c")] == [False, True, False, False]
    assert found["b"].facts
    probe.close()


async def test_a_stuck_probe_costs_the_next_rounds_no_time_and_never_more_than_one_worker(started, tmp_path):
    (tmp_path / "pids").mkdir()
    (tmp_path / "hang").touch()
    probe = Probe(started(hang(tmp_path)))
    await measure(probe, ["a", "hang"], 0.4)
    async with asyncio.timeout(10):
        while len(list((tmp_path / "pids").iterdir())) < 3:
            began = time.monotonic()
            found = await measure(probe, ["a", "hang"], 0.4)
            assert time.monotonic() - began < 0.35
            assert [found["a"].stuck, found["hang"].stuck] == [False, True]
            alive = [one.name for one in (tmp_path / "pids").iterdir() if is_alive(one.name)]
            assert len(alive) <= 1
            await asyncio.sleep(0.02)
    probe.close()


async def test_a_stuck_probe_is_read_again_once_it_answers(started, tmp_path):
    (tmp_path / "hang").touch()
    probe = Probe(started(hang(tmp_path)))
    assert (await measure(probe, ["hang"], 0.2))["hang"].stuck
    (tmp_path / "hang").unlink()
    async with asyncio.timeout(5):
        while (found := (await measure(probe, ["hang"], 0.2))["hang"]).stuck:
            await asyncio.sleep(0.02)
    assert found.facts["pid"] > 0


async def test_a_worker_that_dies_costs_its_own_name_only(started, tmp_path):
    found = await measure(Probe(started(hang(tmp_path))), ["a", "die", "b"], 5)
    assert found["die"].error == "the probe ended without an answer"
    assert found["b"].facts


async def test_an_asker_that_is_cancelled_leaves_no_worker_behind(started, tmp_path):
    (tmp_path / "pids").mkdir()
    (tmp_path / "hang").touch()
    probe = Probe(started(hang(tmp_path)))
    task = asyncio.create_task(probe.measure(["hang"], 60))
    while not list((tmp_path / "pids").iterdir()):
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    (worker,) = [one.name for one in (tmp_path / "pids").iterdir()]
    await asyncio.to_thread(wait_until, lambda: not is_alive(worker))


async def test_a_zygote_that_was_killed_is_there_again_and_asked_meanwhile_answers_late(started, tmp_path):
    (tmp_path / "hang").touch()
    zygote = started(hang(tmp_path))
    probe = Probe(zygote)
    assert (await measure(probe, ["hang"], 0.2))["hang"].stuck
    first = child_of(zygote.pid)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_alive(first))
    assert (await measure(probe, ["a"], 5))["a"].facts["pid"] > 0
    assert child_of(zygote.pid) != first
    (tmp_path / "hang").unlink()
    async with asyncio.timeout(5):
        while (await measure(probe, ["hang"], 0.5))["hang"].stuck:
            await asyncio.sleep(0.02)


async def test_a_zygote_that_dies_while_it_is_asked_costs_that_round_only(started, tmp_path):
    (tmp_path / "pids").mkdir()
    (tmp_path / "hang").touch()
    zygote = started(hang(tmp_path))
    probe = Probe(zygote)
    task = asyncio.create_task(probe.measure(["hang", "b"], 60))
    while not list((tmp_path / "pids").iterdir()):
        await asyncio.sleep(0.01)
    os.kill(child_of(zygote.pid), signal.SIGKILL)
    found = {answer.name: answer for answer in await asyncio.wait_for(task, 10)}
    assert found["hang"].error == "the probe ended without an answer"
    assert found["b"].facts


async def test_a_keeper_that_is_gone_takes_its_zygote_along_and_is_said_in_words(started):
    zygote = started()
    child = child_of(zygote.pid)
    os.kill(zygote.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(zygote.pid))
    wait_until(lambda: not is_alive(child))
    with pytest.raises(SourceHalted, match="needs a restart"):
        await Probe(zygote).measure(["memory"], 5)


async def test_a_zygote_that_does_not_take_requests_is_no_reason_to_give_up(started):
    zygote = started()
    probe, child = Probe(zygote), child_of(zygote.pid)

    def fill():
        for number in range(5000):
            probe._send({"number": number}, [])

    os.kill(child, signal.SIGSTOP)
    try:
        with pytest.raises(SourceFailed, match="no more requests") as failed:
            fill()
        assert not isinstance(failed.value, SourceHalted)
    finally:
        os.kill(child, signal.SIGCONT)
    async with asyncio.timeout(10):
        while True:
            try:
                found = await measure(Probe(zygote), ["memory"], 5)
                break
            except SourceFailed:
                await asyncio.sleep(0.02)
    assert found["memory"].facts


@pytest.mark.parametrize("which", ["keeper", "zygote"])
def test_keeper_and_zygote_hold_one_socket_and_no_environment(started, which):
    zygote = started()
    child = child_of(zygote.pid)
    folder = Path(f"/proc/{zygote.pid if which == 'keeper' else child}")
    wait_until(lambda: len(list((folder / "fd").iterdir())) == 4)
    places = {one.name: str(one.readlink()) for one in (folder / "fd").iterdir()}
    assert [place for place in places.values() if place.startswith("socket:")] == [places["3"]]
    assert {places[number] for number in "012"} == {"/dev/null"}
    wait_until(lambda: not (folder / "environ").read_bytes().strip(b"\0"))


def test_a_zygote_stops_within_its_bound_and_is_reaped(started):
    zygote = started()
    child = child_of(zygote.pid)
    began = time.monotonic()
    zygote.stop()
    assert time.monotonic() - began < 2
    assert not Path(f"/proc/{zygote.pid}").exists()
    assert not is_alive(child)


@pytest.mark.parametrize("zygote_hangs", [False, True])
def test_zygote_and_hung_workers_die_with_an_agent_that_was_killed(tmp_path, zygote_hangs):
    script = f"""
import asyncio, os, sys, time
from hermesd.sources.zygote import start_zygote
def measure(name, seconds):
    open({str(tmp_path / "worker")!r}, "w").write(str(os.getpid()))
    time.sleep(600)
zygote = start_zygote(measure)
from hermesd.sources.probe import Probe
print(zygote.pid, flush=True)
asyncio.run(Probe(zygote).measure(["x"], 600))
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as agent:
        zygote = child_of(int(agent.stdout.readline()))
        wait_until(lambda: (tmp_path / "worker").exists() and (tmp_path / "worker").read_text())
        worker = int((tmp_path / "worker").read_text())
        assert is_alive(zygote)
        assert is_alive(worker)
        if zygote_hangs:
            os.kill(zygote, signal.SIGSTOP)
        agent.kill()
        agent.wait(5)
    wait_until(lambda: not is_alive(zygote))
    wait_until(lambda: not is_alive(worker))


async def test_the_host_source_tells_a_stuck_mount_and_goes_on_with_the_others(started, tmp_path):
    def measure(name, _seconds):
        if name == "filesystem:/dead":
            time.sleep(600)
        return {"size_bytes": 100, "used_bytes": 42, "available_bytes": 58, "percent": 42.0}

    settings = HostSettings(kind="host", name="host", interval_s=0.2, probe_timeout_s=0.3, **OFF)
    mounts = [Mount("/dead", "nas:/x", "nfs4", "0:77"), Mount("/alive", "/dev/x", "ext4", "8:1")]
    source = HostSource(settings, Probe(started(measure)), "web1", mounts=lambda: mounts)
    delivered = []
    stuck = asyncio.Event()

    async def deliver(events):
        delivered.extend(events)
        if any(one.type == "host.probe_stuck" and one.status == "firing" for one in events):
            stuck.set()

    task = asyncio.create_task(source.run(deliver))
    async with asyncio.timeout(10):
        await stuck.wait()
    task.cancel()
    await asyncio.wait({task})
    assert ("host.filesystem", "/alive", 42.0) in [(one.type, one.subject, one.value) for one in delivered]
    assert [one.labels["path"] for one in delivered if one.status == "firing"] == ["/dead"]


async def test_a_watched_folder_needs_no_root_and_its_growth_is_noticed(started, tmp_path):
    settings = HostSettings(
        kind="host",
        name="host",
        interval_s=0.2,
        filesystems=Filesystems(enabled=False),
        **OFF,
        folder=(Folder(path=str(tmp_path), budget_bytes=1_000_000),),
    )
    source = HostSource(settings, Probe(started()), "web1", now=lambda: datetime.now(UTC))
    values = []

    async def deliver(events):
        values.extend(one.value for one in events if one.type == "host.folder")

    task = asyncio.create_task(source.run(deliver))
    async with asyncio.timeout(10):
        while not values:
            await asyncio.sleep(0.01)
        (tmp_path / "log").write_bytes(b"x" * 900_000)
        while len(values) < 2:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    assert values[0] < 10
    assert 90 <= values[-1] < 95


async def test_space_that_is_reserved_for_root_counts_as_df_counts_it(started):
    """The root file system of most machines keeps some; where it keeps none this says little."""
    answer = (await measure(Probe(started()), ["filesystem:/"], 5))["filesystem:/"]
    used, available = map(int, output_of("df", "--output=used,avail", "--block-size=1", "/").split()[2:])
    assert answer.facts["percent"] == pytest.approx(100 * used / (used + available), abs=0.2)


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 20 MB that is nearly full."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "hermesd-test", place], capture_output=True, check=False
    )
    if mounted.returncode and not os.environ.get("CI"):
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.decode().strip()}")
    assert mounted.returncode == 0, mounted.stderr
    yield place
    subprocess.run(["umount", place], check=True)


async def test_a_full_disk_is_measured_as_df_measures_it(started, small_disk):
    (small_disk / "filler").write_bytes(b"x" * 17_500_000)
    settings = HostSettings(
        kind="host",
        name="host",
        filesystems=Filesystems(only=(str(small_disk),)),
        **OFF,
    )
    delivered = []

    async def deliver(events):
        delivered.extend(events)

    await HostSource(settings, Probe(started()), "web1").round(deliver)
    (event,) = [one for one in delivered if one.type == "host.filesystem"]
    df = output_of("df", "--output=pcent,used,avail", "--block-size=1", small_disk)
    percent, used, available = df.splitlines()[1].split()
    exact = 100 * int(used) / (int(used) + int(available))
    assert event.value == pytest.approx(exact)
    assert -(-event.value // 1) == int(percent.rstrip("%"))
    assert event.labels["path"] == str(small_disk)
    assert event.labels["fstype"] == "tmpfs"
    assert event.value > 80


async def test_a_full_disk_that_turns_read_only_stays_full_and_says_both(started, small_disk):
    (small_disk / "filler").write_bytes(b"x" * 17_500_000)
    settings = HostSettings(
        kind="host",
        name="host",
        refresh_s=0.2,
        filesystems=Filesystems(only=(str(small_disk),)),
        **OFF,
    )
    told = []

    async def deliver(events):
        told.append({one.type: (one.status.value, one.value) for one in events})

    source = HostSource(settings, Probe(started()), "web1")
    await source.round(deliver)
    output_of("mount", "-o", "remount,ro", small_disk)
    await asyncio.sleep(0.3)
    await source.round(deliver)
    output_of("mount", "-o", "remount,rw", small_disk)
    await source.round(deliver)
    full = told[0]["host.filesystem"]
    assert full[1] > 80
    assert [one.get("host.read_only") for one in told] == [("reading", 0), ("reading", 1), ("reading", 0)]
    assert told[1]["host.filesystem"] == full
    assert "resolved" not in [status for one in told[1:] for status, _value in one.values()]


async def test_inodes_are_counted_as_df_counts_them(started, small_disk):
    output_of("mount", "-o", "remount,nr_inodes=40", small_disk)
    for number in range(25):
        (small_disk / str(number)).touch()
    found = (await measure(Probe(started()), [f"filesystem:{small_disk}"], 5))[f"filesystem:{small_disk}"]
    total, free = output_of("df", "--output=itotal,iavail", small_disk).split()[-2:]
    assert (found.facts["inodes"], found.facts["inodes_free"]) == (int(total), int(free)) == (40, 14)


async def test_a_processor_that_works_is_seen_between_two_measurements(started):
    probe = Probe(started())
    before = (await measure(probe, ["cpu"], 5))["cpu"].facts
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    after = (await measure(probe, ["cpu"], 5))["cpu"].facts
    ticks = 0.3 * os.sysconf("SC_CLK_TCK")
    assert after["busy"] - before["busy"] >= 0.8 * ticks
    assert after["total"] - before["total"] >= after["busy"] - before["busy"]


@pytest.fixture
def forty_zombies():
    children = [os.posix_spawn("/usr/bin/true", ["true"], {}) for _ in range(40)]
    wait_until(lambda: not any(map(is_alive, children)))
    yield
    for child in children:
        os.waitpid(child, 0)


@pytest.mark.usefixtures("forty_zombies")
async def test_zombies_are_counted_and_their_parent_is_named(started):
    found = (await measure(Probe(started()), ["zombies"], 5))["zombies"].facts
    assert found["count"] >= 40  # others have some of their own
    assert (found["parent_pid"], found["of_parent"]) == (os.getpid(), 40)


async def test_descriptors_of_the_whole_host_are_counted(started):
    probe = Probe(started())
    before = (await measure(probe, ["descriptors"], 5))["descriptors"].facts
    with contextlib.ExitStack() as held:
        for _ in range(800):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        after = (await measure(probe, ["descriptors"], 5))["descriptors"].facts
    assert after["used"] - before["used"] > 400  # the kernel counts by processor, and adds up later
    assert after["most"] == int(Path("/proc/sys/fs/file-max").read_text())


async def test_pressure_and_oom_kills_are_what_the_kernel_writes(started):
    found = await measure(Probe(started()), ["pressure", "oom"], 5)
    kills = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())["oom_kill"]
    assert found["oom"].facts == {"kills": int(kills)}
    assert {"memory_full", "io_some", "cpu_some"} <= set(found["pressure"].facts)
    assert all(0 <= share <= 100 for share in found["pressure"].facts.values())


async def test_the_clock_is_read_as_the_kernel_lays_it_out(started):
    found = (await measure(Probe(started()), ["clock"], 5))["clock"].facts
    space = ctypes.create_string_buffer(512)
    assert ctypes.CDLL(None).adjtimex(space) >= 0
    _modes, offset, _freq, most, _likely, status = struct.unpack_from("@Iqqqqi", space)
    assert found["kept"] == (not status & 0x40)
    assert found["most_s"] == pytest.approx(most / 1e6, abs=0.1)
    assert found["offset_s"] == pytest.approx(offset / (1e9 if status & 0x2000 else 1e6), abs=0.1)


async def test_a_disk_that_really_fills_says_in_how_many_hours_it_is_full(started, small_disk):
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]
    settings = HostSettings(
        kind="host",
        name="host",
        **{**OFF, "growth": Level(min_change=0)},
        filesystems=Filesystems(only=(str(small_disk),)),
    )
    source = HostSource(settings, Probe(started()), "web1", now=lambda: clock[0])
    told = []

    async def deliver(events):
        told.extend(one for one in events if one.type == "host.full_in")

    for minute in range(13):
        (small_disk / str(minute)).write_bytes(b"x" * 524_288)
        await source.round(deliver)
        clock[0] += timedelta(minutes=1)
    left = int(output_of("df", "--output=avail", "--block-size=1", small_disk).split()[-1])
    assert told[-1].unit == "hours"
    assert told[-1].value == pytest.approx(left / 524_288 / 60, rel=0.05)
