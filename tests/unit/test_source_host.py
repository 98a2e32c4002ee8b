from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.events import EventStatus
from hermesd.sources.base import InboxFull, SourceFailed
from hermesd.sources.host import HostSource
from hermesd.sources.measures import SWAP, folder_measure
from hermesd.sources.mounts import Mount
from hermesd.sources.probe import Answer
from hermesd.sources.readings import Reading, Sample, Told, bytes_in_words, is_due
from hermesd.sources.sessions import Forgetful
from hermesd.sources.settings_host import Filesystems, Folder, HostSettings, Level
from hermesd.state.memory import StoredMemory
from hermesd.state.store import open_store

START = datetime(2026, 1, 1, tzinfo=UTC)
OFF = {
    name: Level(enabled=False)
    for name, field in HostSettings.model_fields.items()
    if field.annotation is Level
}
ROOT = Mount("/", "/dev/vda1", "ext4", "254:0")
SRV = Mount("/srv", "/dev/vdb1", "xfs", "254:16")
FOLDER = folder_measure(1000)


class Bench:
    """A host source over scripted answers: what is mounted, what each probe says, what is delivered."""

    def __init__(self, mounts=(ROOT,), **more):
        self.mounted = list(mounts)
        self.percent = {}
        self.answers = {}
        self.now = START
        self.delivered = []
        self.full = False
        settings = HostSettings(kind="host", name="host", **{"refresh_s": 60, **OFF, **more})
        self.settings, self.memory, self.boot = settings, Forgetful(), "boot 1"
        self.source = self.new()

    def new(self):
        return HostSource(
            self.settings,
            self,
            "web1",
            now=lambda: self.now,
            mounts=lambda: list(self.mounted),
            boot=lambda: self.boot,
            memory=self.memory,
        )

    async def restart(self, **settings):
        """hermesd ends and begins again, perhaps with other settings; only what is remembered stays."""
        self.settings = self.settings.model_copy(update=settings)
        self.source = self.new()
        await self.source.begin()

    async def measure(self, names, _seconds):
        self.asked = names
        return [self.answers.get(name) or self.answer(name) for name in names]

    def answer(self, name):
        percent = self.percent.get(name, 50.0)
        facts = {"size_bytes": 100, "used_bytes": 50, "available_bytes": 50, "percent": percent}
        return Answer(name, facts)

    async def deliver(self, events):
        if self.full:
            raise InboxFull
        self.delivered += events

    async def round(self, seconds=15):
        """Let a round pass; return what it delivered as (type, subject, status, value)."""
        before = len(self.delivered)
        await self.source.round(self.deliver)
        self.now += timedelta(seconds=seconds)
        found = self.delivered[before:]
        return [(one.type, one.subject, one.status.value, one.value) for one in found]

    def readings(self, found):
        return [one for one in found if one[0] not in {"host.probe_stuck", "host.read_only"}]


async def test_a_reading_carries_the_exact_percent_and_the_labels_that_rules_steer_by():
    bench = Bench()
    bench.percent["filesystem:/"] = 81.234567
    await bench.round()
    event = next(one for one in bench.delivered if one.type == "host.filesystem")
    assert event.value == 81.234567
    assert event.unit == "percent"
    assert event.status is EventStatus.READING
    assert event.labels == {"host": "web1", "path": "/", "device": "/dev/vda1", "fstype": "ext4"}


async def test_no_two_readings_have_the_same_id_over_restarts_either():
    first, second = Bench(), Bench()
    for bench in (first, second):
        await bench.round()
        await bench.round(seconds=100)
    ids = [event.id for bench in (first, second) for event in bench.delivered]
    assert len(set(ids)) == len(ids) > 2


async def test_a_value_that_does_not_move_is_told_again_only_after_the_refresh():
    bench = Bench()
    await bench.round(30)
    assert await bench.round(30) == []
    assert bench.readings(await bench.round()) == [("host.filesystem", "/", "reading", 50.0)]


