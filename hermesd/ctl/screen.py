"""The one place where text reaches a person: lines and tables in, visible characters out.

Everything shown passes `visible` here, whoever made it. Colour only where a terminal wants it; `rich`
is loaded only when a table is really drawn. This module must never know what is being told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TextIO

from hermesd.ctl.width import cells, cut_middle, escaped, pad, visible, wrap

if TYPE_CHECKING:
    from rich.text import Text as RichText

WIDEST: Final = 100
"""Columns at most, and where the width is not known: longer lines are hard to read."""
NARROWEST: Final = 20
_QUOTE: Final = "│ "


class Tone(Enum):
    """What a piece of text means, and how a terminal shows that (SGR parameters, rich's style)."""

    PLAIN = ("", "")
    HEAD = ("1", "bold")
    GOOD = ("32", "green")
    WARN = ("33", "yellow")
    BAD = ("1;31", "bold red")
    DIM = ("2", "dim")


@dataclass(frozen=True, slots=True)
class Line:
    """One line, wrapped beneath its own start. ``label`` stands before it in ``hang`` cells.

    ``cut`` keeps it to one row by leaving its middle out. ``quote`` draws a bar before every row of it:
    the words are somebody else's, and cannot pass for hermesctl's own.
    """

    text: str = ""
    tone: Tone = Tone.PLAIN
    label: str = ""
    hang: int = 0
    cut: bool = False
    quote: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of a table."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``whole`` ones (ids, times) are never broken, ``right`` ones hold figures.

    ``least`` is its width at least, so that tables beneath each other stand alike.
    """

    title: str
    whole: bool = False
    right: bool = False
    least: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under titles; ``indent`` cells from the left."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    indent: int = 0
    titles: bool = True


Item = Line | Table


class Screen:
    """Shows items on a stream of a known width."""

    def __init__(self, stream: TextIO, width: int = WIDEST, *, colour: bool = False) -> None:
        self.width = width
        self._stream = stream
        self._colour = colour

    def show(self, items: Iterable[Item]) -> None:
        """Write the items and flush."""
        for item in items:
            text = self._rows(item) if isinstance(item, Line) else self._table(item)
            self._stream.write(text)
        self._stream.flush()

    def say(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Write one plain line."""
        self.show([Line(text, tone)])

    def prompt(self, text: str) -> None:
        """Write a question and leave the cursor behind it, plain: a program may wait for its text."""
        self._stream.write(visible(text))
        self._stream.flush()

    def _rows(self, line: Line) -> str:
        bar = _QUOTE if line.quote else ""
        room = max(self.width - line.hang - cells(bar), NARROWEST)
        text = visible(line.text)
        rows = [cut_middle(text, room)] if line.cut else wrap(text, room)
        label = pad(escaped(line.label), line.hang)
        start = self._toned(label, Tone.DIM) if label.strip() else label
        shown = []
        for row in rows:
            shown.append(f"{start}{bar}{self._toned(row, line.tone)}".rstrip(" ") + "\n")
            start = " " * line.hang
        return "".join(shown)

    def _toned(self, text: str, tone: Tone) -> str:
        sgr = tone.value[0]
        return f"\x1b[{sgr}m{text}\x1b[0m" if self._colour and sgr and text else text

    def _table(self, table: Table) -> str:
        """Draw with rich, then drop the blanks that it fills the rows with."""
        from rich.console import Console  # noqa: PLC0415 - 60 ms, only where a table is drawn
        from rich.table import Table as RichTable  # noqa: PLC0415 - the same

        drawn = RichTable(
            box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=table.titles, header_style="bold"
        )
        for column in table.columns:
            drawn.add_column(
                self._cell(Cell(column.title)),
                justify="right" if column.right else "left",
                no_wrap=column.whole,
                min_width=column.least or None,
                overflow="fold",
            )
        for row in table.rows:
            drawn.add_row(*(self._cell(cell) for cell in row))
        console = Console(
            width=max(self.width - table.indent, NARROWEST),
            color_system="standard" if self._colour else None,
            force_terminal=self._colour,
            legacy_windows=False,
        )
        with console.capture() as captured:
            console.print(drawn)
        return "".join(f"{' ' * table.indent}{row.rstrip(' ')}\n" for row in captured.get().splitlines())

    @staticmethod
    def _cell(cell: Cell) -> RichText:
        from rich.text import Text as RichText  # noqa: PLC0415 - only where a table is drawn

        return RichText(visible(cell.text), style=cell.tone.value[1])


def screen_of(stream: TextIO, environ: Mapping[str, str]) -> Screen:
    """Return the screen behind a stream: its width, and colours when it is a terminal that wants them."""
    colour = stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("", "dumb")
    return Screen(stream, _width(stream, environ), colour=colour)


def _width(stream: TextIO, environ: Mapping[str, str]) -> int:
    if not stream.isatty():
        return WIDEST
    given = environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit():
        columns = int(given)
    else:
        try:
            columns = os.get_terminal_size(stream.fileno()).columns
        except OSError:
            return WIDEST
    return min(columns, WIDEST) if columns >= NARROWEST else WIDEST if columns == 0 else NARROWEST
