"""Rows by group: rows with equal keys are one group, NULL being a key like others, as in Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array
from skipstone.core.filter.rows import plain, plain_type
from skipstone.errors import TypeMismatchError
from skipstone.partial.states import Path, Rows
from skipstone.scan.reader import take

_MOST_CODES = 1 << 62


def key_type(name: str, type: pa.DataType) -> pa.DataType:
    """The type of a key in the answer; an error for columns that rows can't be grouped by."""
    stored = plain_type(type)
    if pa.types.is_nested(stored):
        raise TypeMismatchError(
            f"rows can't be grouped by values of type {type}", column=name, hint="group by one of its fields"
        )
    return stored


def number_groups(keys: Sequence[pa.Array]) -> tuple[Array, Array]:
    """Per row the number of its group, and per group one of its rows."""
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    groups = 1
    for column in keys:
        encoded = column.dictionary_encode(null_encoding="encode")
        size = len(encoded.dictionary) + 1
        if groups * size > _MOST_CODES:
            _, codes = np.unique(codes, return_inverse=True)
            groups = int(codes.max(initial=-1)) + 1
        own = np.asarray(encoded.indices.fill_null(size - 1)).astype(np.int64)
        codes, groups = codes * size + own, groups * size
    _, rows, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes.ravel(), rows


def group_rows(table: pa.Table, keys: Sequence[Path]) -> tuple[list[pa.Array], Rows]:
    """The keys of a table's groups, and its rows in the order of groups; without keys all rows are one."""
    if not keys:
        return [], Rows(table, np.zeros(1, dtype=np.int64))
    rows = Rows(table, np.zeros(1, dtype=np.int64))
    columns = [plain_key(rows.column(path)) for path in keys]
    codes, some = number_groups(columns)
    found = [column.take(pa.array(some)) for column in columns]
    if len(some) <= 1:
        return found, Rows(table, np.zeros(len(some), dtype=np.int64))
    order, starts = runs_of(codes)
    return found, Rows(take(table, order), starts)


def runs_of(codes: Array) -> tuple[Array, Array]:
    """The order that brings equal codes together, and where each of them starts in it."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    return order, np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1]))[: len(codes)])


def plain_key(column: pa.ChunkedArray) -> pa.Array:
    """A key column as one array of its storage type, with one zero and one NaN."""
    chunks = [plain(chunk) for chunk in column.chunks]
    keys = pa.concat_arrays(chunks) if chunks else pa.array([], plain_type(column.type))
    if not pa.types.is_floating(keys.type):
        return keys
    return pc.if_else(
        pc.is_nan(keys), pa.scalar(float("nan"), keys.type), pc.add(keys, pa.scalar(0.0, keys.type))
    )
