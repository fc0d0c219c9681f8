"""Cut decoded columns and tables of any type to the wanted rows, and merge nested columns.

pyarrow pairs leaves by position, so leaves whose pages have different rows must not be read together: they
are read individually, each as a chain of one-child levels, cut to the rows, and merged here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from skipstone.core.plain import int_array
from skipstone.core.rows import runs as run
from skipstone.core.rows.rowset import RowSet
from skipstone.parquet.slice.projection import leaf_count

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Pieces of this length become chunks without a copy; shorter ones are gathered.
_LONG_PIECE: Final = 4096
# Runs shorter than this on average are faster to take row by row.
_SCATTERED: Final = 64
# Runs at least this long on average, with short gaps, are faster to filter by a mask.
_DENSE: Final = 10


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The wanted rows as runs of positions in a decoded column."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    rows: int
    places: NDArray[np.int64] | None = None
    """All positions, if the row set has many runs and stores a list."""
    _masks: dict[int, pa.Array] = dataclasses.field(default_factory=dict, repr=False)
    """The mask of the wanted rows, by length of the column."""

    @property
    def stop(self) -> int:
        """Position after the last wanted row."""
        return int(self.stops[-1])

    @classmethod
    def joined(cls, cuts: Sequence[Cut], offsets: Sequence[int]) -> Cut:
        """Concatenate the wanted rows of consecutive columns, each at its offset."""
        starts = np.concatenate([cut.starts + offset for cut, offset in zip(cuts, offsets, strict=True)])
        stops = np.concatenate([cut.stops + offset for cut, offset in zip(cuts, offsets, strict=True)])
        return cls(starts, stops, sum(cut.rows for cut in cuts))

    def window(self, first: int, last: int) -> Cut:
        """Return the wanted rows from ``first`` to ``last``, relative to ``first``."""
        inside = slice(self.stops.searchsorted(first, "right"), self.starts.searchsorted(last, "left"))
        starts = np.maximum(self.starts[inside], first) - first
        stops = np.minimum(self.stops[inside], last) - first
        return Cut(starts, stops, int((stops - starts).sum()))

    def at(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of chosen rows among the wanted ones."""
        if len(self.starts) == 1:
            return chosen + self.starts
        places = run.positions((self.starts, self.stops)) if self.places is None else self.places
        return places[chosen]

    def apply(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the column's wanted rows, in order."""
        if self.rows == len(column):
            return column
        if len(self.starts) == 1:
            return column.slice(int(self.starts[0]), self.rows)
        if self.rows >= _LONG_PIECE * len(self.starts):
            pieces = [column.slice(start, stop - start) for start, stop in self._pairs()]
            return pa.chunked_array([c for piece in pieces for c in piece.chunks], type=column.type)
        if self._leaves_few_out(len(column)) and column.type not in _WIDE:
            with suppress(pa.ArrowNotImplementedError):
                return column.filter(self._mask(len(column)))
        return pa.chunked_array(self._gathered(column), type=column.type)

    def _leaves_few_out(self, length: int) -> bool:
        """Whether a mask is faster than positions, for columns of some length."""
        return self.rows >= _DENSE * len(self.starts) and self.rows * 2 >= length

    def _mask(self, length: int) -> pa.Array:
        mask = self._masks.get(length)
        if mask is None:
            edges = np.stack([self.starts, self.stops], axis=1).ravel()
            runs = np.diff(edges, prepend=0, append=length)
            bits = np.packbits(np.repeat(np.arange(len(runs)) % 2 == 1, runs), bitorder="little")
            mask = self._masks[length] = pa.Array.from_buffers(pa.bool_(), length, [None, pa.py_buffer(bits)])
        return mask

    def apply_all(self, table: pa.Table) -> pa.Table:
        """Return the wanted rows of columns with the same rows."""
        if self.rows == len(table):
            return table
        if len(self.starts) == 1:
            return table.slice(int(self.starts[0]), self.rows)
        short = self.rows < _LONG_PIECE * len(self.starts) and self._leaves_few_out(len(table))
        if short and _WIDE.keys().isdisjoint(table.schema.types):
            with suppress(pa.ArrowNotImplementedError):
                return table.filter(self._mask(len(table)))
        return pa.Table.from_arrays([self.apply(column) for column in table.columns], schema=table.schema)

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.starts.tolist(), self.stops.tolist(), strict=True))

    def _gathered(self, column: pa.ChunkedArray) -> list[pa.Array]:
        # Chunk by chunk: take() on a chunked column first concatenates it, which can overflow.
        positions = run.positions((self.starts, self.stops)) if self.places is None else self.places
        lengths = np.array([len(chunk) for chunk in column.chunks], dtype=np.int64)
        ends = np.cumsum(lengths)
        borders = positions.searchsorted(ends).tolist()
        found, at = [], 0
        for chunk, end, length, border in zip(
            column.chunks, ends.tolist(), lengths.tolist(), borders, strict=True
        ):
            if border > at:
                found.append(take_values(chunk, positions[at:border] - (end - length)))
            at = border
        return found


def take_values(array: pa.Array, positions: NDArray[np.int64]) -> pa.Array:
    """Return values of any type at positions in any order: Arrow has no kernel for views."""
    wide = _WIDE.get(array.type)
    if wide is not None:
        return _take_views(array, positions).cast(wide).cast(array.type)
    try:
        return array.take(int_array(positions))
    except pa.ArrowNotImplementedError:
        # Nested views: concatenate slices instead.
        rows = [array.slice(position, 1) for position in positions.tolist()]
        return pa.concat_arrays(rows) if rows else array.slice(0, 0)


