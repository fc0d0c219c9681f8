"""Views of index statuses, builds and advice.

lake/.skipstone/events  version 3, format 1, written 2 days ago
├─ files    ███████████████████░  98 of 100 indexed
│     not indexed  2 files: day=2026-01-05/part-2.parquet, day=2026-01-05/part-3.parquet
├─ size     █░░░░░░░░░░░░░░░░░░░  3.1 MB, 7 % of the lake's 44.6 MB
│     bloom filters  █████████████████░░░  2.6 MB (84 %)
│     pages          ███░░░░░░░░░░░░░░░░░  512.0 kB (17 %)
└─ options  ts, user_id; down to pages; bloom filters of the files

column   type   source      bounds    pages  filters    size
user_id  int64  page index  1.2 kB  40.1 kB   2.6 MB  2.7 MB
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from skipstone.index.advise.advice import Advice
from skipstone.index.results import BuildOptions, IndexReport, IndexStatus
from skipstone.report.node import (
    Bar,
    Code,
    Facts,
    Items,
    NodeTable,
    ReportNode,
    TableColumn,
    Text,
    nbytes,
    number,
    table,
    text,
)
from skipstone.report.units import ago, count, duration, percent, plural, size, times

_SHOWN_COLUMNS, _SHOWN_SEGMENTS = 40, 8
_CONTENT = {
    "blocks": "block-level stats",
    "files": "file-level stats",
    "blooms": "bloom filters",
    "offsets": "chunk offsets",
    "names": "file names",
    "metadata": "index metadata",
}
"""Names of parts that differ from those of their fields."""


def status_tree(status: IndexStatus) -> ReportNode:
    """Coverage, age, size and content of an index."""
    return ReportNode(
        status.location,
        _about(status),
        figures=(
            ("files", count(status.covered), _indexed(status)) if status.version else None,
            ("size", size(status.sizes.total), _takes(status)) if status.version else None,
        ),
        children=tuple(_branches(status)) if status.version else (),
        tail=(
            _columns(status),
            table(
                status.segments,
                text("segment", lambda segment: segment.name),
                number("files", lambda segment: segment.files, rank=1),
                number("stale", lambda segment: segment.stale, rank=2),
                nbytes("size", lambda segment: segment.bytes),
                most=_SHOWN_SEGMENTS,
                noun="segment",
            ),
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
    part = percent(total, status.data_bytes)
    return size(total) + (f", {part} of the lake's {size(status.data_bytes)}" if status.data_bytes else "")


def _branches(status: IndexStatus) -> Iterator[ReportNode]:
    missing = (
        ("not indexed", _such_as(status.unknown, "file", "files", status.unknown_such_as)),
        ("stale", _such_as(status.stale, "entry", "entries", status.stale_such_as)),
    )
    files = Bar.of(status.covered, status.files, "indexed")
    yield ReportNode("files", _indexed(status), bar=files, body=(Facts(missing),))
    total = status.sizes.total
    names = [field.name for field in fields(status.sizes)]
    sizes = [(_CONTENT.get(name, name.replace("_", " ")), getattr(status.sizes, name)) for name in names]
    old = f"and {size(status.old_bytes)} of earlier versions, retained for readers that still use them"
    content = table(
        sorted((pair for pair in sizes if pair[1]), key=lambda pair: -pair[1]),
        TableColumn("", lambda pair: pair[0]),
        TableColumn("", lambda pair: Bar.of(pair[1], total)),
        TableColumn("", lambda pair: f"{size(pair[1])} ({percent(pair[1], total)})"),
        notes=(old,) if status.old_bytes else (),
    )
    bar = Bar.of(total, max(status.data_bytes, total), "bytes")
    yield ReportNode("size", (_takes(status), size(total)), bar=bar, body=(content,))
    yield ReportNode("options", _options(status.options))


def _such_as(number: int, noun: str, many: str, examples: Sequence[str]) -> str:
    joint = ": " if len(examples) == number else ", such as "
    names = f"{joint}{', '.join(examples)}" if examples else ""
    return f"{plural(number, noun, many)}{names}" if number else ""


def _options(choices: BuildOptions) -> str:
    named = (
        ("values read for", choices.values),
        ("bloom filters built for", choices.blooms),
        ("sums of", choices.sums),
        ("sketches of", choices.sketches),
        ("row ids of", choices.ids),
    )
    parts = (
        ", ".join(choices.columns) or "no columns",
        "down to pages" if choices.pages else "down to row groups",
        "bloom filters of the files" if choices.own_blooms else "",
        *(f"{what} {_listed(names, choices.columns)}" if names else "" for what, names in named),
    )
    return "; ".join(filter(None, parts))


def _listed(names: Sequence[str], columns: Sequence[str]) -> str:
    return "all of them" if len(names) > 1 and set(names) == set(columns) else ", ".join(names)


def _columns(status: IndexStatus) -> NodeTable:
    return table(
        status.columns,
        text("column", lambda column: column.name),
        text("type", lambda column: str(column.type), rank=1),
        text("source", lambda column: str(column.origins), rank=2),
        nbytes("bounds", lambda c: c.sizes.blocks + c.sizes.files + c.sizes.row_groups, rank=3),
        nbytes("pages", lambda column: column.sizes.pages + column.sizes.offsets, rank=3),
        nbytes("filters", lambda column: column.sizes.blooms, rank=3),
        nbytes("extras", lambda c: c.sizes.sums + c.sizes.sketches, rank=3, optional=True),
        nbytes("size", lambda column: column.sizes.total),
        most=_SHOWN_COLUMNS,
        noun="column",
    )


# -- builds ------------------------------------------------------------------------------------


def build_tree(report: IndexReport) -> ReportNode:
    """The work of a build or a refresh."""
    read = f"read {size(report.bytes)} in {plural(report.requests, 'request')}, " if report.requests else ""
    merged = f", {count(report.merged)} merged" if report.merged else ""
    segments = f"version {count(report.version)} has {plural(report.segments, 'segment')}{merged}"
    return ReportNode(
        body=(
            Text(_done(report), "bold"),
            Text(f"{read}{duration(report.seconds)}; {segments}", "dim"),
            Items("not indexed", [f"{file.path}: {file.reason}" for file in report.skipped]),
        )
    )


def _done(report: IndexReport) -> str:
    indexed = f"indexed {plural(report.indexed, 'file')}"
    already = f", {count(report.already_indexed)} already indexed" if report.already_indexed else ""
    if report.already_indexed and not (report.indexed or report.dropped or report.adopted or report.skipped):
        return f"nothing to do: {plural(report.already_indexed, 'file')} already indexed"
    parts = (
        indexed + already,
        f"{plural(report.adopted, 'file')} reused from an earlier job" if report.adopted else "",
        f"{plural(report.dropped, 'file')} deleted or changed" if report.dropped else "",
        f"{plural(len(report.skipped), 'file')} could not be indexed" if report.skipped else "",
    )
    return "; ".join(filter(None, parts))


# -- advice ------------------------------------------------------------------------------------

_SHOWN_ADVICE, _SHOWN_LAYOUTS = 30, 6
_EXPLAINED = (
    "Percentages are shares of rows skipped: today's are measured on the bounds of the sampled files, those "
    "of a layout on the sampled rows in that order, with pages and row groups of the current size."
)


def advice_tree(advice: Advice) -> ReportNode:
    """Columns to index, bloom filters that pay, orders of rows that help, and the commands."""
    columns = table(
        advice.by_column,
        text("column", lambda column: column.name),
        text("type", lambda column: str(column.type), rank=1),
        number("queries", lambda column: f"{column.used:,.10g}" if column.used else None, rank=2),
        number("files", lambda column: _share(column.skip_files), rank=3),
        number("row groups", lambda column: _share(column.skip_row_groups), rank=4),
        number("pages", lambda column: _share(column.skip_pages)),
        number("bloom", lambda column: _share(column.skip_with_bloom), rank=1),
        nbytes("index", lambda column: column.index_bytes, rank=5),
        nbytes("filters", lambda column: column.bloom_bytes, rank=6),
        text("why", lambda column: (column.why, "kept" if column.index or column.bloom else ""), 24),
        most=_SHOWN_ADVICE,
        noun="column",
    )
    layouts = table(
        advice.layouts,
        text("layout", str),
        number("skips today", lambda layout: _share(layout.before), rank=1),
        number("would skip", lambda layout: _share(layout.after)),
        TableColumn("reads", lambda layout: f"{times(layout.factor)} less"),
        most=_SHOWN_LAYOUTS,
        noun="layout",
    )
    return ReportNode(
        body=(
            Text(advice.recommendation, "bold", 4),
            Text(_sampled(advice), "dim"),
            columns,
            layouts,
            Code(advice.commands),
            Text(_EXPLAINED, "dim", 4),
            Items("not parsed", [str(refused) for refused in advice.refused]),
        )
    )


def _sampled(advice: Advice) -> str:
    queries = plural(advice.understood, "query", "queries")
    if advice.synthetic:
        queries = "no queries: tried values and ranges of every column"
    refused = f", {count(len(advice.refused))} not parsed" if advice.refused else ""
    files = f"{count(advice.sampled)} of {plural(advice.files, 'file')}"
    rows = f"{count(advice.sampled_rows)} of {plural(advice.rows, 'row')}"
    today = f"{percent(advice.skips, 1)} skipped today"
    return f"{advice.lake}: {queries}{refused}; {today}; sampled {files} and {rows}"


def _share(share: float | None) -> str | None:
    return None if share is None else percent(share, 1)