async def test_a_small_change_is_kept_back_and_a_larger_one_is_told():
    bench = Bench()
    await bench.round()
    bench.percent["filesystem:/"] = 50.05
    assert await bench.round() == []
    bench.percent["filesystem:/"] = 50.11
    assert await bench.round() == [("host.filesystem", "/", "reading", 50.11)]


async def test_small_steps_add_up_since_the_last_told_value_is_what_counts():
    bench = Bench()
    await bench.round(1)
    for value in (50.04, 50.08):
        bench.percent["filesystem:/"] = value
        assert await bench.round(1) == []
    bench.percent["filesystem:/"] = 50.12
    assert len(await bench.round(1)) == 1


async def test_what_a_full_inbox_refused_is_told_in_the_next_round():
    bench = Bench()
    bench.full = True
    assert await bench.round() == []
    bench.full = False
    assert ("host.filesystem", "/", "reading", 50.0) in await bench.round()


async def test_a_stuck_probe_fires_once_and_again_each_refresh_and_the_rest_goes_on():
    bench = Bench([ROOT, SRV])
    await bench.round()
    bench.answers["filesystem:/srv"] = Answer("filesystem:/srv", stuck=True)
    bench.percent["filesystem:/"] = 60.0
    assert await bench.round(59) == [
        ("host.probe_stuck", "filesystem:/srv", "firing", None),
        ("host.filesystem", "/", "reading", 60.0),
    ]
    assert "host.probe_stuck" not in [one[0] for one in await bench.round(1)]
    assert ("host.probe_stuck", "filesystem:/srv", "firing", None) in await bench.round()


async def test_a_stuck_probe_event_names_the_mount():
    bench = Bench([SRV])
    bench.answers["filesystem:/srv"] = Answer("filesystem:/srv", stuck=True)
    await bench.round()
    (event,) = [one for one in bench.delivered if one.type == "host.probe_stuck"]
    assert event.labels == {"host": "web1", "probe": "filesystem:/srv", "path": "/srv"}


async def test_a_probe_that_answers_again_resolves_and_is_read_again():
    bench = Bench([SRV])
    bench.answers["filesystem:/srv"] = Answer("filesystem:/srv", stuck=True)
    await bench.round()
    del bench.answers["filesystem:/srv"]
    assert await bench.round() == [
        ("host.probe_stuck", "filesystem:/srv", "resolved", None),
        ("host.filesystem", "/srv", "reading", 50.0),
    ]


async def test_a_probe_that_answers_at_start_resolves_what_a_former_life_left_open():
    bench = Bench()
    assert ("host.probe_stuck", "filesystem:/", "resolved", None) in await bench.round()
    await bench.round(100)
    assert "host.probe_stuck" not in [one[0] for one in await bench.round()]


async def test_an_unmounted_file_system_is_told_as_resolved_once_and_forgotten():
    bench = Bench([ROOT, SRV])
    await bench.round(1)
    bench.mounted.remove(SRV)
    assert bench.readings(await bench.round(1)) == [("host.filesystem", "/srv", "resolved", None)]
    assert await bench.round(1) == []
    bench.mounted.append(SRV)
    assert ("host.filesystem", "/srv", "reading", 50.0) in await bench.round(1)


async def test_file_systems_that_come_and_go_leave_nothing_behind():
    bench = Bench([ROOT])
    await bench.round(1)
    remembered = len(bench.source._told)
    for number in range(20):
        bench.mounted[1:] = [Mount(f"/mnt/{number}", "/dev/x", "ext4", f"9:{number}")]
        await bench.round(1)
    del bench.mounted[1:]
    await bench.round(1)
    assert (len(bench.source._told), len(bench.source._known)) == (remembered, 2)


async def test_a_farewell_that_the_inbox_refused_is_said_in_the_next_round():
    bench = Bench([ROOT, SRV])
    await bench.round(1)
    bench.mounted.remove(SRV)
    bench.full = True
    await bench.round(1)
    bench.full = False
    assert bench.readings(await bench.round(1)) == [("host.filesystem", "/srv", "resolved", None)]


