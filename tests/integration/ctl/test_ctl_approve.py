"""Approving on a real pseudo-terminal: what a person sees, types, and what is sent for it."""

from __future__ import annotations

import subprocess

import pytest

from hermesd.ctl.width import cells
from hermesd.ipc.messages import Code
from tests.integration.ctl.conftest import HERMESCTL, Failed, Hangs, Told, ending, operation

ID = "op-run-20260301-c41d.2.0.0"
TOKEN = "K7QM-W3ZP"
QUESTION = "Type the token to approve, anything else denies: "
WORD_QUESTION = "Type the word: "


def redeemed(bench):
    return bench.executor.asked_for("approve.redeem")


def test_whether_it_can_be_undone_stands_beside_the_token_in_both_languages(bench):
    possible = {**operation()["impact"], "reversible": True, "undo_h": 72}
    full = {**operation()["impact"], "undo": "full"}
    for impact, lang, words in (
        (possible, "en", f"possible for 72 h afterwards: hermesctl undo {ID}"),
        (possible, "zh", "完成后 72 小时内可以撤销"),
        (full, "en", "NOT possible: what is done stays done (the quarantine holds too much from before)"),
        (full, "zh", "不可撤销：做了就无法恢复（隔离区中先前保留的内容过多）"),
    ):
        bench.executor.answers["approve.show"] = operation(impact=impact)
        terminal = bench.on_terminal("--lang", lang, "approve", ID, columns=140)
        # Only at the question: what is typed before it is dropped.
        assert words in terminal.read_until(QUESTION if lang == "en" else "则不批准：")
        terminal.type("\n")
        assert terminal.end() == 4


def test_what_can_be_undone_is_ended_with_how(granted):
    result = ending()["result"]
    result["impact"] = {**operation()["impact"], "reversible": True, "undo_h": 72}
    granted.executor.answers["approve.redeem"] = ending(result=result)
    terminal = granted.on_terminal("approve", ID)
    terminal.read_until(QUESTION)
    terminal.type(f"{TOKEN}\n")
    assert f"undo it: hermesctl undo {ID}" in terminal.read_until(f"undo {ID}")
    assert terminal.end() == 0


@pytest.fixture
def granted(bench):
    """The executor approves what is redeemed, telling its stages."""
    bench.executor.answers["approve.redeem"] = Told([{"stage": "prepare"}, {"stage": "execute"}], ending())
    return bench


def test_typing_the_shown_token_approves_and_tells_stages_and_the_real_gain(granted):
    terminal = granted.on_terminal("approve", ID)
    shown = terminal.read_until(QUESTION)
    for told in (
        "fs:remove_old",
        "37 files under /var/cache/app, 14.2 MB",
        "NOT possible",
        TOKEN,
        "and 27 more",
    ):
        assert told in shown
    terminal.type(f"{TOKEN}\n")
    assert terminal.end() == 0
    assert redeemed(granted) == [{"id": ID, "token": TOKEN, "second": ""}]
    after = terminal.shown[terminal.shown.index(QUESTION) :]
    assert after.index("prepare ...") < after.index("execute ...") < after.index("ended: succeeded")
    assert "37 files removed, 14.2 MB freed" in after
    assert "prepare 4.2 ms · execute 31 ms\n" in after


@pytest.mark.parametrize("typed", ["", "y", "Y", "yes", "no", "是", "   "])
def test_what_plainly_means_no_sends_nothing_and_ends_with_4(granted, typed):
    terminal = granted.on_terminal("approve", ID)
    terminal.read_until(QUESTION)
    terminal.type(f"{typed}\n")
    assert terminal.end() == 4
    assert redeemed(granted) == []
    assert granted.executor.asked_for("deny") == []
    assert "Nothing was done. The operation still waits for a person." in terminal.shown
    assert f"hermesctl deny {ID}" in " ".join(terminal.shown.split())


@pytest.mark.parametrize("key", ["\x04", "\x03"])
def test_the_end_of_input_and_ctrl_c_do_nothing(granted, key):
    terminal = granted.on_terminal("approve", ID)
    terminal.read_until(QUESTION)
    terminal.type(key)
    assert terminal.end() == 4
    assert redeemed(granted) == []
    assert "Nothing was done." in terminal.shown
    assert "Traceback" not in terminal.shown


def test_a_wrong_token_is_the_executors_to_judge_and_ends_with_4(bench):
    reason = "that is not the token that was shown; ask to see the operation again"
    bench.executor.answers["approve.show"] = operation(second_word="juniper")
    bench.executor.answers["approve.redeem"] = Failed(Code.REFUSED, reason)
    terminal = bench.on_terminal("approve", ID)
    terminal.read_until(QUESTION)
    terminal.type("K7QM-W3ZQ\n")
    assert terminal.end() == 4
    assert redeemed(bench) == [{"id": ID, "token": "K7QM-W3ZQ", "second": ""}]
    assert reason in " ".join(terminal.shown.split())
    assert "Nothing was done." in terminal.shown
    assert "juniper" not in terminal.shown


def test_the_second_word_is_asked_for_alone_after_the_token(granted):
    granted.executor.answers["approve.show"] = operation(second_word="juniper")
    terminal = granted.on_terminal("approve", ID)
    assert "juniper" not in terminal.read_until(QUESTION)
    terminal.type(f"{TOKEN}\n")
    assert "juniper" in terminal.read_until(WORD_QUESTION)
    assert redeemed(granted) == []
    terminal.type("juniper\n")
    assert terminal.end() == 0
    assert redeemed(granted) == [{"id": ID, "token": TOKEN, "second": "juniper"}]


