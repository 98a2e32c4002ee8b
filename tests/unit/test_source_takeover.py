from datetime import UTC, datetime, timedelta

from hermesd.sources.takeover import Churn

START = datetime(2026, 1, 1, tzinfo=UTC)


def ends(churn, *seconds):
    return [churn.ended(START + timedelta(seconds=one)) for one in seconds]


def test_the_fourth_end_within_five_minutes_is_a_twin():
    assert ends(Churn(), 0, 3, 8, 20) == [False, False, False, True]


def test_ends_that_lie_far_apart_are_none():
    assert ends(Churn(), 0, 200, 400, 600, 800) == [False] * 5


def test_a_broker_that_was_away_in_between_is_none():
    churn = Churn()
    assert ends(churn, 0, 3, 8) == [False] * 3
    churn.not_established()
    assert ends(churn, 20, 22, 24) == [False] * 3
    assert ends(churn, 30) == [True]
