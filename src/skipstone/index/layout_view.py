"""The view of a lake's layout.

look-ups read 62 % of the rows; Z-order by user_id, ts would read 8.1 × less
demo/events: 20 files, 2,000,000 rows; sampled 20 files and 100,000 rows

column   type   files    = opens       pages       = reads       range         today
ts       int64  sorted   1.0 (5 %)     sorted      1.0 (0.1 %)   ▁▁▁▁▁▁▁▁▁▁▁▁  █░░░░░░░░░  3.1 %
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from skipstone.core.plain import type_name
from skipstone.index.advise.advice import LayoutAdvice
from skipstone.index.advise.layout import ColumnLayout, LakeLayout
from skipstone.prune.clustering import Clustering, Layout
from skipstone.report.node import (
    Bar,
    Cell,
    Code,
    NodeTable,
    ReportNode,
    TableColumn,
    Text,
    fields,
    number,
    table,
    text,
)
from skipstone.report.units import count, percent, plural, spark, times

_STYLES = {Layout.SORTED: "kept", Layout.CLUSTERED: "kept", Layout.OVERLAPPING: "warn", Layout.RANDOM: "bad"}
_MOST_COLUMNS, _MOST_ORDERS, _SPANNED, _COMPARED = (32, "column"), (10, "order"), 4, 6
_CELLS, _NAME = 20, 12
_NOTES = (
    "= opens, = reads: average number of files, and of pages (or row groups), whose bounds enclose a value",
    "overlap: the share of them that covers each part of the column's range; today: share of the rows read",
)
_ESTIMATED = (
    "Shares of the rows that look-ups read: today's by the bounds of sampled files, those of an order by "
    "sampled rows in that order, with units of the current size; rows stay in their partitions."
)


def layout_tree(layout: LakeLayout) -> ReportNode:
    """Overlap of each column today, the spans of its files, and what other orders of rows would read."""
    orders = _orders(layout)
    sections = (
        ("today", _columns(layout.columns)),
        ("ranges of files", _spans(layout.columns)),
        ("other orders of rows", orders),
    )
    return ReportNode(
        layout.lake,
        children=tuple(ReportNode(name, body=(block,)) for name, block in sections if block.rows),
        body=(Text(_head(layout), "bold"), Text(_sampled(layout), "dim")),
        tree=False,
        tail=(Code(tuple(filter(None, [layout.command]))), Text(_ESTIMATED if orders.rows else "", "dim", 4)),
    )


def _head(layout: LakeLayout) -> str:
    today = f"{'look-ups' if layout.synthetic else 'queries'} read {percent(1 - layout.skips, 1)} of the rows"
    best = layout.best
    if best is None:
        return f"{today}; no other order of rows would read much less"
    return f"{today}; {best} to read {times(best.factor)} less"


def _sampled(layout: LakeLayout) -> str:
    files = f"{count(layout.sampled)} of {plural(layout.files, 'file')}"
    rows = f"{count(layout.sampled_rows)} of {plural(layout.rows, 'row')}"
    queries = (
        "values and ranges of every column were looked up" if layout.synthetic else "the queries were judged"
    )
    return f"sampled {files} and {rows}; {queries}"


def _columns(columns: Sequence[ColumnLayout]) -> NodeTable:
    return table(
        columns,
        *fields(text, "column=name"),
        text("type", lambda one: type_name(one.type), rank=4),
        TableColumn("files", lambda one: _kind(one.files)),
        number("= opens", lambda one: _depth(one.files)),
        TableColumn("pages", lambda one: _kind(one.finest), rank=2),
        number("= reads", lambda one: _depth(one.finest)),
        TableColumn("overlap", lambda one: spark(list(one.finest.profile)), rank=3),
        TableColumn(
            "today", lambda one: None if one.reads is None else Bar.of(one.reads, 1.0, "read"), rank=1
        ),
        number("", lambda one: None if one.reads is None else percent(one.reads, 1), rank=1),
        most=_MOST_COLUMNS,
        notes=_NOTES,
    )


def _kind(measured: Clustering) -> Cell | None:
    if measured.layout is Layout.UNKNOWN:
        return None
    return measured.layout.value, _STYLES.get(measured.layout, "")


def _depth(measured: Clustering) -> str:
    if measured.layout is Layout.UNKNOWN:
        return ""
    return f"{measured.depth:,.1f} ({percent(measured.depth, measured.units)})"


def _spans(columns: Sequence[ColumnLayout]) -> NodeTable:
    """A line per file, with its part of each column's range."""
    shown = [one for one in columns if any(one.spans)][:_SPANNED]
    files = max((len(one.spans) for one in shown), default=0)
    drawn = [
        TableColumn(one.name, partial(_span_of, one), rank=place, style="firm")
        for place, one in enumerate(shown)
    ]
    return table(
        range(files if files > 1 else 0), *drawn, notes=("a line per file: the part of the range it covers",)
    )


def _span_of(column: ColumnLayout, file: int) -> str:
    return _span(column.spans[file])


def _span(span: tuple[float, float] | None) -> str:
    if span is None:
        return "?" * _CELLS
    first = min(int(span[0] * _CELLS), _CELLS - 1)
    last = min(max(int(span[1] * _CELLS - 1e-9), first), _CELLS - 1)
    return "░" * first + "█" * (last - first + 1) + "░" * (_CELLS - 1 - last)


def _orders(layout: LakeLayout) -> NodeTable:
    """Today's row order and others, with the share of the rows that look-ups of each column read."""
    today = {one.name: 1 - one.reads for one in layout.columns if one.reads is not None}
    used = [name for name in today if any(name in one.by_column for one in layout.candidates)][:_COMPARED]
    now = LayoutAdvice((), "sort", layout.skips, layout.skips, today)
    short = _short_names([name for one in layout.candidates for name in one.columns])

    def order(one: LayoutAdvice) -> Cell:
        if not one.columns:
            return "as it is", "dim"
        return str(replace(one, columns=tuple(short[name] for name in one.columns)))

    return table(
        [now, *layout.candidates] if layout.candidates else [],
        # Orders differ in their last columns, so none of them is cut off.
        TableColumn("order", order, style="firm"),
        TableColumn("reads", lambda one: Bar.of(1 - one.after, 1.0, "read"), rank=1),
        number("", lambda one: percent(1 - one.after, 1)),
        *(number(name, partial(_share, name), rank=place + 2) for place, name in enumerate(used)),
        most=_MOST_ORDERS,
    )


def _short_names(names: Sequence[str]) -> dict[str, str]:
    """Names that can be told apart, cut where they are long."""
    distinct = set(names)
    for length in range(_NAME, max(map(len, distinct), default=0) + 1):
        short = {name: name if len(name) <= length else f"{name[: length - 1]}…" for name in distinct}
        if len(set(short.values())) == len(distinct):
            return short
    return {name: name for name in distinct}


def _share(name: str, order: LayoutAdvice) -> str | None:
    return percent(1 - order.by_column[name], 1) if name in order.by_column else None
