"""The status of an index, the report of a build, and advice, as trees.

lake/.skipstone/events  version 3, format 1, written 2 days ago
├─ files    ███████████████████░  98 of 100 indexed
│     unknown  2 files: day=2026-01-05/part-2.parquet, day=2026-01-05/part-3.parquet
├─ size     █░░░░░░░░░░░░░░░░░░░  3.1 MB, 7 % of the lake's 44.6 MB
│     bloom filters  █████████████████░░░  2.6 MB (84 %)
│     pages          ███░░░░░░░░░░░░░░░░░  512.0 kB (17 %)
└─ options  ts, user_id; down to pages; bloom filters of the files

column   type   source      bounds    pages  filters    size
user_id  int64  page index  1.2 kB  40.1 kB   2.6 MB  2.7 MB
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skipstone.index.advise.advice import Advice, ColumnAdvice, LayoutAdvice
from skipstone.index.results import BuildChoices, ColumnStatus, IndexReport, IndexStatus
from skipstone.report.node import (
    Bar,
    Code,
    Facts,
    Figure,
    Items,
    NodeTable,
    ReportNode,
    TableColumn,
    Text,
    number,
    text,
)
from skipstone.report.units import ago, count, duration, percent, plural, size, times

_MISSING = "–"
_SHOWN_COLUMNS, _SHOWN_SEGMENTS = 40, 8
_CONTENT = {
    "blocks": "block-level stats",
    "files": "file-level stats",
    "row_groups": "row groups",
    "pages": "pages",
    "blooms": "bloom filters",
    "sums": "sums",
    "sketches": "sketches",
    "places": "chunk offsets",
    "names": "file names",
    "directories": "index metadata",
    "other": "other",
}


def status_tree(status: IndexStatus) -> ReportNode:
    """What the index covers, how old and how large it is, and what it holds."""
    tables: list[NodeTable] = []
    if status.columns:
        tables.append(_columns(status.columns))
    if status.segments:
        tables.append(
            NodeTable(
                (text("segment"), number("files", 1), number("stale", 2), number("size")),
                [(s.name, count(s.files), count(s.stale), size(s.bytes)) for s in status.segments],
                most=_SHOWN_SEGMENTS,
                noun="segment",
            )
        )
    return ReportNode(
        status.place,
        _about(status),
        figures=tuple(_figures(status)),
        children=tuple(_branches(status)),
        tail=(
            *tables,
            Items("ignored", status.problems),
            Items("next", [status.next_step] if status.next_step else ()),
        ),
    )


def _about(status: IndexStatus) -> str:
    if not status.exists:
        return "no index"
    if not status.version:
        return "the index can't be used"
    age = ago(status.taken - status.written)
    return f"version {count(status.version)}, format {status.format}, written {age}"


def _indexed(status: IndexStatus) -> str:
    if not status.files:
        return "the lake has no files"
    return f"{count(status.covered)} of {count(status.files)} indexed"


def _takes(status: IndexStatus) -> str:
    total = status.sizes.total
    share = percent(total, status.data_bytes)
    return size(total) + (f", {share} of the lake's {size(status.data_bytes)}" if status.data_bytes else "")


def _size_bar(status: IndexStatus) -> Bar:
    total = status.sizes.total
    return Bar.of(total, max(status.data_bytes, total), "bytes")


def _figures(status: IndexStatus) -> Iterator[Figure]:
    if status.version:
        files = Bar.of(status.covered, status.files, "indexed")
        yield Figure("files", count(status.covered), _indexed(status), files)
        yield Figure("size", size(status.sizes.total), _takes(status), _size_bar(status))


def _branches(status: IndexStatus) -> Iterator[ReportNode]:
    if not status.version:
        return
    missing = []
    if status.unknown:
        missing.append(("unknown", _such_as(status.unknown, "file", "files", status.unknown_such_as)))
    if status.stale:
        missing.append(("stale", _such_as(status.stale, "entry", "entries", status.stale_such_as)))
    yield ReportNode(
        "files", _indexed(status), bar=Bar.of(status.covered, status.files), body=(Facts(missing),)
    )
    total = status.sizes.total
    found = [(words, int(getattr(status.sizes, name))) for name, words in _CONTENT.items()]
    rows = [
        (words, Bar.of(nbytes, total), f"{size(nbytes)} ({percent(nbytes, total)})")
        for words, nbytes in sorted(found, key=lambda pair: -pair[1])
        if nbytes
    ]
    old = f"and {size(status.old_bytes)} of earlier versions, kept for a while for their readers"
    held = NodeTable(
        (TableColumn(), TableColumn(), TableColumn()), rows, notes=(old,) if status.old_bytes else ()
    )
    said = (_takes(status), f"{size(total)} ({percent(total, status.data_bytes)})", size(total))
    yield ReportNode("size", said, bar=_size_bar(status), body=(held,))
    yield ReportNode("options", _options(status.asked))


def _such_as(number: int, noun: str, many: str, examples: Sequence[str]) -> str:
    said = ", ".join(examples)
    joint = ": " if len(examples) == number else ", such as "
    return plural(number, noun, many) + (f"{joint}{said}" if said else "")


def _options(asked: BuildChoices) -> str:
    named = {
        "values read for": asked.values,
        "bloom filters built for": asked.blooms,
        "sums of": asked.sums,
        "sketches of": asked.sketches,
        "row ids of": asked.ids,
    }
    parts = [
        ", ".join(asked.columns) or "no columns",
        "down to pages" if asked.pages else "down to row groups",
        *(["bloom filters of the files"] if asked.own_blooms else []),
    ]
    for what, names in named.items():
        if names:
            all_of_them = len(names) > 1 and set(names) == set(asked.columns)
            parts.append(f"{what} {'all of them' if all_of_them else ', '.join(names)}")
    return "; ".join(parts)


def _columns(columns: Sequence[ColumnStatus]) -> NodeTable:
    """A line per column; sums and sketches only where there are some."""
    extras = any(column.sizes.sums or column.sizes.sketches for column in columns)
    rows = []
    for column in columns:
        sizes = column.sizes
        numbers = [
            sizes.blocks + sizes.files + sizes.row_groups,
            sizes.pages + sizes.places,
            sizes.blooms,
            *[sizes.sums + sizes.sketches] * extras,
            sizes.total,
        ]
        texts = (column.name, str(column.type), str(column.origins))
        rows.append((*texts, *(size(number) if number else _MISSING for number in numbers)))
    named = ("bounds", "pages", "filters", *["extras"] * extras)
    numbered = (*(number(name, spare=len(named) - place) for place, name in enumerate(named)), number("size"))
    head = (text("column"), text("type"), text("source"), *numbered)
    return NodeTable(head, rows, most=_SHOWN_COLUMNS, noun="column")


# -- builds ------------------------------------------------------------------------------------


def build_tree(report: IndexReport) -> ReportNode:
    """What a build or a refresh did, in a few lines."""
    read = f"read {size(report.bytes)} in {plural(report.requests, 'request')}, " if report.requests else ""
    merged = f", {count(report.merged)} merged" if report.merged else ""
    held = f"version {count(report.version)} has {plural(report.segments, 'segment')}{merged}"
    return ReportNode(
        body=(
            Text("; ".join(_done(report)), "bold"),
            Text(f"{read}{duration(report.seconds)}; {held}", "dim"),
            Items("not indexed", [f"{one.path}: {one.reason}" for one in report.skipped]),
        )
    )


def _done(report: IndexReport) -> Iterator[str]:
    already = f"{count(report.kept)} already indexed"
    if report.kept and not (report.indexed or report.dropped or report.adopted or report.skipped):
        yield f"nothing to do: {plural(report.kept, 'file')} already indexed"
    else:
        yield f"indexed {plural(report.indexed, 'file')}{f', {already}' if report.kept else ''}"
    if report.adopted:
        yield f"{plural(report.adopted, 'file')} reused from an earlier job"
    if report.dropped:
        yield f"{plural(report.dropped, 'file')} gone or changed"
    if report.skipped:
        yield f"{plural(len(report.skipped), 'file')} could not be indexed"


# -- advice ------------------------------------------------------------------------------------

ADVICE_WIDTH = 120
_SHOWN_ADVICE, _SHOWN_LAYOUTS = 30, 6
_EXPLAINED = (
    "Skips are shares of rows: today's by the bounds of the sampled files, a layout's by the bounds of the "
    "sampled rows in that order, in pages and row groups as large as today's."
)


def advice_tree(advice: Advice) -> ReportNode:
    """What to index, which bloom filters pay, which order of rows would help, and how to get there."""
    tables: list[NodeTable] = []
    if advice.by_column:
        names = ("queries", "files", "row groups", "pages", "bloom", "index", "filters")
        # A narrow screen goes without the finer shares first.
        spare = dict(
            zip(("filters", "index", "row groups", "files", "queries"), (5, 4, 3, 2, 1), strict=True)
        )
        numbered = tuple(number(name, spare.get(name, 0)) for name in names)
        head = (text("column"), text("type"), *numbered, text("why", least=12))
        rows = [_advised(column) for column in advice.by_column]
        tables.append(NodeTable(head, rows, most=_SHOWN_ADVICE, noun="column"))
    if advice.layouts:
        head = (text("layout"), number("skips today", 1), number("would skip"), TableColumn("reads"))
        tables.append(NodeTable(head, [*map(_layout, advice.layouts)], most=_SHOWN_LAYOUTS, noun="layout"))
    return ReportNode(
        body=(
            Text(advice.recommendation, "bold", 4),
            Text(_sampled(advice), "dim"),
            *tables,
            *([Code(advice.commands)] if advice.commands else []),
            Text(_EXPLAINED, "dim", 4),
            Items("not understood", [str(refused) for refused in advice.refused]),
        )
    )


def _sampled(advice: Advice) -> str:
    asked = plural(advice.understood, "query", "queries")
    if advice.synthetic:
        asked = "no queries given, so values and ranges of every column"
    refused = f", {count(len(advice.refused))} not understood" if advice.refused else ""
    files = f"{count(advice.sampled)} of {plural(advice.files, 'file')}"
    rows = f"{count(advice.sampled_rows)} of {plural(advice.rows, 'row')}"
    today = f"{percent(advice.skips, 1)} skipped today"
    return f"{advice.lake}: {asked}{refused}; {today}; sampled {files} and {rows}"


def _share(share: float | None) -> str:
    return _MISSING if share is None else percent(share, 1)


def _advised(column: ColumnAdvice) -> tuple[str | tuple[str, str], ...]:
    return (
        column.name,
        str(column.type),
        f"{column.used:,.10g}" if column.used else _MISSING,
        _share(column.skip_files),
        _share(column.skip_row_groups),
        _share(column.skip_pages),
        _share(column.skip_with_bloom),
        size(column.index_bytes) if column.index_bytes else _MISSING,
        size(column.bloom_bytes) if column.bloom_bytes else _MISSING,
        (column.why, "kept" if column.index or column.bloom else ""),
    )


def _layout(layout: LayoutAdvice) -> tuple[str, ...]:
    return str(layout), _share(layout.before), _share(layout.after), f"{times(layout.factor)} less"
