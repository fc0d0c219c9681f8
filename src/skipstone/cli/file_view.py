"""The inspection of a file, as sections of tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from skipstone.cli.inspection import (
    Bounds,
    InspectedColumn,
    Inspection,
    codec_name,
    codecs,
    data_bytes,
    each,
    logical_name,
    physical_name,
    short_encoding,
)
from skipstone.prune.clustering import Clustering, Layout
from skipstone.report.node import Cell, Facts, NodeTable, ReportNode, TableColumn, Text, number, text
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


def file_tree(
    found: Inspection, *, row_groups: bool = False, bounds_of: Sequence[InspectedColumn] = ()
) -> ReportNode:
    """A section for the file itself and for each table that was asked for."""
    sections = [
        ReportNode(found.metadata.path, body=(Facts(_facts(found)),)),
        ReportNode("columns", body=(_columns(found),)),
        ReportNode("values", body=(_values(found),)),
        ReportNode("clustering", body=(_clustering(found),)),
    ]
    if row_groups:
        sections.append(ReportNode("row groups", body=(_row_groups(found, bounds_of),)))
    if found.pages:
        sections.append(ReportNode("pages", body=(_pages(found),)))
    if found.notes:
        more = len(found.notes) - _MOST_NOTES
        lines = [f"{note.unit}: {note.reason}" for note in found.notes[:_MOST_NOTES]]
        lines += [f"{more} more"] if more > 0 else []
        sections.append(ReportNode("notes", body=tuple(Text(line, "warn") for line in lines)))
    return ReportNode(children=tuple(sections), tree=False)


def _facts(found: Inspection) -> list[tuple[str, str]]:
    metadata = found.metadata
    groups = plural(metadata.row_group_count, "row group")
    largest = int(metadata.row_group_rows.max()) if metadata.row_group_count else 0
    data = data_bytes(found)
    whole = size(metadata.size) if metadata.size is not None else "unknown"
    names = ", ".join(codec_name(codec) for codec in codecs(found)) or _MISSING
    plain = sum(group.total_byte_size or 0 for group in metadata.row_groups)
    return [
        ("rows", f"{count(metadata.num_rows)} in {groups} of up to {count(largest)}"),
        ("size", f"{whole}: data {size(data)}, footer {size(metadata.footer_size)}"),
        ("compression", f"{names}, {plain / data:.1f} times smaller" if data and plain else names),
        ("written by", metadata.created_by or _MISSING),
        ("metadata read", f"{plural(found.requests, 'request')}, {size(found.bytes)}"),
    ]


def _columns(found: Inspection) -> NodeTable:
    # A narrow screen goes without what the other columns mostly say.
    columns = (
        *(
            text("column"),
            text("type"),
            TableColumn("null"),
            TableColumn("stored as", spare=3),
            TableColumn("encoding", spare=2),
        ),
        *(number("size"), number("share", spare=1), text("evidence", least=26)),
    )
    total, groups = data_bytes(found), found.metadata.row_group_count
    rows = []
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
    return NodeTable(columns, rows)


def _evidence(column: InspectedColumn, groups: int) -> str:
    coverage = column.coverage
    kinds = {
        "bounds": coverage.bounds,
        "pages": coverage.page_index,
        "bloom": coverage.bloom_filter,
        "dict": coverage.dictionary,
    }
    parts = [
        name if having == groups else f"{name} {having}/{groups}" for name, having in kinds.items() if having
    ]
    if coverage.stated_bounds and not coverage.bounds:
        parts.insert(0, "bounds unused")
    return ", ".join(parts) or "none"


def _values(found: Inspection) -> NodeTable:
    floats = any(column.floating for column in found.columns)
    columns = (*map(text, ("column", "min", "max")), number("nulls"), *([number("NaN")] if floats else []))
    rows = []
    for column in found.columns:
        nan = (_count(column.nan_count) if column.floating else _MISSING,) if floats else ()
        rows.append((column.leaf.name, *_drawn(column.bounds), _count(column.null_count), *nan))
    return NodeTable(columns, rows)


def _count(known: int | None) -> str:
    return "unknown" if known is None else count(known)


def _drawn(bounds: Bounds) -> tuple[str, str]:
    """Both bounds; ≥ and ≤ mark those that need not occur as values."""
    if bounds.min is None or bounds.max is None:
        return _MISSING, _MISSING
    low, high = (_NO_FRACTION.sub(r"\1", text) for text in (bounds.min, bounds.max))
    return low if bounds.min_exact else f"≥ {low}", high if bounds.max_exact else f"≤ {high}"


def _range(bounds: Bounds) -> str:
    low, high = _drawn(bounds)
    return _MISSING if low == high == _MISSING else f"{low} to {high}"


def _clustering(found: Inspection) -> NodeTable:
    columns = (
        *(text("column"), TableColumn("row groups"), number("= keeps")),
        *(TableColumn("pages"), number("= keeps"), TableColumn("overlap")),
    )
    rows = []
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
    notes = (
        "= keeps: how many of them an equality on the column touches on average",
        "overlap: the share of them that covers each part of the column's range",
    )
    return NodeTable(columns, rows, notes)


def _measure(measured: Clustering | None) -> tuple[Cell, Cell]:
    if measured is None:
        return _MISSING, ""
    word = (measured.layout.value, _STYLES.get(measured.layout, ""))
    if measured.layout is Layout.UNKNOWN:
        return word, ""
    return word, f"{measured.depth:,.1f} ({percent(measured.depth, measured.units)})"


def _row_groups(found: Inspection, bounds_of: Sequence[InspectedColumn]) -> NodeTable:
    """A line per row group, with the bounds of as many of these columns as there is room for."""
    metadata = found.metadata
    bounds = [each(column.facts, metadata.row_group_count) for column in bounds_of]
    chunks = [metadata.chunks(leaf.index) for leaf in metadata.leaves]
    rows = [
        (
            str(group),
            count(int(metadata.row_group_starts[group])),
            count(int(metadata.row_group_rows[group])),
            size(sum(chunk[group].total_compressed_size for chunk in chunks)),
            *(_range(column[group]) for column in bounds),
        )
        for group in range(metadata.row_group_count)
    ]
    named = [text(column.leaf.name, 20) for column in bounds_of]
    columns = (*map(number, ("#", "first row", "rows", "size")), *named)
    return NodeTable(columns, rows, crop="use --format json")


def _pages(found: Inspection) -> NodeTable:
    columns = (
        *map(number, ("group", "first row", "rows", "size")),
        *(text("min"), text("max"), number("nulls")),
    )
    rows = [
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
    return NodeTable(columns, rows)
