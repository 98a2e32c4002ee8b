"""Other rules over the events of late: a real store with what was judged live, and its replay."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from hermesd.cli import main
from hermesd.pipeline.replaying import replay
from hermesd.state.silences import SilenceRow, insert_silence
from hermesd.state.store import StoreError, reading

MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Past:
    """Readings that were judged one after another, a minute apart, by the rules of then."""

    def __init__(self, house, clock, folder):
        self.house = house
        self._clock = clock
        self._store = folder / "state.sqlite3"

    async def hear(self, *values):
        for value in values:
            for _ in range(6):  # what is due is judged at its time, as a running daemon does
                self._clock.now += MINUTE / 6
                await self.house.dispatcher.judge_once()
            await self.house.reading(value)
            await self.house.dispatcher.judge_once()

    def by(self, *rules, limit=1000):
        with reading(self._store) as connection:
            return replay(connection, replace(self.house.kit.config(), rules=tuple(rules)), limit)


@pytest.fixture
def past(open_house, tmp_path):
    class Clock:
        now = NOON

        def __call__(self):
            return self.now

    @asynccontextmanager
    async def open_it(*rules):
        clock = Clock()
        async with open_house(rules=rules, now=clock, serve=False) as house:
            yield Past(house, clock, tmp_path)

    return open_it


@pytest.fixture
def rule(parts):
    def make(**changes):
        return parts.disk_rule(**{"run": None, **changes})

    return make


def differences(found):
    return [(one.rule, one.was, one.would_be, one.events) for one in found.differences]


async def test_the_same_rules_make_the_same_of_every_event(past, rule):
    lasting = rule(**{"name": "lasting", "for": "90s"})
    async with past(rule(), lasting) as then:
        await then.hear(50, 90, 95, 85, 70, 90, 91, 92, 60)
        found = then.by(rule(), lasting)
    assert differences(found) == []
    assert (found.events, found.same) == (9, 9)
    assert found.opened == (4, 4)
    assert (found.since, found.until) == (NOON + MINUTE, NOON + 9 * MINUTE)


async def test_a_higher_threshold_says_which_events_would_have_opened_nothing(past, rule):
    async with past(rule()) as then:
        await then.hear(85, 86, 70, 95)
        found = then.by(rule(threshold={"op": ">", "value": 90.0}))
    assert differences(found) == [
        ("disk-full", "opened", "nothing", 1),
        ("disk-full", "absorbed", "nothing", 1),
        ("disk-full", "resolved", "nothing", 1),
    ]
    assert found.opened == (2, 1)
    assert found.differences[0].first.event.value == 85
    assert "85" in found.differences[0].reason
    assert "90" in found.differences[0].reason


async def test_a_new_rule_and_one_that_is_gone_are_both_differences(past, rule):
    async with past(rule()) as then:
        await then.hear(90, 50)
        found = then.by(rule(name="other"))
    assert differences(found) == [
        ("disk-full", "opened", "nothing", 1),
        ("disk-full", "resolved", "nothing", 1),
        ("other", "nothing", "opened", 1),
        ("other", "nothing", "resolved", 1),
    ]


async def test_a_timer_that_would_have_run_out_opens_in_the_replay_too(past, rule):
    async with past(rule()) as then:
        await then.hear(90, 91, 92, 93, 50)
        found = then.by(rule(**{"for": "2m30s"}))
    assert found.opened == (1, 1)
    assert ("disk-full", "absorbed", "pending, then opened", 1) in differences(found)


async def test_an_incident_that_was_open_before_the_first_event_is_open_in_the_replay(past, rule):
    async with past(rule()) as then:
        await then.hear(90, 91, 92, 50)
        found = then.by(rule(), limit=2)
    assert (found.events, found.same, differences(found)) == (2, 2, [])


async def test_a_run_that_a_rule_would_start_is_counted(past, rule):
    async with past(rule()) as then:
        await then.hear(90, 50, 90)
        found = then.by(rule(run={"goal": "Look at {path}"}, cooldown="0s"))
    assert found.runs == (0, 2)
    assert differences(found) == [("disk-full", "opened", "opened with a run", 2)]


async def test_a_silence_counts_from_when_it_was_made(past, rule):
    async with past(rule()) as then:
        made = NOON + 2 * MINUTE
        silence = SilenceRow("s1", ("type=host.filesystem",), "ada", "disk swap", made, NOON + 60 * MINUTE)
        await then.house.kit.store.write(lambda connection: insert_silence(connection, silence))
        await then.hear(90, 50, 90)
        found = then.by(rule(run={"goal": "Look at {path}"}, cooldown="0s"))
    assert found.runs == (0, 1)


async def test_a_replay_leaves_the_store_as_it_was(past, rule):
    async with past(rule()) as then:
        await then.hear(90)
        before = await then.house.incidents()
        then.by(rule(name="other", run={"goal": "Look at {path}"}))
        assert await then.house.incidents() == before
        assert await then.house.runs() == []


async def test_a_store_that_is_not_there_is_said_and_not_made(tmp_path):
    with pytest.raises(StoreError, match="nowhere"), reading(tmp_path / "nowhere.sqlite3"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def conf(tmp_path):
    folder = tmp_path / "conf.d"
    (folder / "rules").mkdir(parents=True)
    (folder / "daemon.toml").write_text(f'[agent]\nstate_dir = "{tmp_path}"\n')
    (folder / "rules" / "disk-full.toml").write_text(
        'match = ["type=host.filesystem"]\ntitle = "Disk {path}"\ngroup_by = ["host", "path"]\n'
        'threshold = { op = ">", value = 90 }\n'
    )
    return folder


def check(conf, *arguments):
    return CliRunner().invoke(main, ["--conf", str(conf), "check", *arguments])


async def test_the_command_names_rule_event_and_reason(past, rule, conf):
    async with past(rule()) as then:
        await then.hear(85, 50)
        answer = check(conf, "--against-recent")
    assert answer.exit_code == 0, answer.output
    assert "rule disk-full: opened -> nothing: 1 event\n" in answer.output
    assert "the first is r1 of host, 2026-03-01 12:01:00 UTC" in answer.output
    assert "incidents opened: 1 -> 0" in answer.output


async def test_the_command_looks_at_as_many_events_as_it_is_told(past, rule, conf):
    async with past(rule()) as then:
        await then.hear(85, 50, 50)
        answer = check(conf, "--against-recent", "2")
    assert "2 events from 2026-03-01 12:02:00" in answer.output


def test_the_command_says_when_there_is_no_store(conf):
    answer = check(conf, "--against-recent")
    assert answer.exit_code != 0
    assert "state.sqlite3" in answer.output
    assert "Traceback" not in answer.output


def test_the_command_says_first_what_is_wrong_with_the_files(conf):
    (conf / "rules" / "disk-full.toml").write_text('match = ["type"]\n')
    answer = check(conf, "--against-recent")
    assert answer.exit_code != 0
    assert "disk-full.toml" in answer.output
    assert "nothing was judged" in answer.output
