from __future__ import annotations

import tomllib

import pytest
from pydantic import ValidationError

from hermesd.agent.runbook_file import Runbook, check_runbook
from hermesd.confd import ConfigError, named, read_file
from hermesd.protocol import CatalogueView, CommandInfo, Effect, Permission

GOOD = """
[[steps]]
id = "usage"
command = "system:disk_usage"
args = { path = "${event.labels.path}" }
intent = "see"

[[steps]]
id = "largest"
command = "fs:largest"
args = { path = "${usage.rows.0.path}", limit = 5 }
intent = { en = "find", zh = "查找" }
needs = ["usage"]
when = [{ value = "${usage.rows.0.used_percent}", op = ">=", than = 75 }]
on_failure = "hand_over"
confirm = true

[[report.text]]
each = "${largest.rows}"
en = "${row.path}"
"""


def read(text):
    return Runbook.model_validate(tomllib.loads(text))


def command(name, **schema):
    return CommandInfo(
        name=name,
        description="d",
        effect=Effect.READ,
        permission=Permission.PUBLIC,
        args_schema={"type": "object", **schema},
        timeout_ms=1,
    )


def test_a_runbook_is_read_with_its_defaults():
    runbook = read(GOOD)
    usage, largest = runbook.steps
    assert (usage.on_failure, usage.confirm, usage.needs) == ("continue", False, ())
    assert (largest.on_failure, largest.confirm, largest.needs) == ("hand_over", True, ("usage",))
    assert usage.intent.of("zh") == "see"
    assert largest.intent.of("zh") == "查找"


def test_a_runbook_is_called_after_its_file_and_a_fault_names_file_and_line(tmp_path):
    (tmp_path / "look.toml").write_text(GOOD)
    assert named(read_file([tmp_path], "look.toml")).read(Runbook).name == "look"
    (tmp_path / "look.toml").write_text(GOOD.replace('on_failure = "hand_over"', 'on_failure = "panic"'))
    with pytest.raises(ConfigError, match=r"look\.toml:\d+: steps\.1\.on_failure"):
        named(read_file([tmp_path], "look.toml")).read(Runbook)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('id = "largest"', 'id = "usage"', "taken"),
        ('id = "usage"', 'id = "event"', "reserved"),
        ('needs = ["usage"]', 'needs = ["later"]', "no earlier step"),
        ('needs = ["usage"]', 'needs = ["largest"]', "no earlier step"),
        ("${usage.rows.0.path}", "${largest.rows.0.path}", "no earlier step"),
        ("${usage.rows.0.path}", "${row.path}", "no earlier step"),
        ("${usage.rows.0.path}", "${inputs.path}", "no input"),
        ("${usage.rows.0.path}", "${usage.rows.0.path|bytes}", "a form is for texts"),
        ("${usage.rows.0.path}", "${usage.rows.0", "reference"),
        ("${row.path}", "${rows.path}", "refers to no"),
        ('each = "${largest.rows}"', 'each = "all of ${largest.rows}"', "exactly one"),
        ('each = "${largest.rows}"', "", "refers to no"),
        ('intent = "see"', "", "needs an intent"),
        ('intent = "see"', 'intent = "see"\ntext = "x"', "either a command or a text"),
        ('command = "system:disk_usage"', 'text = "x"', "it has no args"),
        ('command = "system:disk_usage"', 'command = "rm -rf /"', "pattern"),
        ("confirm = true", 'confirm = "yes"', "boolean"),
        ("confirm = true", "sudo = true", "not permitted"),
    ],
)
def test_a_runbook_that_cannot_work_is_refused_with_a_reason(old, new, reason):
    assert GOOD.count(old) >= 1
    with pytest.raises(ValidationError, match=reason):
        read(GOOD.replace(old, new))


def test_a_runbook_without_steps_is_refused():
    with pytest.raises(ValidationError):
        read("steps = []")


def test_inputs_come_from_outside_and_never_from_a_step():
    with pytest.raises(ValidationError, match="an input comes from"):
        read('[inputs]\npath = ["${usage.rows.0.path}"]\n' + GOOD)


def view(*commands):
    return CatalogueView(policy_version="1", sandbox="none", commands=commands)


USAGE = command("system:disk_usage", properties={"path": {"type": "string"}}, required=["path"])
LARGEST = command(
    "fs:largest",
    properties={"path": {"type": "string"}, "limit": {"type": "integer"}, "sort": {"enum": ["a", "b"]}},
    required=["path"],
)


def test_a_runbook_that_fits_the_catalogue_has_no_faults():
    assert check_runbook(read(GOOD), view(USAGE, LARGEST)) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("fs:largest", "fs:smallest", "step 'largest': there is no command fs:smallest"),
        ("limit = 5", "count = 5", "step 'largest': fs:largest has no argument 'count'"),
        ("limit = 5", 'limit = "5"', "step 'largest': limit must be of the type integer"),
        ("limit = 5", "limit = true", "step 'largest': limit must be of the type integer"),
        ("limit = 5", 'sort = "c"', "step 'largest': sort is none of a, b"),
        (
            'args = { path = "${event.labels.path}" }',
            "",
            "step 'usage': system:disk_usage needs the argument 'path'",
        ),
    ],
)
def test_what_does_not_fit_the_catalogue_is_said_by_step(old, new, fault):
    assert check_runbook(read(GOOD.replace(old, new)), view(USAGE, LARGEST)) == [fault]
