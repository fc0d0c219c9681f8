"""Split the rows of a batch by partition."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from skipstone.core.arrays import plain
from skipstone.core.evidence import Array
from skipstone.errors import SchemaError, UsageError


class Split(NamedTuple):
    """Parts of a batch by partition; ``runs`` if the rows of each partition were contiguous."""

    parts: list[tuple[Hashable, pa.RecordBatch]]
    runs: bool


def split_rows(
    columns: Sequence[tuple[str, pa.Array]],
    rows: pa.RecordBatch,
    partition: Callable[[tuple[object, ...]], Hashable] | None = None,
) -> Split:
    """Split ``rows`` by the values of partition columns; the order within each part is unchanged.

    ``partition`` converts values to a partition; the default is Spark's directory name.
    """
    codes = number_rows([column for _, column in columns])
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    runs = len(np.unique(codes[starts])) == len(starts)
    order = np.arange(len(codes)) if runs else np.argsort(codes, kind="stable")
    if not runs:
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    by_column = [_values(name, column, order[starts]) for name, column in columns]
    to_partition = partition or partial(partition_folder, [name for name, _ in columns])
    partitions = [to_partition(values) for values in zip(*by_column, strict=True)]
    if len(partitions) == 1:
        return Split([(partitions[0], rows)], runs)
    # Copies: a slice would keep the entire batch in memory.
    parts = [rows.take(pa.array(positions)) for positions in np.split(order, starts[1:])]
    return Split(list(zip(partitions, parts, strict=True)), runs)


def label_rows(
    columns: Sequence[tuple[str, pa.Array]], label: Callable[[tuple[object, ...]], str]
) -> pa.Array:
    """Return the label of each row's partition values."""
    codes = number_rows([column for _, column in columns])
    _, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
    by_column = [_values(name, column, firsts) for name, column in columns]
    labels = pa.array([label(values) for values in zip(*by_column, strict=True)], pa.string())
    return labels.take(pa.array(numbers))


def number_rows(columns: Sequence[pa.Array]) -> Array:
    """Number rows by their combination of values; rows with the same values have the same number."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        coded = plain(column).dictionary_encode()
        own = np.asarray(coded.indices.fill_null(len(coded.dictionary))).astype(np.int64)
        # Renumbered each time, so that many columns don't overflow.
        _, codes = np.unique(codes * (len(coded.dictionary) + 1) + own, return_inverse=True)
    return codes


def _values(name: str, column: pa.Array, positions: Array) -> list[object]:
    try:
        values: list[object] = plain(column).take(pa.array(positions)).to_pylist()
    except (ValueError, OverflowError) as error:
        hint = "use dates in the years 1 to 9999"
        raise UsageError(f"value can't be a partition value: {error}", column=name, hint=hint) from error
    return values


NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Directory name for NULL."""
PARTITION_HINT = "partition by strings, integers or dates, or cast the column to one of them"

# Spark's list, and NUL, which Spark does not escape and no file system accepts.
_UNSAFE = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def partition_folder(names: Sequence[str], values: Sequence[object]) -> str:
    """Return the directory of a partition, relative to the lake; "" without columns.

    >>> partition_folder(["a", "b", "c"], [1, "x/y", None])
    'a=1/b=x%2Fy/c=__HIVE_DEFAULT_PARTITION__'
    """
    pairs = zip(names, values, strict=True)
    return "/".join(f"{escape(name)}={_raw(name, value)}" for name, value in pairs)


def escape(text: str) -> str:
    """Escape characters that are special in paths, Hive or shells as ``%XX``."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _raw(name: str, value: object) -> str:
    if value in ("", NULL_FOLDER):
        problem = f"partition value {value!r} would be read back as NULL"
        raise SchemaError(problem, column=name, hint="replace it with NULL or another string")
    return NULL_FOLDER if value is None else escape(_text(name, value))


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    raise UsageError(f"{type(value).__name__} can't be a partition value", column=name, hint=PARTITION_HINT)
