"""The status of an index as HTML, in the look of scans."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.explain.html_style import ROOT, style
from skipstone.explain.markup import Markup, tag
from skipstone.explain.status import (
    SEGMENT_HEAD,
    IndexStatus,
    about,
    column_table,
    covers,
    kept_for_readers,
    levels,
    misses,
    segment_cells,
    takes,
)
from skipstone.explain.units import count, percent, size


def status_to_html(status: IndexStatus) -> str:
    """The status as one HTML element, fit for a notebook."""
    sections = [
        Markup(f"<style>{style()}</style>"),
        tag("div", status.place, cls=f"{ROOT}-lake"),
        tag("div", about(status), cls=f"{ROOT}-about"),
    ]
    if status.version:
        total = status.sizes.total
        cards = (
            _card("files", count(status.covered), status.covered, status.files, covers(status)),
            _card("size", size(total), total, max(status.data_bytes, total), takes(status)),
        )
        told = [*misses(status), ("asked", str(status.asked))]
        old = kept_for_readers(status)
        terms = [part for label, text in told for part in (tag("dt", label), tag("dd", text))]
        held = [(word, size(nbytes), percent(nbytes, total)) for word, nbytes in levels(status)]
        sections += [
            tag("div", *cards, cls=f"{ROOT}-cards"),
            _heading("What it holds"),
            tag("dl", *terms, cls=f"{ROOT}-facts"),
            _html_table(("what", "size", "share"), held, 1),
            *([tag("div", old, cls=f"{ROOT}-aside")] if old else []),
        ]
    if status.columns:
        head, rows = column_table(status.columns)
        sections += [_heading("Columns"), _html_table(head, rows, 3)]
    if status.segments:
        cells = [segment_cells(segment) for segment in status.segments]
        sections += [_heading("Segments"), _html_table(SEGMENT_HEAD, cells, 1)]
    if status.problems:
        entries = [tag("li", problem) for problem in status.problems]
        summary = tag("summary", f"Ignored ({count(len(entries))})", cls=f"{ROOT}-warn")
        sections.append(tag("details", summary, tag("ul", *entries), open=""))
    if status.next_step:
        sections.append(tag("div", f"next: {status.next_step}", cls=f"{ROOT}-aside"))
    return tag("div", *sections, cls=ROOT)


def _card(label: str, figure: str, part: int, whole: int, aside: str) -> Markup:
    spans = [
        tag("span", style=f"flex-grow:{part};background:var(--{ROOT}-kept)"),
        tag("span", style=f"flex-grow:{whole - part}"),
    ]
    shown = [span for span, units in zip(spans, (part, whole - part), strict=True) if units]
    gauge = tag("div", *shown, cls=f"{ROOT}-gauge {ROOT}-bar", role="img", aria_label=aside)
    return tag(
        "div",
        tag("div", label, cls=f"{ROOT}-label"),
        tag("div", figure, cls=f"{ROOT}-figure"),
        gauge,
        tag("div", aside, cls=f"{ROOT}-aside"),
        cls=f"{ROOT}-card",
    )


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> Markup:
    def line(name: str, cells: Sequence[str]) -> Markup:
        numbers = [f"{ROOT}-number" if place >= texts else "" for place in range(len(cells))]
        return tag("tr", *(tag(name, text, cls=cls) for text, cls in zip(cells, numbers, strict=True)))

    body = tag("tbody", *(line("td", row) for row in rows))
    return tag("div", tag("table", tag("thead", line("th", head)), body), cls=f"{ROOT}-scroll")


def _heading(text: str) -> Markup:
    return tag("div", text, cls=f"{ROOT}-head")
