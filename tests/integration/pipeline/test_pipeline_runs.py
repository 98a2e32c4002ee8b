"""From a reading to an ended run, with everything real but the hands and the planner."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from hermesd.incidents import IncidentStatus, Outcome, RunStatus
from hermesd.pipeline.stages.brief import host_facts
from hermesd.protocol import Decision, Finish, ResultStatus
from hermesd.state.marks import reading_mark


async def test_a_full_disk_is_looked_at_cleaned_and_resolved(open_house, world, parts):
    planner = parts.in_rounds(
        parts.acts(parts.action("look"), parts.action("large", "fs:largest")),
        parts.acts(parts.action("clean", "fs:cleanup")),
        parts.finish(),
    )
    async with open_house(planner) as house:

        async def clean(request):
            await house.reading(40.0)
            return parts.result(request, gain=parts.GAIN, impact=parts.IMPACT)

        world.answers["fs:cleanup"] = clean
        await house.reading(93.0)
        [run] = await house.ended()
        [incident] = await house.incidents()
    assert run.outcome is Outcome.RESOLVED
    assert incident.status is IncidentStatus.RESOLVED
    assert incident.title == "Disk /var is 93 % full"
    assert [timing.name.value for timing in run.stages] == [
        "receive", "brief",
        "plan", "validate", "prepare", "execute", "prepare", "execute",
        "plan", "validate", "prepare", "execute",
        "plan", "validate", "review", "report",
    ]  # fmt: skip
    assert {timing.round for timing in run.stages} == {0, 1, 2, 3}
    assert "it is full of logs" in run.report
    assert "Gained: 14.2 MB given back by 37 removed files (fs:cleanup)" in run.report
    assert world.most_at_work == 2, "both looks of the first round run side by side"


async def test_what_is_done_was_recorded_before(open_house, world, parts):
    planner = parts.in_rounds(parts.acts(parts.action()), parts.finish())
    async with open_house(planner) as house:
        seen = []

        def look(request):
            seen.extend(record["kind"] for record in house.records())
            return parts.result(request)

        world.answers["system:disk_usage"] = look
        await house.reading(93.0)
        [run] = await house.ended()
        kinds = [record["kind"] for record in house.records() if record["kind"] != "stage.ended"]
        ended = house.records("action.ended")[0]
    assert {"event.verdict", "incident.opened", "run.started", "decision.made", "action.sent"} <= set(seen)
    assert kinds == [
        "event.verdict", "incident.opened", "run.started", "decision.made", "action.sent",
        "action.ended", "decision.made", "run.ended",
    ]  # fmt: skip
    assert ended["executor"] == world.anchor
    assert ended["task_id"] == run.task_id


async def test_nothing_is_sent_before_its_evidence_is_synced(open_house, world, parts):
    planner = parts.in_rounds(
        parts.acts(parts.action()), parts.acts(parts.action("s", "log:stats")), parts.finish()
    )

    said_before = []

    class Watching:
        anchor, known, cancel, catalogue = world.anchor, world.known, world.cancel, world.catalogue

        async def run(self, request, on_progress, **more):
            said_before.append(list(house.kit.audit.said))
            return await world.run(request, on_progress, **more)

    async with open_house(planner, hands=Watching(), late=0.05) as house:
        await house.reading(93.0)
        await house.ended()
    first, second = said_before
    assert {"incident.opened", "run.started", "decision.made", "action.sent"} <= set(first)
    assert second.count("action.sent") == 2
    assert "action.ended" in second


async def test_a_run_begins_only_once_its_verdict_is_synced(open_house, parts):
    said_before = []

    def think(_situation):
        said_before.extend(house.kit.audit.said)
        return parts.finish()

    async with open_house(parts.Planner(think), late=0.05) as house:
        await house.reading(93.0)
        await house.ended()
    assert {"event.verdict", "incident.opened"} <= set(said_before)


async def test_facts_are_the_hosts_present_state_and_nothing_older(open_house, parts):
    moment = [datetime.now(UTC)]
    planner = parts.in_rounds(parts.finish())
    async with open_house(planner, now=lambda: moment[0]) as house:
        await house.reading(41.0, "/old")
        await house.until(lambda: _judged(house))
        moment[0] += timedelta(minutes=11)
        await house.reading(42.0, "/new")
        await house.reading(93.0, "/full")
        await house.ended()
    facts = planner.asked[0].briefing.facts["host.filesystem"]
    assert [(fact["of"], fact["value"]) for fact in facts] == [("/full", 93.0), ("/new", 42.0)]


def test_facts_are_short_and_leave_out_what_says_nothing():
    now = datetime.now(UTC)

    def mark(kind, scope, value, unit, status=None):
        said = {"value": value, "unit": unit, "labels": {"host": "h"}, "status": status, "at": "then"}
        return reading_mark(kind, said, now, scope)

    facts = host_facts(
        [
            mark("host.filesystem", "/", 81.23456789, "percent"),
            mark("host.read_only", "/", 0.0, "flag"),
            mark("host.read_only", "/srv", 1.0, "flag"),
            mark("host.oom_kills", "oom_kills", 0.0, "count"),
            mark("host.probe_stuck", "filesystem:/", None, "", "resolved"),
            mark("health.check", "shop", None, "", "firing"),
        ],
        now,
    )
    assert facts == {
        "host.filesystem": [{"of": "/", "value": 81.23, "unit": "percent"}],
        "host.read_only": [{"of": "/srv", "value": 1.0, "unit": "flag"}],
        "health.check": [{"of": "shop", "status": "firing", "labels": {"host": "h"}}],
    }


async def test_a_planner_knows_what_earlier_runs_of_the_incident_came_to(open_house, parts):
    moment = [datetime.now(UTC)]
    planner = parts.in_rounds(parts.finish())
    async with open_house(planner, now=lambda: moment[0]) as house:
        await house.reading(93.0)
        [first] = await house.ended()
        moment[0] += timedelta(minutes=16)
        await house.reading(94.0)
        await house.ended(2)
    [line] = planner.asked[1].briefing.past_runs
    assert first.task_id in line
    assert "reported" in line
    assert planner.asked[1].briefing.incident["events"] == 2


async def test_a_late_model_is_followed_by_the_runbook_in_the_same_run(open_house, parts):
    model = parts.Planner(lambda _: asyncio.sleep(60), "model")
    runbook = parts.in_rounds(parts.acts(parts.action()), parts.finish(), name="runbook")
    async with open_house(model, runbook, stages={"plan_ms": 30}) as house:
        await house.reading(93.0)
        [run] = await house.ended()
        [fallback] = house.records("planner.fallback")
    assert run.outcome is Outcome.REPORTED
    assert [timing.outcome.value for timing in run.stages if timing.name == "plan"] == ["timeout", "ok", "ok"]
    assert (fallback["planner"], fallback["reason"], fallback["next"]) == ("model", "late", "runbook")
    assert len(model.asked) == 1, "who was given up is not asked again in this run"
    metrics = house.kit.metrics.registry
    assert metrics.get_sample_value("hermesd_planner_fallbacks_total", {"reason": "late"}) == 1
    assert metrics.get_sample_value("hermesd_stage_timeouts_total", {"stage": "plan"}) == 1


async def test_without_any_planner_in_time_the_person_is_told_that_it_is_slow(open_house, parts):
    async with open_house(parts.Planner(lambda _: parts.late())) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is Outcome.TIMED_OUT
    assert "slow at the moment" in run.report


async def test_three_refused_plans_in_a_row_hand_over_to_a_person(open_house, world, parts):
    planner = parts.in_rounds(parts.acts(parts.action(name="fs:unheard")))
    async with open_house(planner) as house:
        await house.reading(93.0)
        [run] = await house.ended()
        refused = house.records("decision.refused")
    assert run.outcome is Outcome.HANDED_OVER
    assert "there is no command fs:unheard" in run.reason
    assert len(refused) == len(planner.asked) == 3
    assert planner.asked[2].refusals == ("look: there is no command fs:unheard",) * 2
    assert not world.asked, "nothing of a refused plan is sent"


async def test_a_plan_that_gets_better_after_a_refusal_goes_on(open_house, parts):
    def think(situation):
        if not situation.refusals:
            return parts.acts(parts.action(name="fs:unheard"))
        return parts.finish() if situation.observations else parts.acts(parts.action())

    async with open_house(parts.Planner(think)) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is Outcome.REPORTED


async def test_doing_the_same_again_is_refused_and_the_third_time_hands_over(open_house, world, parts):
    async with open_house(parts.Planner(lambda _: parts.acts(parts.action()))) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is Outcome.HANDED_OVER
    assert sum(world.executed.values()) == 1


async def test_rounds_are_bounded(open_house, parts):
    planner = parts.Planner(lambda situation: parts.acts(parts.action(path=f"/var/{situation.round}")))
    async with open_house(planner, limits={"max_rounds": 3}) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is Outcome.HANDED_OVER
    assert "all 3 rounds" in run.reason
    assert [situation.rounds_left for situation in planner.asked] == [2, 1, 0]


async def test_actions_are_bounded(open_house, world, parts):
    planner = parts.Planner(
        lambda situation: parts.acts(
            parts.action("a", path=f"/a{situation.round}"), parts.action("b", path=f"/b{situation.round}")
        )
    )
    async with open_house(planner, limits={"max_actions": 3}) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is Outcome.HANDED_OVER
    assert "only 1 more actions are allowed" in run.reason
    assert sum(world.executed.values()) == 2


async def test_steps_that_are_not_safe_together_run_in_order_and_need_each_other(open_house, world, parts):
    planner = parts.in_rounds(
        parts.acts(
            parts.action("last", "log:stats", "/c", needs=("first",)),
            parts.action("first", "log:stats", "/a"),
        ),
        parts.finish(),
    )
    async with open_house(planner) as house:
        await house.reading(93.0)
        await house.ended()
    assert world.most_at_work == 1
    assert [request.args["path"] for request, *_ in world.asked] == ["/a", "/c"]


async def test_a_step_whose_need_failed_is_not_sent(open_house, world, parts):
    world.answers["log:stats"] = lambda request: parts.result(request, ResultStatus.FAILED, reason="no")
    planner = parts.in_rounds(
        parts.acts(
            parts.action("first", "log:stats", "/a"),
            parts.action("second", "log:stats", "/b", needs=("first",)),
        ),
        parts.finish(),
    )
    async with open_house(planner) as house:
        await house.reading(93.0)
        await house.ended()
    assert len(world.asked) == 1
    skipped = planner.asked[1].observations[1]
    assert skipped.status is ResultStatus.CANCELLED
    assert skipped.reason == "not run: first did not succeed"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (ResultStatus.DENIED, Outcome.DENIED),
        (ResultStatus.EXPIRED, Outcome.EXPIRED),
        (ResultStatus.PLAN_CHANGED, Outcome.PLAN_CHANGED),
        (ResultStatus.UNDELIVERABLE, Outcome.HANDED_OVER),
        (ResultStatus.TICKETED, Outcome.HANDED_OVER),
        (ResultStatus.TAKEN_OVER, Outcome.HANDED_OVER),
        (ResultStatus.TIMED_OUT, Outcome.TIMED_OUT),
        (ResultStatus.UNKNOWN, Outcome.UNKNOWN),
    ],
)
async def test_a_change_that_did_not_come_to_be_names_the_outcome(open_house, world, parts, status, outcome):
    world.answers["fs:cleanup"] = lambda request: parts.result(request, status, reason="so it was")
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is outcome
    asked_again = outcome is not Outcome.UNKNOWN
    assert len(planner.asked) == 1 + asked_again, "an effect in doubt ends the run at once"


async def test_a_doubtful_reading_is_tried_again_under_a_new_id(open_house, world, parts):
    answers = [ResultStatus.UNKNOWN, ResultStatus.SUCCEEDED]
    world.answers["system:disk_usage"] = lambda request: parts.result(request, answers.pop(0))
    planner = parts.in_rounds(parts.acts(parts.action()), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    ids = [request.request_id for request, *_ in world.asked]
    assert ids == [f"{run.task_id}.1.0.1", f"{run.task_id}.1.0.2"]
    assert planner.asked[1].observations[0].succeeded


async def test_a_change_that_did_not_clear_the_condition_is_reported_after_the_review_clock(
    open_house, parts
):
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner, stages={"review_ms": 40}) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is Outcome.REPORTED
    assert "not seen to clear" in run.reason
    review = next(timing for timing in run.stages if timing.name == "review")
    assert review.outcome == "timeout"


async def test_the_working_clock_halts_while_a_person_is_asked(open_house, world, parts):
    gate = world.hold("fs:cleanup")
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    stages = {"run_ms": 300, "review_ms": 10}
    async with open_house(planner, stages=stages) as house:
        await house.reading(93.0)
        run = await house.waiting()
        assert house.runner.live(run.task_id).stage == "confirm"
        await asyncio.sleep(0.6)
        gate.set()
        [run] = await house.ended()
    assert run.outcome is Outcome.REPORTED
    assert run.worked_ms < 300


async def test_a_run_ends_when_its_working_time_is_over(open_house, world, parts):
    world.hold("log:stats")
    planner = parts.in_rounds(parts.acts(parts.action("look", "log:stats")))
    async with open_house(planner, stages={"run_ms": 60}) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is Outcome.TIMED_OUT
    assert world.cancelled == [f"{run.task_id}.1.0.1"], "what was under way is withdrawn"


async def test_a_fault_in_a_planner_ends_its_run_and_nothing_else(open_house, parts):
    def think(situation):
        if "/bad" in situation.briefing.goal:
            return ZeroDivisionError("a bug")
        return parts.finish()

    async with open_house(parts.Planner(think)) as house:
        await house.reading(93.0, "/bad")
        await house.ended()
        await house.reading(93.0, "/good")
        good, bad = await house.ended(2)
        [fault] = house.records("run.fault")
    assert (bad.outcome, good.outcome) == (Outcome.FAILED, Outcome.REPORTED)
    assert fault["fault"] == "ZeroDivisionError"


async def test_more_runs_than_places_wait_for_a_place_and_then_run(open_house, world, parts):
    gate = world.hold("log:stats")
    planner = parts.in_rounds(parts.acts(parts.action("look", "log:stats")), parts.finish())
    async with open_house(planner, limits={"parallel_runs": 2}) as house:
        for number in range(5):
            await house.reading(93.0, f"/d{number}")
        await house.until(lambda: _counts(house, {RunStatus.RUNNING: 2, RunStatus.QUEUED: 3}))
        gate.set()
        runs = await house.ended(5)
    assert world.most_at_work == 2
    assert {run.outcome for run in runs} == {Outcome.REPORTED}


async def test_a_run_that_waits_for_a_person_keeps_no_place(open_house, world, parts):
    gate = world.hold("fs:cleanup")
    planner = parts.Planner(
        lambda situation: (
            parts.finish()
            if situation.observations or "/b" in situation.briefing.goal
            else parts.acts(parts.action("clean", "fs:cleanup"))
        )
    )
    async with open_house(planner, limits={"parallel_runs": 1}, stages={"review_ms": 10}) as house:
        await house.reading(93.0, "/a")
        await house.waiting()
        await house.reading(93.0, "/b")
        [other] = await house.ended()
        assert "/b" in other.goal
        gate.set()
        await house.ended(2)


async def test_a_place_given_up_for_a_question_goes_to_who_waits_for_one(open_house, world, parts):
    looking = world.hold("log:stats")
    asked = world.hold("fs:cleanup")
    planner = parts.Planner(lambda situation: _look_then_clean(situation, parts))
    async with open_house(planner, limits={"parallel_runs": 1}, stages={"review_ms": 10}) as house:
        await house.reading(93.0, "/a")
        await house.started()
        await house.reading(93.0, "/b")
        await house.until(lambda: _counts(house, {RunStatus.QUEUED: 1}))
        looking.set()
        await house.until(lambda: _counts(house, {RunStatus.WAITING: 2}))
        asked.set()
        await house.ended(2)


def _look_then_clean(situation, parts):
    if situation.round == 1:
        return parts.acts(parts.action("look", "log:stats"))
    return parts.acts(parts.action("clean", "fs:cleanup")) if situation.round == 2 else parts.finish()


async def _judged(house):
    return house.inbox.undecided == 0


async def _counts(house, wanted):
    runs = await house.runs()
    return all(sum(run.status is status for run in runs) == number for status, number in wanted.items())


async def test_a_run_that_could_look_at_nothing_says_so(open_house, world, parts):
    world.answers["system:disk_usage"] = lambda request: parts.result(
        request, ResultStatus.UNAVAILABLE, reason="no usable sandbox", summary=""
    )
    planner = parts.in_rounds(parts.acts(parts.action()), parts.finish())
    async with open_house(planner) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is Outcome.FAILED
    assert "no usable sandbox" in run.reason


async def test_a_followers_lines_tell_each_stage_and_the_end(open_house, world, parts):
    gate = world.hold("fs:cleanup")
    planner = parts.in_rounds(parts.acts(parts.action("clean", "fs:cleanup")), parts.finish())
    async with open_house(planner, stages={"review_ms": 10}) as house:
        await house.reading(93.0)
        run = await house.waiting()
        with house.kit.followers.following(run.task_id) as follower:
            gate.set()
            lines = [line async for line in follower.lines()]
    told = [line.stage for line in lines[:-1] if line.stage != "confirm"]
    assert told == ["prepare", "execute", "plan", "review", "report"]
    assert lines[-1].last
    assert lines[-1].outcome == "reported"


async def test_a_finish_may_come_without_any_action(open_house, world, parts):
    only = Decision(thought="", finish=Finish(report="nothing to see"))
    async with open_house(parts.in_rounds(only)) as house:
        await house.reading(93.0)
        [run] = await house.ended()
    assert run.outcome is Outcome.REPORTED
    assert not world.asked
