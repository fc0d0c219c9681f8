"""Statistics of a lake as a table: a line per column.

lake/events: 3,000 rows, 3 files, 80.1 kB
column   type    min    max  nulls  NaN     size
user_id  int64     1  9,999      0       20.4 kB
name     string  ≥ a    ≤ z      ?       40.0 kB
≥ and ≤ mark bounds that may be no values, ? what no footer tells
"""

from __future__ import annotations

from collections.abc import Iterable

from skipstone.report.lines import clean, pad, shorten, width_of
from skipstone.report.units import plural, size

_HEAD = ("column", "type", "min", "max", "nulls", "NaN", "size")
_MOST = (30, 24, 26, 26, 20, 3, 12)
_TEXTS = 2
_SHOWN = 40


def draw_statistics(lake: str, files: int, rows: int, nbytes: int, columns: Iterable[tuple[str, ...]]) -> str:
    """Draw name, type, bounds, NULLs, NaN and bytes of each column, below the lake's own figures."""
    cells = [(*column[:-1], size(int(column[-1]))) for column in columns]
    lines = [f"{clean(lake)}: {plural(rows, 'row')}, {plural(files, 'file')}, {size(nbytes)}"]
    shown = [
        [shorten(clean(text), most) for text, most in zip(row, _MOST, strict=True)]
        for row in [_HEAD, *(cells if len(cells) <= _SHOWN + 1 else cells[:_SHOWN])]
    ]
    widths = [max(map(width_of, column)) for column in zip(*shown, strict=True)]
    for row in shown if cells else []:
        texts = [
            pad(text, width) if place < _TEXTS else " " * (width - width_of(text)) + text
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(texts).rstrip())
    if len(cells) >= len(shown):
        lines.append(f"… {plural(len(cells) - len(shown) + 1, 'more column')}")
    marks = {mark for row in cells for text in row[_TEXTS:5] for mark in "≥≤?" if text.startswith(mark)}
    if marks & {"≥", "≤"}:
        lines.append(
            "≥ and ≤ mark bounds that may be no values" + (", ? what no footer tells" * ("?" in marks))
        )
    elif marks:
        lines.append("? marks what no footer tells")
    return "\n".join(lines)
