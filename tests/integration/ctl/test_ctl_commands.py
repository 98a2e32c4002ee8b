"""The real hermesctl as a subprocess: what it shows, what programs get, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from hermesd.ipc.messages import Code
from tests.integration.ctl.conftest import (
    HERMESCTL,
    Failed,
    Hangs,
    Told,
    daemon_status,
    executor_status,
    incident,
    raw_answer,
    source,
    told_run,
    waiting_operation,
)

FINISHED = {"task_id": "run-1", "outcome": "answered", "report": "All is well.\nNothing to do."}


def whole(**changes):
    head = f"10:{'ab' * 32}"
    verdict = {"ok": True, "records": 10, "head": head, "first_bad": None, "reason": ""}
    return {**verdict, "peer_anchor": "", **changes}


def test_a_healthy_hermesd_is_told_on_one_screen_and_ends_with_0(bench):
    ended = bench.run("status")
    assert ended.code == 0
    assert "hermesd is well" in ended.out.splitlines()[0]
    assert len(ended.out.splitlines()) <= 24
    for told in ("bubblewrap passed its self-test", "host running for 3 h", "128,403", "2,048 records"):
        assert told in ended.out


def test_status_without_either_process_names_sockets_and_remedies_and_ends_with_3(bench):
    ended = bench.run(
        "status", HERMESD_CONTROL_SOCKET="/nowhere/a.sock", HERMESD_OPERATOR_SOCKET="/nowhere/b"
    )
    assert ended.code == 3
    for told in ("/nowhere/a.sock", "/nowhere/b", "systemctl status hermesd.service"):
        assert told in ended.out


@pytest.mark.parametrize(
    ("down", "shown"), [("control", "2,048 records of"), ("operator", "bubblewrap passed")]
)
def test_status_shows_the_process_that_is_up_when_the_other_one_is_down(bench, down, shown):
    ended = bench.run("status", f"--{down}-socket", "/nowhere/x.sock")
    assert ended.code == 3
    assert "is not running: nobody answers at /nowhere/x.sock" in ended.out
    other = {"control": "bubblewrap passed", "operator": "2,048 records of"}[down]
    assert other in ended.out
    assert shown not in ended.out


def test_status_does_not_wait_long_for_a_process_that_hangs(bench):
    bench.daemon.answers["status"] = Hangs()
    began = time.monotonic()
    ended = bench.run("status", "--timeout", "0.3")
    assert ended.code == 3
    assert "did not answer in time" in ended.words
    assert "bubblewrap passed" in ended.out
    assert time.monotonic() - began < 5


def test_a_person_who_is_turned_away_is_told_the_group(bench):
    bench.executor.admits = False
    ended = bench.run("approvals")
    assert ended.code == 3
    assert "hermesd-operators" in ended.err
    assert "operator.sock" in ended.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_person_who_may_not_reach_the_socket_is_told_the_group(bench, tmp_path, program):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    bench_environ = bench.environ(HERMESD_CONTROL_SOCKET=str(closed / "control.sock"), **program.environ)
    done = subprocess.run(
        [program.argv[0], "-m", "hermesd.ctl", "runs"],
        env=bench_environ,
        user=65534,
        group=65534,
        capture_output=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 3
    assert b"usermod -aG hermesd-operators" in done.stderr


def test_faults_come_before_everything_else_and_end_with_1(bench):
    dead = source(name="broker", kind="mqtt", state="waiting", restarts=4, error="connection refused")
    bench.daemon.answers["status"] = daemon_status(sources=[source(), dead], paused=True)
    bench.executor.answers["status"] = executor_status(usable=False, sandbox="", reason="no user namespaces")
    ended = bench.run("status")
    assert ended.code == 1
    top = ended.out[: ended.out.index("daemon ")]
    assert top.index("no user namespaces") < top.index("new runs are paused")
    assert "source broker died, will be restarted: connection refused" in top


def test_a_degraded_sandbox_is_a_warning_and_not_a_fault(bench):
    bench.executor.answers["status"] = executor_status(degraded=["no cgroup is delegated"])
    ended = bench.run("status")
    assert ended.code == 0
    assert "no cgroup is delegated" in ended.out
    assert ended.out.startswith("! ")


def test_status_names_the_exact_command_for_each_waiting_operation(bench):
    bench.executor.answers["approvals"] = {
        "operations": [waiting_operation(id="op-a"), waiting_operation(id="op-b")]
    }
    ended = bench.run("status")
    assert "→ hermesctl approve op-a\n" in ended.out
    assert "→ hermesctl approve op-b\n" in ended.out


def test_status_for_programs_is_one_document_with_null_for_who_does_not_answer(bench):
    ended = bench.run("status", "--json", "--operator-socket", "/nowhere/x.sock")
    assert ended.code == 3
    assert ended.document["executor"] is None
    assert ended.document["approvals"] is None
    assert ended.document["daemon"]["version"] == "0.1.0"
    assert [problem["code"] for problem in ended.document["problems"]] == ["unreachable"]
    assert ended.document["ok"] is False


def test_incidents_are_asked_for_as_the_person_said_and_listed_with_human_times(bench):
    bench.daemon.answers["incidents"] = {"incidents": [incident(), incident(id="inc-2", last_value=None)]}
    ended = bench.run("incidents", "--all", "--limit", "7")
    assert ended.code == 0
    assert bench.daemon.asked_for("incidents") == [{"all": True, "limit": 7}]
    assert "3 min ago" in ended.out
    assert "91.2 %" in ended.out


def test_no_incident_is_said_in_words(bench):
    bench.daemon.answers["incidents"] = {"incidents": []}
    assert "no open incidents" in bench.run("incidents").out


def test_runs_can_be_narrowed_to_an_incident(bench):
    ended = bench.run("runs", "--incident", "inc-9")
    assert bench.daemon.asked_for("runs") == [{"incident": "inc-9", "limit": 50}]
    assert "waiting for a person" in ended.out


def test_show_tells_stages_with_their_budgets_steps_and_the_report_in_order(bench):
    ended = bench.run("show", "run-20260301-c41d")
    assert ended.code == 0
    told = ("receive", "round 1", "system:disk_usage path=/var", "outside what I may operate on", "round 2")
    places = [ended.out.index(text) for text in (*told, "74.2 s", "of 4 h", "review", "Old caches of app")]
    assert places == sorted(places)
    assert "37 files removed, 14.2 MB freed" in ended.out
    assert "2 audit records" in ended.out


def test_show_prints_the_audit_records_when_they_are_wanted(bench):
    ended = bench.run("show", "run-20260301-c41d", "--records")
    assert 'command.result command=system:disk_usage status=succeeded args={"path": "/var"}' in ended.out


def test_what_does_not_exist_ends_with_5(bench):
    bench.daemon.answers["show"] = Failed(Code.NOT_FOUND, "there is no incident or run nope")
    ended = bench.run("show", "nope")
    assert (ended.code, ended.out) == (5, "")
    assert "there is no incident or run nope" in ended.err


def test_what_is_not_permitted_ends_with_4(bench):
    bench.daemon.answers["cancel"] = Failed(Code.REFUSED, "only who asked may cancel it")
    ended = bench.run("cancel", "run-1")
    assert ended.code == 4
    assert "only who asked may cancel it" in ended.err


def test_an_error_is_a_document_too_for_programs(bench):
    bench.daemon.answers["show"] = Failed(Code.NOT_FOUND, "there is no run nope")
    ended = bench.run("--json", "show", "nope")
    assert ended.code == 5
    assert ended.document == {"error": {"code": "not_found", "reason": "there is no run nope", "exit": 5}}
    assert ended.err == ""


@pytest.mark.parametrize(
    "arguments", [("nope",), ("show",), ("runs", "--limit", "zero"), ("--lang", "fr", "runs")]
)
def test_a_command_line_that_is_not_understood_ends_with_2(bench, arguments):
    ended = bench.run(*arguments)
    assert ended.code == 2
    assert ended.err.startswith("error: ")
    assert bench.daemon.asked == []


def test_pause_without_an_id_pauses_all_and_with_one_that_run_alone(bench):
    bench.daemon.answers["pause"] = lambda asked: {"task_id": asked.get("task_id", ""), "status": "paused"}
    assert "no new runs start" in bench.run("pause").out
    assert bench.run("pause", "run-1").out == "run-1: paused\n"
    assert bench.daemon.asked_for("pause") == [{}, {"task_id": "run-1"}]


def test_ask_follows_the_run_and_prints_its_report_at_the_end(bench):
    bench.daemon.answers["ask"] = {"task_id": "run-1"}
    bench.daemon.answers["follow"] = Told(
        [{"line": "plan: look", "stage": "plan", "outcome": "ok"}], FINISHED
    )
    ended = bench.run("ask", "why is /var full?")
    assert ended.code == 0
    assert bench.daemon.asked == [("ask", {"text": "why is /var full?"}), ("follow", {"task_id": "run-1"})]
    assert ended.out.splitlines() == [
        "run run-1", "  plan: look", "", "  All is well.", "  Nothing to do.", "", "run-1: answered",
    ]  # fmt: skip


def test_ask_that_is_not_waited_for_says_how_to_follow(bench):
    bench.daemon.answers["ask"] = {"task_id": "run-1"}
    ended = bench.run("ask", "--no-wait", "look")
    assert ended.code == 0
    assert "hermesctl follow run-1" in ended.out
    assert bench.daemon.asked_for("follow") == []


@pytest.mark.parametrize("outcome", ["reported", "failed", "handed_over", "unknown", "denied"])
def test_a_run_that_was_not_successful_ends_with_1(bench, outcome):
    bench.daemon.answers["follow"] = {"task_id": "run-1", "outcome": outcome, "report": ""}
    assert bench.run("follow", "run-1").code == 1


def test_followed_lines_cannot_steer_the_terminal(bench):
    line = {"line": "\x1b[2J\u202eevil\u200b", "stage": "execute", "outcome": "ok"}
    bench.daemon.answers["follow"] = Told([line], FINISHED)
    ended = bench.run("follow", "run-1")
    assert "\\x1b[2J\\u202eevil\\u200b" in ended.out
    assert "\x1b" not in ended.out


def test_follow_for_programs_is_the_final_document_alone(bench):
    bench.daemon.answers["follow"] = Told([{"line": "plan", "stage": "plan", "outcome": "ok"}], FINISHED)
    assert bench.run("follow", "run-1", "--json").document == FINISHED


def test_interrupting_follow_leaves_the_run_alone_and_says_so(bench):
    bench.daemon.answers["follow"] = Told([{"line": "begun", "stage": "plan", "outcome": "ok"}], Hangs())
    terminal = bench.on_terminal("follow", "run-1")
    terminal.read_until("begun")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "what is under way goes on" in terminal.shown
    assert "Traceback" not in terminal.shown


def test_a_daemon_that_goes_away_while_followed_ends_with_3(bench, tmp_path):
    line = {"kind": "follow", "status": "running", "payload": {"line": "begun"}}
    with raw_answer(tmp_path / "gone.sock", json.dumps(line).encode() + b"\n"):
        ended = bench.run("follow", "run-1", "--control-socket", str(tmp_path / "gone.sock"))
    assert ended.code == 3
    assert ended.out == "  begun\n"
    assert "or it stopped" in ended.words


def test_commands_lists_the_catalogue_and_says_what_cannot_be_used(bench):
    ended = bench.run("commands")
    assert ended.code == 0
    assert "Reports size, used and free space" in ended.out
    assert "Returns one JSON row" not in ended.out
    assert "not usable: /usr/bin/python3 is missing" in ended.out


def test_one_command_is_shown_with_its_arguments(bench):
    ended = bench.run("commands", "fs:remove_old")
    assert "older_than_days  Age in days (required; at least 1; at most 365)" in ended.out


def test_an_unknown_command_of_the_catalogue_ends_with_5(bench):
    assert bench.run("commands", "fs:nope").code == 5


def test_reload_names_each_fault_and_says_that_the_old_configuration_stays(bench):
    faults = (
        "/etc/hermesd/conf.d/rules/a.toml:7: op: wrong\n/etc/hermesd/conf.d/daemon.toml:3: no such section"
    )
    bench.daemon.answers["reload"] = Failed(Code.REFUSED, faults)
    ended = bench.run("reload")
    assert ended.code == 1
    assert "the old one stays in force" in ended.err
    assert [line.strip() for line in ended.err.splitlines()[1:]] == faults.splitlines()


def test_deny_sends_the_reason(bench):
    bench.executor.answers["deny"] = {"id": "op-1", "outcome": "denied", "text": "denied"}
    ended = bench.run("deny", "op-1", "--reason", "not today")
    assert (ended.code, ended.out) == (0, "op-1: denied; nothing was done\n")
    assert bench.executor.asked_for("deny") == [{"id": "op-1", "reason": "not today"}]


def test_each_log_is_verified_with_the_head_that_the_other_process_has_seen(bench):
    seen_by_daemon, seen_by_executor = f"7:{'cd' * 32}", f"9:{'ab' * 32}"
    bench.daemon.answers["audit.verify"] = whole(records=10, peer_anchor=seen_by_daemon)
    bench.executor.answers["audit.verify"] = whole(records=8, peer_anchor=seen_by_executor)
    ended = bench.run("audit", "verify")
    assert ended.code == 0
    assert ended.out.startswith("audit verified, 18 records\n")
    assert bench.executor.asked_for("audit.verify") == [{"anchor": seen_by_daemon}]
    assert bench.daemon.asked_for("audit.verify")[-1] == {"anchor": seen_by_executor}


def test_a_cut_tail_is_named_and_ends_with_1(bench):
    bench.daemon.answers["audit.verify"] = whole(peer_anchor=f"14:{'cd' * 32}")
    reason = "the other process has seen record 14, which is not here (tail cut, or rewritten)"
    bench.executor.answers["audit.verify"] = whole(ok=False, first_bad=11, reason=reason)
    ended = bench.run("audit", "verify")
    assert ended.code == 1
    assert "audit NOT verified" in ended.out
    assert "first bad record 11" in ended.out
    assert "missing tail: records 11 to 14" in ended.out


def test_a_log_that_cannot_be_asked_for_is_never_called_verified(bench):
    bench.daemon.answers["audit.verify"] = whole()
    ended = bench.run("audit", "verify", "--operator-socket", "/nowhere/x.sock")
    assert ended.code == 3
    assert "audit verified" not in ended.out
    assert "partly" in ended.out


def test_audit_for_programs_sums_both_logs(bench):
    bench.daemon.answers["audit.verify"] = whole(records=10)
    bench.executor.answers["audit.verify"] = whole(records=8)
    document = bench.run("audit", "verify", "--json").document
    assert (document["verified"], document["records"]) == (True, 18)
    assert set(document["logs"]) == {"hermesd", "hermesd-executor"}


def test_version_answers_without_a_daemon_too(bench):
    assert bench.run("version").out == "hermesctl 0.1.0\nhermesd 0.1.0\n"
    ended = bench.run("version", "--control-socket", "/nowhere/x.sock")
    assert ended.code == 0
    assert "does not answer" in ended.out


@pytest.mark.parametrize(
    ("environ", "spoken"),
    [
        ({"LC_ALL": "zh_CN.UTF-8"}, "一切正常"),
        ({"LC_ALL": "", "LANG": "zh_TW.UTF-8"}, "一切正常"),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "zh_CN.UTF-8"}, "is well"),
    ],
)
def test_the_locale_chooses_the_language(bench, environ, spoken):
    assert spoken in bench.run("status", PYTHONUTF8="1", **environ).out


def test_the_language_given_wins_over_the_locale_before_and_behind_the_command(bench):
    for arguments in (("--lang", "zh", "status"), ("status", "--lang", "zh"), ("status", "--lang=zh")):
        assert "一切正常" in bench.run(*arguments).out
    assert "退出码" in bench.run("--lang", "zh", "--help").out


def test_a_terminal_without_chinese_letters_costs_no_traceback(bench):
    ended = bench.run("status", "--lang", "zh", PYTHONIOENCODING="ascii")
    assert ended.code == 0
    assert "\\u4e00" in ended.out


@pytest.mark.parametrize("language", ["en", "zh"])
def test_help_lists_every_exit_code(bench, language):
    shown = bench.run("--lang", language, "--help").out
    for code in ("  0  ", "  1  ", "  2  ", "  3  ", "  4  ", "  5  ", "  130"):
        assert f"\n  {code}" in shown


@pytest.mark.parametrize(
    "command",
    ["status", "incidents", "runs", "show", "approvals", "approve", "deny", "pause", "resume", "cancel",
     "ask", "follow", "commands", "reload", "audit", "version"],
)  # fmt: skip
def test_every_command_has_help_in_both_languages(bench, command):
    english, chinese = bench.run(command, "--help"), bench.run("--lang", "zh", command, "--help")
    assert (english.code, chinese.code) == (0, 0)
    assert english.out != chinese.out
    assert "--json" not in english.out  # the shared options are listed once


def test_no_line_is_wider_than_100_columns_when_the_output_is_no_terminal(bench):
    long = incident(title="磁盘已满 " * 60)
    bench.daemon.answers["incidents"] = {"incidents": [long]}
    assert max(len(line) for line in bench.run("incidents").out.splitlines()) <= 100


def test_colour_is_for_terminals_that_want_it_alone(bench):
    assert "\x1b[" not in bench.run("status").out
    terminal = bench.on_terminal("status")
    assert terminal.end() == 0
    assert "\x1b[32m" in terminal.raw
    plain = bench.on_terminal("incidents", NO_COLOR="1")
    assert plain.end() == 0
    assert "\x1b[" not in plain.raw


def test_a_reader_that_goes_away_costs_no_traceback(bench):
    bench.daemon.answers["incidents"] = {"incidents": [incident(id=f"inc-{n}") for n in range(1000)]}
    hermesctl = subprocess.Popen(
        [HERMESCTL, "incidents"], env=bench.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert hermesctl.stdout is not None
    hermesctl.stdout.read(10)
    hermesctl.stdout.close()
    _out, errors = hermesctl.communicate(timeout=20)
    assert (hermesctl.returncode, errors) == (141, b"")


def test_a_full_disk_behind_the_output_is_said_in_one_line(bench):
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [HERMESCTL, "status"], env=bench.environ(), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("payload", [{}, {"incidents": 7}, {"incidents": [None, 3, {"id": None}]}])
def test_an_answer_of_another_shape_costs_no_traceback(bench, payload):
    bench.daemon.answers["incidents"] = payload
    ended = bench.run("incidents")
    assert ended.code == 0
    assert "Traceback" not in ended.err


def test_a_stranger_behind_the_socket_is_not_understood_and_costs_no_traceback(bench, tmp_path):
    with raw_answer(tmp_path / "odd.sock", b"HTTP/1.1 200 OK\r\n\n"):
        ended = bench.run("runs", "--control-socket", str(tmp_path / "odd.sock"))
    assert ended.code == 3
    assert "hermesd cannot be asked" in ended.words
    assert "Traceback" not in ended.err


def test_an_answer_longer_than_the_wire_allows_is_said_to_be_so(bench, tmp_path):
    with raw_answer(tmp_path / "long.sock", b'{"payload": {"a": "' + b"x" * (1 << 20)):
        ended = bench.run("runs", "--control-socket", str(tmp_path / "long.sock"))
    assert ended.code == 3
    assert "longer than 1048576 bytes" in ended.words


def test_nothing_heavy_is_loaded_to_answer_status(bench, record_property, capsys):
    program = (
        "import sys, json\n"
        "from hermesd.ctl.main import main\n"
        "code = main(['status', '--json'])\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
        "raise SystemExit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=bench.environ(), capture_output=True, check=True, timeout=20
    )
    loaded = set(json.loads(done.stderr))
    assert json.loads(done.stdout)["ok"] is True
    heavy = {"pydantic", "aiohttp", "orjson", "rich", "asyncio", "docker", "psutil"}
    assert heavy & {name.partition(".")[0] for name in loaded} == set()
    ours = {name for name in loaded if name.startswith("hermesd.") and not name.startswith("hermesd.ctl")}
    assert ours == {"hermesd.ipc", "hermesd.ipc.messages", "hermesd.ipc.client"}
    began = time.perf_counter()
    bench.run("status", "--json")
    took_ms = (time.perf_counter() - began) * 1000
    record_property("status_json_ms", took_ms)
    with capsys.disabled():
        print(f"\nhermesctl status --json: {took_ms:.0f} ms from start to exit")  # noqa: T201 - a measure for people


def test_the_stages_of_these_tests_are_stages_of_the_protocol():
    from hermesd.protocol import StageTiming

    for one in told_run()["stages"]:
        StageTiming.model_validate_json(json.dumps(one))
