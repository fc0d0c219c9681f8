"""Answers compared value by value."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array


class Stream:
    """Batches taken by numbers of rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: list[pa.RecordBatch] = []

    def take(self, rows: int) -> pa.Table | None:
        """The next rows, fewer at the end; None if there are none."""
        taken: list[pa.RecordBatch] = []
        while rows:
            batch = self._held.pop() if self._held else next(self._batches, None)
            if batch is None:
                break
            taken.append(batch.slice(0, rows))
            if batch.num_rows > rows:
                self._held.append(batch.slice(rows))
            rows -= taken[-1].num_rows
        return pa.Table.from_batches(taken) if taken else None

    def rest(self) -> int:
        """How many rows are left."""
        count = 0
        for batch in (*self._held, *self._batches):
            count += batch.num_rows
        return count


def differences(got: pa.Table | None, wanted: pa.Table) -> dict[str, Array]:
    """The rows in which each column differs; every row if the tables can't be compared."""
    every = np.arange(max(wanted.num_rows, 1))
    if got is None or got.num_rows != wanted.num_rows:
        return dict.fromkeys(wanted.column_names or [""], every)
    found = {}
    for name, ours, theirs in zip(wanted.column_names, got.columns, wanted.columns, strict=True):
        places = every if ours.type != theirs.type else _differing(ours, theirs)
        if len(places):
            found[name] = places
    return found


def _differing(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> Array:
    """Where two columns differ: NaN is NaN, and zeros have a sign."""
    if pa.types.is_dictionary(ours.type):
        ours, theirs = (column.cast(ours.type.value_type) for column in (ours, theirs))
    if not pa.types.is_floating(ours.type):
        if ours.equals(theirs):
            return np.zeros(0, dtype=np.int64)
        # A loop over rows: only a column that differs, or has NaN inside a nested value, comes here.
        return np.array(
            [n for n, pair in enumerate(zip(ours, theirs, strict=True)) if not _same(*pair)], np.int64
        )
    missing = [np.asarray(column.is_null()) for column in (ours, theirs)]
    a, b = (np.asarray(column.to_numpy()) for column in (ours, theirs))
    equal = (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))
    return np.flatnonzero((missing[0] != missing[1]) | ~(equal | missing[0]))


def _same(a: pa.Scalar, b: pa.Scalar) -> bool:
    return bool(a.equals(b)) or text_of(a) == text_of(b)


def text_of(scalar: pa.Scalar) -> str:
    """A value in words that tell it from any other."""
    try:
        return repr(scalar.as_py())
    except ValueError:  # nanoseconds have no Python value
        return str(scalar)
