"""Rows and answers for people: tables of values, one answer below the other, histograms as bars."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from skipstone.cli.formats import is_binary, is_text, plain, plain_type, texts
from skipstone.report.lines import clean, width_of
from skipstone.report.node import Bar, Block, Cell, NodeTable, TableColumn, text
from skipstone.report.units import count, plural

SHOWN = 40
"""Rows or groups that are shown unless more are asked for."""
_LEAST = 12
_SHORTEST = 6
_LONGEST = 500
_BYTES = 32
_HISTOGRAM = ("low", "high", "count")
# A fraction of a second that says nothing, in every value of a column.
_NO_FRACTION = re.compile(r"\.0+(?=Z|[+-]\d\d:\d\d|$)")


def row_table(rows: pa.Table, *, more: str = "use --columns", notes: tuple[str, ...] = ()) -> NodeTable:
    """Names over types over values, numbers to the right; columns without room are named below."""
    cells = [_cells(column) for column in rows.columns]
    columns = [_column(field, column) for field, column in zip(rows.schema, cells, strict=True)]
    types = [(type_name(field.type), "dim") for field in rows.schema]
    return NodeTable(columns, [types, *zip(*cells, strict=True)], notes, head="bold", crop=more)


def _column(field: pa.Field, cells: Sequence[Cell]) -> TableColumn:
    """Texts may be cut, and any column's name; numbers, dates and the like may not."""
    type = plain_type(field.type)
    if _may_be_cut(type):
        return text(field.name, _LEAST)
    types = pa.types
    right = types.is_integer(type) or types.is_floating(type) or types.is_decimal(type)
    least = max(_widest(cells), _SHORTEST)
    return TableColumn(field.name, right=bool(right or types.is_duration(type)), least=least)


def _widest(cells: Sequence[Cell]) -> int:
    contents = (cell[0] if isinstance(cell, tuple) else str(cell) for cell in cells)
    return max((width_of(clean(content)) for content in contents), default=0)


def _may_be_cut(type: pa.DataType) -> bool:
    """Whether a part of a value says something about it, as it does of texts."""
    type = plain_type(type)
    return is_text(type) or is_binary(type) or bool(pa.types.is_nested(type))


def _cells(column: pa.ChunkedArray) -> list[Cell]:
    """The values of a column as people read them."""
    found: list[str | None] = []
    for chunk in column.chunks:
        values = plain(chunk)
        if is_binary(values.type):
            found += [None if value is None else _hex(value) for value in values.to_pylist()]
        else:
            found += texts(values).to_pylist()
    if pa.types.is_temporal(column.type):
        # As people write them: a blank before the hour, no fraction where all of them are zero.
        found = [None if value is None else value.replace("T", " ", 1) for value in found]
        if all(value is None or _NO_FRACTION.search(value) for value in found):
            found = [None if value is None else _NO_FRACTION.sub("", value) for value in found]
    # A value may be of any length, and one line of it is shown.
    return [("NULL", "dim") if value is None else value[:_LONGEST] for value in found]


def _hex(value: bytes) -> str:
    return f"0x{value[:_BYTES].hex()}{'…' if len(value) > _BYTES else ''}"


def type_name(type: pa.DataType) -> str:
    """A type in a word or two.

    >>> type_name(pa.timestamp("us", "UTC")), type_name(pa.list_(pa.int64())), type_name(pa.decimal128(9, 2))
    ('timestamp UTC', 'list<int64>', 'decimal(9,2)')
    """
    types = pa.types
    if isinstance(type, pa.BaseExtensionType):
        return str(type.extension_name).rpartition(".")[2]
    type = plain_type(type)
    if types.is_timestamp(type):
        return f"timestamp {type.tz}" if type.tz is not None else "timestamp"
    if types.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    if types.is_struct(type):
        return "struct"
    if types.is_map(type):
        return "map"
    if types.is_nested(type):
        return f"list<{type_name(type.value_type)}>"
    if is_text(type) or is_binary(type):
        return "string" if is_text(type) else "binary"
    # Without the unit, which the values show.
    name = re.sub(r"^(date|time)\d+$", r"\1", str(type).partition("[")[0])
    return {"halffloat": "float16", "float": "float32", "double": "float64"}.get(name, name)


# -- answers of aggregates ---------------------------------------------------------------------


def answer_blocks(answer: pa.Table, bounds: Mapping[str, Any], *, grouped: bool) -> tuple[Block, ...]:
    """Answers about all rows one below the other, or one line per group.

    ``bounds`` has the values between which an estimate's truth lies, by the name of the answer.
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
    columns = [
        text("function", _LEAST),
        text("answer", max(_LEAST, _widest(firm))),
        TableColumn("type", spare=2, style="dim"),
        TableColumn("at least", spare=1),
        TableColumn("at most", spare=1),
    ]
    # Where nothing is estimated there are no bounds to show.
    wide = len(columns) if any(row[-1] for row in rows) else len(columns) - 2
    return NodeTable(columns[:wide], [row[:wide] for row in rows])


def _answer(field: pa.Field, column: pa.ChunkedArray, between: Any) -> list[Cell]:
    known = between is not None and None not in between
    ends: list[Cell] = _cells(pa.chunked_array([pa.array(between)])) if known else ["", ""]
    if ends[0] == ends[1]:
        ends = ["", ""]  # what is known exactly needs no bounds
    return [field.name, _cells(column)[0], type_name(field.type), *ends]


def _is_histogram(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_nested(type)
        and not pa.types.is_struct(type)
        and pa.types.is_struct(type.value_type)
        and tuple(field.name for field in type.value_type) == _HISTOGRAM
    )


def _chart(name: str, bins: Sequence[Mapping[str, Any]] | None) -> NodeTable:
    """A bar for each bin, the longest one for the fullest."""
    most = max((bin["count"] for bin in bins or ()), default=0)
    rows = [
        (_edge(bin["low"]), "to", _edge(bin["high"]), Bar.of(bin["count"], most), count(bin["count"]))
        for bin in bins or ()
    ]
    columns = (TableColumn(right=True), TableColumn(), TableColumn(), TableColumn(), TableColumn(right=True))
    return NodeTable(columns, rows, () if rows else ("no value",), title=name)


def _edge(value: Any) -> str:
    # Even bins have edges of many digits, most of which say nothing.
    return f"{value:.7g}" if isinstance(value, float) else str(texts(pa.array([value]))[0])
