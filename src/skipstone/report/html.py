"""Draws a tree of nodes as HTML: one element with its own style sheet, or a page around it.

Nothing is fetched and nothing runs: <details> fold, and every rule is below one class.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from skipstone.report.lines import clean, shorten
from skipstone.report.node import (
    ANSWERED,
    DROPPED,
    READ,
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
from skipstone.report.units import count, phrase

ROOT = "skst"
"""The class of the outermost element, and the prefix of every other class."""
_MOST_ROWS = 200
_MOST_OPEN = 12
# Lists of thousands of values would fill a notebook; the JSON has all of them.
_LONGEST = 5_000
_LONGEST_CELL = 400
_VIEWPORT = "width=device-width, initial-scale=1"
_PAGE = (
    "html{color-scheme:light dark}body{margin:0;padding:24px;background:light-dark(#eceff2,#0d1115)}"
    f"body>.{ROOT}{{margin:0 auto}}@media (max-width:640px){{body{{padding:8px}}}}"
)


def to_html(node: ReportNode) -> str:
    """Draw the tree as one element, for a notebook."""
    return tag("div", Markup(f"<style>{style()}</style>"), *_root(node), cls="")


def to_page(node: ReportNode, title: str) -> str:
    """Draw the tree as a complete document."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="{_VIEWPORT}">{tag("title", title)}'
    page = f"<head>{head}<style>{_PAGE}</style></head><body>{to_html(node)}</body>"
    return f'<!DOCTYPE html>\n<html lang="en">{page}</html>\n'


@cache
def style() -> str:
    """The style sheet of one element."""
    return Path(__file__).with_name("style.css").read_text()


# -- markup ------------------------------------------------------------------------------------


class Markup(str):
    """A piece of finished HTML."""

    __slots__ = ()