@pytest.mark.parametrize("typed", ["\n", "y\n", "\x04", "\x03"])
def test_the_token_alone_does_nothing_when_the_second_word_is_not_typed(granted, typed):
    granted.executor.answers["approve.show"] = operation(second_word="juniper")
    terminal = granted.on_terminal("approve", ID)
    terminal.read_until(QUESTION)
    terminal.type(f"{TOKEN}\n")
    terminal.read_until(WORD_QUESTION)
    terminal.type(typed)
    assert terminal.end() == 4
    assert redeemed(granted) == []


def test_what_was_typed_before_the_question_does_not_count(granted):
    terminal = granted.on_terminal("approve", ID)
    terminal.type(f"{TOKEN}\n{TOKEN}\n")  # typed blind, before anything was shown
    terminal.read_until(QUESTION)
    terminal.type("\n")
    assert terminal.end() == 4
    assert redeemed(granted) == []


@pytest.mark.parametrize("outcome", ["plan_changed", "failed", "timed_out", "unknown"])
def test_an_operation_that_did_not_succeed_ends_with_1_and_says_why(bench, outcome):
    bench.executor.answers["approve.redeem"] = ending(outcome)
    terminal = bench.on_terminal("approve", ID)
    terminal.read_until(QUESTION)
    terminal.type(f"{TOKEN}\n")
    assert terminal.end() == 1
    assert "the list is not the same" in terminal.shown


def test_ctrl_c_after_approving_only_ends_the_watching(bench):
    bench.executor.answers["approve.redeem"] = Told([{"stage": "execute"}], Hangs())
    terminal = bench.on_terminal("approve", ID)
    terminal.read_until(QUESTION)
    terminal.type(f"{TOKEN}\n")
    terminal.read_until("execute ...")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "It was approved, but how it ended was not seen" in terminal.shown
    assert "hermesctl show run-20260301-c41d" in " ".join(terminal.shown.split())
    assert "Nothing was done" not in terminal.shown


def test_an_operation_that_waits_for_nobody_ends_with_5(bench):
    bench.executor.answers["approve.show"] = Failed(Code.NOT_FOUND, "op-x does not wait for anybody")
    terminal = bench.on_terminal("approve", "op-x")
    assert terminal.end() == 5
    assert "op-x does not wait for anybody" in terminal.shown


@pytest.mark.parametrize("data", [b"", b"K7QM-W3ZP\n", b"yes\n" * 100])
def test_a_pipe_replaces_nobody(granted, data):
    done = subprocess.run(
        [HERMESCTL, "approve", ID], env=granted.environ(), input=data, capture_output=True, check=False
    )
    assert done.returncode == 4
    assert b"nothing was done" in b" ".join(done.stderr.split())
    assert granted.executor.asked == []


@pytest.mark.parametrize("elsewhere", ["| cat", "< /dev/null"])
def test_a_terminal_at_one_end_alone_is_not_enough(granted, elsewhere):
    done = subprocess.run(
        ["script", "-qec", f"{HERMESCTL} approve {ID} {elsewhere}", "/dev/null"],
        env=granted.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert b"needs a person at a terminal" in done.stdout
    assert granted.executor.asked == []


def test_no_option_of_approve_could_stand_for_typing(granted):
    shown = granted.run("approve", "--help").out
    assert [word for word in shown.split() if word.startswith("-")] == ["--help"]
    for option in ("--yes", "-y", "--force", f"--token={TOKEN}"):
        assert granted.run("approve", ID, option).code == 2
    assert granted.run("approve", ID, "--json").code == 2
    assert granted.executor.asked == []


EVIL = (
    "ok.txt" + " " * 500 + "/etc/passwd (1 kB)",
    "\x1b[2J\x1b[H\x1b]0;title\x07.cache (2 kB)",
    "\u202egpj.exe\u200b\u2066 (3 kB)",
    "日志/" * 60 + "尾.log (4 kB)",
    "x/" * 300 + "important.db (4 GB)",
    "line\nbreak\rback (5 kB)",
)


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_names_from_elsewhere_can_neither_steer_the_screen_nor_leave_it(granted, columns):
    impact = {**operation()["impact"], "sample": list(EVIL)}
    granted.executor.answers["approve.show"] = operation(impact=impact)
    terminal = granted.on_terminal("approve", ID, columns=columns, NO_COLOR="1")
    terminal.read_until(QUESTION)
    shown = terminal.raw
    assert not [char for char in shown if not char.isprintable() and char != "\n"]
    listed = [line for line in shown.splitlines() if "│" in line]
    sample = listed[-len(EVIL) :]
    assert all(cells(line) <= columns for line in sample)
    for line, name in zip(sample, EVIL, strict=True):
        assert line.endswith(name[-7:])
    assert [line for line in shown.splitlines() if line.startswith("beneath")]


def test_the_agents_words_stand_behind_a_bar_and_cannot_fill_the_screen(granted):
    intent = "tidy up.\n\ntoken      AAAA-BBBB\nType the token to approve " + "and so on " * 45
    granted.executor.answers["approve.show"] = operation(intent=intent[:500])
    terminal = granted.on_terminal("approve", ID, NO_COLOR="1")
    shown = terminal.read_until(QUESTION)
    quoted = [line for line in shown.splitlines() if "AAAA-BBBB" in line or "and so on" in line]
    assert 1 < len(quoted) <= 4
    assert all("│" in line for line in quoted)
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("token")] == [TOKEN]


def test_the_conversation_is_held_in_chinese_too(granted):
    granted.executor.answers["approve.show"] = operation(second_word="juniper")
    terminal = granted.on_terminal("approve", ID, "--lang", "zh")
    terminal.read_until("则不批准：")
    terminal.type(f"{TOKEN}\n")
    terminal.read_until("输入确认词：")
    terminal.type("juniper\n")
    assert terminal.end() == 0
    assert "删除 37 个文件，释放 14.2 MB" in terminal.shown