_WIDE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def _take_views(array: pa.Array, positions: NDArray[np.int64]) -> pa.Array:
    """Return chosen views over the same bytes; the caller copies the bytes that they need."""
    valid, views, *data = array.buffers()
    chosen = np.frombuffer(views, dtype="V16")[array.offset : array.offset + len(array)][positions]
    if array.null_count:
        valid = pa.py_buffer(np.packbits(np.asarray(array.is_valid())[positions], bitorder="little"))
    else:
        valid = None
    return pa.Array.from_buffers(array.type, len(positions), [valid, pa.py_buffer(chosen), *data])


def cut_for(rows: RowSet, held: Sequence[tuple[int, int]] | None) -> Cut:
    """Return the positions of wanted rows in a column with these intervals of rows, or with all rows."""
    starts, stops = rows.runs()
    if held is None or len(held) == 1:
        offset = 0 if held is None else held[0][0]
        is_list = rows.is_scattered and len(rows) < _DENSE * len(starts)
        places = rows.positions() - offset if is_list else None
        if offset:
            starts, stops = starts - offset, stops - offset
        return Cut(starts, stops, len(rows), places)
    # Every run is inside one interval, because neighbouring pages form one interval.
    first, last = np.array(held, dtype=np.int64).T
    before = np.cumsum(last - first) - (last - first)
    owner = first.searchsorted(starts, "right") - 1
    shift = before[owner] - first[owner]
    return Cut(starts + shift, stops + shift, len(rows))


# -- tables ------------------------------------------------------------------------------------


def bare(rows: int) -> pa.Table:
    """Return a table without columns that has a number of rows."""
    return pa.table({"": pa.nulls(rows)}).select([])


def cut(table: pa.Table, rows: RowSet) -> pa.Table:
    """Filter the rows of a table of any types."""
    if rows.is_full:
        return table
    return cut_for(rows, None).apply_all(table) if table.num_columns else bare(len(rows))


def take(table: pa.Table, positions: NDArray[np.int64]) -> pa.Table:
    """Take rows of a table of any types, at positions in any order."""
    if not table.num_columns:
        return bare(len(positions))
    columns = [_taken(column, positions) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _taken(column: pa.ChunkedArray, where: NDArray[np.int64]) -> pa.ChunkedArray:
    if column.num_chunks != 1:
        try:
            return column.take(int_array(where))
        except pa.ArrowNotImplementedError:
            column = pa.chunked_array([column.combine_chunks()], column.type)
    return pa.chunked_array([take_values(column.chunk(0), where)], column.type)


def taken(table: pa.Table, places: NDArray[np.int64]) -> pa.Table:
    """Take rows of a table of any types, at positions in ascending order."""
    count = len(places)
    if count == table.num_rows:
        return table
    if not count:
        return table.slice(0, 0)
    first = places.item(0)
    if places.item(-1) - first + 1 == count:
        return table.slice(first, count)
    runs = int(np.count_nonzero(places[1:] - places[:-1] != 1)) + 1
    if runs * 2 * _SCATTERED > table.num_rows:
        return take(table, places)
    return cut(table, RowSet.from_positions(table.num_rows, places))


class UnevenLeaves(Exception):
    """The leaves of a field have different rows, nulls or list lengths."""


def merge(type: pa.DataType, chains: list[pa.Array], present: NDArray[np.bool_] | None = None) -> pa.Array:
    """Merge chains, which are the leaves of ``type`` in order, into a column.

    ``present`` is false where a parent is null: values there are undefined.
    """
    if len({len(chain) for chain in chains}) > 1:
        raise UnevenLeaves(f"leaves have {sorted({len(chain) for chain in chains})} values")
    if leaf_count(type) == 1:
        # Only names of list items can differ: pyarrow drops them when it prunes below a list.
        (chain,) = chains
        return chain if chain.type == type else chain.cast(type)
    valid = _validity(chains, present)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    size = len(chains[0])
    if pa.types.is_struct(type):
        if valid is not None:
            present = valid if present is None else valid & present
        return pa.Array.from_buffers(type, size, [bits], children=_children(type, chains, present))
    offsets = _offsets(chains)
    values = [chain.values.slice(first, last - first) for chain, first, last in _extents(chains)]
    item = merge(type.field(0).type, values)
    return pa.Array.from_buffers(type, size, [bits, pa.py_buffer(offsets)], children=[item])


def _children(
    type: pa.StructType, chains: list[pa.Array], present: NDArray[np.bool_] | None
) -> list[pa.Array]:
    found, at = [], 0
    for field in type.fields:
        count = leaf_count(field.type)
        found.append(merge(field.type, [chain.field(0) for chain in chains[at : at + count]], present))
        at += count
    return found


def _validity(chains: list[pa.Array], present: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    if not any(chain.null_count for chain in chains):
        return None
    masks: list[NDArray[np.bool_]] = [chain.is_valid().to_numpy(zero_copy_only=False) for chain in chains]
    for mask in masks[1:]:
        differs = mask != masks[0]
        if (differs if present is None else differs & present).any():
            raise UnevenLeaves("leaves have nulls in different rows")
    return masks[0]


def _offsets(chains: list[pa.Array]) -> NDArray[np.integer]:
    """Return the offsets of lists, relative to the first; the same in all chains."""
    starts = [chain.offsets.to_numpy() for chain in chains]
    rebased = [offsets - offsets[0] for offsets in starts]
    if not all(np.array_equal(rebased[0], offsets) for offsets in rebased[1:]):
        raise UnevenLeaves("leaves have lists of different lengths")
    first: NDArray[np.integer] = rebased[0]
    return first


def _extents(chains: list[pa.Array]) -> list[tuple[pa.Array, int, int]]:
    return [(chain, chain.offsets[0].as_py(), chain.offsets[-1].as_py()) for chain in chains]
