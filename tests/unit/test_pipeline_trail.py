"""Where a run stands is read back from its stored decisions and steps alone."""

from __future__ import annotations

from datetime import UTC, datetime

from hermesd.pipeline.trail import plan_steps, read_trail, request_of
from hermesd.protocol import Action, CommandResult, Decision, Finish, ResultStatus, RunKind
from hermesd.state.steps import Step, StepStatus, StoredDecision

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def action(step="a"):
    return Action(step=step, command="fs:look", args={"path": "/"}, intent="x")


def decided(round_no, *actions, refused="", finish=None, planner="p"):
    decision = Decision(thought="", actions=actions, finish=finish)
    return StoredDecision(round_no, "t", round_no, planner, decision, NOW, refused)


def step(round_no, status=StepStatus.ENDED, index=0, attempt=1, outcome=ResultStatus.SUCCEEDED):
    request_id = f"t.{round_no}.{index}.{attempt}"
    done = status is StepStatus.ENDED
    result = CommandResult(request_id=request_id, task_id="t", command="fs:look", status=outcome)
    return Step("t", round_no, index, attempt, request_id, action(), status, result if done else None)


def test_a_run_that_decided_nothing_begins_with_round_one():
    trail = read_trail([], [])
    assert (trail.round, trail.unfinished, trail.finish) == (1, [], None)


def test_a_round_whose_steps_have_ended_is_followed_by_the_next():
    trail = read_trail([decided(1, action())], [step(1)])
    assert trail.round == 2
    assert [seen.round for seen in trail.observations] == [1]


def test_a_step_that_was_sent_is_unfinished_and_named_as_sent():
    steps = [step(1), step(2, StepStatus.SENT), step(2, StepStatus.PLANNED, 1)]
    trail = read_trail([decided(1, action()), decided(2, action("b"), action("c"))], steps)
    assert trail.round == 2
    assert [item.request_id for item in trail.unfinished] == ["t.2.0.1", "t.2.1.1"]
    assert trail.sent_before == {"t.2.0.1"}


def test_of_several_attempts_the_newest_counts():
    steps = [step(1, outcome=ResultStatus.UNKNOWN), step(1, StepStatus.SENT, attempt=2)]
    trail = read_trail([decided(1, action())], steps)
    assert [item.attempt for item in trail.unfinished] == [2]


def test_refusals_keep_their_count_and_stay_in_their_round():
    decisions = [
        decided(1, action()),
        decided(2, action(), refused="a: no\nb: no"),
        decided(2, action(), refused="a: this was done already with the same arguments, and nothing"),
    ]
    trail = read_trail(decisions, [step(1)])
    assert trail.round == 2
    assert trail.refused_in_a_row == 2
    assert trail.repeats == 1
    assert trail.refusals[:2] == ["a: no", "b: no"]


def test_a_decision_that_was_acted_on_ends_the_row_of_refusals():
    decisions = [decided(1, action(), refused="no"), decided(1, action())]
    assert read_trail(decisions, [step(1)]).refused_in_a_row == 0


def test_a_finish_is_known_again():
    finish = Finish(report="done")
    trail = read_trail([decided(1, action()), decided(2, finish=finish, planner="q")], [step(1)])
    assert trail.finish == finish
    assert trail.planner == "q"
    assert len(trail.observations) == 1


def test_requests_are_the_same_to_the_letter_each_time_they_are_made():
    [planned] = plan_steps("t", 3, [action()])
    assert planned.request_id == "t.3.0.1"
    assert request_of(planned, RunKind.EVENT, None) == request_of(planned, RunKind.EVENT, None)
    assert request_of(planned, RunKind.EVENT, None).extra_confirmations == 0


def test_a_step_that_wants_a_confirmation_of_its_own_asks_for_one():
    [planned] = plan_steps("t", 1, [action().model_copy(update={"confirm": True})])
    assert request_of(planned, RunKind.EVENT, None).extra_confirmations == 1
