"""What stops a run by itself."""

from __future__ import annotations

import pytest

from hermesd.agent.planner import Malformed, Spent
from hermesd.config import Limits
from hermesd.pipeline.counters import Counters, model_over, over, stands_still, thoughts_in_a_row
from hermesd.pipeline.words import EN, ZH


@pytest.mark.parametrize(
    ("within", "beyond", "words"),
    [
        (Counters(round=10), Counters(round=11), "all 10 rounds"),
        (Counters(refused_in_a_row=2), Counters(refused_in_a_row=3), "3 plans in a row"),
        (Counters(repeats=2), Counters(repeats=3), "again and again"),
        (Counters(same_thoughts=2), Counters(same_thoughts=3), "the same 3 times"),
    ],
)
def test_each_counter_ends_the_run_at_its_bound_and_not_before(within, beyond, words):
    assert over(within, Limits(), EN) == ""
    assert words in over(beyond, Limits(), EN, "because")
    assert over(beyond, Limits(), ZH, "because") != ""


def test_tokens_and_money_end_the_models_part_and_not_the_run():
    spent = Counters().heard(Spent("m", 900, 100, cost=0.5))
    assert (spent.tokens, spent.cost) == (1000, 0.5)
    assert over(spent, Limits(max_tokens=1000, max_cost=0.5), EN) == ""
    assert "1000 tokens" in model_over(spent, Limits(max_tokens=1000), EN)
    assert "0.5" in model_over(spent, Limits(max_tokens=0, max_cost=0.5), EN)
    assert model_over(spent, Limits(max_tokens=0), EN) == ""


def test_a_malformed_answer_is_counted():
    assert Counters().heard(Malformed("prose")).malformed == 1


@pytest.mark.parametrize(
    ("thoughts", "count"),
    [
        ([], 0),
        (["look"], 1),
        (["look", "Look ", "LOOK"], 3),
        (["look", "wait", "look"], 1),
        (["", ""], 0),
    ],
)
def test_a_thought_is_the_same_whatever_its_blanks_and_capitals(thoughts, count):
    assert thoughts_in_a_row(thoughts) == count


def test_a_planner_is_told_before_the_bound_that_it_stands_still():
    assert not stands_still(Counters(same_thoughts=1))
    assert stands_still(Counters(same_thoughts=2))
