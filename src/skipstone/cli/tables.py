"""Tables that fit the screen: numbers are never cut, texts give way, the longest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skipstone.report.lines import Span, clean, shorten, width_of

_GAP = 2
_LEAST = 6


@dataclass(frozen=True, slots=True)
class Heading:
    """A column of a table: numbers stand to the right, a flexible text may be shortened.

    ``spare`` columns are left out where the table doesn't fit, the highest number first.
    """

    name: str
    right: bool = False
    flexible: bool = False
    least: int = _LEAST
    """Cells that a flexible column keeps in any case."""
    spare: int = 0
    style: str = ""


def text(name: str, least: int = _LEAST) -> Heading:
    """A column that may be shortened."""
    return Heading(name, flexible=True, least=least)


def number(name: str) -> Heading:
    """A column that stands to the right."""
    return Heading(name, right=True)


Cell = str | Span
"""A text, or a text and its style."""


def table(
    headings: Sequence[Heading], rows: Sequence[Sequence[Cell]], width: int, *, names: str = "dim"
) -> Iterator[list[Span]]:
    """The lines of a table, its headings first in style ``names``; control characters are made visible."""
    headings, rows = _without_spare(headings, rows, width)
    cells = [[_plain(cell) for cell in row] for row in rows]
    head = [(clean(heading.name), names) for heading in headings]
    widths = _natural(headings, rows)
    _fit(headings, widths, width)
    yield _line(head, headings, widths)
    for row, plain in zip(rows, cells, strict=True):
        styles = (
            cell[1] if isinstance(cell, tuple) else h.style for cell, h in zip(row, headings, strict=True)
        )
        yield _line(list(zip(plain, styles, strict=True)), headings, widths)


def _without_spare(
    headings: Sequence[Heading], rows: Sequence[Sequence[Cell]], width: int
) -> tuple[Sequence[Heading], Sequence[Sequence[Cell]]]:
    while _excess(_natural(headings, rows), width) > 0:
        spare = max(range(len(headings)), key=lambda i: headings[i].spare)
        if not headings[spare].spare:
            break
        headings = [heading for i, heading in enumerate(headings) if i != spare]
        rows = [[cell for i, cell in enumerate(row) if i != spare] for row in rows]
    return headings, rows


def _natural(headings: Sequence[Heading], rows: Sequence[Sequence[Cell]]) -> list[int]:
    columns = zip([heading.name for heading in headings], *rows, strict=True)
    return [max(width_of(_plain(cell)) for cell in column) for column in columns]


def fitting(headings: Sequence[Heading], rows: Sequence[Sequence[Cell]], width: int) -> int:
    """How many columns, from the left, fit with flexible ones as short as they may be."""
    natural = zip(_natural(headings, rows), headings, strict=True)
    least = [min(wide, heading.least) if heading.flexible else wide for wide, heading in natural]
    return sum(_excess(least[: number + 1], width) <= 0 for number in range(len(least)))


def _excess(widths: Sequence[int], width: int) -> int:
    return sum(widths) + _GAP * (len(widths) - 1) - width


def _plain(cell: Cell) -> str:
    return clean(cell[0] if isinstance(cell, tuple) else cell)


def _fit(headings: Sequence[Heading], widths: list[int], width: int) -> None:
    """Take one cell at a time from the widest flexible column until the table fits or none is left."""
    excess = _excess(widths, width)
    while excess > 0:
        found = [i for i, heading in enumerate(headings) if heading.flexible and widths[i] > heading.least]
        if not found:
            return
        widths[max(found, key=widths.__getitem__)] -= 1
        excess -= 1


def _line(cells: Sequence[Span], headings: Sequence[Heading], widths: Sequence[int]) -> list[Span]:
    line: list[Span] = []
    for (content, style), heading, wide in zip(cells, headings, widths, strict=True):
        drawn = shorten(content, wide)
        blank = " " * (wide - width_of(drawn))
        line += [(blank, ""), (drawn, style)] if heading.right else [(drawn, style), (blank, "")]
        line.append((" " * _GAP, ""))
    # No blanks at the end of a line, coloured or not.
    while line and not line[-1][0].strip():
        line.pop()
    return line
