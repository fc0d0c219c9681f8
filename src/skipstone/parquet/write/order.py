"""Sort rows for files: by columns, or along a space-filling curve."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import binary_keys, numbers, plain, valid_rows
from skipstone.core.domain.keys import Kind, is_ordered, key_space
from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.errors import SchemaError, UsageError
from skipstone.parquet.write.columns import find_column, find_type
from skipstone.parquet.write.layout import PageLayout


def sort_batch(table: pa.Table, layout: PageLayout, cluster: Cluster | None = None) -> pa.Table:
    """Sort the rows by partition, then in the layout's order: NULL first, NaN last, stable.

    A curve is fitted to the table's own values unless ``cluster`` is passed.
    """
    keys = sort_keys(table, layout, cluster)
    if not keys or table.num_rows < 2:
        return table
    order = sort_indices(keys)
    return table if is_identity(order) else take_rows(table, order)


def sort_keys(table: pa.Table, layout: PageLayout, cluster: Cluster | None = None) -> list[pa.ChunkedArray]:
    """Return columns that sort like the rows of the layout, in ascending order with NULL first."""
    layout.check(table.schema)
    keys = [key for name in layout.partition_by for key in _keys(find_column(table, name))]
    if layout.curve is None:
        return keys + [key for name in layout.cluster_by for key in _keys(find_column(table, name))]
    curve = cluster or Cluster.of(table, layout.cluster_by, layout.curve)
    return [*keys, pa.chunked_array([curve.keys(table)])]


def sort_indices(keys: Sequence[pa.ChunkedArray]) -> Array:
    """Return the positions of the rows in the order of their keys."""
    names = [str(number) for number in range(len(keys))]
    ascending = [(name, "ascending", "at_start") for name in names]
    return np.asarray(pc.sort_indices(pa.table(list(keys), names), sort_keys=ascending)).view(np.int64)


def is_identity(order: Array) -> bool:
    """Whether rows are in order already."""
    return bool((np.diff(order) == 1).all())


def take_rows(table: pa.Table, order: Array) -> pa.Table:
    """Return rows by position; views and runs become plain."""
    return _plain(table).take(pa.array(order))


def _keys(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    if pa.types.is_fixed_size_binary(column.type):
        return [column.cast(pa.binary())]
    if not pa.types.is_floating(column.type):
        return [column]
    # Arrow sorts NaN beside NULL.
    return [pc.is_nan(column), column]


def _plain(table: pa.Table) -> pa.Table:
    """Convert views and runs, for which Arrow has no take kernel."""
    for at, field in enumerate(table.schema):
        type = field.type
        if type in (pa.string_view(), pa.binary_view()) or pa.types.is_run_end_encoded(type):
            chunks = [plain(chunk) for chunk in table.column(at).chunks]
            column = pa.chunked_array(chunks, chunks[0].type)
            table = table.set_column(at, field.with_type(column.type), column)
    return table


# Positions are non-negative 64-bit integers.
_POSITION_BITS = 63
_MOST_BITS = 16
_MOST_AXES = 8
_STEP = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Positions of rows on a curve through several columns, fitted to a sample of their values."""

    curve: Literal["zorder", "hilbert"]
    axes: tuple[Ranks, ...]

    @classmethod
    def of(cls, sample: pa.Table, columns: Sequence[str], curve: Literal["zorder", "hilbert"]) -> Cluster:
        """Fit a curve through these columns; one column gives its order."""
        if curve not in ("zorder", "hilbert"):
            raise UsageError(f"unknown curve {curve!r}", hint="use zorder or hilbert")
        if isinstance(columns, str) or not 1 <= len(columns) <= _MOST_AXES:
            problem = f"invalid columns {columns!r} for a curve"
            raise UsageError(problem, hint=f"pass one to {_MOST_AXES} columns")
        bits = min(_POSITION_BITS // len(columns), _MOST_BITS)
        return cls(curve, tuple(Ranks.of(sample, name, bits) for name in columns))

    def keys(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return the position of each row, as int64."""
        ranks = [axis.of_rows(rows) for axis in self.axes]
        along = hilbert if self.curve == "hilbert" else zorder
        positions = np.empty(len(ranks[0]), dtype=np.int64)
        # A step at a time, which the processor's caches hold.
        for start in range(0, len(positions), _STEP):
            step = slice(start, start + _STEP)
            positions[step] = along([rank[step] for rank in ranks], self.axes[0].bits)
        return pa.array(positions)


def zorder(ranks: Sequence[Array], bits: int) -> Array:
    """Interleave the bits of the ranks, highest first.

    >>> zorder([np.array([0b10, 0b11]), np.array([0b01, 0b11])], 2).tolist()
    [9, 15]
    """
    spread = _spread(bits, len(ranks))
    position = np.zeros(len(ranks[0]), dtype=np.int64)
    for rank in ranks:
        position <<= 1
        position |= spread[rank]
    return position


@lru_cache(maxsize=8)
def _spread(bits: int, apart: int) -> Array:
    """Each rank with its bits that far apart."""
    ranks = np.arange(1 << bits, dtype=np.int64)
    spread = np.zeros_like(ranks)
    for bit in range(bits):
        spread |= ((ranks >> bit) & 1) << (bit * apart)
    return spread


def hilbert(ranks: Sequence[Array], bits: int) -> Array:
    """Return positions on the Hilbert curve, where each step moves along one axis by one.

    By Skilling's method (Programming the Hilbert curve, 2004): from the highest bit down, each axis
    determines whether the first one is mirrored or swapped with it, then the Gray code is decoded.

    >>> hilbert([np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])], 1).tolist()
    [0, 1, 2, 3]
    """
    axes = [np.array(rank, dtype=np.int32) for rank in ranks]
    first = axes[0]
    for bit in reversed(range(1, bits)):
        low = (1 << bit) - 1
        for axis in axes:
            # All ones where the bit is set: masks are faster than choices.
            mirrored = -((axis >> bit) & 1)
            swap = (first ^ axis) & (low & ~mirrored)
            first ^= swap | (low & mirrored)
            # Swapping the first axis with itself changes nothing.
            if axis is not first:
                np.bitwise_xor(axis, swap, out=axis)
    for before, axis in itertools.pairwise(axes):
        np.bitwise_xor(axis, before, out=axis)
    turned = np.zeros_like(first)
    for bit in reversed(range(1, bits)):
        turned ^= -((axes[-1] >> bit) & 1) & ((1 << bit) - 1)
    return zorder([axis ^ turned for axis in axes], bits)


# More boundaries would not help to separate pages, and are sent with every task.
_MOST_BOUNDARIES = 4_096


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """One column's boundaries, and the share of the sample below each of them.

    Ranks order NULL first and NaN last, as in Spark. A value between two boundaries has the rank of the lower
    one; values outside the sample have the lowest or the highest.
    """

    name: str
    type: pa.DataType
    bounds: Any
    """Keys in order: a NumPy array of numbers, or an Arrow array of bytes."""
    shares: Array
    """Shares below the first bound (NULLs), below each bound, and below NaN."""
    bits: int

    @classmethod
    def of(cls, sample: pa.Table, name: str, bits: int) -> Ranks:
        """Choose boundaries that split a sample's values into parts of about the same size."""
        type = find_type(sample.schema, name)
        if not is_ordered(type):
            raise UsageError(f"{type_name(type)} has no order", column=name, hint="cluster by other columns")
        array = _whole(find_column(sample, name))
        keys, valid = _sortable_keys(array)
        nulls = 0 if valid is None else int((~valid).sum())
        count = len(array)
        ordered, nans = _sorted(keys, valid)
        firsts = _firsts(ordered)
        if len(firsts) > _MOST_BOUNDARIES:
            # The first of the values equal to each quantile.
            quantiles = np.linspace(0, len(ordered) - 1, _MOST_BOUNDARIES).astype(np.int64)
            firsts = np.unique(firsts[np.searchsorted(firsts, quantiles, side="right") - 1])
        bounds = ordered.take(pa.array(firsts)) if isinstance(ordered, pa.Array) else ordered[firsts]
        below = np.concatenate(([nulls], nulls + firsts, [count - nans]))
        return cls(name, array.type, bounds, below / max(count, 1), bits)

    def of_rows(self, table: pa.Table | pa.RecordBatch) -> Array:
        """Return the rank of each row, from 0 to ``2**bits - 1``."""
        array = _whole(find_column(table, self.name))
        if array.type != self.type:
            array = self._cast(array)
        keys, valid = _sortable_keys(array)
        if isinstance(keys, pa.Array):
            at = np.asarray(pc.search_sorted(self.bounds, keys, side="right").fill_null(0)).astype(np.int64)
        else:
            at = np.searchsorted(self.bounds, keys, side="right")
            if keys.dtype.kind == "f":
                at[np.isnan(keys)] = len(self.bounds) + 1
        ranks = self._ranks[at]
        if valid is not None:
            ranks[~valid] = 0
        return ranks

    @property
    def _ranks(self) -> Array:
        """Ranks by the number of boundaries that are not above a value; the last is for NaN."""
        most = (1 << self.bits) - 1
        ranks: Array = np.minimum((self.shares * (most + 1)).astype(np.int64), most)
        ranks[-1] = most
        return ranks

    def _cast(self, array: pa.Array) -> pa.Array:
        try:
            return array.cast(self.type)
        except pa.ArrowException as error:
            problem = (
                f"sample has type {type_name(self.type)}, but rows have {type_name(array.type)}: {error}"
            )
            raise SchemaError(problem, column=self.name, hint="sample the rows to write") from error


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    )


def _sortable_keys(array: pa.Array) -> tuple[Any, Array | None]:
    """Return keys that sort like the values, and which rows have one."""
    valid = valid_rows(array)
    if key_space(array.type).kind is Kind.BYTES:
        return binary_keys(array).cast(pa.large_binary()), valid
    keys = numbers(array)
    return (keys + keys.dtype.type(0) if keys.dtype.kind == "f" else keys), valid


def _sorted(keys: Any, valid: Array | None) -> tuple[Any, int]:
    """Return the sorted keys without NULL and NaN, and the number of NaNs."""
    if isinstance(keys, pa.Array):
        values = keys.drop_null()
        return values.take(pc.sort_indices(values)), 0
    values = keys if valid is None else keys[valid]
    nans = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
    ordered = np.sort(values)
    return ordered[: len(ordered) - nans], nans


def _firsts(ordered: Any) -> Array:
    """Return the first position of each distinct key."""
    if not len(ordered):
        return np.zeros(0, dtype=np.int64)
    if isinstance(ordered, pa.Array):
        fresh = np.asarray(pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1)).cast(pa.int8()))
    else:
        fresh = ordered[1:] != ordered[:-1]
    return np.concatenate(([0], np.flatnonzero(fresh) + 1)).astype(np.int64)
