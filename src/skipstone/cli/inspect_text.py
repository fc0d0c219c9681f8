"""An inspection as tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from skipstone.cli.inspect_json import codecs, data_bytes
from skipstone.cli.inspection import Bounds, Column, Inspection, each
from skipstone.cli.tables import Cell, Heading, number, table, text
from skipstone.cli.types import codec_name, logical_name, physical_name, short_encoding
from skipstone.prune.clustering import Clustering, Layout
from skipstone.report.lines import Span, clean
from skipstone.report.units import count, percent, plural, size, spark

_MISSING = "–"
_MOST_NOTES = 20
_STYLES = {
    Layout.SORTED: "kept",
    Layout.CLUSTERED: "kept",
    Layout.OVERLAPPING: "warn",
    Layout.RANDOM: "bad",
}

# Digits of a whole second that say nothing; text is quoted, so this is a time.
_NO_FRACTION = re.compile(r"^([-0-9 ]*:\d\d:\d\d)\.0+(?=Z?$)")

Lines = Iterator[list[Span]]


def draw(
    found: Inspection, width: int, *, row_groups: bool = False, bounds_of: Sequence[Column] = ()
) -> Lines:
    """The lines of every table that was asked for, an empty one after each."""
    yield from section(clean(found.metadata.path), _file(found, width))
    yield from section("columns", _columns(found, width))
    yield from section("values", _values(found, width))
    yield from section("clustering", _clustering(found, width))
    if row_groups:
        yield from section("row groups", _row_groups(found, bounds_of, width))
    if found.pages:
        yield from section("pages", _pages(found, width))
    if found.notes:
        yield from section("notes", _notes(found))


def section(title: str, lines: Lines) -> Lines:
    """Lines below a title, and an empty one after them."""
    yield [(title, "bold")]
    yield from lines
    yield []


def _file(found: Inspection, width: int) -> Lines:
    metadata = found.metadata
    groups = plural(metadata.row_group_count, "row group")
    largest = int(metadata.row_group_rows.max()) if metadata.row_group_count else 0
    data = data_bytes(found)
    whole = size(metadata.size) if metadata.size is not None else "unknown"
    names = ", ".join(codec_name(codec) for codec in codecs(found)) or _MISSING
    plain = sum(group.total_byte_size or 0 for group in metadata.row_groups)
    rows: list[Sequence[Cell]] = [
        ("rows", f"{count(metadata.num_rows)} in {groups} of up to {count(largest)}"),
        ("size", f"{whole}: data {size(data)}, footer {size(metadata.footer_size)}"),
        ("compression", f"{names}, {plain / data:.1f} times smaller" if data and plain else names),
        ("written by", metadata.created_by or _MISSING),
        ("metadata read", f"{plural(found.requests, 'request')}, {size(found.bytes)}"),
    ]
    lines = table((Heading("", style="dim"), text("")), rows, width)
    next(lines)
    yield from lines


def _columns(found: Inspection, width: int) -> Lines:
    # A narrow screen goes without what the other columns mostly tell.
    headings = (
        text("column"),
        text("type"),
        Heading("null"),
        Heading("stored as", spare=3),
        Heading("encoding", spare=2),
        number("size"),
        Heading("share", right=True, spare=1),
        text("evidence", least=26),
    )
    total, groups = data_bytes(found), found.metadata.row_group_count
    rows: list[Sequence[Cell]] = []
    for column in found.columns:
        leaf = column.leaf
        physical = physical_name(leaf)
        encodings = ", ".join(dict.fromkeys(map(short_encoding, column.encodings or ()))) or _MISSING
        rows.append(
            (
                leaf.name,
                logical_name(leaf.logical) or physical,
                "no" if leaf.required else "yes",
                physical,
                encodings,
                size(column.bytes),
                percent(column.bytes, total),
                _evidence(column, groups),
            )
        )
    yield from table(headings, rows, width)


def _evidence(column: Column, groups: int) -> str:
    coverage = column.coverage
    parts = [
        _covered("bounds", coverage.bounds, groups),
        _covered("pages", coverage.page_index, groups),
        _covered("bloom", coverage.bloom, groups),
        _covered("dict", coverage.dictionary, groups),
    ]
    if coverage.stated and not coverage.bounds:
        parts[0] = "bounds unused"
    return ", ".join(part for part in parts if part) or "none"


def _covered(name: str, having: int, groups: int) -> str:
    if having == 0:
        return ""
    return name if having == groups else f"{name} {having}/{groups}"


def _values(found: Inspection, width: int) -> Lines:
    floats = any(column.floating for column in found.columns)
    headings = (
        text("column"),
        text("min"),
        text("max"),
        number("nulls"),
        *([number("NaN")] if floats else []),
    )
    rows: list[Sequence[Cell]] = []
    for column in found.columns:
        nan = (_count(column.nan_count) if column.floating else _MISSING,) if floats else ()
        rows.append((column.leaf.name, *_drawn(column.bounds), _count(column.null_count), *nan))
    yield from table(headings, rows, width)


def _count(known: int | None) -> str:
    return "unknown" if known is None else count(known)


def _drawn(bounds: Bounds) -> tuple[str, str]:
    """Both bounds; ≥ and ≤ mark those that need not occur as values."""
    if bounds.min is None or bounds.max is None:
        return _MISSING, _MISSING
    low, high = (_NO_FRACTION.sub(r"\1", text) for text in (bounds.min, bounds.max))
    return low if bounds.min_exact else f"≥ {low}", high if bounds.max_exact else f"≤ {high}"


def _clustering(found: Inspection, width: int) -> Lines:
    headings = (
        text("column"),
        Heading("row groups"),
        number("= keeps"),
        Heading("pages"),
        number("= keeps"),
        Heading("overlap"),
    )
    rows: list[Sequence[Cell]] = []
    for column in found.columns:
        finest = column.page_clustering or column.row_group_clustering
        rows.append(
            (
                column.leaf.name,
                *_measure(column.row_group_clustering),
                *_measure(column.page_clustering),
                spark(list(finest.profile)) if finest is not None else "",
            )
        )
    yield from table(headings, rows, width)
    yield [("= keeps: how many of them an equality on the column touches on average", "dim")]
    yield [("overlap: the share of them that covers each part of the column's range", "dim")]


def _measure(measured: Clustering | None) -> tuple[Cell, Cell]:
    if measured is None:
        return _MISSING, ""
    word = (measured.layout.value, _STYLES.get(measured.layout, ""))
    if measured.layout is Layout.UNKNOWN:
        return word, ""
    return word, f"{measured.depth:,.1f} ({percent(measured.depth, measured.units)})"


def _row_groups(found: Inspection, bounds_of: Sequence[Column], width: int) -> Lines:
    metadata = found.metadata
    # Bounds that are cut to nothing are worse than none: show as many columns as have room.
    shown = bounds_of[: max((width - 40) // 24, 1)]
    headings = (number("#"), number("first row"), number("rows"), number("size"))
    bounds = [each(column.facts, metadata.row_group_count) for column in shown]
    chunks = [metadata.chunks(leaf.index) for leaf in metadata.leaves]
    rows: list[Sequence[Cell]] = [
        (
            str(group),
            count(int(metadata.row_group_starts[group])),
            count(int(metadata.row_group_rows[group])),
            size(sum(chunk[group].total_compressed_size for chunk in chunks)),
            *(bound for column in bounds for bound in _drawn(column[group])),
        )
        for group in range(metadata.row_group_count)
    ]
    named = [heading for column in shown for heading in (text(column.leaf.name), text("to"))]
    yield from table((*headings, *named), rows, width)
    if len(shown) < len(bounds_of):
        yield [(f"{len(bounds_of) - len(shown)} more columns: see --format json", "dim")]


def _pages(found: Inspection, width: int) -> Lines:
    headings = (
        number("group"),
        number("first row"),
        number("rows"),
        number("size"),
        text("min"),
        text("max"),
        number("nulls"),
    )
    rows: list[Sequence[Cell]] = [
        (
            str(page.row_group),
            count(page.first_row),
            count(page.rows),
            size(page.bytes),
            *_drawn(page.bounds),
            _count(page.null_count),
        )
        for page in found.pages or ()
    ]
    yield from table(headings, rows, width)


def _notes(found: Inspection) -> Lines:
    for note in found.notes[:_MOST_NOTES]:
        yield [(clean(f"{note.unit}: {note.reason}"), "warn")]
    if len(found.notes) > _MOST_NOTES:
        yield [(f"{len(found.notes) - _MOST_NOTES} more", "warn")]
