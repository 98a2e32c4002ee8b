"""Where a model's arguments come from, what they may refer to, and what an answer may claim."""

from __future__ import annotations

import pytest

from hermesd.agent.arguments import unfit_arguments
from hermesd.agent.dependencies import settle, unfit_references
from hermesd.agent.planner import Briefing, Observation
from hermesd.agent.provenance import known_of, trace
from hermesd.agent.verify import unmet
from hermesd.protocol import (
    Action,
    CatalogueView,
    CommandInfo,
    Effect,
    Finish,
    Permission,
    ResultStatus,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "examples": ["/var/log"]},
        "pid": {"type": "integer", "minimum": 1, "examples": [1234]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 20},
        "sort": {"type": "string", "enum": ["memory", "cpu"]},
        "since": {"type": "string", "format": "date-time", "default": "1970-01-01T00:00:00Z"},
        "unit": {"type": "string", "examples": ["nginx.service"]},
        "text": {"type": "string", "maxLength": 20, "examples": ["Out of memory"]},
        "kinds": {"type": "array", "items": {"type": "string", "enum": ["caches", "temporary"]}},
    },
    "required": [],
}


def info(name="fs:largest", scenes=("disk",)):
    return CommandInfo(
        name=name,
        description="",
        effect=Effect.READ,
        permission=Permission.PUBLIC,
        args_schema=SCHEMA,
        timeout_ms=1000,
        scenes=scenes,
    )


VIEW = CatalogueView(
    policy_version="1",
    sandbox="x",
    readable_roots=("/var",),
    commands=(info(), info("system:memory", ("memory",))),
)
BRIEFING = Briefing(
    task_id="t",
    goal="check the disk on /srv/app",
    catalogue=VIEW,
    event={"labels": {"unit": "web.service"}},
)
SEEN = Observation(
    1,
    "m1_look",
    "fs:largest",
    {"path": "/srv/app"},
    ResultStatus.SUCCEEDED,
    rows=({"path": "/srv/app/cache/big.bin", "size_bytes": 1_240_000_000, "pid": 4711},),
    summary="/srv/app/cache/big.bin is the largest",
)


def traced(args, sources=None, seen=(SEEN,)):
    action = Action(step="a", command="fs:largest", args=args, intent="i", sources=sources or {})
    return trace(action, info(), known_of(BRIEFING, seen))


@pytest.mark.parametrize(
    ("args", "source"),
    [
        ({"path": "/srv/app"}, "goal"),
        ({"path": "/srv"}, "goal"),
        ({"path": "/var"}, "catalogue"),
        ({"path": "/srv/app/cache/big.bin"}, "m1_look"),
        ({"path": "/srv/app/cache"}, "m1_look"),
        ({"pid": 4711}, "m1_look"),
        ({"unit": "web.service"}, "event"),
        ({"limit": 7}, "catalogue"),
        ({"sort": "cpu"}, "catalogue"),
        ({"kinds": ["caches"]}, "catalogue"),
        ({"since": "2026-11-30T00:00:00Z"}, "catalogue"),
        ({"text": "Out of memory"}, "catalogue"),
        ({"path": "${m1_look.rows.0.path}"}, "m1_look"),
    ],
)
def test_each_value_is_traced_to_what_it_came_from(args, source):
    found, faults = traced(args)
    assert faults == []
    assert list(found.values()) == [source]


@pytest.mark.parametrize(
    "args",
    [
        {"path": "/opt/elsewhere"},
        {"path": "/srv/apple"},
        {"path": "/srv/app/secret"},
        {"path": "/var/log"},
        {"pid": 1234},
        {"pid": 471},
        {"unit": "nginx.service"},
        {"text": "password"},
    ],
)
def test_what_stands_nowhere_is_refused_in_words(args):
    _found, faults = traced(args)
    assert len(faults) == 1
    assert "does not stand in the goal, the event, or anything observed" in faults[0]


