from __future__ import annotations

import pytest
from pydantic import ValidationError

from hermesd.agent.conditions import Condition, is_within, judge, judge_all

SCOPE = {
    "event": {"value": 82.0, "labels": {"path": "/srv/app/cache"}, "unset": None},
    "usage": {"rows": ({"used_percent": 75},), "summary": "75 % used", "flag": True},
    "catalogue": {"readable_roots": ("/srv", "/var"), "writable_roots": ("/srv/app",)},
}


def holds(value, op, than=None):
    return judge(Condition(value=value, op=op, than=than), SCOPE).holds


@pytest.mark.parametrize(
    ("value", "op", "than", "expected"),
    [
        ("${usage.rows.0.used_percent}", ">=", 75, True),
        ("${usage.rows.0.used_percent}", ">", 75, False),
        ("${usage.rows.0.used_percent}", "<=", 75.0, True),
        ("${usage.rows.0.used_percent}", "<", 75, False),
        ("${usage.rows.0.used_percent}", "<", "${event.value}", True),
        ("${usage.rows.0.used_percent}", "==", 75.0, True),
        ("${usage.rows.0.used_percent}", "==", "75", False),
        ("${usage.rows.0.used_percent}", "!=", 74, True),
        ("${usage.flag}", "==", 1, False),
        ("${usage.flag}", "==", True, True),
        ("${usage.summary}", "contains", "75 %", True),
        ("${usage.summary}", "contains", 75, False),
        (["a", "b"], "contains", "b", True),
        (["a", "b"], "contains", "c", False),
        ("${usage.rows}", "empty", None, False),
        ("${usage.rows}", "empty", False, True),
        ([], "empty", None, True),
        ("", "empty", True, True),
        (0, "empty", None, False),
        ("${event.value}", "exists", None, True),
        ("${event.value}", "exists", False, False),
        ("${event.unset}", "exists", None, False),
        ("${event.unset}", "exists", False, True),
        ("${event.labels.path}", "within", "writable_roots", True),
        ("${event.labels.path}", "outside", "writable_roots", False),
        ("/srv/app2", "within", "writable_roots", False),
        ("/srv/app2", "outside", "writable_roots", True),
        ("/srv/app2", "within", "readable_roots", True),
        ("/srv/app2", "within", ["/srv/app2/x", "/srv/app2"], True),
        ("not a path", "outside", "writable_roots", False),
    ],
)
def test_each_operator_says_what_it_says(value, op, than, expected):
    assert holds(value, op, than) is expected


@pytest.mark.parametrize("op", ["==", "!=", ">", "<=", "contains", "within", "outside"])
def test_nothing_holds_of_a_value_that_is_not_known(op):
    than = "writable_roots" if op in ("within", "outside") else 1
    judgement = judge(Condition(value="${usage.rows.9.x}", op=op, than=than), SCOPE)
    assert not judgement.holds
    assert "has no 9" in judgement.reason


def test_not_even_emptiness_is_claimed_of_what_is_not_known():
    assert not holds("${usage.nothing}", "empty")
    assert not holds("${usage.nothing}", "empty", than=False)


def test_order_is_for_figures_alone():
    assert not holds("${usage.summary}", ">", 1)
    assert not holds("${usage.flag}", ">=", 1)


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/var", True),
        ("/var/", True),
        ("/var/log/x", True),
        ("//var//log", True),
        ("/var/./log", True),
        ("/var2", False),
        ("/var/../etc", False),
        ("/", False),
        ("var/log", False),
        ("", False),
        (None, False),
        (["/var"], False),
    ],
)
def test_a_path_lies_within_a_root_by_whole_components(path, inside):
    assert is_within(path, ["/var"]) is inside


def test_everything_lies_within_the_root_of_all_and_nothing_within_no_roots():
    assert is_within("/etc", ["/"])
    assert not is_within("/etc", [])


def test_the_first_condition_that_does_not_hold_gives_the_reason():
    conditions = [
        Condition(value=1, op="==", than=1),
        Condition(value=2, op=">", than=3),
        Condition(value="${x.y}", op="exists"),
    ]
    judgement = judge_all(conditions, SCOPE)
    assert not judgement.holds
    assert judgement.reason == "2 is not > 3"


@pytest.mark.parametrize(
    "fields",
    [
        {"value": 1, "op": "=", "than": 1},
        {"value": 1, "op": "=="},
        {"value": 1, "op": "exists", "than": "yes"},
        {"value": "/x", "op": "within", "than": "somewhere"},
        {"value": "/x", "op": "within", "than": "${event.roots}"},
        {"value": 1, "op": ">", "than": "75"},
        {"value": "${a b}", "op": "exists"},
        {"value": 1, "op": "==", "than": 1, "else": 2},
    ],
)
def test_a_condition_that_says_nothing_clear_is_refused_when_it_is_read(fields):
    with pytest.raises(ValidationError):
        Condition.model_validate(fields)
