from __future__ import annotations

import asyncio

import pytest

from hermesd.agent.model_planner import ModelPlanner
from hermesd.agent.planner import Briefing, Malformed, PlannerUnavailable, Situation, Unavailability
from hermesd.agent.scripted import ScriptedModel
from hermesd.protocol import Action, CatalogueView, Decision, Finish

LOOK = Decision(
    thought="look",
    actions=(
        Action(step="a", command="system:disk_usage", args={"path": "/srv"}, intent="see"),
        Action(step="b", command="fs:largest", args={}, intent="find", needs=("a",)),
    ),
)
END = Decision(thought="done", finish=Finish(cause="caches", report="They grew."))
BROKEN = "Sure! {}"


def situation(**rest):
    briefing = Briefing(task_id="t1", goal="g", catalogue=CatalogueView(policy_version="1", sandbox="x"))
    return Situation(briefing=briefing, round=3, **rest)


async def test_the_models_steps_are_named_after_their_round():
    decision = await ModelPlanner(ScriptedModel([LOOK])).decide(situation())
    assert [action.step for action in decision.actions] == ["m3_a", "m3_b"]
    assert decision.actions[1].needs == ("m3_a",)
    assert decision.actions[0].args == {"path": "/srv"}


async def test_long_step_names_stay_names_and_stay_different():
    names = ["s" * 95 + end for end in "xy"]
    actions = tuple(Action(step=name, command="a:b", intent="i") for name in names)
    decision = await ModelPlanner(ScriptedModel([Decision(thought="", actions=actions)])).decide(situation())
    steps = [action.step for action in decision.actions]
    assert len(set(steps)) == 2
    assert Decision.model_validate_json(decision.model_dump_json()) == decision


async def test_a_finish_is_passed_on_as_it_is():
    assert await ModelPlanner(ScriptedModel([END])).decide(situation()) == END


async def test_a_malformed_answer_goes_back_with_its_reason():
    heard = []
    model = ScriptedModel([BROKEN, "{}", END])
    planner = ModelPlanner(model, hear=heard.append)
    assert await planner.decide(situation()) == END
    first, second, third = model.asked
    assert second[: len(first)] == first
    assert second[len(first)] == {"role": "assistant", "content": BROKEN}
    assert "text around the object" in second[-1]["content"]
    assert "thought" in third[-1]["content"]
    assert len(third) == len(second)
    assert [type(item) for item in heard] == [Malformed, Malformed]


async def test_after_the_allowed_number_of_malformed_answers_the_model_is_left():
    model = ScriptedModel([BROKEN] * 10)
    with pytest.raises(PlannerUnavailable, match="text around the object") as caught:
        await ModelPlanner(model, 3).decide(situation())
    assert caught.value.reason is Unavailability.NONSENSE
    assert len(model.asked) == 3


async def test_malformed_answers_are_counted_over_the_whole_run():
    model = ScriptedModel([BROKEN, BROKEN, LOOK, BROKEN, END])
    planner = ModelPlanner(model, 3)
    await planner.decide(situation())
    with pytest.raises(PlannerUnavailable):
        await planner.decide(situation())
    assert len(model.asked) == 4


async def test_what_was_malformed_before_a_crash_counts_too():
    model = ScriptedModel([BROKEN, END])
    with pytest.raises(PlannerUnavailable):
        await ModelPlanner(model, 3).decide(situation(malformed=2))
    assert len(model.asked) == 1
    with pytest.raises(PlannerUnavailable, match="no more malformed"):
        await ModelPlanner(model, 3).decide(situation(malformed=3))
    assert len(model.asked) == 1


class Silent:
    async def complete(self, messages):
        await asyncio.Event().wait()


class Slow:
    """Answers nonsense for ever, each time within its time."""

    async def complete(self, messages):
        await asyncio.sleep(0.02)
        return BROKEN


@pytest.mark.parametrize("chat", [Silent(), Slow()])
async def test_one_decision_has_one_clock_however_many_answers_it_takes(chat):
    with pytest.raises(PlannerUnavailable) as caught:
        await ModelPlanner(chat, 1000, budget_seconds=0.05).decide(situation())
    assert caught.value.reason is Unavailability.LATE


class Hasty:
    async def complete(self, messages):
        raise TimeoutError("somebody else's")


async def test_somebody_elses_timeout_is_not_called_the_models_lateness():
    with pytest.raises(TimeoutError, match="somebody else's"):
        await ModelPlanner(Hasty()).decide(situation())


async def test_a_script_that_is_over_is_a_model_that_is_down():
    with pytest.raises(PlannerUnavailable) as caught:
        await ModelPlanner(ScriptedModel([])).decide(situation())
    assert caught.value.reason is Unavailability.DOWN


async def test_a_script_may_hold_failures():
    late = PlannerUnavailable(Unavailability.LATE, "slow today")
    with pytest.raises(PlannerUnavailable, match="slow today"):
        await ModelPlanner(ScriptedModel([late])).decide(situation())