async def test_a_measure_that_fails_is_logged_once_a_reason_and_yields_no_reading(caplog):
    bench = Bench()
    bench.answers["filesystem:/"] = Answer("filesystem:/", error="Stale file handle")
    assert bench.readings(await bench.round()) == []
    await bench.round()
    assert [record.getMessage() for record in caplog.records] == [
        "host: filesystem of / is not measured: Stale file handle"
    ]


async def test_only_what_the_settings_ask_for_is_measured():
    bench = Bench([ROOT], filesystems=Filesystems(enabled=False), memory=Level(), load=Level())
    bench.answers["load"] = Answer(
        "load", {"one": 1.0, "five": 1.0, "fifteen": 1.0, "processors": 2, "percent": 50.0}
    )
    await bench.round()
    assert bench.asked == ["memory", "load"]


async def test_a_host_whose_mounts_cannot_be_listed_is_a_dead_source_and_not_a_crash():
    def refuse():
        raise PermissionError(13, "Permission denied")

    bench = Bench()
    bench.source._mounts = refuse
    with pytest.raises(SourceFailed, match="list of mounts"):
        await bench.round()


async def test_a_folder_is_told_as_percent_of_its_budget():
    bench = Bench([], folder=(Folder(path="/srv/x", budget_bytes=2000),))
    bench.answers["folder:/srv/x"] = walked(used_bytes=1500)
    assert bench.readings(await bench.round()) == [("host.folder", "/srv/x", "reading", 75.0)]


async def test_what_was_unmounted_while_hermesd_was_away_has_its_farewell_at_the_next_start():
    bench = Bench([ROOT, SRV])
    await bench.round(1)
    bench.mounted.remove(SRV)
    await bench.restart()
    found = await bench.round(1)
    assert ("host.filesystem", "/srv", "resolved", None) in found
    assert ("host.probe_stuck", "filesystem:/srv", "resolved", None) in found
    assert ("host.filesystem", "/", "reading", 50.0) in found
    await bench.restart()
    assert "/srv" not in [one[1] for one in await bench.round(1)]


async def test_a_folder_that_is_not_asked_for_any_more_has_its_farewell():
    bench = Bench([], folder=(Folder(path="/srv/x", budget_bytes=2000),))
    bench.answers["folder:/srv/x"] = walked(used_bytes=1900)
    await bench.round()
    await bench.restart(folder=())
    assert ("host.folder", "/srv/x", "resolved", None) in await bench.round()


async def test_a_file_system_that_turned_read_only_before_a_restart_is_still_measured_after_it():
    bench = Bench([replace(ROOT, mounted_read_only=True), replace(SRV, mounted_read_only=True)])
    await bench.round(1)
    bench.mounted[1] = ro(SRV, by_mount=True)
    await bench.round(1)
    await bench.restart()
    found = await bench.round(1)
    assert ("host.read_only", "/srv", "reading", 1.0) in found
    assert "resolved" not in [one[2] for one in found if one[0] != "host.probe_stuck"]


async def test_after_the_host_was_started_anew_what_is_mounted_read_only_is_so_on_purpose():
    bench = Bench([ROOT, SRV])
    await bench.round(1)
    bench.mounted[1], bench.boot = ro(SRV, by_mount=True), "boot 2"
    await bench.restart()
    assert ("host.read_only", "/srv", "resolved", None) in await bench.round(1)


async def test_a_quiet_host_is_remembered_once_and_not_with_each_round():
    bench = Bench([ROOT, SRV])
    await bench.round(1)
    first = await bench.memory.recall()
    for _ in range(3):
        await bench.round(70)
    assert await bench.memory.recall() is first


async def test_a_mount_point_of_any_bytes_is_measured_and_remembered_in_the_store(tmp_path):
    bench = Bench([ROOT, replace(SRV, path="/mnt/\udcff")])
    store = open_store(tmp_path / "state.sqlite3")
    try:
        bench.memory = StoredMemory(store, "source.host")
        await bench.restart()
        assert ("host.filesystem", "/mnt/\\xff", "reading", 50.0) in await bench.round(1)
        await bench.restart()
        assert "resolved" not in [one[2] for one in bench.readings(await bench.round(1))]
        bench.mounted.pop()
        await bench.restart()
        assert ("host.filesystem", "/mnt/\\xff", "resolved", None) in await bench.round(1)
    finally:
        store.close()


