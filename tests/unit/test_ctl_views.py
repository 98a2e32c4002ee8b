"""What hermesctl makes of payloads, odd and partial ones too: pure functions, by example."""

from __future__ import annotations

import errno
import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermesd.ctl.asking import Answer, Place, Refused, Silent, exit_of
from hermesd.ctl.exits import Exit
from hermesd.ctl.screen import Cell, Column, Line, Screen, Table, Tone
from hermesd.ctl.speech import Speech
from hermesd.ctl.views.approval import render_ending, render_operation
from hermesd.ctl.views.audit import Checked, exit_of_audit, missing_tail, render_audit
from hermesd.ctl.views.catalogue import find_command, first_sentence, render_command, render_commands
from hermesd.ctl.views.fields import pairs, reading
from hermesd.ctl.views.lists import render_approvals, render_incidents, render_runs
from hermesd.ctl.views.status import Standing, exit_of_standing, find_problems, render_status, status_document
from hermesd.ctl.views.timeline import gain_text, render_show
from hermesd.ctl.width import cells

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
EN, ZH = Speech("en"), Speech("zh")
DAEMON = Place("hermesd", "hermesd.service", Path("/run/hermesd/control.sock"))
EXECUTOR = Place("hermesd-executor", "hermesd-executor.service", Path("/run/hermesd-executor/operator.sock"))
GOOD_DAEMON = {"ready": True, "sources": [], "executor": {"reachable": True, "policy_version": "p1"}}
GOOD_EXECUTOR = {"usable": True, "sandbox": "docker", "policy_version": "p1"}


def shown(items, width=100):
    stream = io.StringIO()
    Screen(stream, width).show(items)
    return stream.getvalue()


def standing(daemon=GOOD_DAEMON, executor=GOOD_EXECUTOR):
    return Standing(Answer(daemon), Answer(executor), Answer({"operations": []}))


def codes(one):
    return [(problem.code, problem.warning) for problem in find_problems(one, EN)]


def test_nothing_is_wrong_with_a_healthy_pair():
    assert find_problems(standing(), EN) == []
    assert exit_of_standing(standing(), []) is Exit.DONE


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"ready": False}, [("not_ready", False)]),
        ({"executor": {"reachable": False}}, [("no_link", False)]),
        ({"executor": {"reachable": True, "policy_version": "p0"}}, [("policy_differs", True)]),
        ({"sources": [{"name": "a", "state": "waiting"}]}, [("source", False)]),
        ({"sources": [{"name": "a", "state": "off"}]}, []),
        ({"paused": True}, [("paused", True)]),
        ({"model": {"configured": True, "name": "m", "state": "down"}}, [("model", True)]),
        ({"model": {"configured": True, "name": "m", "state": "ok"}}, []),
        ({"model": {"configured": False, "state": "none"}}, []),
    ],
)
def test_each_thing_that_is_wrong_with_the_daemon_has_its_name(changes, found):
    assert codes(standing(daemon={**GOOD_DAEMON, **changes})) == found


@pytest.mark.parametrize(
    ("changes", "found"),
    [({"usable": False}, [("no_sandbox", False)]), ({"degraded": ["x"]}, [("degraded", True)])],
)
def test_each_thing_that_is_wrong_with_the_executor_has_its_name(changes, found):
    assert codes(standing(executor={**GOOD_EXECUTOR, **changes})) == found


def test_faults_stand_before_warnings():
    one = standing(daemon={**GOOD_DAEMON, "paused": True, "ready": False})
    assert codes(one) == [("not_ready", False), ("paused", True)]


def test_a_missing_link_is_not_told_twice_when_the_executor_itself_is_down():
    silent = Silent(EXECUTOR, errno.ENOENT)
    one = Standing(Answer({**GOOD_DAEMON, "executor": {"reachable": False}}), silent, silent)
    assert codes(one) == [("unreachable", False)]
    assert exit_of_standing(one, find_problems(one, EN)) is Exit.UNREACHABLE


