"""Cut decoded columns to the wanted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from skipstone.core.rows import runs as run
from skipstone.core.rows.rowset import RowSet
from skipstone.parquet.slice.plan import Pages

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Pieces this long are kept as chunks without a copy; shorter ones are gathered.
_LONG_PIECE: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The wanted rows as runs of positions in a decoded column."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    rows: int
    places: NDArray[np.int64] | None = None
    """Every position, where there are so many runs that their set has a list at hand."""

    @classmethod
    def joined(cls, cuts: Sequence[Cut], offsets: Sequence[int]) -> Cut:
        """The wanted rows of columns that stand one after the other, each from its offset on."""
        starts = np.concatenate([cut.starts + offset for cut, offset in zip(cuts, offsets, strict=True)])
        stops = np.concatenate([cut.stops + offset for cut, offset in zip(cuts, offsets, strict=True)])
        return cls(starts, stops, sum(cut.rows for cut in cuts))

    def window(self, first: int, last: int) -> Cut:
        """The wanted rows among those from ``first`` to ``last``, counted from there."""
        inside = slice(self.stops.searchsorted(first, "right"), self.starts.searchsorted(last, "left"))
        starts = np.maximum(self.starts[inside], first) - first
        stops = np.minimum(self.stops[inside], last) - first
        return Cut(starts, stops, int((stops - starts).sum()))

    def apply(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The column's wanted rows, in order."""
        if self.rows == len(column):
            return column
        if len(self.starts) == 1:
            return column.slice(int(self.starts[0]), self.rows)
        if self.rows >= _LONG_PIECE * len(self.starts):
            pieces = [column.slice(start, stop - start) for start, stop in self._pairs()]
            return pa.chunked_array([c for piece in pieces for c in piece.chunks], type=column.type)
        return pa.chunked_array(self._gathered(column), type=column.type)

    def apply_all(self, table: pa.Table) -> pa.Table:
        """The wanted rows of columns that hold the same rows."""
        if self.rows == len(table):
            return table
        if len(self.starts) == 1:
            return table.slice(int(self.starts[0]), self.rows)
        return pa.Table.from_arrays([self.apply(column) for column in table.columns], schema=table.schema)

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.starts.tolist(), self.stops.tolist(), strict=True))

    def _gathered(self, column: pa.ChunkedArray) -> list[pa.Array]:
        # Chunk by chunk: taking from a chunked column would first make one array of it, which can overflow.
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
    """Values at positions in any order, of any type: Arrow has no kernel for views."""
    wide = _WIDE.get(array.type)
    if wide is not None:
        return _take_views(array, positions).cast(wide).cast(array.type)
    try:
        return array.take(pa.array(positions))
    except pa.ArrowNotImplementedError:
        # Views inside other values: slices of them can be joined.
        rows = [array.slice(position, 1) for position in positions.tolist()]
        return pa.concat_arrays(rows) if rows else array.slice(0, 0)


_WIDE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def _take_views(array: pa.Array, positions: NDArray[np.int64]) -> pa.Array:
    """The chosen views over the same bytes; the caller copies the bytes they need out of them."""
    valid, views, *data = array.buffers()
    chosen = np.frombuffer(views, dtype="V16")[array.offset : array.offset + len(array)][positions]
    if array.null_count:
        valid = pa.py_buffer(np.packbits(np.asarray(array.is_valid())[positions], bitorder="little"))
    else:
        valid = None
    return pa.Array.from_buffers(array.type, len(positions), [valid, pa.py_buffer(chosen), *data])


def cut_for(rows: RowSet, pages: Pages | None) -> Cut:
    """Where the wanted rows are in a column of these pages, or of a whole chunk."""
    starts, stops = rows.runs()
    if pages is None or len(pages.starts) == 1:
        offset = 0 if pages is None else int(pages.starts[0])
        places = rows.positions() - offset if rows.is_scattered else None
        return Cut(starts - offset, stops - offset, len(rows), places)
    # Every run lies inside one interval of pages, since neighbouring pages are one interval.
    before = np.cumsum(pages.stops - pages.starts) - (pages.stops - pages.starts)
    owner = pages.starts.searchsorted(starts, "right") - 1
    shift = before[owner] - pages.starts[owner]
    return Cut(starts + shift, stops + shift, len(rows))
