"""What samples of the host say, and that the shipped rules judge them: value, threshold, for and clear."""

from datetime import UTC, datetime, timedelta

import pytest

from hermesd.confd import named, read_folder, shipped
from hermesd.events import Event, EventStatus
from hermesd.rules.engine import judge
from hermesd.rules.rule import Rule
from hermesd.sources import measures
from hermesd.sources.readings import Sample, keep

START = datetime(2026, 1, 1, tzinfo=UTC)
RULES = {rule.name: rule for rule in (named(one).read(Rule) for one in read_folder([shipped()], "rules"))}
CPU = {"busy": 1000, "iowait": 100, "steal": 0, "total": 5000}


def at(seconds, **facts):
    return Sample(START + timedelta(seconds=seconds), facts)


def value(measure, sample, *earlier):
    return measure.read(sample, earlier).value


def test_the_inodes_in_use_are_a_percent_and_a_file_system_without_inodes_has_no_reading():
    assert value(measures.INODES, at(0, inodes=200, inodes_free=50)) == 75.0
    assert measures.INODES.read(at(0, inodes=0), ()) is None


def test_the_processors_are_read_between_two_rounds_and_waiting_for_disks_is_not_busy():
    before = at(0, **CPU)
    after = at(15, busy=1300, iowait=500, steal=100, total=6000)
    assert measures.CPU.read(before, ()) is None
    found = measures.CPU.read(after, (before,))
    assert found.value == 30.0
    assert found.text == "processors 30 % busy (10 % taken by other machines), 40 % waiting for disks"


def test_processors_whose_counters_stand_or_begin_anew_have_no_reading():
    before = at(0, **CPU)
    assert measures.CPU.read(at(15, **CPU), (before,)) is None
    assert measures.CPU.read(at(15, busy=1, iowait=1, steal=0, total=9), (before,)) is None


def test_pressure_is_read_by_resource_and_stall_and_a_kernel_that_does_not_count_has_none():
    io = measures.pressure_measure("io", "full")
    assert value(io, at(0, io_some=40.0, io_full=12.5)) == 12.5
    assert io.read(at(0), ()) is None


def test_a_kill_for_want_of_memory_is_told_for_ten_minutes_and_no_longer():
    kills = {0: 3, 60: 3, 120: 5, 700: 5, 720: 5, 735: 5}
    kept, told = (), {}
    for seconds, count in kills.items():
        sample = at(seconds, kills=count)
        told[seconds] = value(measures.OOM, sample, *kept)
        kept = keep(kept, sample, measures.OOM.keep_s, measures.OOM.every_s)
    assert told == {0: 0, 60: 0, 120: 2, 700: 2, 720: 0, 735: 0}


def test_what_is_kept_of_earlier_samples_is_bounded_by_age_and_by_distance():
    kept = ()
    for seconds in range(0, 3600, 15):
        kept = keep(kept, at(seconds), 600, 120)
    ages = [(kept[-1].at - one.at).total_seconds() for one in kept]
    assert ages[-1] == 0
    assert 480 <= ages[0] <= 600
    assert len(kept) <= 7


def test_descriptors_are_a_percent_and_zombies_name_the_parent_of_most_of_them():
    assert value(measures.DESCRIPTORS, at(0, used=250, most=1000)) == 25.0
    facts = {"count": 3, "parent": "nginx", "parent_pid": 812, "of_parent": 2}
    found = measures.ZOMBIES.read(at(0, **facts), ())
    assert found.value == 3
    assert "2 of them of nginx (812)" in found.text


def test_a_clock_that_nothing_keeps_has_no_offset_but_a_bound_of_its_error():
    lost = at(0, offset_s=0.0, most_s=16.0, kept=False)
    assert measures.CLOCK_OFFSET.read(lost, ()) is None
    assert "nothing keeps the clock" in measures.CLOCK_ERROR.read(lost, ()).text
    ahead = at(0, offset_s=-1.5, most_s=2.0, kept=True)
    assert value(measures.CLOCK_OFFSET, ahead) == 1.5
    assert measures.CLOCK_OFFSET.read(ahead, ()).text.endswith("ahead")


def test_a_host_without_sensors_has_no_temperature():
    assert measures.TEMPERATURE.read(at(0), ()) is None
    assert value(measures.TEMPERATURE, at(0, celsius=61.5, sensor="coretemp")) == 61.5


def filling(minutes, per_minute, left=100_000_000_000, earlier=()):
    """Return what a file system says each minute that loses so many bytes a minute."""
    return [
        *earlier,
        *(
            at(60 * (len(earlier) + minute), size_bytes=1, available_bytes=left - minute * per_minute)
            for minute in range(minutes)
        ),
    ]