def read(measure, answer):
    return measure.read(Sample(START, answer.facts), ())


def walked(used_bytes, *, complete=True, unreadable=0):
    facts = {"used_bytes": used_bytes, "entries": 7, "unreadable": unreadable, "complete": complete}
    return Answer("folder:/srv/x", facts)


def ro(mount, *, by_mount=False):
    return replace(mount, read_only=True, mounted_read_only=by_mount)


async def test_a_file_system_that_turned_read_only_is_no_farewell_and_is_measured_on():
    """A farewell would end an open incident of a full disk, which is as full as before."""
    bench = Bench([ROOT, SRV])
    await bench.round(1)
    bench.mounted = [ROOT, ro(SRV)]
    bench.percent["filesystem:/srv"] = 91.0
    assert await bench.round(1) == [
        ("host.filesystem", "/srv", "reading", 91.0),
        ("host.read_only", "/srv", "reading", 1.0),
    ]
    bench.mounted = [ROOT, SRV]
    assert await bench.round(1) == [("host.read_only", "/srv", "reading", 0.0)]


async def test_a_file_system_that_a_person_remounted_read_only_is_told_too():
    bench = Bench([SRV])
    await bench.round(1)
    bench.mounted = [ro(SRV, by_mount=True)]
    assert await bench.round(1) == [("host.read_only", "/srv", "reading", 1.0)]


async def test_a_disk_that_the_kernel_made_read_only_before_hermesd_began_is_told():
    bench = Bench([ro(SRV)])
    assert ("host.read_only", "/srv", "reading", 1.0) in await bench.round(1)


async def test_a_disk_that_was_mounted_read_only_on_purpose_is_not_measured():
    bench = Bench([ro(SRV, by_mount=True)])
    assert await bench.round(1) == []


async def test_in_a_confined_unit_where_every_mount_is_read_only_only_the_file_systems_own_state_counts():
    bench = Bench([replace(ROOT, mounted_read_only=True), replace(SRV, mounted_read_only=True)])
    found = await bench.round(1)
    assert {one[1:] for one in found if one[0] == "host.read_only"} == {
        ("/", "reading", 0.0),
        ("/srv", "reading", 0.0),
    }
    bench.mounted[1] = ro(SRV, by_mount=True)
    assert await bench.round(1) == [("host.read_only", "/srv", "reading", 1.0)]


async def test_another_mount_of_the_same_file_system_is_no_farewell_to_the_place_where_it_is_measured():
    bench = Bench([ROOT, SRV])
    await bench.round(1)
    bench.mounted.append(replace(SRV, path="/a"))
    assert await bench.round(1) == []


def test_a_walk_that_was_cut_short_below_its_budget_says_nothing():
    found = read(FOLDER, walked(900, complete=False))
    assert found == "too large to measure: stopped after 7 entries"


def test_a_walk_that_was_cut_short_above_its_budget_is_a_lower_bound():
    found = read(FOLDER, walked(1500, complete=False))
    assert found == Reading(150.0, "at least 1.5 kB of a budget of 1.0 kB in use")


def test_folders_that_could_not_be_read_are_mentioned():
    assert read(FOLDER, walked(500, unreadable=2)).text.endswith("2 folders could not be read")


def test_a_host_without_swap_has_no_swap_reading():
    facts = {"size_bytes": 0, "used_bytes": 0, "available_bytes": 0, "percent": 0.0}
    assert read(SWAP, Answer("swap", facts)) is None


def test_a_status_that_changes_is_due_whatever_the_value_does():
    told = Told(START, EventStatus.FIRING)
    assert is_due(told, EventStatus.RESOLVED, None, START, 0.0, 60)
    assert not is_due(told, EventStatus.FIRING, None, START, 0.0, 60)


def test_sizes_are_written_with_decimal_units():
    assert [bytes_in_words(size) for size in (0, 999, 14_200_000, 2.5e12, 1e19)] == [
        "0 B",
        "999 B",
        "14.2 MB",
        "2.5 TB",
        "10000.0 PB",
    ]
