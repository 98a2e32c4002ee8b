"""Setting aside and putting back, by the tools themselves: on real folders, killed at any moment."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.control.tools import fs_restore
from hermesd.control.tools.kept_file import Kept, read_kept, write_kept

RUN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from importlib import import_module;"
    "sys.exit(import_module('tools.' + sys.argv[2]).main(sys.argv[3:]))"
)
TOOLS = str(Path(__file__).parents[3] / "hermesd" / "control")
SIZES = (0, 1, 4096, 100_000, 3 << 20)


class House:
    """A root with files, and a quarantine beside it."""

    def __init__(self, folder):
        self.root, self.quarantine = folder / "root", folder / "quarantine"
        for path in (self.root / "a" / "cache", self.quarantine):
            path.mkdir(parents=True)

    def fill(self, files=12):
        made = {}
        for number in range(files):
            path = self.root / "a" / "cache" / os.fsdecode(b"\xff\n%d" % number)
            content = os.urandom(SIZES[number % len(SIZES)])
            path.write_bytes(content)
            os.utime(path, ns=(10**18 + number, 10**18 + number))
            made[path.name] = content
        return made

    def start(self, tool, *paths, arguments=(), stdin=b""):
        """Start a tool as a process of its own, on descriptors of these folders."""
        fds = [os.open(path, os.O_RDONLY) for path in paths]
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", RUN, TOOLS, tool, *map(str, fds), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=fds,
            )
        finally:
            for fd in fds:
                os.close(fd)
        process.stdin.write(stdin)
        process.stdin.close()
        return process

    def run(self, tool, *paths, arguments=(), stdin=b""):
        process = self.start(tool, *paths, arguments=arguments, stdin=stdin)
        output, complaint = process.stdout.read(), process.stderr.read()
        process.stdout.close()
        process.stderr.close()
        return process.wait(), output, complaint.decode()

    def targets(self):
        return self.run("fs_targets", self.root, arguments=("caches", "0"))[1]

    def set_aside(self, name="op-1", most=1 << 30, seconds=30):
        arguments = (name, str(most), str(seconds))
        return self.run("fs_set_aside", self.root, self.quarantine, arguments=arguments, stdin=self.targets())

    def restore(self, name="op-1", seconds=30):
        listed = self.run("fs_restorable", self.quarantine / name, self.root)[1]
        return self.run(
            "fs_restore", self.quarantine / name, self.root, arguments=(str(seconds),), stdin=listed
        )

    def now(self):
        return {path.name: path.read_bytes() for path in (self.root / "a" / "cache").iterdir()}


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


def kill_after(process, seconds):
    """kill -9, as the machine's worst day does it; True when it was still running."""
    time.sleep(seconds)
    running = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()
    return running


def test_what_is_set_aside_and_put_back_is_the_same_to_the_byte(house):
    before = house.fill()
    status, output, complaint = house.set_aside()
    assert (status, complaint) == (0, "")
    assert b'"files_removed": 12, "files_skipped": 0' in output
    assert house.now() == {}
    status, output, complaint = house.restore()
    assert (status, complaint) == (0, "")
    assert b'"files_restored": 12, "files_skipped": 0' in output
    assert house.now() == before
    assert list((house.quarantine / "op-1").iterdir()) == []


def test_what_is_over_the_bound_stays_where_it_is(house):
    before = house.fill()
    status, output, _complaint = house.set_aside(most=110_000)
    assert status == 0
    left = house.now()
    assert all(before[name] == content for name, content in left.items())
    assert sum(map(len, before.values())) - sum(map(len, left.values())) <= 110_000
    assert b"the quarantine has no room for it" in output


def test_without_time_nothing_is_removed_that_was_not_copied(house):
    before = house.fill()
    status, _output, complaint = house.set_aside(seconds=0)
    assert status == 0 or "no time left" in complaint
    empty = {name for name, content in before.items() if not content}  # they take none
    assert house.now() == {name: content for name, content in before.items() if name not in empty}


def test_a_folder_that_somebody_laid_there_before_stops_it_before_the_first_effect(house):
    before = house.fill()
    (house.quarantine / "op-1").mkdir()
    status, _output, complaint = house.set_aside()
    assert status == 4
    assert complaint == "nothing was removed: the quarantine cannot be written: file exists\n"
    assert house.now() == before


def test_a_changed_file_stops_it_before_the_first_effect(house):
    before = house.fill()
    manifest = house.targets()
    name = sorted(before)[3]
    (house.root / "a" / "cache" / name).write_bytes(b"changed")
    arguments = ("op-1", "1000000000", "30")
    status, _output, _complaint = house.run(
        "fs_set_aside", house.root, house.quarantine, arguments=arguments, stdin=manifest
    )
    assert status == 3
    assert house.now() == {**before, name: b"changed"}
    assert list(house.quarantine.iterdir()) == []


def test_a_damaged_copy_is_not_put_back(house):
    house.fill(files=3)
    house.set_aside()
    for copy in (house.quarantine / "op-1").glob("[0-9]"):
        data = copy.read_bytes()
        if len(data) == 4096:
            copy.write_bytes(bytes(4096))
    status, output, _complaint = house.restore()
    assert status == 0
    assert b'"files_restored": 2, "files_skipped": 1' in output
    assert b"its copy is damaged" in output
    assert len(house.now()) == 2


