"""Parquet row selections: skip and select counts over the kept row groups, laid end to end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Literal, TypeAlias

import numpy as np

from skipstone.core.rows import runs as run
from skipstone.core.rows.rowset import RowSet, integers
from skipstone.core.rows.runs import Int64Array
from skipstone.errors import RowSetError

Selector: TypeAlias = tuple[Literal["skip", "select"], int]


def to_selection(
    rows: RowSet, row_groups: Sequence[int], group_starts: Int64Array, group_rows: Int64Array
) -> list[Selector]:
    """Selectors that cover exactly the kept row groups, in the order given; other groups don't count.

    >>> rows = RowSet.from_ranges(300, [(0, 10), (250, 300)])
    >>> to_selection(rows, [0, 2], np.array([0, 100, 200]), np.array([100, 100, 100]))
    [('select', 10), ('skip', 140), ('select', 50)]
    """
    starts, lengths = _kept(row_groups, group_starts, group_rows, rows.total)
    ends = np.cumsum(lengths)
    group, piece_starts, piece_stops = run.clip_to_windows(rows.runs(), starts, starts + lengths)
    move = (ends - lengths - starts)[group]
    edges = run.edges(run.normalise(piece_starts + move, piece_stops + move))
    counts = np.diff(edges, prepend=0, append=ends[-1:])
    kinds: tuple[Literal["skip", "select"], ...] = ("skip", "select")
    return [(kind, count) for kind, count in zip(cycle(kinds), counts.tolist(), strict=False) if count]


def from_selection(
    selection: Sequence[Selector],
    row_groups: Sequence[int],
    group_starts: Int64Array,
    group_rows: Int64Array,
    total: int,
) -> RowSet:
    """The file-absolute rows a selection over the kept row groups selects; what it leaves out is skipped.

    >>> selection = [("select", 10), ("skip", 140), ("select", 50)]
    >>> from_selection(selection, [0, 2], np.array([0, 100, 200]), np.array([100, 100, 100]), 300)
    RowSet(60 of 300 rows in 2 runs: 0–9, 250–299)
    """
    starts, lengths = _kept(row_groups, group_starts, group_rows, total)
    kept_rows = int(lengths.sum())
    chosen, counts = _parse(selection, kept_rows)
    stops = np.cumsum(counts)
    selected = run.normalise((stops - counts)[chosen], stops[chosen])
    group_stops = np.cumsum(lengths)
    group, piece_starts, piece_stops = run.clip_to_windows(selected, group_stops - lengths, group_stops)
    move = (starts - (group_stops - lengths))[group]
    return RowSet.from_ranges(total, piece_starts + move, piece_stops + move)


def _kept(
    row_groups: Sequence[int], group_starts: Int64Array, group_rows: Int64Array, total: int
) -> tuple[Int64Array, Int64Array]:
    """First row and row count of each kept group, checked against the file."""
    starts, lengths = integers(group_starts, "row group starts"), integers(group_rows, "row counts")
    if starts.shape != lengths.shape:
        raise RowSetError(f"{len(starts)} row group starts but {len(lengths)} row counts")
    kept = integers(row_groups, "row groups")
    outside = kept[(kept < 0) | (kept >= len(starts))]
    if len(outside):
        raise RowSetError(f"no row group {outside[0]}: the file has {len(starts)}")
    # Read twice, a group's rows would stand twice in the selection but once in the row set.
    if len(np.unique(kept)) != len(kept):
        raise RowSetError("a row group is listed twice", hint="list each kept row group once")
    starts, lengths = starts[kept], lengths[kept]
    wrong = np.flatnonzero((starts < 0) | (lengths < 0) | (starts > total - lengths))
    if len(wrong):
        at = int(wrong[0])
        raise RowSetError(
            f"{lengths[at]} rows from row {starts[at]} don't fit a file of {total} rows",
            unit=f"row group {kept[at]}",
        )
    return starts, lengths


def _parse(selection: Sequence[Selector], kept_rows: int) -> tuple[run.BoolArray, Int64Array]:
    """Which selectors select, and their counts, checked to fit the kept groups."""
    kinds = [kind for kind, _ in selection]
    if unknown := set(kinds) - {"skip", "select"}:
        raise RowSetError(f"unknown selector {min(map(repr, unknown))}", hint='use "skip" or "select"')
    counts = [count for _, count in selection]
    # Summed as Python integers, which can't wrap however long the selection claims to be.
    if min(counts, default=0) < 0:
        raise RowSetError(f"a selector of {min(counts)} rows")
    if sum(counts) > kept_rows:
        raise RowSetError(f"a selection of {sum(counts)} rows over row groups of {kept_rows} rows")
    return np.array([kind == "select" for kind in kinds], np.bool_), integers(counts, "selector counts")
