"""Draws a tree of nodes as text that fits a terminal, with colours or without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from rich.style import Style

from skipstone.report.lines import clean, pad, shorten, width_of, wrap
from skipstone.report.node import (
    FILLED,
    KNOWN,
    Bar,
    Block,
    Cell,
    Code,
    Facts,
    Items,
    NodeTable,
    ReportNode,
    TableColumn,
    Text,
)
from skipstone.report.units import count, plural, shares

WIDTH = 100
NARROWEST = 40
_BARS = (10, 20)
_LONGEST_LABEL = 16
_TOP_ITEMS = 5
_GAP = 2
_STEM = 6
_STYLES = {
    "code": "none",
    "bold": "bold",
    "dim": "dim",
    "kept": "green",
    "known": "cyan",
    "dropped": "bright_black",
    "warn": "yellow",
    "bad": "red",
}

Span = tuple[str, str]
"""A piece of a line and the name of its style; the empty name is plain."""
Line = list[Span]


def to_text(node: ReportNode, width: int | None = None, *, color: bool = False) -> str:
    """Draw the tree in at most ``width`` columns (100 unless given), without a final line break."""
    room = max(width or WIDTH, NARROWEST)
    return "\n".join(paint(line, color=color) for line in _root(node, room))


def paint(spans: Iterable[Span], *, color: bool) -> str:
    """One line out of its spans, with ANSI colours or without."""
    if not color:
        return "".join(text for text, _ in spans).rstrip()
    return "".join(_style(style).render(text) if style and text else text for text, style in spans)


@cache
def _style(name: str) -> Style:
    return Style.parse(_STYLES[name])


def _root(node: ReportNode, room: int) -> Iterator[Line]:
    if node.label or node.said:
        yield _header(node, room)
    branches = bool(node.tree and node.children)
    stem = "│  " if branches else ""
    for line in _blocks(node.body, room - len(stem), apart=not branches):
        yield [(stem, ""), *line] if stem else line
    if branches:
        yield from _branches(node.children, room)
    else:
        for place, child in enumerate(node.children):
            if place:
                yield []
            yield [(shorten(clean(child.label), room), "bold")]
            yield from _blocks(child.body, room, apart=False)
    if node.legend:
        yield _legend(node.legend)
    after = bool(node.body or node.children)
    yield from _blocks(node.tail, room, apart=True, after=after)


def _header(node: ReportNode, room: int) -> Line:
    # A long path gives way first, and from its front: the file's name is at its end.
    label, said = clean(node.label), clean(_forms(node.said)[0])
    if not said:
        return [(shorten(label, room), "bold")]
    most = max(room - width_of(said) - _GAP, room // 3)
    if width_of(label) > most:
        label = "…" + shorten(label[::-1], most)[:-1][::-1]
    return [(label, "bold"), (" " * _GAP, ""), (shorten(said, room - width_of(label) - _GAP), "")]


def _forms(said: str | tuple[str, ...]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else said


def _branches(nodes: Sequence[ReportNode], room: int) -> Iterator[Line]:
    labels = [shorten(clean(node.label), _LONGEST_LABEL) for node in nodes]
    widest = max(map(width_of, labels))
    for place, (node, label) in enumerate(zip(nodes, labels, strict=True), 1):
        last = place == len(nodes)
        named = f"{pad(label, widest)}{' ' * _GAP}" if label else ""
        line: Line = [(f"{'└' if last else '├'}─ {named}", "")]
        if node.bar is not None:
            line += [*_bar(node.bar, _bar_cells(room)), (" " * _GAP, "")]
        left = room - sum(width_of(text) for text, _ in line)
        # Facts are left out whole where the line is too short, never cut in the middle of a number.
        forms = [clean(form) for form in _forms(node.said)]
        fitting = next((form for form in forms if width_of(form) <= left), None)
        if fitting is None and node.bar is None:
            first, *more = wrap(forms[-1], left, 4)
        else:
            first, more = shorten(forms[-1], left) if fitting is None else fitting, []
        yield [*line, (first, node.style)]
        blank = " " * (room - left - 1)
        yield from ([(" " if last else "│", ""), (blank, ""), (text, node.style)] for text in more)
        stem = (" " if last else "│") + " " * (_STEM - 1)
        for below in _blocks(node.body, room - _STEM, apart=False):
            yield [(stem, ""), *below]


def _legend(entries: Iterable[tuple[str, str]]) -> Line:
    return [span for ink, meaning in entries for span in (_glyph(ink), (f" {meaning}  ", "dim"))]


# -- bars --------------------------------------------------------------------------------------


def _bar_cells(room: int) -> int:
    shortest, longest = _BARS
    return max(shortest, min(room // 5, longest))


def _glyph(ink: str) -> Span:
    if ink in FILLED:
        return "█", "kept"
    return ("▒", "known") if ink in KNOWN else ("░", "dropped")


def _bar(bar: Bar, cells: int) -> Line:
    sizes = dict.fromkeys((_glyph("kept"), _glyph("files"), _glyph("")), 0.0)
    for part in bar.parts:
        sizes[_glyph(part.ink)] += part.size
    sizes[_glyph("")] += max(bar.whole - sum(part.size for part in bar.parts), 0)
    wide = shares(list(sizes.values()), cells)
    wide[-1] += cells - sum(wide)
    return [(glyph * length, style) for (glyph, style), length in zip(sizes, wide, strict=True)]


# -- blocks ------------------------------------------------------------------------------------


def _blocks(blocks: Sequence[Block], room: int, *, apart: bool, after: bool = False) -> Iterator[Line]:
    """Blocks below each other; set ``apart``, tables and code have empty lines around them."""
    previous: Block | None = None
    for block in blocks:
        lines = list(_block(block, room))
        if not lines:
            continue
        begins = previous is not None or after
        if (
            apart
            and begins
            and (isinstance(block, NodeTable | Code) or isinstance(previous, NodeTable | Code))
        ):
            yield []
        yield from lines
        previous = block


def _block(block: Block, room: int) -> Iterator[Line]:
    match block:
        case Text():
            yield from _text(block, room)
        case Code():
            yield from ([(clean(line), "")] for line in block.lines)
        case Facts():
            yield from _facts(block, room)
        case Items():
            yield from _items(block, room)
        case NodeTable():
            yield from _table(block, room)
        case ReportNode():
            yield from ([("  ", ""), *line] for line in _root(block, room - 2))


def _text(block: Text, room: int) -> Iterator[Line]:
    text, room = clean(block.text), room - block.indent
    blank: Line = [(" " * block.indent, "")] if block.indent else []
    if block.aside and width_of(text) + width_of(block.aside) + 3 <= room:
        yield [*blank, (text, block.style), (f" · {clean(block.aside)}", "dim")]
        return
    for place, line in enumerate(wrap(text, room - block.hang, block.most)):
        yield [*blank, (" " * block.hang if place else "", ""), (line, block.style)]
    if block.aside:
        yield from ([*blank, (line, "dim")] for line in wrap(clean(block.aside), room, 2))


def _facts(block: Facts, room: int) -> Iterator[Line]:
    labels = max((len(label) for label, _ in block.pairs), default=0)
    for label, value in block.pairs:
        head = f"{label:<{labels}}  "
        for line in wrap(clean(value), room - len(head), block.most):
            yield [(head, "dim"), (line, "")]
            head = " " * len(head)


def _items(block: Items, room: int) -> Iterator[Line]:
    """``title: first`` with the others below it, the last line counting those left out."""
    # One too many takes the line that would say so.
    shown = block.items if len(block.items) <= _TOP_ITEMS + 1 else block.items[:_TOP_ITEMS]
    indent = len(block.title) + 2
    texts: list[str] = []
    for item in shown:
        first, *more = wrap(clean(item), room - indent - 2, 2)
        texts += [first, *(f"  {line}" for line in more)]
    if len(block.items) > len(shown):
        texts.append(f"{count(len(block.items) - len(shown))} more")
    for place, line in enumerate(texts):
        yield [(" " * indent if place else f"{block.title}: ", "warn"), (line, "")]


# -- tables ------------------------------------------------------------------------------------


def _table(table: NodeTable, room: int) -> Iterator[Line]:
    most = len(table.rows) if table.most is None else table.most
    rows = table.rows if len(table.rows) <= most + 1 else table.rows[:most]
    notes = list(table.notes)
    if len(table.rows) > len(rows):
        notes.insert(0, f"… {plural(len(table.rows) - len(rows), f'more {table.noun}')}")
    # As wide as the bars of branches, if the table is below one.
    bar_cells = _bar_cells(room + _STEM)
    widths = [
        max([width_of(clean(column.name)), *(_width(row[place], bar_cells) for row in rows)])
        for place, column in enumerate(table.columns)
    ]
    places = _with_room(table, widths, room)
    columns = [table.columns[place] for place in places]
    widths = [widths[place] for place in places]
    if table.crop and (hidden := table.columns[len(places) :]):
        head = f"… {plural(len(hidden), 'more column')}; {table.crop}: "
        names = ", ".join(column.name for column in hidden)
        notes.insert(0, head + shorten(clean(names), room - width_of(head)))
    _fit(columns, widths, room)
    if table.title:
        yield [(shorten(clean(table.title), room), "bold")]
    if any(column.name for column in columns):
        yield _row([(column.name, table.head) for column in columns], columns, widths, room)
    for row in rows:
        yield _row([row[place] for place in places], columns, widths, room)
    for note in notes:
        yield from ([(line, "dim")] for line in wrap(clean(note), room, 2))


def _with_room(table: NodeTable, widths: Sequence[int], room: int) -> list[int]:
    """The columns that are shown: without spare ones, or those on the right, if there is no room."""
    places = list(range(len(widths)))
    if table.crop:
        least = [
            wide if column.least is None else min(wide, column.least)
            for wide, column in zip(widths, table.columns, strict=True)
        ]
        # At least one column, however narrow the screen.
        while len(places) > 1 and _excess(least[: len(places)], room) > 0:
            places.pop()
        return places
    while _excess([widths[place] for place in places], room) > 0:
        spare = max(places, key=lambda place: table.columns[place].spare)
        if not table.columns[spare].spare:
            break
        places.remove(spare)
    return places


def _width(cell: Cell, bar_cells: int) -> int:
    if isinstance(cell, Bar):
        return bar_cells
    return width_of(clean(cell if isinstance(cell, str) else cell[0]))


def _excess(widths: Sequence[int], room: int) -> int:
    return sum(widths) + _GAP * (len(widths) - 1) - room


def _fit(columns: Sequence[TableColumn], widths: list[int], room: int) -> None:
    """Take one cell at a time from the widest column that may be cut, until the table fits."""
    for _ in range(_excess(widths, room)):
        cut = [place for place, c in enumerate(columns) if c.least is not None and widths[place] > c.least]
        if not cut:
            return
        widths[max(cut, key=widths.__getitem__)] -= 1


def _row(cells: Sequence[Cell], columns: Sequence[TableColumn], widths: Sequence[int], room: int) -> Line:
    line: Line = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        if isinstance(cell, Bar):
            line += _bar(cell, width)
        else:
            content, style = (cell, column.style) if isinstance(cell, str) else cell
            shown = shorten(clean(content), width)
            blank = (" " * (width - width_of(shown)), "")
            line += [blank, (shown, style)] if column.right else [(shown, style), blank]
        line.append((" " * _GAP, ""))
    # No blanks at the end of a line, coloured or not; what still is too wide loses its end.
    while line and not line[-1][0].strip():
        line.pop()
    if sum(width_of(content) for content, _ in line) > room:
        left = room
        for place, (content, style) in enumerate(line):
            line[place] = (shorten(content, left), style)
            left -= width_of(line[place][0])
    return line
