"""Undo: when a removal can be undone, where the quarantine may lie, what a restoration may name."""

import asyncio
from datetime import UTC, datetime

import pytest

from hermesd.checking import check_all
from hermesd.confd import ConfigError
from hermesd.control import host
from hermesd.control.binding import Bound, bind
from hermesd.control.host import Room
from hermesd.control.sandbox.base import Ended, PathUse
from hermesd.control.settings import load_policy
from hermesd.control.undo import Kept, QuarantineSettings, why_not, with_undo
from hermesd.protocol import Impact, ResultStatus

MB = 1 << 20
ON = QuarantineSettings(folder="/mnt/kept", keep_h=24, most_mb=10)
HERE, THERE = Room(1, 0, (100, 1)), Room(2, 100 * MB, (200, 50))


def impact(size_bytes=MB, files=1):
    return Impact(files=files, size_bytes=size_bytes, root="/var/cache/app", text="a file")


@pytest.mark.parametrize(
    ("settings", "here", "there", "size", "held", "why"),
    [
        (ON, HERE, THERE, MB, 0, ""),
        (QuarantineSettings(), HERE, THERE, MB, 0, "none"),
        (ON, None, THERE, MB, 0, "missing"),
        (ON, HERE, None, MB, 0, "missing"),
        (ON, HERE, Room(2, 100 * MB, (200, 50), "has a wrong mode"), MB, 0, "missing"),
        (ON, HERE, Room(1, 100 * MB, (200, 50)), MB, 0, "same"),
        (ON, HERE, Room(2, 100 * MB, (100, 1)), MB, 0, "same"),  # two subvolumes of one file system
        (ON, HERE, THERE, 10 * MB, 0, ""),
        (ON, HERE, THERE, 10 * MB + 1, 0, "too_large"),
        (ON, HERE, THERE, MB, 9 * MB, ""),
        (ON, HERE, THERE, MB, 9 * MB + 1, "full"),
        (ON, HERE, Room(2, MB, (200, 50)), MB, 0, "no_room"),
    ],
)
def test_a_removal_can_be_undone_only_where_it_frees_space_and_fits(settings, here, there, size, held, why):
    assert why_not(settings, here, there, impact(size), held) == why


def test_many_small_files_need_more_room_than_their_bytes():
    there = Room(2, 10 * MB, (200, 50))
    assert why_not(ON, HERE, there, impact(1000, files=1000), 0) == ""
    assert why_not(ON, HERE, there, impact(1000, files=2000), 0) == "no_room"


def test_an_impact_says_for_how_long_or_why_not():
    possible = with_undo(impact(), "", 24)
    assert (possible.reversible, possible.undo_h, possible.text) == (
        *(True, 24),
        "a file, can be undone for 24 h",
    )
    assert with_undo(impact(), "none", 24).text == "a file, not reversible"
    full = with_undo(impact(), "full", 24)
    assert (full.reversible, full.undo) == (False, "full")
    assert full.text == "a file, not reversible (the quarantine holds too much from before)"


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("mnt/kept", "not an absolute path"),
        ("/mnt/../kept", "'..'"),
        ("/", "whole file system"),
        ("/run/kept", "never given"),
        ("/etc/kept", "never writable"),
        ("/var/lib/hermesd-executor/kept", "own state"),
        ("/var/lib", "own state"),
        ("/srv/data", "lie in one another"),
        ("/srv/data/kept", "lie in one another"),
        ("/srv", "lie in one another"),
        ("/mnt", "readable root /mnt/look lies in it"),
    ],
)
def test_a_quarantine_that_a_command_could_reach_is_refused_with_its_line(tmp_path, folder, words):
    (tmp_path / "permissions.toml").write_text(
        '[reach]\nreadable_roots = ["/mnt/look"]\nwritable_roots = ["/srv/data"]\n'
        f'[quarantine]\nkeep_h = 24\nfolder = "{folder}"\n'
    )
    with pytest.raises(ConfigError) as error:
        load_policy([tmp_path])
    (fault,) = error.value.faults
    assert str(fault).startswith(f"{tmp_path}/permissions.toml:6: quarantine.folder: ")
    assert words in str(fault)


def configured(house, folder="/mnt/kept"):
    overlay = house.layers[-1] / "permissions.toml"
    overlay.write_text(f'{overlay.read_text()}[quarantine]\nfolder = "{folder}"\nkeep_h = 24\n')
    return load_policy(house.layers)


def kept_in(house, folder="/mnt/kept"):
    when = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
    return Kept(
        operation="op-t1.1.0.1",
        folder=folder,
        root=str(house.data),
        files=2,
        size_bytes=1500,
        set_aside_at=when,
        until=when,
    )


def test_a_restoration_goes_where_its_operation_was_and_nowhere_else(house):
    policy = configured(house)
    request = house.request("fs:restore", operation="op-t1.1.0.1")
    bound = bind(policy, request, host, {"op-t1.1.0.1": kept_in(house)}.get)
    assert isinstance(bound, Bound), bound
    assert bound.values["path"] == str(house.data)
    assert bound.job.paths == (PathUse("/mnt/kept", b"op-t1.1.0.1"), PathUse(str(house.data)))
    assert {mount.root: mount.mode for mount in bound.profile.mounts} == {
        "/mnt/kept": "rw",
        str(house.data): "rw",
    }
    assert bound.confirmations(0) == 1


