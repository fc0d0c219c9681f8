"""What may go into a row set: totals, integers and windows, checked before they are used."""

from __future__ import annotations

import operator

import numpy as np

from skipstone.core.rows.runs import Int64Array
from skipstone.errors import RowSetError

MAX_TOTAL = 2**63 - 1


def checked_total(total: int) -> int:
    """A number of rows that a file can have."""
    rows = operator.index(total)
    if not 0 <= rows <= MAX_TOTAL:
        raise RowSetError(f"a file can't have {rows} rows")
    return rows


def integers(values: object, what: str) -> Int64Array:
    """Values as int64, refusing what would be rounded, wrapped or guessed."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise RowSetError(f"{what} must be integers of one shape") from error
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or (array.dtype == np.uint64 and array.max() > MAX_TOTAL):
        raise RowSetError(f"{what} must be integers below 2**63, not {array.dtype}")
    return array.astype(np.int64, copy=False)


def windows(starts: object, stops: object, total: int) -> tuple[Int64Array, Int64Array]:
    """Half-open ranges of rows, each inside a file of total rows; empty ones are allowed."""
    begin, end = integers(starts, "starts"), integers(stops, "stops")
    if begin.shape != end.shape or begin.ndim != 1:
        raise RowSetError(f"starts of shape {begin.shape} but stops of shape {end.shape}")
    wrong = np.flatnonzero((begin < 0) | (begin > end) | (end > total))
    if len(wrong):
        start, stop = begin[wrong[0]], end[wrong[0]]
        raise RowSetError(f"rows {start} to {stop} are not a range of a file of {total:,} rows")
    return begin, end


def outside(row: int, total: int) -> RowSetError:
    """The error for a row that the file doesn't have."""
    return RowSetError(f"row {row} is outside a file of {total:,} rows")
