"""Views of rows and of the answers of aggregates: tables of values, and histograms as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.core.plain import type_name
from skipstone.report.lines import clean, width_of
from skipstone.report.node import (
    Bar,
    Block,
    Cell,
    NodeTable,
    ReportNode,
    TableColumn,
    Text,
    number,
    table,
    text,
)
from skipstone.report.trace import AggregateTrace
from skipstone.report.units import count, percent, plural
from skipstone.scan.formats import display_texts, is_binary, is_text, plain_type, texts

if TYPE_CHECKING:
    from skipstone.scan.lake import Lake

SHOWN = 40
"""Rows or groups shown by default."""
_LEAST, _SHORTEST, _LONGEST = 12, 6, 500
_NULL, _EMPTY = ("NULL", "dim"), ("''", "dim")
_HISTOGRAM = ("low", "high", "count")


def with_zones(rows: pa.Table, lake: Lake) -> pa.Table:
    """Rows as listings show them: instants have a zone, also those that Spark stores as INT96."""
    for place, field in enumerate(rows.schema):
        # A name that several columns have is not found.
        at = lake.schema.get_field_index(field.name)
        if at >= 0 and field.type == lake.schema.field(at).type:
            meant = lake.query_schema.field(field.name).type
            if meant != field.type and not pa.types.is_nested(meant):
                rows = rows.set_column(place, field.with_type(meant), rows.column(place).cast(meant))
    return rows


def rows_tree(rows: pa.Table, notes: tuple[str, ...], said: str, aside: str) -> ReportNode:
    """A table of rows, and a statement about them."""
    return ReportNode(body=(row_table(rows, notes=notes), Text(said, "bold", 1, aside=aside)))


def row_table(rows: pa.Table, *, more: str = "use --columns", notes: tuple[str, ...] = ()) -> NodeTable:
    """Names over types over values."""
    cells = [_cells(column) for column in rows.columns]
    columns = [_column(field, column) for field, column in zip(rows.schema, cells, strict=True)]
    types = [(type_name(field.type, brief=True), "dim") for field in rows.schema]
    return NodeTable(columns, [types, *zip(*cells, strict=True)], notes, head="bold", more=more)


def _column(field: pa.Field, cells: Sequence[Cell]) -> TableColumn:
    """Strings may be cut, and the names of all columns; numbers and times may not."""
    type = plain_type(field.type)
    if _may_be_cut(type):
        return text(field.name, least=_LEAST, style="short")
    types = pa.types
    right = types.is_integer(type) or types.is_floating(type) or types.is_decimal(type)
    least = max(_widest(cells), _SHORTEST)
    return TableColumn(field.name, right=bool(right or types.is_duration(type)), least=least, style="firm")


def _widest(cells: Sequence[Cell]) -> int:
    contents = (cell[0] if isinstance(cell, tuple) else str(cell) for cell in cells)
    return max((width_of(clean(content)) for content in contents), default=0)


def _may_be_cut(type: pa.DataType) -> bool:
    """Whether the beginning of a value is useful, as it is of strings."""
    type = plain_type(type)
    return is_text(type) or is_binary(type) or bool(pa.types.is_nested(type))


def _cells(column: pa.ChunkedArray) -> list[Cell]:
    # A value can have any length; one line of it is shown.
    return [_NULL if value is None else value[:_LONGEST] or _EMPTY for value in display_texts(column)]


# -- answers of aggregates ---------------------------------------------------------------------


def answer_tree(
    answer: pa.Table, bounds: Mapping[str, Any], trace: AggregateTrace, aside: str = ""
) -> ReportNode:
    """The answers of an aggregation, and the rows that were read for them."""
    rows, read = plural(trace.rows, "row"), trace.rows_read
    said = f"read {count(read)} of {rows} that may qualify" if read else f"{rows} answered from metadata"
    blocks = answer_blocks(answer, bounds, grouped=bool(trace.group_by))
    return ReportNode(body=(*blocks, Text(said, "bold", 1, aside=aside)))


def step_tree(
    answer: pa.Table, bounds: Mapping[str, Any], covered: float, rows_left: int, *, grouped: bool
) -> ReportNode:
    """Answers that are still improving, above a bar of the rows they cover."""
    left = f"{percent(covered, 1)} of rows, {plural(rows_left, 'row')} to go"
    done = NodeTable((TableColumn(), TableColumn(style="dim")), [(Bar.of(covered, 1), left)])
    return ReportNode(body=(*answer_blocks(answer, bounds, grouped=grouped), done))


def answer_blocks(answer: pa.Table, bounds: Mapping[str, Any], *, grouped: bool) -> tuple[Block, ...]:
    """Answers about all rows below each other, or one line per group.

    ``bounds`` has the lower and upper bounds of estimates, by the name of the answer.
    """
    if grouped:
        more = len(answer) - SHOWN
        notes = (f"… {plural(more, 'more group')}; use --format csv",) if more > 0 else ()
        return (row_table(answer.slice(0, SHOWN), more="use --format csv", notes=notes),)
    charts = [field.name for field in answer.schema if _is_histogram(field.type)]
    others = [field for field in answer.schema if field.name not in charts]
    rows = [_answer(field, answer.column(field.name), bounds.get(field.name)) for field in others]
    tables = [_chart(name, answer.column(name)[0].as_py()) for name in charts]
    return (*([_answers(others, rows)] if rows else []), *tables)


def _answers(fields: Sequence[pa.Field], rows: Sequence[Sequence[Cell]]) -> NodeTable:
    firm = [row[1] for field, row in zip(fields, rows, strict=True) if not _may_be_cut(field.type)]
    return table(
        rows,
        text("function", lambda row: row[0], _LEAST),
        text("answer", lambda row: row[1], max(_LEAST, _widest(firm))),
        TableColumn("type", lambda row: row[2], rank=2, style="dim"),
        TableColumn("at least", lambda row: row[3], rank=1, optional=True),
        TableColumn("at most", lambda row: row[4], rank=1, optional=True),
    )


def _answer(field: pa.Field, column: pa.ChunkedArray, between: Any) -> list[Cell]:
    """The cells of one answer; an exact one has no bounds."""
    bounded = between is not None and None not in between
    ends: list[Cell] = _cells(pa.chunked_array([pa.array(between)])) if bounded else ["", ""]
    ends = ["", ""] if ends[0] == ends[1] else ends
    return [field.name, _cells(column)[0], type_name(field.type), *ends]


def _is_histogram(type: pa.DataType) -> bool:
    bins = getattr(type, "value_type", None)
    return isinstance(bins, pa.StructType) and tuple(field.name for field in bins) == _HISTOGRAM


def _chart(name: str, bins: Sequence[Mapping[str, Any]] | None) -> NodeTable:
    """A bar for each bin, the longest one for the fullest."""
    most = max((bin["count"] for bin in bins or ()), default=0)
    return table(
        bins or (),
        number("", lambda bin: f"{_edge(bin['low'])} to"),
        TableColumn("", lambda bin: _edge(bin["high"])),
        TableColumn("", lambda bin: Bar.of(bin["count"], most)),
        number("", lambda bin: bin["count"]),
        notes=() if bins else ("no value",),
        title=name,
    )


def _edge(value: Any) -> str:
    # Even bins have edges of many digits, most of which say nothing.
    return f"{value:.7g}" if isinstance(value, float) else str(texts(pa.array([value]))[0])