def test_status_refused_by_one_side_is_bad_and_not_unreachable():
    refused = Refused("internal", "a fault inside hermesd")
    one = Standing(refused, Answer(GOOD_EXECUTOR), Answer({"operations": []}))
    assert exit_of_standing(one, find_problems(one, EN)) is Exit.BAD


@pytest.mark.parametrize("say", [EN, ZH])
def test_every_view_survives_payloads_that_are_empty_or_odd(say):
    odd = {
        "incident": {"id": None, "labels": [1], "opened_at": 5, "runs": "x", "last_value": "high"},
        "run": {"stages": [{}], "steps": [{"round": "two", "args": 7, "gain": []}], "report": 9},
        "records": [{"seq": {}}, 3],
    }
    for payload in ({}, odd):
        shown(render_show(payload, say, NOW, records=True))
        for key in ("incidents", "runs", "operations", "commands"):
            rows = {key: [{}, {"id": []}, None, "x"]}
            shown(render_incidents(rows, say, NOW, everything=False))
            shown(render_runs(rows, say, NOW))
            shown(render_approvals(rows, say, NOW))
            shown(render_commands(rows, say))
        shown(render_command({"args_schema": {"properties": {"a": 1, "b": {"enum": 3, "examples": 4}}}}, say))
        shown(render_operation({"impact": [], "args": [], "token_expires_at": "soon"}, say, NOW, 80))
        shown(render_ending({"outcome": None, "result": "x"}, say))
    one = standing(
        daemon={"sources": [{}], "inbox": 3, "audit": None, "uptime_s": "x"}, executor={"engines": []}
    )
    problems = find_problems(one, say)
    assert shown(render_status(one, problems, say, NOW))
    assert status_document(one, problems, Exit.BAD)["ok"] is False


@pytest.mark.parametrize("width", [40, 80, 100])
def test_wide_and_narrow_letters_align_in_tables_and_labels(width):
    rows = ((Cell("磁盘"), Cell("一")), (Cell("disk"), Cell("1")), (Cell("ディスク"), Cell("1")))
    table = Table((Column("名称", whole=True), Column("数", right=True)), rows)
    lines = shown([table], width).splitlines()
    assert len({cells(line) for line in lines}) == 1
    labelled = shown([Line("a", label="磁盘", hang=8), Line("b", label="disk", hang=8)], width).splitlines()
    assert [cells(line) for line in labelled] == [9, 9]


def test_what_is_shown_is_made_visible_wherever_it_stands():
    evil = "\x1b[2J\u202e"
    text = shown([Line(evil, label=evil), Table((Column(evil),), ((Cell(evil),),))])
    assert all(char.isprintable() or char == "\n" for char in text)
    assert text.count("\\x1b[2J\\u202e") == 4


def test_a_wrapped_line_hangs_beneath_its_own_start():
    lines = shown([Line("one two three four five six seven", label="label", hang=10)], 30).splitlines()
    assert lines[0].startswith("label     one")
    assert all(line.startswith(" " * 10) and line[10] != " " for line in lines[1:])


def test_colours_wrap_what_they_mean_and_nothing_else():
    stream = io.StringIO()
    Screen(stream, 80, colour=True).show([Line("bad", Tone.BAD, "why", 5)])
    assert stream.getvalue() == "\x1b[2mwhy  \x1b[0m\x1b[1;31mbad\x1b[0m\n"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("not_found", 5), ("refused", 4), ("not_now", 4), ("bad_request", 2), ("internal", 1), ("other", 1)],
)
def test_each_code_of_the_other_side_has_its_exit_code(code, exit_code):
    assert exit_of(Refused(code, "")) == exit_code


def test_the_missing_tail_is_told_only_when_the_log_ends_too_early():
    anchor = f"14:{'ab' * 32}"
    assert missing_tail({"head": f"10:{'cd' * 32}", "first_bad": 11}, anchor) == (11, 14)
    assert missing_tail({"head": f"10:{'cd' * 32}", "first_bad": 4}, anchor) is None
    assert missing_tail({"head": f"20:{'cd' * 32}", "first_bad": 14}, anchor) is None
    assert missing_tail({"head": "?"}, "") is None


