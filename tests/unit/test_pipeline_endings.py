"""What a run's end is called, and what a person is told of it."""

from __future__ import annotations

import dataclasses

import pytest

from hermesd.agent.planner import Observation
from hermesd.incidents import Outcome, RunKind
from hermesd.pipeline.ending import Ending, conclude
from hermesd.pipeline.stages.report import render_report
from hermesd.pipeline.words import EN, ZH, size_text, stages_text, time_text, words_of
from hermesd.protocol import Finish, Gain, Impact, ResultStatus, Stage, StageOutcome, StageTiming


def saw(status=ResultStatus.SUCCEEDED, command="fs:look", **more):
    return Observation(1, "s", command, {}, status, **more)


def ended(seen=(), changes=(), *, cleared=False, kind=RunKind.EVENT):
    return conclude(kind, [*seen, *changes], changes, EN, cleared=cleared)


def test_an_incident_that_was_seen_to_end_is_resolved():
    assert ended([saw()], [saw()], cleared=True) == Ending(Outcome.RESOLVED)


def test_a_change_that_did_not_clear_the_condition_is_only_reported():
    assert ended([saw()], [saw()]) == Ending(Outcome.REPORTED, EN.not_cleared)


def test_looking_alone_is_reported_and_a_person_is_answered():
    assert ended([saw()]).outcome is Outcome.REPORTED
    assert ended([saw()], kind=RunKind.PERSON).outcome is Outcome.ANSWERED


def test_a_denial_is_told_as_one_even_when_the_incident_ended_by_itself():
    found = ended([saw()], [saw(ResultStatus.DENIED, reason="a person said no")], cleared=True)
    assert found == Ending(Outcome.DENIED, "a person said no")


def test_the_last_change_counts():
    changes = [saw(ResultStatus.PLAN_CHANGED), saw()]
    assert ended([], changes, cleared=True).outcome is Outcome.RESOLVED


def test_a_change_that_failed_of_itself_leaves_a_report():
    assert ended([saw()], [saw(ResultStatus.FAILED)]).outcome is Outcome.REPORTED


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (ResultStatus.UNAVAILABLE, Outcome.FAILED),
        (ResultStatus.TIMED_OUT, Outcome.TIMED_OUT),
        (ResultStatus.FAILED, Outcome.REPORTED),
    ],
)
def test_a_run_that_could_look_at_nothing_names_why(status, outcome):
    assert ended([saw(status, reason="why")]).outcome is outcome
    assert ended([saw(), saw(status)]).outcome is Outcome.REPORTED, "one look is enough to report"


TIMINGS = (
    StageTiming(name=Stage.PLAN, round=1, ms=3, budget_ms=1, outcome=StageOutcome.OK),
    StageTiming(name=Stage.EXECUTE, round=1, ms=1200, budget_ms=1, outcome=StageOutcome.OK),
    StageTiming(name=Stage.PLAN, round=2, ms=4, budget_ms=1, outcome=StageOutcome.OK),
)


RESOLVED = Ending(Outcome.RESOLVED)


def report(ending=RESOLVED, finish=None, seen=(), kind=RunKind.EVENT, words=EN):
    return render_report(ending, finish, seen, TIMINGS, kind, words)


def test_the_figures_of_a_repair_come_from_its_result():
    gain = Gain(files_removed=37, files_skipped=2, size_bytes=99, freed_bytes=14_200_000)
    text = report(finish=Finish(cause="logs", report="I freed 900 TB"), seen=[saw(gain=gain)])
    assert "I freed 900 TB" in text
    assert "Gained: 14.2 MB given back by 37 removed files (fs:look). 2 files were left alone." in text
    assert "Cause: logs" in text
    assert "Shall I look deeper?" in text


def test_what_was_not_done_is_said_with_its_impact():
    impact = Impact(files=3, size_bytes=1, root="/var", text="3 files under /var")
    text = report(Ending(Outcome.DENIED, "a person said no"), seen=[saw(ResultStatus.DENIED, impact=impact)])
    assert text.startswith("a person said no\n")
    assert "Not done: 3 files under /var" in text


def test_a_run_without_a_finish_reports_what_it_saw():
    text = report(Ending(Outcome.HANDED_OVER, "why"), seen=[saw(summary="92 % full")])
    assert "Seen last: fs:look: 92 % full" in text


def test_stage_times_are_added_up_in_the_order_of_their_first_occurrence():
    assert stages_text(TIMINGS) == "plan 7 ms (2×), execute 1.2 s"


def test_every_sentence_is_there_in_both_languages_with_the_same_places():
    for field in dataclasses.fields(EN):
        english, chinese = getattr(EN, field.name), getattr(ZH, field.name)
        assert chinese
        assert places(english) == places(chinese), field.name


def places(text):
    return {part.split("}")[0].split(":")[0] for part in text.split("{")[1:]}


def test_a_late_planner_is_told_in_the_words_of_the_language():
    assert words_of("zh").slow == "当前响应较慢，请稍后重试"
    assert words_of("fr") is EN


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (14_200_000, "14.2 MB"), (-2_000, "-2.0 kB"), (5e15, "5000.0 TB")],
)
def test_sizes_are_written_as_people_write_them(size, text):
    assert size_text(size) == text


@pytest.mark.parametrize(("ms", "text"), [(0.4, "0 ms"), (1200, "1.2 s"), (600_000, "10 min")])
def test_times_are_written_as_people_write_them(ms, text):
    assert time_text(ms) == text
