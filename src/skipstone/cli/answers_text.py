"""Answers of aggregates for people: one below the other, a table of groups, histograms as bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from skipstone.cli.preview import cells_of, draw_rows, may_be_cut, type_name
from skipstone.cli.tables import Cell, Heading, table
from skipstone.cli.values import is_nested, texts
from skipstone.report.lines import Span, clean, pad, width_of
from skipstone.report.units import bar, count, plural

_SHOWN = 40
_LONGEST_BAR = 40
_LEAST = 12
_HISTOGRAM = ("low", "high", "count")

Lines = Iterator[list[Span]]
Bounds = Mapping[str, Any]
"""By the name of an answer the values between which the truth lies; those of groups as lists."""


def draw_answer(answer: pa.Table, bounds: Bounds, width: int, *, grouped: bool) -> Lines:
    """The lines of an answer: of all rows, or one line per group."""
    if grouped:
        yield from _groups(answer, width)
    else:
        yield from _single(answer, bounds, width)


def _single(answer: pa.Table, bounds: Bounds, width: int) -> Lines:
    charts = [field.name for field in answer.schema if _is_histogram(field.type)]
    others = [field for field in answer.schema if field.name not in charts]
    rows = [_row(field, answer.column(field.name), bounds.get(field.name), width) for field in others]
    if rows:
        firm = [row[1] for field, row in zip(others, rows, strict=True) if not may_be_cut(field.type)]
        least = max([_LEAST, *(width_of(cell if isinstance(cell, str) else cell[0]) for cell in firm)])
        headings = [
            Heading("function", flexible=True, least=_LEAST),
            Heading("answer", flexible=True, least=least),
            Heading("type", spare=2, style="dim"),
            Heading("at least", spare=1),
            Heading("at most", spare=1),
        ]
        # Where nothing is estimated there are no bounds to show.
        wide = len(headings) if any(row[-1] for row in rows) else len(headings) - 2
        yield from table(headings[:wide], [row[:wide] for row in rows], width)
    for name in charts:
        if rows or name != charts[0]:
            yield []
        yield [(clean(name), "bold")]
        yield from _chart(answer.column(name)[0].as_py(), width)


def _row(field: pa.Field, column: pa.ChunkedArray, between: Any, width: int) -> list[Cell]:
    known = between is not None and None not in between
    ends = cells_of(pa.chunked_array([pa.array(between)]), width) if known else ["", ""]
    if ends[0] == ends[1]:
        ends = ["", ""]  # what is known exactly needs no bounds
    return [field.name, cells_of(column, width)[0], type_name(field.type), *ends]


def _plain(value: Any) -> str:
    return str(texts(pa.array([value]))[0])


def _groups(answer: pa.Table, width: int) -> Lines:
    shown = answer.slice(0, _SHOWN)
    yield from draw_rows(shown, width, more="use --format csv")
    if len(answer) > len(shown):
        yield [(f"… {plural(len(answer) - len(shown), 'more group')}; use --format csv", "dim")]


def _edge(value: Any) -> str:
    # Even bins have edges of many digits, of which nobody needs the last.
    return f"{value:.7g}" if isinstance(value, float) else _plain(value)


def _is_histogram(type: pa.DataType) -> bool:
    return bool(
        is_nested(type)
        and not pa.types.is_struct(type)
        and pa.types.is_struct(type.value_type)
        and tuple(field.name for field in type.value_type) == _HISTOGRAM
    )


def _chart(bins: Sequence[Mapping[str, Any]] | None, width: int) -> Lines:
    """A bar for each bin, the longest one for the fullest."""
    if not bins:
        yield [("no value", "dim")]
        return
    lows, highs = ([_edge(bin[side]) for bin in bins] for side in ("low", "high"))
    most = max(bin["count"] for bin in bins)
    wide = max(map(width_of, lows)), max(map(width_of, highs)), len(count(most))
    cells = max(min(width - sum(wide) - 10, _LONGEST_BAR), 4)
    for low, high, bin in zip(lows, highs, bins, strict=True):
        filled, empty = bar(bin["count"], most, cells)
        edges = f"  {' ' * (wide[0] - width_of(low))}{low} to {pad(high, wide[1])}  "
        yield [(edges, ""), (filled, "kept"), (empty, "dropped"), (f"  {count(bin['count']):>{wide[2]}}", "")]