@pytest.mark.parametrize(
    ("args", "folder", "field"),
    [
        ({"operation": "op-t1.1.0.1", "path": "/tmp"}, "/mnt/kept", "path"),
        ({"operation": "op-t9.9.9.9"}, "/mnt/kept", "operation"),
        ({"operation": "../t1.1.0.1"}, "/mnt/kept", "operation"),
        ({"operation": "op-t1.1.0.1"}, "/mnt/before", "operation"),
        ({}, "/mnt/kept", "operation"),
    ],
)
def test_a_restoration_of_something_else_is_refused(house, args, folder, field):
    policy = configured(house)
    request = house.request("fs:restore", **args)
    rejected = bind(policy, request, host, {"op-t1.1.0.1": kept_in(house, folder)}.get)
    assert {item.field for item in rejected} == {field}


def test_what_was_removed_from_a_folder_that_is_no_longer_writable_is_not_put_back(house):
    policy = configured(house)
    kept = kept_in(house).model_copy(update={"root": "/var/cache/other"})
    request = house.request("fs:restore", operation="op-t1.1.0.1")
    (rejection,) = bind(policy, request, host, {"op-t1.1.0.1": kept}.get)
    assert rejection.field == "path"


async def approved(gate, request, uid=4711):
    task = asyncio.create_task(gate.run(request, lambda _p: None))
    while not (waiting := await gate.pending()):
        await asyncio.sleep(0.01)
    _operation, preview, minted = await gate.show(waiting[0].id, uid)
    result = await gate.redeem(waiting[0].id, uid, minted.token, minted.second_word)
    await task
    return preview, result


@pytest.fixture
def spare(house, tmp_path):
    """A quarantine that the host says lies on another file system; only its numbers are made up."""
    folder = tmp_path / "kept"
    folder.mkdir()
    folder.chmod(0o1733)
    configured(house, folder)
    return folder


async def test_on_one_file_system_nothing_is_set_aside_and_the_plain_removal_runs(house, spare):
    async with house.open() as gate:
        preview, result = await approved(gate, house.cleanup())
        assert gate.quarantine.all() == []
    assert (preview.impact.reversible, preview.impact.undo) == (False, "same")
    assert result.status is ResultStatus.SUCCEEDED
    assert house.sandbox.ran[-1][0] == "fs_remove"


async def test_a_way_back_that_is_denied_is_none(house, spare):
    overlay = house.layers[-1] / "permissions.toml"
    overlay.write_text(f'denied_commands = ["fs:restore"]\n{overlay.read_text()}')
    async with house.open() as gate:
        preview, _result = await approved(gate, house.cleanup())
    assert preview.impact.undo == "denied"


async def test_the_ledger_forgets_nothing_that_is_kept_and_lets_go_only_after_its_time(house, spare):
    house.sandbox.answers["fs_remove"] = Ended(0, b"", b"", 1.0)
    kept = kept_in(house, str(spare)).model_copy(update={"until": house.clock()})
    inner = spare / kept.operation
    async with house.open() as gate:
        await gate.quarantine._keep(kept)
    inner.mkdir()
    (inner / "1").write_bytes(b"x")
    house.clock.forward(seconds=-1)
    async with house.open() as gate:
        assert gate.quarantine.held_bytes == 1500
        await gate.expire()
        assert gate.quarantine.find(kept.operation) == kept
        assert (inner / "1").exists()
        house.clock.forward(seconds=1)
        await gate.expire()
        assert gate.quarantine.all() == []
    assert not inner.exists()


async def test_what_cannot_be_removed_stays_known_and_counts(house, spare):
    kept = kept_in(house, str(spare)).model_copy(update={"until": house.clock()})
    (spare / kept.operation / "folder").mkdir(parents=True)  # it is not ours to remove a tree
    async with house.open() as gate:
        await gate.quarantine._keep(kept)
        await gate.expire()
        assert gate.quarantine.all() == [kept]


@pytest.mark.parametrize(
    ("mode", "uid", "words"),
    [
        (0o1733, 0, ""),
        (0o1730, 0, ""),
        (0o700, 64802, ""),
        (0o733, 0, "chmod 1733"),
        (0o777, 64802, "chmod 1733"),
        (0o755, 0, "root alone"),
        (0o700, 0, "root alone"),
        (0o1711, 0, "root alone"),
    ],
)
def test_a_folder_where_nothing_is_safe_or_nobody_may_write_is_no_quarantine(mode, uid, words):
    fault = host.drop_box_fault(mode, uid)
    assert words in fault
    assert bool(fault) == bool(words)


def test_the_check_says_what_is_wrong_with_the_place_beforehand(house, tmp_path):
    layers = house.layers
    overlay = layers[-1] / "permissions.toml"
    text = overlay.read_text()
    for name, mode, words in (
        ("missing", None, "is no folder here"),
        ("open", 0o777, "can be written by others"),
        ("beside", 0o1733, f"shares its file system with {house.data}"),
    ):
        folder = tmp_path / name
        if mode is not None:
            folder.mkdir()
            folder.chmod(mode)
        overlay.write_text(f'{text}[quarantine]\nfolder = "{folder}"\n')
        notes = [line for line in check_all(layers).lines if line.startswith("note: quarantine.folder: ")]
        assert len(notes) == 1, notes
        assert str(folder) in notes[0]
        assert words in notes[0]
