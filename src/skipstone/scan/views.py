"""Views of ``why``, ``verify``, statistics and lakes.

day=2026-01-01/f0.parquet  user_id = 42
│  row group 2, rows 50,000–74,999
├─ partitions  kept
│     day >= '2026-01-01': day = 2026-01-01 (partition)
├─ row groups  dropped by bounds
│     user_id = 42: user_id: min 1,000, max 2,000, 0 nulls (row-group statistics)
└─ dropped: no row can match

lake/events  user_id = 42
├─ compared  4 files, 400,000 rows: read in full by pyarrow, each row tested
├─ matching  57 rows, 0 of them proven by metadata
├─ rows      █░░░░░░░░░░░░░░░░░░░  5,000 instead of 400,000 (1.3 %)
├─ bytes     █░░░░░░░░░░░░░░░░░░░  80.0 kB instead of 8.1 MB (1 %)
├─ time      12.0 ms instead of 120 ms
└─ ✓ no difference: the same rows with the same values
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.core.domain.keys import storage_type
from skipstone.core.judge import Verdict
from skipstone.core.plain import type_name
from skipstone.lake.snapshot import opened_name
from skipstone.report.explain import EVERY_ROW, cause_name, scan_tree
from skipstone.report.node import (
    MISSING,
    Bar,
    Block,
    Facts,
    Items,
    ReportNode,
    Styled,
    TableColumn,
    Text,
    fields,
    nbytes,
    number,
    table,
    text,
)
from skipstone.report.units import count, duration, percent, plural, size, some, span_text
from skipstone.scan.formats import display_texts
from skipstone.scan.results import Kind, Verification, Why, WhyStep
from skipstone.scan.row_view import row_table, with_zones
from skipstone.scan.statistics import (
    ColumnStatistics,
    LakeStatistics,
    bound_text,
    live_rows,
    live_text,
    summary_number,
)

if TYPE_CHECKING:
    from skipstone.scan.lake import Lake
    from skipstone.scan.scan import Scan

_VERDICTS = {Verdict.NONE: "dropped", Verdict.SOME: "kept", Verdict.ALL: "kept whole"}
_STYLES = {Verdict.NONE: "bad", Verdict.SOME: "kept", Verdict.ALL: "kept"}
_PER_VERDICT = 3
_SAME = "✓ no difference: the same rows with the same values"
_COLUMNS, _INDENT, _PARTITION = (40, "field"), "  ", ("partition", "known")
_MARKS = "≥ and ≤ mark bounds that may not occur as values; ? marks values that footers don't record"
_MEANING: dict[Kind, str] = {
    "lost": "matching rows are missing",
    "false proof": "rows reported as proven don't match",
    "wrong values": "rows have other values",
    "extra rows": "rows are returned that don't match",
    "wrong order": "rows are in another order, or not the first ones",
}


def why_tree(why: Why) -> ReportNode:
    """The verdict of each level on the unit, and the conclusion."""
    unit = why.unit
    if why.rows is not None and why.rows[0] < why.rows[1] and (rows := span_text(*why.rows)) not in unit:
        unit = f"{unit}, {rows}"
    levels = [_level(name, list(steps)) for name, steps in groupby(why.steps, key=lambda step: step.level)]
    return ReportNode(
        why.path,
        why.predicate or EVERY_ROW,
        "code",
        body=(Text(unit, "dim", 1),),
        children=(*levels, ReportNode(said=why.conclusion, style="bold")),
        tail=(Items("notes", why.notes),),
    )


def _level(name: str, steps: Sequence[WhyStep]) -> ReportNode:
    if len(steps) == 1:
        (only,) = steps
        return ReportNode(name, _verdict(only), _STYLES[only.verdict], body=(Text(_evidence(only)),))
    kept = sum(step.verdict is not Verdict.NONE for step in steps)
    whole = sum(step.verdict is Verdict.ALL for step in steps)
    said = f"kept {count(kept)} of {count(len(steps))}{f', {count(whole)} whole' if whole else ''}"
    return ReportNode(name, said, "kept" if kept else "bad", body=(Facts(list(_units(steps))),))


def _units(steps: Sequence[WhyStep]) -> Iterator[tuple[Styled, str]]:
    for verdict in (Verdict.ALL, Verdict.SOME, Verdict.NONE):
        units = [step for step in steps if step.verdict is verdict]
        # One more takes as much space as the line "1 more".
        shown = units if len(units) <= _PER_VERDICT + 1 else units[:_PER_VERDICT]
        for step in shown:
            yield (f"{step.unit} {_verdict(step)}", _STYLES[verdict]), _evidence(step)
        if more := len(units) - len(shown):
            yield ("", ""), f"{count(more)} more {_VERDICTS[verdict]}"


def _verdict(step: WhyStep) -> str:
    cause = f" by {cause_name(step.cause)}" if step.cause is not None else ""
    return _VERDICTS[step.verdict] + cause


def _evidence(step: WhyStep) -> str:
    return f"{step.condition}: {step.evidence}" if step.condition else step.evidence


# -- verify ------------------------------------------------------------------------------------


def verification_tree(check: Verification) -> ReportNode:
    """Files compared, savings of skipping, and every difference."""
    compared = f"{plural(check.files, 'file')}, {plural(check.rows_read_without, 'row')}"
    proven = f"{count(check.rows_proven)} of them proven by metadata"
    said = some(len(check.differences) + check.left_out, "difference", before="✗ ") or _SAME
    return ReportNode(
        check.lake,
        check.predicate or EVERY_ROW,
        "code",
        children=(
            ReportNode("compared", (f"{compared}: read in full by pyarrow, each row tested", compared)),
            ReportNode("matching", f"{plural(check.rows_matching, 'row')}, {proven}"),
            _saved("rows", check.rows_read_with, check.rows_read_without, count),
            _saved("bytes", check.bytes_with, check.bytes_without, size),
            ReportNode(
                "time", f"{duration(check.seconds_with)} instead of {duration(check.seconds_without)}"
            ),
            ReportNode(said=said, style="kept" if check.ok else "bad", body=tuple(_differences(check))),
        ),
    )


def _saved(name: str, part: int, whole: int, form: Callable[[int], str]) -> ReportNode:
    said = f"{form(part)} instead of {form(whole)}"
    forms = (f"{said} ({percent(part, whole)})", said, form(part))
    return ReportNode(name, forms, bar=Bar.of(part, whole))


def _differences(check: Verification) -> Iterator[Block]:
    for difference in check.differences:
        rows = f"{plural(len(difference.rows), 'row')}: " if difference.rows is not None else ""
        yield Text(f"{difference.kind}: {_MEANING[difference.kind]}: {rows}{difference.place}", "bad")
        yield Text(difference.detail, most=2)
        if difference.why is not None:
            yield why_tree(difference.why)
    yield Text(f"{count(check.left_out)} more" if check.left_out else "", "dim")


# -- statistics and lakes ----------------------------------------------------------------------


def statistics_tree(statistics: LakeStatistics) -> ReportNode:
    """A line per column, and a line for each mark that its bounds have."""
    columns = table(
        statistics.columns,
        *fields(text, "column=name"),
        text("type", lambda column: type_name(column.query_type or column.type), rank=3),
        text("min", lambda column: _bound(column, column.lower, column.lower_exact, "≥")),
        text("max", lambda column: _bound(column, column.upper, column.upper_exact, "≤")),
        number("nulls", lambda c: "?" if c.null_count is None else count(c.null_count), rank=1),
        *fields(number, "distinct@2", optional=True),
        *fields(nbytes, "size=compressed_bytes@1"),
        notes=(_MARKS,) if statistics.columns else (),
        most=_COLUMNS,
    )
    files = f"{plural(statistics.rows, 'row')}, {plural(statistics.file_count, 'file')}"
    return ReportNode(statistics.lake, f"{files}, {size(statistics.bytes)}", body=(columns,))


def _bound(column: ColumnStatistics, bound: pa.Scalar | None, exact: bool, sign: str) -> str:
    if bound is None:
        return "?" if column.may_value else MISSING
    # NaN is above all numbers, but not in the statistics of files.
    nan = " or NaN" if column.may_nan and sign == "≤" else ""
    shown: str | None = bound_text(bound)
    if pa.types.is_temporal(bound.type):
        (shown,) = display_texts(pa.chunked_array([pa.array([bound.cast(column.query_type or column.type)])]))
    return f"{'' if exact else f'{sign} '}{shown}{nan}"


def lake_tree(lake: Lake, most: tuple[int, str] | None = _COLUMNS) -> ReportNode:
    """The schema and the layout of a lake; reads no data, and no manifests of a table."""
    partitions = [(0, lake.query_schema.field(name)) for name in lake.partition_names]
    columns = table(
        [line for field in lake.query_schema for line in _lines(field)],
        text("column", lambda line: _INDENT * line[0] + line[1].name),
        text("type", lambda line: type_name(line[1].type, brief=True)),
        TableColumn("", lambda line: _PARTITION if line in partitions else "", optional=True),
        most=most,
    )
    return ReportNode(
        getattr(lake, "name", opened_name(lake.pinned)), body=(Facts(list(_layout(lake))), columns)
    )


def _lines(field: pa.Field, depth: int = 0) -> Iterator[tuple[int, pa.Field]]:
    """A field, and below it those of its structs, also inside lists and maps."""
    yield depth, field
    type = storage_type(field.type)
    while pa.types.is_nested(type) and not pa.types.is_struct(type):
        inside = type.item_type if pa.types.is_map(type) else getattr(type, "value_type", pa.null())
        type = storage_type(inside)
    for inner in type if pa.types.is_struct(type) else ():
        yield from _lines(inner, depth + 1)


def _layout(lake: Lake) -> Iterator[tuple[str, str]]:
    """Files and bytes of a lake; for a table, files and rows from the summary of its snapshot."""
    from skipstone.scan.table import Table

    if isinstance(lake, Table):
        from skipstone.iceberg.create import partition_texts

        snapshot = next((one for one in lake.snapshots() if one.id == lake.snapshot), None)
        yield "location", lake.uri
        yield "snapshot", f"{snapshot.id}, {snapshot.at:%Y-%m-%d %H:%M:%S} UTC" if snapshot else "none yet"
        if snapshot is not None:
            live, number = live_rows(lake.snapshots()), partial(summary_number, snapshot)
            yield "rows", live_text(live[snapshot.id], number("total-records")) or ""
            for kind in ("data", "delete"):
                files = number(f"total-{kind}-files")
                yield f"{kind} files", count(files) if files else ""
        yield "partitioned by", ", ".join(partition_texts(lake.metadata))
    else:
        sizes = [entry.size for entry in lake.entries]
        each = f": {size(min(sizes))} to {size(max(sizes))} each" if len(sizes) > 1 else ""
        yield "files", f"{plural(len(sizes), 'file')}, {size(sum(sizes))}{each}"
        yield "version", lake.version
    covered = lake.index.coverage.covered if lake.index.coverage else 0
    yield "index", some(covered, "file", " indexed") or "none; lake.index.build() builds one"


# -- notebooks ---------------------------------------------------------------------------------


def preview_tree(scan: Scan) -> ReportNode:
    """The first rows of a scan, and what its plan skips."""
    rows, said = scan.preview()
    tree = replace(scan_tree(scan.trace()), figures=()) if scan.is_planned else ReportNode(repr(scan))
    shown = None if rows is None else row_table(with_zones(rows, scan.lake), more="")
    return replace(tree, body=(*tree.body, shown, Text(said)))
