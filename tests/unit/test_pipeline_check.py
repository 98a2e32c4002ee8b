"""A decision is refused in words when it makes no sense, and passed when it does."""

from __future__ import annotations

import pytest

from hermesd.agent.planner import Observation
from hermesd.pipeline.stages.check import check, in_order, is_repeat
from hermesd.protocol import Action, CatalogueView, CommandInfo, Decision, Effect, Permission, ResultStatus


def info(name, effect=Effect.READ, **more):
    schema = {"properties": {"path": {}, "lines": {}}, "required": ["path"]}
    return CommandInfo(
        name=name,
        description="",
        effect=effect,
        permission=Permission.INTERNAL,
        args_schema=schema,
        timeout_ms=1000,
        **more,
    )


CATALOGUE = CatalogueView(
    policy_version="1",
    sandbox="",
    commands=(
        info("fs:look", fallback="fs:glance"),
        info("fs:glance"),
        info("fs:clean", Effect.DESTROY),
        info("fs:broken", usable=False, unusable_reason="df is missing"),
    ),
)


def action(step="a", command="fs:look", needs=(), **args):
    return Action(step=step, command=command, args=args or {"path": "/"}, intent="x", needs=needs)


def faults(*actions, seen=(), left=15):
    return check(Decision(thought="", actions=actions), CATALOGUE, seen, left)


def saw(command="fs:look", status=ResultStatus.SUCCEEDED, **args):
    return Observation(1, "s", command, args or {"path": "/"}, status)


def test_a_sensible_decision_has_no_faults():
    assert faults(action("a"), action("b", "fs:glance", needs=("a",))) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (action(command="fs:unheard"), "a: there is no command fs:unheard"),
        (action(command="fs:broken"), "a: fs:broken cannot be used here: df is missing"),
        (action(path="/", depth=3), "a: fs:look has no argument 'depth'"),
        (action(lines=3), "a: fs:look needs the argument 'path'"),
        (action(needs=("b",)), "a: it needs 'b', which is no step of this decision"),
        (action(needs=("a",)), "the steps a need each other in a circle"),
    ],
)
def test_each_fault_is_named_with_its_step(wrong, words):
    assert faults(wrong) == [words]


def test_a_circle_is_found_among_steps_that_are_in_order():
    found = faults(action("a"), action("b", "fs:glance", needs=("c",)), action("c", "fs:clean", needs=("b",)))
    assert found == ["the steps b, c need each other in a circle"]


def test_two_steps_of_one_name_are_refused():
    assert faults(action("a"), action("a", "fs:glance")) == ["two actions have the same step name"]


def test_more_actions_than_are_left_are_refused():
    assert faults(action("a"), action("b", "fs:glance"), left=1) == [
        "only 1 more actions are allowed in this run"
    ]


@pytest.mark.parametrize(
    "status", [ResultStatus.SUCCEEDED, ResultStatus.FAILED, ResultStatus.DENIED, ResultStatus.TIMED_OUT]
)
def test_what_was_done_is_not_done_again_and_the_fallback_is_named(status):
    [reason] = faults(action(), seen=[saw(status=status)])
    assert is_repeat(reason)
    assert "try fs:glance instead" in reason


@pytest.mark.parametrize("status", [ResultStatus.PLAN_CHANGED, ResultStatus.UNAVAILABLE])
def test_what_may_end_otherwise_may_be_asked_again(status):
    assert faults(action(), seen=[saw(status=status)]) == []


def test_other_arguments_are_another_action():
    assert faults(action(path="/var"), seen=[saw()]) == []


def test_after_a_change_that_succeeded_looking_again_is_sensible():
    assert faults(action(), seen=[saw(), saw("fs:clean")]) == []


def test_a_change_that_was_denied_makes_nothing_sensible_again():
    denied = saw("fs:clean", ResultStatus.DENIED)
    assert len(faults(action(), action("b", "fs:clean"), seen=[saw(), denied])) == 2


def test_a_change_is_not_repeated_after_it_succeeded():
    [reason] = faults(action(command="fs:clean"), seen=[saw("fs:clean")])
    assert is_repeat(reason)


def test_actions_are_put_in_the_order_of_their_needs_and_else_stay_as_they_are():
    found = in_order([action("a", needs=("c",)), action("b"), action("c", needs=("b",)), action("d")])
    assert [item.step for item in found] == ["b", "c", "a", "d"]