def test_a_source_that_is_named_must_hold_the_value():
    assert traced({"path": "/srv/app"}, {"path": "goal"})[1] == []
    [fault] = traced({"path": "/srv/app"}, {"path": "event"})[1]
    assert "does not stand in event" in fault
    [fault] = traced({"path": "/srv/app"}, {"path": "a dream"})[1]
    assert "there is no source 'a dream'" in fault


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"limit": 0}, "limit must be at least 1"),
        ({"limit": 201}, "limit must be at most 200"),
        ({"limit": "7"}, "limit must be of the type integer"),
        ({"limit": True}, "limit must be of the type integer"),
        ({"sort": "size"}, "sort is none of memory, cpu"),
        ({"kinds": ["caches", "logs"]}, "kinds is none of caches, temporary"),
        ({"text": "x" * 21}, "text is longer than 20 characters"),
        ({"depth": 1}, "fs:largest has no argument 'depth'"),
    ],
)
def test_what_does_not_fit_the_schema_is_said(args, words):
    assert list(unfit_arguments("fs:largest", args, SCHEMA)) == [words]


def use(value, step="b"):
    return Action(step=step, command="fs:largest", args={"path": value}, intent="i")


def test_a_reference_is_filled_with_what_the_step_found_and_keeps_its_type():
    filled = settle(use("${a.rows.0.pid}"), {"a": SEEN.as_scope()})
    assert filled.args == {"path": 4711}


def test_a_reference_to_nothing_says_what_was_lacking():
    assert settle(use("${a.rows.3.pid}"), {"a": SEEN.as_scope()}) == "path: ${a.rows.3.pid}: a.rows has no 3"


def test_what_is_not_known_yet_stays():
    assert settle(use("${z.rows.0.path}"), {"a": SEEN.as_scope()}).args == {"path": "${z.rows.0.path}"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("${x.rows}", "${x...} is no step of this decision, nor one that was done"),
        ("${b.rows}", "${b...} refers to the step itself"),
        ("${a.rows.0.size_bytes|bytes}", "${a.rows.0.size_bytes}: a form is for texts, not for arguments"),
    ],
)
def test_a_wrong_reference_is_refused_before_anything_runs(value, words):
    assert unfit_references(use(value), ["a", "b"], {}) == [words]


def test_a_reference_that_is_not_closed_is_refused():
    [fault] = unfit_references(use("${a.rows"), ["a", "b"], {})
    assert "is not closed" in fault


def answer(report, seen=(SEEN,), goal="check the disk on /srv/app", *, last_round=False):
    briefing = Briefing(task_id="t", goal=goal, catalogue=VIEW)
    return unmet(Finish(report=report), briefing, seen, last_round=last_round)


@pytest.mark.parametrize(
    "report",
    [
        "big.bin takes 1.24 GB",
        "big.bin takes 1.2 GB, 1,240,000,000 bytes",
        "process 4711 wrote it, 1 file",
        "nothing else since 2026-11-30 03:10:00",
    ],
)
def test_figures_that_were_observed_may_be_said_rounded_and_in_other_units(report):
    assert answer(report) == []


@pytest.mark.parametrize("report", ["big.bin takes 37 GB", "the disk is 92 % full", "process 4712"])
def test_figures_that_nobody_saw_are_refused_even_in_the_last_round(report):
    for last_round in (False, True):
        [fault] = answer(report, last_round=last_round)
        assert "occur in no observation" in fault


def test_nothing_seen_is_no_answer():
    assert "nothing was looked at yet" in answer("all is well", seen=())[0]


def test_each_demand_of_the_goal_must_have_been_looked_at():
    [fault] = answer("the disk is fine", goal="检查磁盘和内存")
    assert fault == "the goal asks about memory, and no command of that scene was run"
    assert answer("the disk is fine", goal="检查磁盘和内存", last_round=True) == []
