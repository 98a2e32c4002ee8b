"""Text from elsewhere, made safe to look at, and measured in the cells of a terminal.

File names, intents and outputs come from whoever could write them. On their way to a terminal every
character that could move the cursor, hide or reorder what a person reads becomes visible, and long
blanks are counted instead of printed: nothing can be padded off the screen.

Pure functions; this module must never print and never know what a text means.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

ELLIPSIS: Final = "…"
_BLANKS: Final = re.compile(" {16,}")
"""More blanks in a row than any column of a report needs; they are there to push something away."""
_MARKS: Final = frozenset({"Mn", "Me"})
_MAX_MARKS: Final = 2
"""Combining marks in a row that a written language needs; more are there to cover other lines."""

_INVISIBLE: Final = (
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x115F, 0x1160),  # Hangul fillers: letters that show nothing
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),  # the empty braille pattern
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFFA0, 0xFFA0),
    (0xFFFC, 0xFFFC),
    (0xE0100, 0xE01EF),
)


def visible(text: str) -> str:
    """Return ``text`` on one line: controls, bidi and invisible characters escaped, long blanks counted.

    Doing it twice changes nothing more.
    """
    return _BLANKS.sub(_counted, escaped(text))


def escaped(text: str) -> str:
    """Return ``text`` with everything escaped that `visible` escapes, its blanks as they are."""
    return text if text.isascii() and text.isprintable() else "".join(_shown(text))


def _counted(blanks: re.Match[str]) -> str:
    return f" [{len(blanks.group())} blanks] "


def _shown(text: str) -> list[str]:
    shown: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in _MARKS else 0
        hidden = not char.isprintable() or _is_invisible(ord(char))
        shown.append(_escape(char) if hidden or marks > _MAX_MARKS else char)
    return shown


def _is_invisible(code: int) -> bool:
    return any(first <= code <= last for first, last in _INVISIBLE)


def _escape(char: str) -> str:
    code = ord(char)
    if char == "\n":
        return "\\n"
    if char == "\t":
        return "\\t"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004


def cells(text: str) -> int:
    """Return how many cells of a terminal the visible text takes: two for wide characters."""
    return len(text) if text.isascii() else sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.category(char) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, width: int) -> str:
    """Return ``text`` with blanks up to ``width`` cells; a longer one as it is."""
    return text + " " * max(0, width - cells(text))


def cut_middle(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` cells. What goes is in the middle: both ends stay to be read."""
    if cells(text) <= width:
        return text
    if width < 3:  # noqa: PLR2004 - one character, the ellipsis, one character
        return ELLIPSIS[:width]
    tail = _tail(text, (width - 1) // 2)
    return _head(text, width - 1 - cells(tail)) + ELLIPSIS + tail


def _head(text: str, width: int) -> str:
    used = 0
    for index, char in enumerate(text):
        used += _cells(char)
        if used > width:
            return text[:index]
    return text


def _tail(text: str, width: int) -> str:
    used = 0
    for index in range(len(text) - 1, -1, -1):
        used += _cells(text[index])
        if used > width:
            return text[index + 1 :]
    return text


def wrap(text: str, width: int) -> list[str]:
    """Return ``text`` in lines of at most ``width`` cells, broken at blanks and between wide characters."""
    lines, line = [], ""
    for piece in _pieces(text, max(width, 2)):
        if line and cells(line) + cells(piece.rstrip(" ")) > width:
            lines.append(line.rstrip(" "))
            line = ""
        line += piece if line or not lines else piece.lstrip(" ")
    return [*lines, line.rstrip(" ")]


def _pieces(text: str, width: int) -> list[str]:
    """Split where a line may break: after blanks, around wide characters, and where nothing else helps."""
    pieces: list[str] = []
    word = ""
    for char in text:
        wide = _cells(char) == 2 and unicodedata.category(char)[0] != "P"  # noqa: PLR2004 - cells
        if word and (wide or word[-1] == " " != char or cells(word) + _cells(char) > width):
            pieces.append(word)
            word = ""
        word += char
    return [*pieces, word]
