"""The page index of one column chunk, in columns, with everything doubtful refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.page_structs import RawColumnIndex, RawOffsetIndex
from skipstone.parquet.wire import decode
from skipstone.store.ranges import ByteRange

if TYPE_CHECKING:
    from numpy.typing import NDArray


# A data page's header, with nothing but what the format requires, takes 17 bytes.
_LEAST_PAGE = 16


class BadPageIndex(Exception):
    """A page index that can't be trusted; never fatal, the caller notes the reason and does without it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BoundaryOrder(IntEnum):
    """What the writer claims about the order of pages' bounds; a hint, never checked here."""

    UNORDERED = 0
    ASCENDING = 1
    DESCENDING = 2


@dataclass(frozen=True, slots=True, eq=False)
class PageIndex:
    """The pages of one chunk: where each is, and what the writer says it holds.

    Rows count from the row group's first row. ``has_statistics`` is false when there was only an offset
    index: then ``null_pages`` is all false and the bounds are empty lists. Bounds of null pages are
    placeholders; absent counts are unknown.
    """

    rows: int
    first_rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    has_statistics: bool
    null_pages: NDArray[np.bool_]
    min_values: list[bytes]
    max_values: list[bytes]
    null_counts: NDArray[np.int64] | None
    nan_counts: NDArray[np.int64] | None
    boundary_order: BoundaryOrder

    @classmethod
    def places(
        cls, rows: int, first_rows: NDArray[np.int64], offsets: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> PageIndex:
        """Pages of which only the places are known."""
        return cls(
            rows=rows,
            first_rows=first_rows,
            offsets=offsets,
            sizes=sizes,
            has_statistics=False,
            null_pages=np.zeros(len(first_rows), dtype=np.bool_),
            min_values=[],
            max_values=[],
            null_counts=None,
            nan_counts=None,
            boundary_order=BoundaryOrder.UNORDERED,
        )

    def __len__(self) -> int:
        return len(self.first_rows)

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """Rows per page; a page may have none."""
        return np.diff(self.first_rows, append=self.rows)

    @property
    def is_contiguous(self) -> bool:
        """Whether each page begins where the one before it ends, as all writers known put them."""
        return bool((self.offsets[1:] == self.offsets[:-1] + self.sizes[:-1]).all())

    def check(self, chunk: ByteRange) -> None:
        """Refuse pages outside of their chunk, or at rows that can't be."""
        _check_pages(self.first_rows, self.offsets, self.sizes, self.rows, chunk)


def page_index_ranges(
    metadata: ParquetMetadata, row_group: int, leaf: int
) -> tuple[ByteRange | None, ByteRange | None]:
    """Where a chunk's column index and offset index are, each None when it has none that could be read."""
    chunk = metadata.column(row_group, leaf)
    if metadata.is_encrypted(row_group, leaf):
        return None, None
    return (
        _range(chunk.column_index_offset, chunk.column_index_length, metadata.size),
        _range(chunk.offset_index_offset, chunk.offset_index_length, metadata.size),
    )


def parse_page_index(
    column_index: bytes | None, offset_index: bytes, metadata: ParquetMetadata, row_group: int, leaf: int
) -> PageIndex:
    """Decode and check the page index of one chunk; without a column index its pages have places only."""
    rows = int(metadata.row_group_rows[row_group])
    chunk = metadata.chunk_range(row_group, leaf)
    first_rows, offsets, sizes = _pages(offset_index, chunk.length // _LEAST_PAGE)
    _check_pages(first_rows, offsets, sizes, rows, chunk)
    empty = PageIndex.places(rows, first_rows, offsets, sizes)
    if column_index is None:
        return empty
    column = metadata.leaves[leaf]
    # Histograms, though they are not looked at, have an element per page and level.
    most = len(empty) * (max(column.max_repetition, column.max_definition) + 1)
    raw = _decode(RawColumnIndex, column_index, "column index", most)
    return _with_statistics(empty, raw, flat=column.max_repetition == 0)


def _pages(data: bytes, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    pages = _decode(RawOffsetIndex, data, "offset index", most).page_locations
    if pages is None:
        raise BadPageIndex("the offset index lists no pages")
    places = [(page.first_row_index, page.offset, page.compressed_page_size) for page in pages]
    try:
        table = np.array(places, dtype=np.int64).reshape(-1, 3)
    except TypeError:
        # A missing field is None, which is no integer.
        raise BadPageIndex("a page location lacks a field") from None
    first_rows, offsets, sizes = (np.ascontiguousarray(column) for column in table.T)
    return first_rows, offsets, sizes


def _check_pages(
    first_rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int64],
    rows: int,
    chunk: ByteRange,
) -> None:
    if len(first_rows) == 0:
        if rows:
            raise BadPageIndex(f"no pages for {rows} rows")
        return
    if first_rows[0] != 0:
        raise BadPageIndex(f"the first page begins at row {first_rows[0]}")
    if (first_rows[1:] < first_rows[:-1]).any():
        raise BadPageIndex("the pages' first rows go back")
    # A zero-row page may stand at the end, so the last first row may be the row count itself.
    if first_rows[-1] > rows or (rows and first_rows[-1] == rows and len(first_rows) == 1):
        raise BadPageIndex(f"a page begins at row {first_rows[-1]} of {rows}")
    if (sizes <= 0).any():
        raise BadPageIndex("a page has no bytes")
    if offsets[0] < chunk.start or (offsets > chunk.stop).any():
        raise BadPageIndex("a page lies outside its column chunk")
    # Both are below 2**63 and the offsets inside the chunk by now, so the sums can't overflow.
    stops = offsets + sizes
    if stops.max() > chunk.stop:
        raise BadPageIndex("a page ends outside its column chunk")
    if (offsets[1:] < stops[:-1]).any():
        raise BadPageIndex("pages overlap or are out of order")


def _with_statistics(index: PageIndex, raw: RawColumnIndex, flat: bool) -> PageIndex:
    if raw.null_pages is None or raw.min_values is None or raw.max_values is None:
        raise BadPageIndex("the column index lacks a required list")
    lists: tuple[list[Any] | None, ...] = (
        raw.null_pages,
        raw.min_values,
        raw.max_values,
        raw.null_counts,
        raw.nan_counts,
    )
    if any(values is not None and len(values) != len(index) for values in lists):
        raise BadPageIndex(f"a list of the column index has another length than the {len(index)} pages")
    null_pages = np.array(raw.null_pages, dtype=np.bool_)
    null_counts = _counts(raw.null_counts)
    if null_counts is not None:
        _check_nulls(null_pages, null_counts, index.row_counts, flat)
    known = raw.boundary_order in (0, 1, 2)
    return replace(
        index,
        has_statistics=True,
        null_pages=null_pages,
        min_values=raw.min_values,
        max_values=raw.max_values,
        null_counts=null_counts,
        nan_counts=_counts(raw.nan_counts),
        boundary_order=BoundaryOrder(raw.boundary_order or 0) if known else BoundaryOrder.UNORDERED,
    )


def _check_nulls(
    null_pages: NDArray[np.bool_], null_counts: NDArray[np.int64], rows: NDArray[np.int64], flat: bool
) -> None:
    # parquet-java#3457: such a writer has mixed up its pages, and nothing else in the index is safer.
    # A page without rows is all null and has no nulls, which is no contradiction.
    if (null_pages & (null_counts == 0) & (rows > 0)).any():
        raise BadPageIndex("a page said to hold only nulls has no nulls")
    # A repeated leaf counts values, which the page index doesn't: only flat columns can be compared.
    if flat and (null_counts > rows).any():
        raise BadPageIndex("a page has more nulls than rows")
    if flat and (null_pages & (null_counts != rows)).any():
        raise BadPageIndex("a page said to hold only nulls has fewer nulls than rows")


def _counts(values: list[int] | None) -> NDArray[np.int64] | None:
    if values is None:
        return None
    counts = np.array(values, dtype=np.int64)
    # Some writers put -1 where they mean that they didn't count (arrow-rs#9481).
    return None if (counts < 0).any() else counts


def _range(offset: int | None, length: int | None, size: int | None) -> ByteRange | None:
    if offset is None or length is None or offset < 0 or length <= 0:
        return None
    span = ByteRange(offset, offset + length)
    return span if size is None or span.stop <= size else None


def _decode(cls: Any, data: bytes, what: str, longest: int) -> Any:
    try:
        return decode(cls, data, what, longest=longest)
    except CorruptFileError as error:
        raise BadPageIndex(error.message) from error
