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

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skipstone.core.plain import type_name
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
    fields,
    nbytes,
    number,
    portion,
    table,
    text,
)
from skipstone.report.units import ago, count, duration, percent, phrase, plural, size, some, times

if TYPE_CHECKING:
    from skipstone.index.index import LakeIndex

_COLUMNS = (40, "column")
_TYPE = text("type", lambda column: type_name(column.type), rank=1)
_SEGMENT = (
    *fields(text, "segment=name"),
    *fields(number, "files@1", "stale@2"),
    *fields(nbytes, "size=bytes"),
)
_CONTENT = {
    "blocks": "block-level stats",
    "files": "file-level stats",
    "blooms": "bloom filters",
    "offsets": "chunk offsets",
    "names": "file names",
    "metadata": "index metadata",
}
"""Names of parts that differ from those of their fields."""


def index_tree(index: LakeIndex) -> ReportNode:
    """The status of an index, which is read for it."""
    return status_tree(index.status())


def status_tree(status: IndexStatus) -> ReportNode:
    """Coverage, age, size and content of an index."""
    files = ("files", count(status.covered), _indexed(status))
    taken = ("size", size(status.sizes.total), _takes(status))
    return ReportNode(
        status.location,
        _about(status),
        figures=(files, taken) if status.version else (),
        children=tuple(_branches(status)) if status.version else (),
        tail=(
            _columns(status),
            table(status.segments, *_SEGMENT, most=(8, "segment")),
            Items("ignored", status.problems),
            Items("next", list(filter(None, [status.next_step]))),
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
    unknown = _such_as(status.unknown, "file", "files", status.unknown_such_as)
    stale = _such_as(status.stale, "entry", "entries", status.stale_such_as)
    files = Bar.of(status.covered, status.files, "indexed")
    facts = Facts((("not indexed", unknown), ("stale", stale)))
    yield ReportNode("files", _indexed(status), bar=files, body=(facts,))
    total = status.sizes.total
    names = [field.name for field in dataclasses.fields(status.sizes)]
    sizes = [(_CONTENT.get(name, name.replace("_", " ")), getattr(status.sizes, name)) for name in names]
    old = f"and {size(status.old_bytes)} of merged segments and earlier versions, for readers that use them"
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
    return phrase(plural(number, noun, many), ", ".join(examples), by=joint) if number else ""


def _options(choices: BuildOptions) -> str:
    lists = {"sums of": choices.sums, "sketches of": choices.sketches, "row ids of": choices.ids}
    lists = {"values read for": choices.values, "bloom filters built for": choices.blooms, **lists}
    every = set(choices.columns)
    return phrase(
        ", ".join(choices.columns) or "no columns",
        "down to pages" if choices.pages else "down to row groups",
        "bloom filters of the files" if choices.own_blooms else "",
        *(
            f"{what} {'all of them' if len(names) > 1 and set(names) == every else ', '.join(names)}"
            for what, names in lists.items()
            if names
        ),
    )


def _columns(status: IndexStatus) -> NodeTable:
    return table(
        status.columns,
        *fields(text, "column=name"),
        _TYPE,
        *fields(text, "source=origins@2"),
        nbytes("bounds", lambda c: c.sizes.blocks + c.sizes.files + c.sizes.row_groups, rank=3),
        nbytes("pages", lambda c: c.sizes.pages + c.sizes.offsets, rank=3),
        *fields(nbytes, "filters=sizes.blooms@3"),
        nbytes("extras", lambda c: c.sizes.sums + c.sizes.sketches, rank=3, optional=True),
        *fields(nbytes, "size=sizes.total"),
        most=_COLUMNS,
    )


# -- builds ------------------------------------------------------------------------------------


def build_tree(report: IndexReport) -> ReportNode:
    """The work of a build or a refresh."""
    read = f"read {size(report.bytes)} in {plural(report.requests, 'request')}, " if report.requests else ""
    merged = f", {count(report.merged)} merged" if report.merged else ""
    segments = f"version {count(report.version)} has {plural(report.segments, 'segment')}{merged}"
    skipped = [f"{file.path}: {file.reason}" for file in report.skipped]
    about = Text(f"{read}{duration(report.seconds)}; {segments}", "dim")
    ran = Text(str(report.engine or ""), "dim")
    return ReportNode(body=(Text(_done(report), "bold"), about, ran, Items("not indexed", skipped)))


def _done(report: IndexReport) -> str:
    already = f", {count(report.already_indexed)} already indexed" if report.already_indexed else ""
    if already and not (report.indexed or report.dropped or report.adopted or report.skipped):
        return f"nothing to do: {plural(report.already_indexed, 'file')} already indexed"
    return phrase(
        f"indexed {plural(report.indexed, 'file')}{already}",
        some(report.adopted, "file", " reused from an earlier job"),
        some(report.dropped, "file", " deleted or changed"),
        some(len(report.skipped), "file", " could not be indexed"),
    )


# -- advice ------------------------------------------------------------------------------------

_EXPLAINED = (
    "Percentages are shares of rows skipped: today's are measured on the bounds of the sampled files, those "
    "of a layout on the sampled rows in that order, with pages and row groups of the current size."
)


def advice_tree(advice: Advice) -> ReportNode:
    """Columns to index, bloom filters that pay, orders of rows that help, and the commands."""
    columns = table(
        advice.by_column,
        *fields(text, "column=name"),
        _TYPE,
        number("queries", lambda column: f"{column.used:,.10g}" if column.used else None, rank=2),
        *fields(portion, "files=skip_files@3", "row groups=skip_row_groups@4", "pages=skip_pages"),
        *fields(portion, "bloom=skip_with_bloom@1"),
        *fields(nbytes, "index=index_bytes@5", "filters=bloom_bytes@6"),
        text("why", lambda column: (column.why, "kept" if column.index or column.bloom else ""), 24),
        most=(30, "column"),
    )
    layouts = table(
        advice.layouts,
        text("layout"),
        *fields(portion, "skips today=before@1", "would skip=after"),
        TableColumn("reads", lambda layout: f"{times(layout.factor)} less"),
        most=(6, "layout"),
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