def tag(name: str, *children: str, cls: str | None = None, **attributes: str) -> Markup:
    """Put an element around its children; plain strings among them, and attributes, are escaped.

    >>> tag("p", "a < b", tag("b", "!"), cls="about")
    '<p class="skst-about">a &lt; b<b>!</b></p>'
    """
    if cls is not None:
        attributes = {"class": " ".join(f"{ROOT}-{part}" for part in cls.split()) or ROOT, **attributes}
    opened = "".join(f' {key.replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{opened}>{joined(*children)}</{name}>")


def joined(*nodes: str) -> Markup:
    """Join nodes."""
    return Markup("".join(node if isinstance(node, Markup) else _escaped(node) for node in nodes))


def _escaped(text: str) -> str:
    # Control, bidirectional and surrogate characters are made visible first: they survive escaping.
    return html.escape(clean(text))


def _code(text: str, most: int = _LONGEST) -> Markup:
    return tag("code", shorten(clean(text), most))


# -- nodes -------------------------------------------------------------------------------------


def _root(node: ReportNode) -> Iterator[Markup]:
    children = [child for child in node.children if child is not None]
    said = node.statements[0]
    if node.label:
        yield tag("div", node.label, cls="title")
    if said and node.style != "code":
        yield tag("div", said, cls="about")
    about = list(takewhile(lambda block: isinstance(block, Text), node.body))
    yield from (_text(block, "about") for block in about if isinstance(block, Text))
    if said and node.style == "code":
        yield tag("div", _code(said), cls="where")
    if cards := [_card(figure) for figure in node.figures if figure is not None]:
        yield tag("div", *cards, cls="cards")
    yield from _blocks(node.body[len(about) :])
    if node.tree and children:
        yield tag("div", *map(_branch, children), cls="tree")
        yield from _legend([child.bar for child in children if child.bar is not None])
    else:
        for child in children:
            yield tag("div", child.label, cls="head")
            yield from _blocks(child.body)
    yield from _blocks(node.tail)


def _branch(node: ReportNode) -> Markup:
    name = tag("div", node.label, cls="name", title=node.label)
    bar = _bar(node.bar) if node.bar is not None else Markup()
    said = tag("div", node.statements[0], cls=f"said {node.style}".strip())
    below = [tag("div", *blocks, cls="below")] if (blocks := list(_blocks(node.body))) else []
    return tag("div", name, bar, said, *below, cls="row" if node.bar is not None else "row plain")


def _card(figure: tuple[str, str, str]) -> Markup:
    parts = zip(("label", "figure", "aside"), figure, strict=True)
    return tag("div", *(tag("div", text, cls=cls) for cls, text in parts), cls="card")


def _bar(bar: Bar, cls: str = "bar") -> Markup:
    """Parts of a total side by side; the rest has the colour of the background."""
    shown = [part for part in bar.parts if part.size > 0]
    rest = bar.whole - sum(part.size for part in shown)
    said = [f"{_size(part.size)} {part.meaning}".strip() for part in shown]
    spans = [
        tag("span", style=f"flex-grow:{_size(part.size, '')};background:var(--{ROOT}-{part.ink})", title=text)
        for part, text in zip(shown, said, strict=True)
    ]
    if rest > 0:
        spans.append(tag("span", style=f"flex-grow:{_size(rest, '')}"))
    return tag("div", *spans, cls=cls, role="img", aria_label=", ".join(said) or "nothing")


def _size(size: float, thousands: str = ",") -> str:
    return f"{size:{thousands}}" if isinstance(size, int) else f"{size:.6g}"


def _legend(bars: Sequence[Bar]) -> Iterator[Markup]:
    """The inks of the bars and their meanings."""
    seen = {part.ink: part.meaning for bar in bars for part in bar.parts if part.size > 0 and part.meaning}
    dots = [
        tag("span", tag("span", cls="dot", style=f"background:var(--{ROOT}-{ink})"), seen[ink])
        for ink in (*READ, *ANSWERED, *DROPPED)
        if ink in seen
    ]
    if len(dots) > 1:
        yield tag("div", *dots, cls="legend")


# -- blocks ------------------------------------------------------------------------------------


def _blocks(blocks: Sequence[Block | None]) -> Iterator[Markup]:
    drawn = (_DRAW[type(block)](block) for block in blocks if block is not None)
    return (markup for markup in drawn if markup)


def _text(block: Text, cls: str = "para") -> Markup:
    said = phrase(block.text, block.aside, by=" · ")
    return tag("div", said, cls=f"{cls} {block.style}".strip()) if said else Markup()


def _facts(block: Facts) -> Markup:
    terms = []
    for label, style, value in block.shown:
        terms.append(tag("dt", label, cls=style or None))
        terms.append(tag("dd", _code(value) if label in block.code else value))
    return tag("dl", *terms, cls="facts") if terms else Markup()


def _items(block: Items) -> Markup:
    if not block.items:
        return Markup()
    summary = tag("summary", f"{block.title[:1].upper()}{block.title[1:]} ({count(len(block.items))})")
    entries = tag("div", tag("ul", *(tag("li", item) for item in block.items)), cls="scroll")
    return tag("details", summary, entries, **({"open": ""} if len(block.items) <= _MOST_OPEN else {}))


def _table(table: NodeTable) -> Markup:
    names = [tag("th", column.name, cls="number" if column.right else None) for column in table.columns]
    head = [tag("thead", tag("tr", *names))] if any(column.name for column in table.columns) else []
    rows = [
        tag("tr", *(_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)))
        for row in table.rows[:_MOST_ROWS]
    ]
    more = [f"{count(len(table.rows) - len(rows))} more"] if len(table.rows) > len(rows) else []
    return joined(
        *([tag("div", table.title, cls="head")] if table.title else []),
        *([tag("div", tag("table", *head, tag("tbody", *rows)), cls="scroll")] if rows else []),
        *(tag("div", note, cls="aside") for note in (*more, *table.notes)),
    )


def _cell(cell: Cell, column: TableColumn) -> Markup:
    if isinstance(cell, Bar):
        return tag("td", _bar(cell, "gauge bar"), cls="wide")
    text, style = (cell, column.style) if isinstance(cell, str) else cell
    shown = shorten(clean(text), _LONGEST_CELL)
    if style == "code":
        return tag("td", tag("div", tag("code", shown), cls="clip"), cls="wide")
    full = {"title": shown} if style == "short" else {}
    return tag("td", shown, cls=phrase("number" if column.right else "", style, by=" ") or None, **full)


_DRAW: dict[type[Block], Callable[[Any], Markup]] = {
    Text: _text,
    Facts: _facts,
    Items: _items,
    NodeTable: _table,
    Code: lambda block: joined(*(tag("pre", line) for line in block.lines)),
    ReportNode: lambda node: tag("div", *_root(node), cls="nested"),
}
