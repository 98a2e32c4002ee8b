"""Text from elsewhere on a terminal: what holds for every text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermesd.ctl.width import cells, cut_middle, visible, wrap

ANY_TEXT = st.text(st.characters(), max_size=120) | st.text("a 日\u0301\u202e\x1b\n ", max_size=60)
WIDTHS = st.integers(2, 60)


@given(ANY_TEXT)
def test_whatever_comes_in_only_printable_characters_go_out(text):
    assert visible(text).isprintable()
    assert " " * 17 not in visible(text)


@given(ANY_TEXT)
def test_making_visible_twice_changes_nothing_more(text):
    assert visible(visible(text)) == visible(text)


@given(ANY_TEXT, WIDTHS)
def test_a_cut_text_fits_and_begins_and_ends_as_the_whole(text, width):
    whole = visible(text)
    cut = cut_middle(whole, width)
    assert cells(cut) <= width
    if cut != whole:
        head, _, tail = cut.partition("…")
        assert whole.startswith(head) or "…" in whole
        assert whole.endswith(tail) or "…" in whole


@given(ANY_TEXT, WIDTHS)
def test_wrapped_lines_fit_and_lose_nothing_but_blanks(text, width):
    whole = visible(text)
    lines = wrap(whole, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == whole.replace(" ", "")