def test_a_bad_log_outweighs_one_that_could_not_be_asked_for():
    bad = Checked(DAEMON, "", Answer({"ok": False, "first_bad": 3, "reason": "torn record"}))
    unasked = Checked(EXECUTOR, "", Silent(EXECUTOR, errno.ENOENT))
    good = Checked(EXECUTOR, "", Answer({"ok": True, "records": 5, "head": "5:aa"}))
    assert exit_of_audit([bad, unasked]) is Exit.BAD
    assert exit_of_audit([good, unasked]) is Exit.UNREACHABLE
    assert exit_of_audit([good, good]) is Exit.DONE
    assert "first bad record 3: torn record" in shown(render_audit([bad, good], EN))


def test_a_log_without_an_anchor_is_said_to_lack_one():
    good = Checked(EXECUTOR, "", Answer({"ok": True, "records": 5, "head": "5:aa"}))
    assert "a cut tail would not show" in " ".join(shown(render_audit([good], EN)).split())


def test_gains_name_what_was_skipped_only_when_something_was():
    gain = {"files_removed": 37, "files_skipped": 0, "freed_bytes": 14_200_832}
    assert gain_text(gain, EN) == "37 files removed, 14.2 MB freed"
    assert gain_text({**gain, "files_skipped": 2}, EN) == "37 files removed, 2 skipped, 14.2 MB freed"


def test_values_keep_their_units():
    assert reading({"last_value": 91.25, "unit": "percent"}) == "91.2 %"
    assert reading({"last_value": 3, "unit": "seconds"}) == "3 seconds"
    assert reading({"last_value": None}) == "–"
    assert pairs({"path": "/var", "deep": True, "n": [1]}) == ["path=/var", "deep=true", "n=[1]"]
    assert pairs({"whole": 20.0, "part": 0.5}) == ["whole=20", "part=0.5"]


def test_hashes_are_shortened_in_records_for_people():
    text = shown(
        render_show({"records": [{"seq": 1, "kind": "x", "digest": "ab" * 32}]}, EN, NOW, records=True)
    )
    assert "digest=abababababab…" in text


def test_a_description_is_listed_by_its_first_sentence():
    assert first_sentence("Reports v1.2 use. More.") == "Reports v1.2 use."
    assert first_sentence("报告用量。更多。") == "报告用量。"
    assert first_sentence("No stop") == "No stop"
    assert find_command({"commands": [{"name": "a:b"}]}, "a:c") is None


def test_a_command_is_shown_with_what_runs_what_previews_it_and_when_it_may_run():
    command = {
        "name": "fs:cleanup", "description": "Removes.", "effect": "destroy", "permission": "internal",
        "timeout_ms": 60_000, "scenes": ["disk"], "priority": 90, "preview": "fs:cleanup_preview",
        "runs": "hermesd:fs_remove {path}", "concurrency_safe": False, "retryable": False,
    }  # fmt: skip
    text = shown(render_command(command, Speech("en")))
    for words in ("fs:cleanup_preview", "hermesd:fs_remove {path}", "runs alone in its turn", "90"):
        assert words in text
    assert "instead of it" not in text
    assert "须依次单独执行" in shown(render_command(command, Speech("zh")))


def test_status_says_what_a_person_has_and_what_waits_for_a_persons_hands():
    one = standing(executor={**GOOD_EXECUTOR, "takeovers": ["t1", "/srv/data"], "tickets": 2})
    text = shown(render_status(one, [], EN, NOW))
    assert "t1, /srv/data: only looked at until `hermesctl release`" in text
    assert "2 wait: hermesctl queue list" in text
    assert "hermesctl queue" not in shown(render_status(standing(), [], EN, NOW))


def test_a_tools_file_that_is_left_out_is_a_warning():
    one = standing(executor={**GOOD_EXECUTOR, "tool_faults": ["tools.d/x.py:3: name"]})
    assert codes(one) == [("tool", True)]
    assert "tools.d/x.py:3: name" in find_problems(one, EN)[0].text
