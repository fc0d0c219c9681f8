"""Rows put in the order that files are to have them in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.filter.rows import plain
from skipstone.write.columns import find_column
from skipstone.write.curves import Cluster
from skipstone.write.layout import Layout


def sort_batch(table: pa.Table, layout: Layout, cluster: Cluster | None = None) -> pa.Table:
    """The rows by partition, then by the layout's order: NULL first, NaN last, equal ones as they were.

    A curve goes through the table's own values unless one is given.
    """
    layout.check(table.schema)
    keys = [key for name in layout.partition_by for key in _keys(find_column(table, name))]
    if layout.curve is None:
        keys += [key for name in layout.cluster_by for key in _keys(find_column(table, name))]
    else:
        curve = cluster or Cluster.of(table, layout.cluster_by, layout.curve)
        keys.append(curve.keys(table))
    if not keys or table.num_rows < 2:
        return table
    names = [str(number) for number in range(len(keys))]
    order = pc.sort_indices(
        pa.table(keys, names),
        sort_keys=[(name, "ascending", "at_start") for name in names],
    )
    if (np.diff(np.asarray(order).view(np.int64)) == 1).all():
        return table
    return _plain(table).take(order)


def _keys(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    if pa.types.is_fixed_size_binary(column.type):
        return [column.cast(pa.binary())]
    if not pa.types.is_floating(column.type):
        return [column]
    # Arrow sorts NaN beside NULL.
    return [pc.is_nan(column), column]


def _plain(table: pa.Table) -> pa.Table:
    """The table without views and runs, which have no kernel to take rows by."""
    for at, field in enumerate(table.schema):
        type = field.type
        if type in (pa.string_view(), pa.binary_view()) or pa.types.is_run_end_encoded(type):
            chunks = [plain(chunk) for chunk in table.column(at).chunks]
            made = pa.chunked_array(chunks, chunks[0].type)
            table = table.set_column(at, field.with_type(made.type), made)
    return table
