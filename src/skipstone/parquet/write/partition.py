"""The rows of a batch by the partition that they belong to."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from skipstone.core.arrays import plain
from skipstone.core.evidence import Array
from skipstone.errors import UsageError


class Split(NamedTuple):
    """Parts of a batch, each of one partition; whether the rows of each already lay together."""

    parts: list[tuple[Hashable, pa.RecordBatch]]
    runs: bool


def split_rows(
    given: Sequence[tuple[str, pa.Array]],
    rows: pa.RecordBatch,
    partition: Callable[[tuple[object, ...]], Hashable] | None = None,
) -> Split:
    """``rows`` cut by the values of the partition columns, in order within each part.

    ``partition`` makes a partition of its values; unless given, it is the folder that Spark would name.
    """
    codes = _codes([column for _, column in given])
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    runs = len(np.unique(codes[starts])) == len(starts)
    order = np.arange(len(codes)) if runs else np.argsort(codes, kind="stable")
    if not runs:
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    names = [name for name, _ in given]
    columns = [_values(name, column, order[starts]) for name, column in given]
    made = partition or partial(partition_folder, names)
    partitions = [made(values) for values in zip(*columns, strict=True)]
    if len(partitions) == 1:
        return Split([(partitions[0], rows)], runs)
    # Copies: a slice would keep the whole batch in memory for as long as its few rows are held.
    parts = [rows.take(pa.array(places)) for places in np.split(order, starts[1:])]
    return Split(list(zip(partitions, parts, strict=True)), runs)


def label_rows(given: Sequence[tuple[str, pa.Array]], label: Callable[[tuple[object, ...]], str]) -> pa.Array:
    """For each row what ``label`` makes of its partition's values."""
    _, firsts, codes = np.unique(
        _codes([column for _, column in given]), return_index=True, return_inverse=True
    )
    columns = [_values(name, column, firsts) for name, column in given]
    labels = pa.array([label(values) for values in zip(*columns, strict=True)], pa.string())
    return labels.take(pa.array(codes))


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


NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""What stands for NULL and for the empty string, which folders can't tell apart."""

# Spark's list, and NUL, which Spark leaves as it is and no file system takes.
_UNSAFE = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def partition_folder(names: Sequence[str], values: Sequence[object]) -> str:
    """The folder of one partition, relative to the lake; "" without columns.

    >>> partition_folder(["a", "b", "c"], [1, "x/y", None])
    'a=1/b=x%2Fy/c=__HIVE_DEFAULT_PARTITION__'
    """
    pairs = zip(names, values, strict=True)
    return "/".join(f"{escape(name)}={_raw(name, value)}" for name, value in pairs)


def escape(text: str) -> str:
    """``text`` with ``%XX`` for characters that paths, Hive or shells take for something else."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _raw(name: str, value: object) -> str:
    text = _text(name, value)
    return escape(text) if text else NULL_FOLDER


def _text(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    raise UsageError(
        f"a {type(value).__name__} names no partition",
        column=name,
        hint="partition by strings, booleans, whole numbers, dates or decimals",
    )
