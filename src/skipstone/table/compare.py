"""Comparison of rows by their values: NULL equals NULL, and NaN equals NaN."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import bools, plain
from skipstone.core.evidence import Array
from skipstone.lake.schema import is_list


def equal_rows(one: pa.Table, other: pa.Table) -> Array:
    """Return, per row, whether two tables of the same columns and length have the same values."""
    same = np.ones(len(one), dtype=bool)
    for name in one.column_names:
        columns = (table.column(name).combine_chunks() for table in (one, other))
        same &= _equal(*columns)
    return same


def _equal(a: pa.Array, b: pa.Array) -> Array:
    a, b = plain(a), plain(b)
    a_null, b_null = bools(a.is_null()), bools(b.is_null())
    either = a_null | b_null
    if pa.types.is_struct(a.type):
        same = np.ones(len(a), dtype=bool)
        for number in range(a.type.num_fields):
            same &= _equal(pc.struct_field(a, [number]), pc.struct_field(b, [number]))
    elif is_list(a.type) or pa.types.is_map(a.type):
        same = _equal_lists(a, b, ~either)
    else:
        same = bools(pc.equal(a, b))
        if pa.types.is_floating(a.type):
            same |= bools(pc.is_nan(a)) & bools(pc.is_nan(b))
    return np.asarray(np.where(either, a_null & b_null, same))


def _equal_lists(a: pa.Array, b: pa.Array, valid: Array) -> Array:
    """Compare the elements of lists of the same length, all at once."""
    lengths, others = (_lengths(one) for one in (a, b))
    same: Array = valid & (lengths == others)
    rows = np.flatnonzero(same & (lengths > 0))
    if not len(rows):
        return same
    counts = lengths[rows]
    elements = _equal(*(_elements(one.take(pa.array(rows))) for one in (a, b)))
    firsts = np.cumsum(counts) - counts
    same[rows] = np.logical_and.reduceat(elements, firsts)
    return same


def _lengths(lists: pa.Array) -> Array:
    offsets = np.asarray(lists.offsets)
    return np.asarray(np.where(bools(lists.is_null()), 0, np.diff(offsets)))


def _elements(lists: pa.Array) -> pa.Array:
    """All elements of lists without NULL lists, in order."""
    if pa.types.is_map(lists.type):
        offsets = np.asarray(lists.offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        pairs = [lists.keys.slice(first, last - first), lists.items.slice(first, last - first)]
        return pa.StructArray.from_arrays(pairs, ["key", "value"])
    return lists.flatten()
