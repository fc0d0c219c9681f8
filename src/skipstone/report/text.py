"""Draws a tree of nodes as text that fits a terminal, with or without colours."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from rich.style import Style

from skipstone.report.lines import clean, pad, shorten, width_of, wrap
from skipstone.report.node import (
    ANSWERED,
    READ,
    Bar,
    Block,
    Cell,
    Code,
    Facts,
    Items,
    NodeTable,
    ReportNode,
    Styled,
    TableColumn,
    Text,
)
from skipstone.report.units import count, shares, some

WIDTH = 100
NARROWEST = 40
_LONGEST_LABEL = 16
_TOP_ITEMS = 5
_GAP = 2
_STEM = 6
_COLORS = {"kept": "green", "known": "cyan", "dropped": "bright_black", "warn": "yellow", "bad": "red"}
_PLAIN = ("", "code", "firm", "short")

Line = list[Styled]
"""Pieces of a line and their styles."""


def to_text(node: ReportNode, width: int | None = None, *, color: bool = False) -> str:
    """Draw the tree in at most ``width`` columns (default 100), without a final line break."""
    room = max(width or WIDTH, NARROWEST)
    return "\n".join(paint(line, color=color) for line in _root(node, room))


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is, if it is one."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size((WIDTH, 0)).columns if terminal else None


def paint(line: Iterable[Styled], *, color: bool) -> str:
    """Join the pieces of a line, with ANSI colours or without."""
    if not color:
        return "".join(text for text, _ in line).rstrip()
    return "".join(_style(style).render(text) if style and text else text for text, style in line)


@cache
def _style(name: str) -> Style:
    return Style.parse("none" if name in _PLAIN else _COLORS.get(name, name))


def _root(node: ReportNode, room: int) -> Iterator[Line]:
    children = [child for child in node.children if child is not None]
    if node.label or node.said:
        yield _header(node, room)
    stem: Line = [("│  ", "")] if node.tree and children else []
    for line in _blocks(node.body, room - len(stem) * 3, apart=not stem):
        yield [*stem, *line]
    if node.tree:
        yield from _branches(children, room)
    else:
        for place, child in enumerate(children):
            yield from [[]] * bool(place or node.body)
            yield [(shorten(clean(child.label), room), "bold")]
            yield from _blocks(child.body, room, apart=False)
    if node.legend:
        yield [span for ink, meaning in node.legend for span in (_glyph(ink), (f" {meaning}  ", "dim"))]
    yield from _blocks(node.tail, room, apart=True, after=bool(node.body or children))


def _header(node: ReportNode, room: int) -> Line:
    # A long path gives way first, and from its front: the file's name is at its end.
    label, said = clean(node.label), clean(node.statements[0])
    if not said:
        return [(shorten(label, room), "bold")]
    most = max(room - width_of(said) - _GAP, room // 3)
    if width_of(label) > most:
        label = "…" + shorten(label[::-1], most)[:-1][::-1]
    gap = " " * _GAP if label else ""
    return [(label, "bold"), (gap, ""), (shorten(said, room - width_of(label) - len(gap)), "")]


def _branches(nodes: Sequence[ReportNode], room: int) -> Iterator[Line]:
    labels = [shorten(clean(node.label), _LONGEST_LABEL) for node in nodes]
    widest = max(map(width_of, labels), default=0)
    for place, (node, label) in enumerate(zip(nodes, labels, strict=True), 1):
        last = place == len(nodes)
        named = f"{pad(label, widest)}{' ' * _GAP}" if label else ""
        line: Line = [(f"{'└' if last else '├'}─ {named}", "")]
        if node.bar is not None:
            line += [*_bar(node.bar, _bar_cells(room)), (" " * _GAP, "")]
        left = room - sum(width_of(text) for text, _ in line)
        # Facts are left out whole where the line is too short, never cut in the middle of a number.
        forms = [clean(form) for form in node.statements]
        fitting = next((form for form in forms if width_of(form) <= left), forms[-1])
        first, *more = wrap(fitting, left, 4 if node.bar is None else 1)
        yield [*line, (first, node.style)]
        stem = " " if last else "│"
        yield from ([(pad(stem, room - left), ""), (text, node.style)] for text in more)
        for below in _blocks(node.body, room - _STEM, apart=False):
            yield [(pad(stem, _STEM), ""), *below]


# -- bars --------------------------------------------------------------------------------------


def _bar_cells(room: int) -> int:
    return max(10, min(room // 5, 20))


def _glyph(ink: str) -> Styled:
    if ink in READ:
        return "█", "kept"
    return ("▒", "known") if ink in ANSWERED else ("░", "dropped")


def _bar(bar: Bar, cells: int) -> Line:
    sizes = dict.fromkeys((_glyph("kept"), _glyph("files"), _glyph("")), 0.0)
    for part in bar.parts:
        sizes[_glyph(part.ink)] += part.size
    sizes[_glyph("")] += max(bar.whole - sum(part.size for part in bar.parts), 0)
    wide = shares(list(sizes.values()), cells)
    wide[-1] += cells - sum(wide)
    return [(glyph * length, style) for (glyph, style), length in zip(sizes, wide, strict=True)]


# -- blocks ------------------------------------------------------------------------------------


def _blocks(blocks: Sequence[Block | None], room: int, *, apart: bool, after: bool = False) -> Iterator[Line]:
    """Blocks below each other; set ``apart``, tables and code have empty lines around them."""
    begun, previous = after, False
    for block in blocks:
        if block is not None and (lines := list(_DRAW[type(block)](block, room))):
            airy = isinstance(block, NodeTable | Code)
            yield from [[]] * bool(apart and begun and (airy or previous))
            yield from lines
            begun, previous = True, airy


def _text(block: Text, room: int) -> Iterator[Line]:
    text, aside = clean(block.text), clean(block.aside)
    if aside and width_of(text) + width_of(aside) + 3 <= room:
        yield [(text, block.style), (f" · {aside}", "dim")]
        return
    for part, style, most in ((text, block.style, block.most), (aside, "dim", 2)):
        yield from ([(line, style)] for line in wrap(part, room, most) if part)


def _facts(block: Facts, room: int) -> Iterator[Line]:
    widest = max((width_of(clean(label)) for label, _, _ in block.shown), default=0)
    for label, style, value in block.shown:
        yield from _hanging((f"{pad(clean(label), widest)}  ", style or "dim"), value, room, 3)


def _hanging(head: Styled, text: str, room: int, most: int, deeper: int = 0) -> Iterator[Line]:
    """A head and the text beside it, whose further lines are indented."""
    cells = width_of(head[0])
    for place, line in enumerate(wrap(clean(text), room - cells - deeper, most)):
        yield [(" " * (cells + deeper), "") if place else head, (line, "")]


def _items(block: Items, room: int) -> Iterator[Line]:
    """``title: first`` with the others below it, the last line counting those left out."""
    # One too many takes the line that would say so.
    shown = list(block.items if len(block.items) <= _TOP_ITEMS + 1 else block.items[:_TOP_ITEMS])
    if len(block.items) > len(shown):
        shown.append(f"{count(len(block.items) - len(shown))} more")
    head = f"{block.title}: "
    for place, item in enumerate(shown):
        yield from _hanging((" " * len(head) if place else head, "warn"), item, room, 2, deeper=2)


# -- tables ------------------------------------------------------------------------------------


def _table(table: NodeTable, room: int) -> Iterator[Line]:
    # One too many takes the line that would say so.
    most, noun = table.most or (len(table.rows), "")
    rows = table.rows[: most if len(table.rows) > most + 1 else None]
    # As wide as the bars of branches, if the table is below one.
    bar_cells = _bar_cells(room + _STEM)
    widths = [
        max([width_of(clean(column.name)), *(_width(row[place], bar_cells) for row in rows)])
        for place, column in enumerate(table.columns)
    ]
    places = _fitting(table.columns, widths, room)
    columns, widths = [table.columns[place] for place in places], [widths[place] for place in places]
    _cut(columns, widths, room)
    if table.title:
        yield [(shorten(clean(table.title), room), "bold")]
    if rows and any(column.name for column in columns):
        yield _row([(column.name, table.head) for column in columns], columns, widths, room)
    for row in rows:
        yield _row([row[place] for place in places], columns, widths, room)
    hidden = [column.name for place, column in enumerate(table.columns) if place not in places]
    more = f"; {f'{table.more}: ' if table.more else 'no room for '}{', '.join(hidden)}"
    left_out = some(len(table.rows) - len(rows), f"more {noun}", before="… ")
    for note in filter(None, (some(len(hidden), "more column", more, "… "), left_out, *table.notes)):
        yield from ([(line, "dim")] for line in wrap(clean(note), room, 2))


def _fitting(columns: Sequence[TableColumn], widths: Sequence[int], room: int) -> list[int]:
    """The columns that there is room for, at least one of them."""
    least = [min(wide, column.least or wide) for wide, column in zip(widths, columns, strict=True)]
    places = list(range(len(columns)))
    while len(places) > 1 and _excess([least[place] for place in places], room) > 0:
        places.remove(max(places, key=lambda place: (columns[place].rank, place)))
    return places


def _width(cell: Cell, bar_cells: int) -> int:
    return bar_cells if isinstance(cell, Bar) else width_of(clean(cell if isinstance(cell, str) else cell[0]))


def _excess(widths: Sequence[int], room: int) -> int:
    return sum(widths) + _GAP * (len(widths) - 1) - room


def _cut(columns: Sequence[TableColumn], widths: list[int], room: int) -> None:
    """Take one cell at a time from the widest column that may be cut, until the table fits."""
    for _ in range(_excess(widths, room)):
        long = [place for place, c in enumerate(columns) if c.least is not None and widths[place] > c.least]
        if not long:
            return
        widths[max(long, key=widths.__getitem__)] -= 1


def _row(cells: Sequence[Cell], columns: Sequence[TableColumn], widths: Sequence[int], room: int) -> Line:
    line: Line = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        if isinstance(cell, Bar):
            line += _bar(cell, width)
        else:
            content, style = (cell, column.style) if isinstance(cell, str) else cell
            # The only column that is left may still be too wide.
            shown = shorten(clean(content), min(width, room))
            blank = (" " * (width - width_of(shown)), "")
            line += [blank, (shown, style)] if column.right else [(shown, style), blank]
        line.append((" " * _GAP, ""))
    # No blanks at the end of a line, coloured or not.
    while line and not line[-1][0].strip():
        line.pop()
    return line


_DRAW: dict[type[Block], Callable[[Any, int], Iterator[Line]]] = {
    Text: _text,
    Facts: _facts,
    Items: _items,
    NodeTable: _table,
    Code: lambda block, _: ([(clean(line), "")] for line in block.lines),
    ReportNode: lambda node, room: ([("  ", ""), *line] for line in _root(node, room - 2)),
}
