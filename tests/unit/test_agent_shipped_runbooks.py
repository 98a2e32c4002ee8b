"""The runbooks that ship, against the catalogue that ships."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.agent.choose import arguments_in
from hermesd.agent.planner import Briefing, Situation, observe
from hermesd.agent.runbook import Runbook, check_runbook, follow
from hermesd.confd import named, read_folder
from hermesd.control.settings import load_policy
from hermesd.protocol import CatalogueView, CommandResult, Gain, ResultStatus

CONF = Path(__file__).parents[2] / "conf.d"
RUNBOOKS = {
    runbook.name: runbook
    for runbook in (named(file).read(Runbook) for file in read_folder([CONF], "runbooks"))
}

USAGE = {
    "source": "/dev/sda1",
    "fstype": "ext4",
    "size_bytes": 24_000_000,
    "used_bytes": 20_000_000,
    "avail_bytes": 4_000_000,
    "used_percent": 83.0,
    "path": "/srv/app",
}
LOG = {
    "path": "/srv/app/log/app.log",
    "lines": 1500,
    "errors": 1400,
    "top": [{"message": "full", "count": 1400}],
}
ROWS = {
    "system:disk_usage": (USAGE,),
    "fs:largest": ({"path": "/srv/app/cache/big.bin", "size_bytes": 9_000_000, "mtime": 1},),
    "log:stats": (LOG,),
    "system:memory": (
        {"MemTotal": 8_000_000_000, "MemAvailable": 50_000_000, "SwapTotal": 1, "SwapFree": 1},
    ),
    "system:load": ({"load_1": 0.5, "load_5": 0.4, "load_15": 0.3, "tasks": "1/90", "last_pid": 7},),
    "process:top": ({"pid": 7, "name": "java", "rss_bytes": 7_000_000_000},),
    "unit:failed": ({"unit": "app.service", "description": "The App", "active": "failed"},),
}


@pytest.fixture(scope="module")
def catalogue():
    policy = load_policy([CONF])
    return CatalogueView(
        policy_version=policy.version,
        sandbox="x",
        readable_roots=policy.permissions.reach.readable_roots,
        commands=tuple(
            command.info().model_copy(update={"usable": True}) for command in policy.commands.values()
        ),
    )


def result(action, **over):
    rows = over.pop("rows", ROWS.get(action.command, ()))
    values = {"status": ResultStatus.SUCCEEDED, "summary": "a summary", "rows": rows, **over}
    return CommandResult(request_id="r", task_id="t", command=action.command, **values)


CLEANED = Gain(files_removed=37, files_skipped=0, size_bytes=14_200_000, freed_bytes=14_200_000)


def play(name, catalogue, *, event=None, goal="", writable=(), language="en", answers=None):
    """Play a runbook to its end; return the commands that it asked for, in order, and its finish."""
    briefing = Briefing(
        task_id="t",
        goal=goal,
        catalogue=catalogue.model_copy(update={"writable_roots": writable}),
        event=event or {},
        facts={} if event else arguments_in(goal),
        language=language,
    )
    seen, asked = [], []
    for round_no in range(1, 11):
        decision = follow(
            RUNBOOKS[name], Situation(briefing, round_no, tuple(seen), (), 10 - round_no, 15 - len(seen))
        )
        if decision.finish is not None:
            return asked, decision.finish
        for action in decision.actions:
            asked.append((action.command, action.args))
            over = {"gain": CLEANED} if action.command == "fs:cleanup" else {}
            over |= (answers or {}).get(action.step, {})
            seen.append(observe(round_no, action, result(action, **over)))
    pytest.fail("it did not come to an end")


def event(path="/srv/app", type_="host.filesystem", **over):
    return {"type": type_, "value": 83.3, "labels": {"host": "h", "path": path}, "text": "", **over}


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
def test_every_shipped_runbook_fits_the_shipped_catalogue(name, catalogue):
    assert check_runbook(RUNBOOKS[name], catalogue) == []


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
def test_every_shipped_runbook_speaks_both_languages(name):
    runbook = RUNBOOKS[name]
    words = [step.intent or step.text for step in runbook.steps]
    assert all(text.en and text.zh for text in (*words, *runbook.report.cause, *runbook.report.text))


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_report_shows_a_reference_that_stands_for_nothing(name, language, catalogue):
    for happening in ({}, event(), event("/")):
        _asked, finish = play(name, catalogue, event=happening, writable=("/srv",), language=language)
        assert "${" not in finish.report + finish.cause


def test_a_full_disk_is_looked_at_and_cleaned_where_an_administrator_has_opened_it(catalogue):
    asked, finish = play("disk-full", catalogue, event=event(), writable=("/srv/app",))
    assert asked == [
        ("system:disk_usage", {"path": "/srv/app"}),
        ("fs:largest", {"path": "/srv/app", "limit": 20}),
        ("log:stats", {"path": "/srv/app"}),
        ("fs:cleanup", {"path": "/srv/app", "kinds": ["caches", "rotated_logs", "temporary"]}),
        ("system:disk_usage", {"path": "/srv/app"}),
    ]
    assert "37 of them held 14.2 MB" in finish.cause
    assert "83 % full: 20.0 MB of 24.0 MB used" in finish.report
    assert "  9.0 MB  /srv/app/cache/big.bin" in finish.report
    assert "/srv/app/log/app.log: 1,500 lines, 1,400 errors" in finish.report
    assert "full (1,400 times)" in finish.report


def test_as_shipped_a_full_disk_is_only_looked_at(catalogue):
    asked, finish = play("disk-full", catalogue, event=event(), writable=())
    assert {command for command, _args in asked} == {"system:disk_usage", "fs:largest", "log:stats"}
    assert finish.cause.startswith("The largest file beneath /srv/app is /srv/app/cache/big.bin with 9.0 MB")
    assert "outside what I may change" in finish.report


def test_a_folder_beside_an_opened_one_is_not_cleaned(catalogue):
    asked, _finish = play("disk-full", catalogue, event=event("/srv/app2"), writable=("/srv/app",))
    assert "fs:cleanup" not in [command for command, _args in asked]


def test_a_watched_folder_reports_its_budget(catalogue):
    _asked, finish = play("disk-full", catalogue, event=event(type_="host.folder"), writable=())
    assert finish.report.startswith("/srv/app used 83.3 % of its budget")


def test_a_person_who_asks_about_a_disk_gets_a_look_and_no_proposal(catalogue):
    asked, _finish = play("disk-full", catalogue, goal="check the disk on /srv/app", writable=("/srv",))
    assert asked[0] == ("system:disk_usage", {"path": "/srv/app"})
    assert "fs:cleanup" not in [command for command, _args in asked]


def test_a_cleanup_that_a_person_denied_is_said_so(catalogue):
    denied = {"cleanup": {"status": ResultStatus.DENIED, "reason": "not on a Friday", "gain": None}}
    asked, finish = play("disk-full", catalogue, event=event(), writable=("/srv",), answers=denied)
    assert asked[-1][0] == "fs:cleanup"
    assert "cleanup: a person said no: not on a Friday" in finish.report


def test_a_full_root_is_looked_at_beneath_var_in_one_round(catalogue):
    asked, finish = play("disk-full", catalogue, event=event("/"), writable=())
    assert asked == [
        ("system:disk_usage", {"path": "/"}),
        ("fs:largest", {"path": "/var", "limit": 20}),
        ("log:stats", {"path": "/var/log"}),
    ]
    assert finish.cause.startswith("The largest file beneath /var is")


def test_a_full_root_is_cleaned_in_an_opened_folder_only_if_that_lies_on_it(catalogue):
    asked, finish = play("disk-full", catalogue, event=event("/"), writable=("/var/cache/app",))
    assert asked[-2] == (
        "fs:cleanup",
        {"path": "/var/cache/app", "kinds": ["caches", "rotated_logs", "temporary"]},
    )
    assert "held 14.2 MB of /" in finish.cause
    other = {"opened": {"rows": ({**USAGE, "source": "/dev/sdb1"},)}}
    asked, _finish = play(
        "disk-full", catalogue, event=event("/"), writable=("/var/cache/app",), answers=other
    )
    assert "fs:cleanup" not in [command for command, _args in asked]


def test_a_person_who_asks_for_a_cleanup_gets_one_proposed_only_where_it_is_allowed(catalogue):
    asked, _finish = play("cleanup", catalogue, goal="clean up /srv/app", writable=("/srv",))
    assert [command for command, _args in asked] == ["system:disk_usage", "fs:cleanup", "system:disk_usage"]
    asked, finish = play("cleanup", catalogue, goal="clean up /srv/app", writable=("/tmp",))
    assert [command for command, _args in asked] == ["system:disk_usage"]
    assert "outside what I may change" in finish.report


def test_a_cleanup_without_a_folder_asks_which(catalogue):
    asked, finish = play("cleanup", catalogue, goal="please clean up", writable=("/srv",))
    assert asked == []
    assert "Which folder?" in finish.report


def test_a_failing_health_check_names_the_failed_unit(catalogue):
    happening = {"type": "health.check", "labels": {"check": "web", "target": "http://x"}, "text": "refused"}
    asked, finish = play("health-down", catalogue, event=happening)
    assert [command for command, _args in asked] == [
        "system:load",
        "system:memory",
        "process:top",
        "unit:failed",
    ]
    assert finish.cause == "The unit app.service (The App) has failed."
    assert "web does not answer (http://x). refused" in finish.report


def test_where_units_cannot_be_read_the_health_check_is_answered_all_the_same(catalogue):
    commands = tuple(
        command.model_copy(update={"usable": False, "unusable_reason": "no bus"})
        if command.name == "unit:failed"
        else command
        for command in catalogue.commands
    )
    _asked, finish = play("health-down", catalogue.model_copy(update={"commands": commands}), event=event())
    assert finish.cause.startswith("Memory is nearly used up: 50.0 MB of 8.0 GB")
    assert "failed: left out, its command cannot be used here: no bus" in finish.report


def test_memory_names_the_process_that_uses_most(catalogue):
    _asked, finish = play("memory", catalogue, goal="帮我看看内存", language="zh")
    assert finish.cause == "占用最多的是 java（pid 7）：7.0 GB，共 8.0 GB。"


def test_a_general_look_takes_one_round(catalogue):
    asked, finish = play("inspect", catalogue)
    assert len(asked) == 4
    assert "Load: 0.5 over 1 min" in finish.report


def test_an_undo_names_its_operation_or_asks_which_and_no_model_plans_it(catalogue):
    asked, finish = play("undo", catalogue, goal="undo op-run-9794f56d89f8.2.0.1.")
    assert asked == [("fs:restore", {"operation": "op-run-9794f56d89f8.2.0.1"})]
    asked, finish = play("undo", catalogue, goal="please undo that")
    assert asked == []
    assert "Which operation?" in finish.report
    assert not RUNBOOKS["undo"].model
    assert all(runbook.model for name, runbook in RUNBOOKS.items() if name != "undo")
