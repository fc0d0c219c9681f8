"""The status of an index as HTML, in the look of scans."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.report.html_parts import Part, card, element, facts, heading
from skipstone.report.html_style import ROOT
from skipstone.report.markup import Markup, tag
from skipstone.report.status import (
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
from skipstone.report.units import count, percent, size


def status_to_html(status: IndexStatus) -> str:
    """The status as one HTML element, fit for a notebook."""
    sections = [
        tag("div", status.place, cls=f"{ROOT}-lake"),
        tag("div", about(status), cls=f"{ROOT}-about"),
    ]
    if status.version:
        total = status.sizes.total
        known: list[Part] = [("kept", status.covered, "known")]
        held_bytes: list[Part] = [("kept", total, "bytes")]
        cards = (
            card("files", count(status.covered), covers(status), known, status.files),
            card("size", size(total), takes(status), held_bytes, max(status.data_bytes, total)),
        )
        told = [*misses(status), ("asked", str(status.asked))]
        old = kept_for_readers(status)
        held = [(word, size(nbytes), percent(nbytes, total)) for word, nbytes in levels(status)]
        sections += [
            tag("div", *cards, cls=f"{ROOT}-cards"),
            heading("What it holds"),
            facts(told),
            _html_table(("what", "size", "share"), held, 1),
            *([tag("div", old, cls=f"{ROOT}-aside")] if old else []),
        ]
    if status.columns:
        head, rows = column_table(status.columns)
        sections += [heading("Columns"), _html_table(head, rows, 3)]
    if status.segments:
        cells = [segment_cells(segment) for segment in status.segments]
        sections += [heading("Segments"), _html_table(SEGMENT_HEAD, cells, 1)]
    if status.problems:
        entries = [tag("li", problem) for problem in status.problems]
        summary = tag("summary", f"Ignored ({count(len(entries))})", cls=f"{ROOT}-warn")
        sections.append(tag("details", summary, tag("ul", *entries), open=""))
    if status.next_step:
        sections.append(tag("div", f"next: {status.next_step}", cls=f"{ROOT}-aside"))
    return element(*sections)


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> Markup:
    def line(name: str, cells: Sequence[str]) -> Markup:
        numbers = [f"{ROOT}-number" if place >= texts else "" for place in range(len(cells))]
        return tag("tr", *(tag(name, text, cls=cls) for text, cls in zip(cells, numbers, strict=True)))

    body = tag("tbody", *(line("td", row) for row in rows))
    return tag("div", tag("table", tag("thead", line("th", head)), body), cls=f"{ROOT}-scroll")
