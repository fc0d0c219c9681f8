"""Parts of a drawing in HTML: cards, bars, rows with a bar, tables, lists that fold, whole pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skipstone.report.html_style import ROOT, page_style, style
from skipstone.report.lines import clean, shorten
from skipstone.report.markup import Markup, Node, joined, tag
from skipstone.report.trace.scan import Phase
from skipstone.report.units import count, duration, size

_MOST_OPEN = 12
_EMPTY = Markup()

Part = tuple[str, int, str]
"""A part of a bar: the name of its colour, its units, and what it stands for."""


def element(*sections: Markup) -> str:
    """A drawing as one element that brings its style sheet."""
    return tag("div", Markup(f"<style>{style()}</style>"), *sections, cls=ROOT)


def page(drawing: str, title: str) -> str:
    """A whole HTML document around one drawing."""
    head = joined(
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        Markup(f"<style>{page_style()}</style>"),
    )
    body = tag("body", Markup(drawing))
    return "<!DOCTYPE html>\n" + tag("html", tag("head", head), body, lang="en") + "\n"


def heading(text: str) -> Markup:
    """The title of a section."""
    return tag("div", text, cls=f"{ROOT}-head")


def card(label: str, figure: str, aside: str, parts: Sequence[Part], whole: int) -> Markup:
    """A figure with its label, a small bar where there is a whole, and a remark."""
    return tag(
        "div",
        tag("div", label, cls=f"{ROOT}-label"),
        tag("div", figure, cls=f"{ROOT}-figure"),
        *([bar(parts, whole, gauge=True)] if whole else []),
        tag("div", aside, cls=f"{ROOT}-aside"),
        cls=f"{ROOT}-card",
    )


def bar(parts: Sequence[Part], whole: int, *, gauge: bool = False) -> Markup:
    """Parts of a whole side by side; what they leave of it stays the colour of the ground."""
    shown = [part for part in parts if part[1] > 0]
    rest = whole - sum(units for _, units, _ in shown)
    spans = [
        tag("span", style=f"flex-grow:{units};background:var(--{ROOT}-{ink})", title=f"{count(units)} {what}")
        for ink, units, what in shown
    ]
    if rest > 0:
        spans.append(tag("span", style=f"flex-grow:{rest}"))
    said = ", ".join(f"{count(units)} {what}" for _, units, what in shown) or "nothing"
    kind = f"{ROOT}-gauge " if gauge else ""
    return tag("div", *spans, cls=f"{kind}{ROOT}-bar", role="img", aria_label=said)


def row(name: str, drawn: Markup, said: str, more: Sequence[str], below: Markup = _EMPTY) -> Markup:
    """A name, its bar, what it says, and what may stand below the bar."""
    asides = [tag("div", text, cls=f"{ROOT}-aside") for text in more if text]
    text = tag("div", tag("b", said), *asides, cls=f"{ROOT}-said")
    return tag("div", tag("div", name, cls=f"{ROOT}-name", title=name), drawn, text, below, cls=f"{ROOT}-row")


def legend(entries: Sequence[tuple[str, str]]) -> Iterator[Markup]:
    """Colours and what they stand for; nothing for none."""
    if entries:
        yield tag("div", *(tag("span", dot(ink), what) for ink, what in entries), cls=f"{ROOT}-legend")


def facts(pairs: Sequence[tuple[str, Node]]) -> Markup:
    """Labels and values."""
    terms = [part for label, value in pairs for part in (tag("dt", label), tag("dd", value))]
    return tag("dl", *terms, cls=f"{ROOT}-facts")


def listing(title: str, items: Sequence[str]) -> Iterator[Markup]:
    """What should be seen, as a list that folds; nothing for no items."""
    if items:
        summary = tag("summary", f"{title} ({count(len(items))})", cls=f"{ROOT}-warn")
        entries = tag("ul", *(tag("li", item) for item in items))
        yield details(joined(summary, tag("div", entries, cls=f"{ROOT}-scroll")), len(items))


def details(content: Markup, items: int, cls: str = "") -> Markup:
    """Something that folds, open where it is short."""
    return tag("details", content, cls=cls, **({"open": ""} if items <= _MOST_OPEN else {}))


def phase_table(phases: Sequence[Phase]) -> Iterator[Markup]:
    """A line per phase with its share of the time; nothing for no phases."""
    if not phases:
        return
    total = sum(phase.seconds for phase in phases)
    rows = []
    for phase in phases:
        # Bars take whole numbers; microseconds are fine enough.
        spent = [("kept", round(phase.seconds * 1e6), "µs")]
        numbers = (count(phase.rows), count(phase.requests), size(phase.bytes), duration(phase.seconds))
        cells = [cell(phase.name, "tight"), *(cell(text, "number") for text in numbers)]
        share = bar(spent, round(total * 1e6), gauge=True)
        rows.append(tag("tr", *cells, cell(share, "wide")))
    yield table(("phase", "rows", "requests", "bytes", "time", ""), rows, range(1, 5))


def table(names: Sequence[str], rows: Sequence[Markup], numbers: range) -> Markup:
    """A table whose columns ``numbers`` stand to the right."""
    heads = [
        tag("th", name, cls=f"{ROOT}-number" if place in numbers else "") for place, name in enumerate(names)
    ]
    found = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return tag("div", found, cls=f"{ROOT}-scroll")


def cell(content: Node, kind: str = "") -> Markup:
    """A cell of a table: tight, wide, or a number."""
    return tag("td", content, cls=f"{ROOT}-{kind}" if kind else "")


def code(text: str, most: int) -> Markup:
    """A condition or the like, cut where it is very long."""
    return tag("code", shorten(clean(text), most))


def dot(ink: str) -> Markup:
    """A spot of a bar's colour."""
    return tag("span", cls=f"{ROOT}-dot", style=f"background:var(--{ROOT}-{ink})")
