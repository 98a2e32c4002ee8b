"""Text from elsewhere on a terminal: what is escaped, measured, cut and wrapped, by example."""

from __future__ import annotations

import pytest

from hermesd.ctl.width import cells, cut_middle, pad, visible, wrap


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain.txt", "plain.txt"),
        ("日志.log", "日志.log"),
        ("a\nb\tc\rd", "a\\nb\\tc\\x0dd"),
        ("\x1b[2J\x07\x9b", "\\x1b[2J\\x07\\x9b"),
        ("\u202egpj\u2066\u200b\ufeff", "\\u202egpj\\u2066\\u200b\\ufeff"),
        ("a\u00a0b\u3000c", "a\\xa0b\\u3000c"),
        ("\ud83d\udcff", "\\ud83d\\udcff"),
        ("\u3164\u2800\ufe0f\U000e0101", "\\u3164\\u2800\\ufe0f\\U000e0101"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_could_steer_hide_or_reorder_is_escaped_and_nothing_else(text, shown):
    assert visible(text) == shown


def test_accents_of_a_language_stay_and_piles_of_marks_do_not():
    assert visible("e\u0301") == "e\u0301"
    assert visible("e" + "\u0301" * 4) == "e\u0301\u0301\\u0301\\u0301"


def test_long_blanks_are_counted_instead_of_printed():
    assert visible("  plan         1 ms") == "  plan         1 ms"
    assert visible("a" + " " * 400 + "/etc/passwd") == "a [400 blanks] /etc/passwd"


def test_wide_characters_take_two_cells_and_marks_none():
    assert [cells(text) for text in ("abc", "磁盘", "ａ", "e\u0301", "–…")] == [3, 4, 2, 1, 2]


def test_padding_counts_cells_and_never_cuts():
    assert pad("磁盘", 6) == "磁盘  "
    assert pad("too long", 3) == "too long"


def test_cutting_keeps_both_ends():
    assert cut_middle("short", 5) == "short"
    assert cut_middle("/var/cache/app/pages/0001.cache", 15) == "/var/ca…1.cache"
    assert cells(cut_middle("日志" * 30, 15)) <= 15


def test_lines_break_at_blanks_between_wide_characters_and_inside_what_has_neither():
    assert wrap("one two three", 8) == ["one two", "three"]
    assert wrap("磁盘已满，请处理", 8) == ["磁盘已", "满，请处", "理"]
    assert wrap("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert wrap("", 10) == [""]
