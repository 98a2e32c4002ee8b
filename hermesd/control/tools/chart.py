"""Draws rows of an earlier output, as bars of text or as an SVG. Called as ``FD FORM LABEL VALUE``.

The rows are the JSON lines that the earlier command printed. An SVG holds rectangles and text and nothing
else: no script, no link, no font or image from elsewhere.
"""

from __future__ import annotations

import json
import math
import os
import sys

_BLOCKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR_CELLS = 40
_LABEL_CELLS = 32
_MOST_ROWS = 60
_MOST_BYTES = 4 << 20
_ROW_PIXELS, _LABEL_PIXELS, _BAR_PIXELS, _VALUE_PIXELS = 22, 260, 480, 120

Point = tuple[str, float]


def main(argv: list[str]) -> int:
    """Print the chart; exit 1 when no row has such a label and a number for a value."""
    data = os.pread(int(argv[0]), _MOST_BYTES, 0)
    form, label, value = argv[1:4]
    points = [point for line in data.splitlines() if (point := _point(line, label, value))]
    if not points:
        sys.stderr.write(f"no row of that output has {label} and a number that is not negative in {value}\n")
        return 1
    left_out, points = max(0, len(points) - _MOST_ROWS), points[:_MOST_ROWS]
    draw = svg if form == "svg" else text
    sys.stdout.write(draw(points, f"{value} by {label}", left_out))
    return os.EX_OK


def text(points: list[Point], title: str, left_out: int) -> str:
    """Return a line of blocks, then one bar a row; bars are eighths of a character exact."""
    most = max(value for _label, value in points) or 1.0
    width = min(_LABEL_CELLS, max(len(label) for label, _value in points))
    line = "".join(_BLOCKS[min(7, int(value / most * 8))] for _label, value in points)
    lines = [title, line]
    for label, value in points:
        lines.append(f"{_short(label, width):<{width}} {_bar(value / most):<{_BAR_CELLS}} {_number(value)}")
    if left_out:
        lines.append(f"({left_out} more rows are not drawn)")
    return "\n".join(lines) + "\n"


def svg(points: list[Point], title: str, left_out: int) -> str:
    """Return a bar chart as one SVG document."""
    most = max(value for _label, value in points) or 1.0
    tall = (len(points) + 2 + bool(left_out)) * _ROW_PIXELS
    wide = _LABEL_PIXELS + _BAR_PIXELS + _VALUE_PIXELS
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}">',
        f'<rect width="{wide}" height="{tall}" fill="#fff"/>',
        '<g font-family="sans-serif" font-size="13" fill="#222">',
        _words(8, 16, title),
    ]
    for number, (label, value) in enumerate(points, start=1):
        top = number * _ROW_PIXELS + 6
        long = round(value / most * _BAR_PIXELS, 1)
        parts.append(_words(8, top + 12, _short(label, _LABEL_CELLS)))
        parts.append(f'<rect x="{_LABEL_PIXELS}" y="{top}" width="{long}" height="16" fill="#3b6ea5"/>')
        parts.append(_words(_LABEL_PIXELS + long + 6, top + 12, _number(value)))
    if left_out:
        parts.append(_words(8, tall - 8, f"{left_out} more rows are not drawn"))
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _point(line: bytes, label: str, value: str) -> Point | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or label not in row:
        return None
    number = row.get(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    try:
        found = float(number)
    except OverflowError:
        return None
    return (str(row[label]), found) if math.isfinite(found) and found >= 0 else None


def _bar(share: float) -> str:
    eighths = round(share * _BAR_CELLS * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _short(label: str, width: int) -> str:
    """Keep a label's end: of paths, that is what differs."""
    return label if len(label) <= width else "…" + label[1 - width :]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _words(x: float, y: float, words: str) -> str:
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in words)
    safe = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<text x="{x}" y="{y}">{safe}</text>'
