"""The rows of a batch by the partition folder that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from skipstone.errors import UsageError
from skipstone.evidence import Array
from skipstone.filter.rows import plain
from skipstone.write.partition import partition_folder


class Split(NamedTuple):
    """Parts of a batch, each of one folder; whether the rows of each partition already lay together."""

    parts: list[tuple[str, pa.RecordBatch]]
    runs: bool


def split_rows(given: Sequence[tuple[str, pa.Array]], rows: pa.RecordBatch) -> Split:
    """``rows`` cut by the values of the partition columns, in order within each part."""
    codes = _codes([column for _, column in given])
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    runs = len(np.unique(codes[starts])) == len(starts)
    order = np.arange(len(codes)) if runs else np.argsort(codes, kind="stable")
    if not runs:
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    names = [name for name, _ in given]
    columns = [_values(name, column, order[starts]) for name, column in given]
    folders = [partition_folder(names, values) for values in zip(*columns, strict=True)]
    if len(folders) == 1:
        return Split([(folders[0], rows)], runs)
    # Copies: a slice would keep the whole batch in memory for as long as its few rows are held.
    parts = [rows.take(pa.array(places)) for places in np.split(order, starts[1:])]
    return Split(list(zip(folders, parts, strict=True)), runs)


def _codes(columns: Sequence[pa.Array]) -> Array:
    """A number for each row, the same for rows of the same values."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        coded = plain(column).dictionary_encode()
        own = np.asarray(coded.indices.fill_null(len(coded.dictionary))).astype(np.int64)
        # Made small again each time, so that many columns don't overflow.
        _, codes = np.unique(codes * (len(coded.dictionary) + 1) + own, return_inverse=True)
    return codes


def _values(name: str, column: pa.Array, places: Array) -> list[object]:
    try:
        found: list[object] = plain(column).take(pa.array(places)).to_pylist()
    except (ValueError, OverflowError) as error:
        hint = "dates of partitions lie in the years 1 to 9999"
        raise UsageError(f"a value names no partition: {error}", column=name, hint=hint) from error
    return found