def last_of(samples, measure=measures.FULL_IN):
    kept, found = (), None
    for sample in samples:
        found = measure.read(sample, kept)
        kept = keep(kept, sample, measure.keep_s, measure.every_s)
    assert len(kept) <= 62
    return found


def test_a_file_system_that_loses_a_gigabyte_a_minute_is_full_when_arithmetic_says():
    found = last_of(filling(31, 1_000_000_000))
    assert found.value == 1.2  # 70 GB at 60 GB an hour
    assert found.text == "full in 1.2 h: 70.0 GB are left, and 60.0 GB an hour become used"


def test_nothing_is_said_of_growth_before_ten_minutes_have_been_seen():
    assert last_of(filling(10, 1_000_000_000)) is None
    assert last_of(filling(11, 1_000_000_000)).value == 1.5


def test_what_does_not_grow_or_shrinks_or_takes_more_than_a_week_is_a_week():
    for per_minute in (0, -1_000_000_000, 1_000_000):
        assert last_of(filling(60, per_minute)).value == 168


def test_growth_that_ended_is_forgotten_within_the_hour():
    grown = filling(30, 1_000_000_000)
    assert last_of(filling(62, 0, 70_000_000_000, grown)).value == 168


def test_a_cleanup_that_freed_more_than_was_written_is_no_growth():
    grown = filling(30, 1_000_000_000)
    assert last_of(filling(5, 1_000_000_000, 150_000_000_000, grown)).value == 168


def test_a_week_of_one_file_system_is_remembered_in_an_hours_samples():
    assert last_of(filling(60 * 24 * 7, 0)).value == 168


LABELS = {"host": "h", "path": "/srv", "device": "/dev/sdb1", "resource": "io", "stall": "full", "unit": "a"}


def verdicts(rule, kind, values):
    """Return what the rule makes of each value, one `for` and a second after the other."""
    state, now, found = None, START, []
    for number, one in enumerate(values):
        event = Event(
            str(number), "host", kind, now, labels=LABELS, status=EventStatus.READING, value=one, unit="x"
        )
        verdict, state = judge(rule, event, state, now)
        now += timedelta(seconds=rule.for_seconds + 1)
        found.append(verdict.kind.value)
    return found


@pytest.mark.parametrize(
    ("rule", "kind", "wrong", "between", "right"),
    [
        ("disk-full", "host.filesystem", 81, 78, 74),
        ("disk-full-soon", "host.full_in", 3, 8, 13),
        ("inodes", "host.inodes", 91, 87, 84),
        ("read-only", "host.read_only", 1, 1, 0),
        ("memory", "host.memory", 96, 90, 84),
        ("swap", "host.swap", 81, 70, 59),
        ("load", "host.load", 201, 150, 119),
        ("pressure", "host.pressure", 26, 15, 9),
        ("oom", "host.oom_kills", 1, 2, 0),
        ("descriptors", "host.descriptors", 81, 75, 69),
        ("zombies", "host.zombies", 51, 30, 9),
        ("temperature", "host.temperature", 91, 85, 79),
        ("clock-offset", "host.clock_offset", 1.5, 0.5, 0.1),
        ("clock-not-kept", "host.clock_lost", 1, 1, 0),
    ],
)
def test_a_shipped_rule_opens_above_its_threshold_holds_between_and_clears_below(
    rule, kind, wrong, between, right
):
    judged = RULES[rule]
    first = ["pending", "opened"] if judged.for_seconds else ["opened", "absorbed"]
    assert verdicts(judged, kind, [right, right, wrong, wrong, between, right]) == [
        *("below", "below"),
        *first,
        *("absorbed", "resolved"),
    ]


def test_only_a_standstill_meets_the_shipped_rule_of_pressure():
    some = Event("1", "host", "host.pressure", START, labels={**LABELS, "stall": "some"}, value=99.0)
    assert judge(RULES["pressure"], some, None, START)[0].kind == "ignored"


def test_a_measurement_that_hangs_for_a_minute_opens_an_incident_and_one_that_answers_ends_it():
    rule, state, now, found = RULES["probe-stuck"], None, START, []
    for status in (EventStatus.FIRING, EventStatus.FIRING, EventStatus.RESOLVED):
        labels = {"host": "h", "probe": "filesystem:/mnt", "path": "/mnt"}
        event = Event(f"{now}", "host", "host.probe_stuck", now, labels=labels, status=status)
        verdict, state = judge(rule, event, state, now)
        found.append(verdict.kind.value)
        now += timedelta(seconds=61)
    assert found == ["pending", "opened", "resolved"]