def test_a_file_that_appears_after_the_list_was_confirmed_is_not_overwritten(house):
    before = house.fill(files=3)
    house.set_aside()
    listed = house.run("fs_restorable", house.quarantine / "op-1", house.root)[1]
    name = sorted(before)[1]
    (house.root / "a" / "cache" / name).symlink_to("/nowhere")
    status, output, _complaint = house.run(
        "fs_restore", house.quarantine / "op-1", house.root, arguments=("30",), stdin=listed
    )
    assert status == 0
    assert b'"files_restored": 2, "files_skipped": 1' in output
    assert b'"reason": "a file is there"' in output
    assert (house.root / "a" / "cache" / name).readlink() == Path("/nowhere")


@pytest.mark.slow
def test_a_folder_that_is_swapped_for_a_link_while_files_come_back_leads_nowhere(house, tmp_path):
    before = house.fill(files=60)
    elsewhere, aside, cache = tmp_path / "elsewhere", house.root / "aside", house.root / "a" / "cache"
    elsewhere.mkdir()
    swaps = 0
    house.set_aside()
    for _ in range(20):
        listed = house.run("fs_restorable", house.quarantine / "op-1", house.root)[1]
        process = house.start(
            "fs_restore", house.quarantine / "op-1", house.root, arguments=("30",), stdin=listed
        )
        while process.poll() is None:
            cache.rename(aside)
            cache.symlink_to(elsewhere)
            cache.unlink()
            aside.rename(cache)
            swaps += 1
        process.stdout.close()
        process.stderr.close()
        assert list(elsewhere.iterdir()) == []
        if not (house.quarantine / "op-1" / "record").exists():
            break
        assert {**_copies(house), **house.now()} == before
    if (house.quarantine / "op-1" / "record").exists():
        house.restore()
    assert house.now() == before
    assert swaps > 100


@pytest.mark.parametrize("nameless", [True, False])
def test_a_whole_file_gets_its_name_only_if_nothing_has_it(tmp_path, nameless):
    kept = Kept((1, 0o100640, 0, 0, 0, 0, 0), "", b"a")
    place = os.open(tmp_path, os.O_RDONLY)
    make = fs_restore._nameless if nameless else fs_restore.with_temporary_name
    target, temporary = make(place, kept)
    os.write(target, b"whole")
    (tmp_path / "taken").write_bytes(b"there")
    with pytest.raises(OSError, match="a file is there"):
        fs_restore.give_name(target, temporary, place, b"taken")
    fs_restore.give_name(target, temporary, place, b"free")
    os.close(target)
    os.close(place)
    assert bool(temporary) is not nameless
    assert (tmp_path / "taken").read_bytes() == b"there"
    assert (tmp_path / "free").read_bytes() == b"whole"


def test_a_folder_that_others_may_read_is_not_restored_from(house):
    house.fill(files=3)
    house.set_aside()
    (house.quarantine / "op-1").chmod(0o755)
    status, output, complaint = house.run("fs_restorable", house.quarantine / "op-1", house.root)
    assert (status, output) == (1, b"")
    assert "belongs to another user" in complaint


def test_a_sparse_file_stays_sparse_on_both_ways(house):
    path = house.root / "a" / "cache" / "sparse"
    with path.open("wb") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"in the middle")
    os.utime(path, (1e9, 1e9))
    before = path.read_bytes()
    house.set_aside()
    assert (house.quarantine / "op-1" / "1").stat().st_blocks * 512 < 4 << 20
    house.restore()
    assert path.stat().st_blocks * 512 < 4 << 20
    assert path.read_bytes() == before


@pytest.mark.slow
def test_killed_at_any_moment_each_file_is_in_at_least_one_place_and_comes_back(tmp_path):
    moments = random.Random(20261204)
    killed = 0
    for round_no in range(60):
        house = House(tmp_path / str(round_no))
        before = house.fill()
        manifest = house.targets()
        arguments = ("op-1", str(1 << 30), "30")
        process = house.start(
            "fs_set_aside", house.root, house.quarantine, arguments=arguments, stdin=manifest
        )
        killed += kill_after(process, moments.uniform(0.02, 0.16))
        if not (house.quarantine / "op-1" / "record").exists():
            assert house.now() == before  # it was killed before it began
            continue
        whole = {**_copies(house), **house.now()}
        assert whole == before
        listed = house.run("fs_restorable", house.quarantine / "op-1", house.root)[1]
        process = house.start(
            "fs_restore", house.quarantine / "op-1", house.root, arguments=("30",), stdin=listed
        )
        killed += kill_after(process, moments.uniform(0.02, 0.12))
        if (house.quarantine / "op-1" / "record").exists():
            assert {**_copies(house), **house.now()} == before
            house.restore()
        assert house.now() == before
    assert killed >= 30


def _copies(house):
    """What the quarantine holds, by name, as its record says."""
    folder = house.quarantine / "op-1"
    return {
        os.fsdecode(kept.path).rpartition("/")[2]: (folder / kept.name).read_bytes()
        for kept in read_kept((folder / "record").read_bytes())
        if (folder / kept.name).exists() and (folder / kept.name).stat().st_size == kept.size
    }


paths = st.binary(min_size=1, max_size=60).filter(lambda path: b"\0" not in path)
numbers = st.tuples(*(st.integers(min_value=0, max_value=2**63),) * 5, *(st.integers(-(2**63), 2**63),) * 2)


@given(st.lists(st.tuples(numbers, paths), max_size=5), st.integers(min_value=0, max_value=200))
def test_a_record_gives_back_every_entry_that_was_written_whole(entries, torn):
    whole = [write_kept(Kept(figures, "ab" * 32, path)) for figures, path in entries]
    data = b"".join(whole) + b"7 8 9 torn in the middle"[:torn]
    found = [(kept.numbers, kept.path) for kept in read_kept(data)]
    assert found == entries
