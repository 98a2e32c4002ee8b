"""The demo's long lines on a narrow terminal."""

from hermesd.ctl.width import cells
from hermesd.demo.story import broken

LONG = "   1.7 s   execute    19 ms  fs:largest: succeeded: /tmp/disk/log/shop.log.1 is the largest: 1.3 MB"


def test_a_long_line_is_broken_between_words_and_goes_on_beneath_its_beginning():
    pieces = broken(LONG, 60)
    assert all(cells(piece) <= 60 for piece in pieces)
    assert pieces[0].startswith("   1.7 s   execute    19 ms")
    assert all(piece.startswith(" " * 13) for piece in pieces[1:])
    assert "".join(pieces).replace(" ", "") == LONG.replace(" ", "")


def test_chinese_takes_two_cells_and_loses_nothing():
    line = "   3.1 s 最大的文件是日志，占用了几乎全部空间，建议删除旧的缓存和轮转日志。"
    pieces = broken(line, 40)
    assert all(cells(piece) <= 40 for piece in pieces)
    assert "".join(pieces).replace(" ", "") == line.replace(" ", "")


def test_what_is_not_a_terminal_gets_lines_as_they_are():
    assert broken(LONG, 0) == [LONG]
