"""The pages of column chunks, as arrays: from page indexes, checked strictly, or from the pages' own headers
if there is no page index."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.structs import PageHead, RawColumnIndex, RawOffsetIndex
from skipstone.parquet.wire import decode, decode_prefix
from skipstone.store.source import ByteRange, drive

if TYPE_CHECKING:
    from numpy.typing import NDArray


# A data page header takes at least 17 bytes.
_LEAST_PAGE = 16


class BadPageIndex(Exception):
    """An untrustworthy page index; never fatal: the caller records the reason and ignores the index."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BoundaryOrder(IntEnum):
    """The writer's claim about the order of page bounds; a hint, not checked here."""

    UNORDERED = 0
    ASCENDING = 1
    DESCENDING = 2


# Shared, since most chunks have fewer pages.
_NONE_NULL = np.zeros(1_024, dtype=np.bool_)
_NONE_NULL.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class PageIndex:
    """The pages of one chunk: offsets, first rows and statistics.

    Rows count from the row group's first row. ``has_statistics`` is false without a column index: then
    ``null_pages`` is all false and the bounds are empty lists. Bounds of null pages are placeholders; absent
    counts are unknown.
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
    def without_statistics(
        cls, rows: int, first_rows: NDArray[np.int64], offsets: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> PageIndex:
        """Return pages with offsets only."""
        return cls(
            rows=rows,
            first_rows=first_rows,
            offsets=offsets,
            sizes=sizes,
            has_statistics=False,
            null_pages=_NONE_NULL[: first_rows.size]
            if first_rows.size <= _NONE_NULL.size
            else np.zeros(first_rows.shape, dtype=np.bool_),
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
        """Whether each page begins where the previous one ends, as with all known writers."""
        return bool((self.offsets[1:] == self.offsets[:-1] + self.sizes[:-1]).all())

    def check(self, chunk: ByteRange) -> None:
        """Refuse pages outside their chunk or with invalid rows."""
        _check_pages(self.first_rows, self.offsets, self.sizes, self.rows, chunk)


@dataclass(frozen=True, slots=True, eq=False)
class PageRun:
    """The pages of one column in several row groups; fields as in ``PageIndex``."""

    counts: NDArray[np.int64]
    """Pages of each row group."""
    row_counts: NDArray[np.int64]
    first_rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    has_statistics: bool
    null_pages: NDArray[np.bool_]
    min_values: list[bytes]
    max_values: list[bytes]
    null_counts: NDArray[np.int64] | None
    nan_counts: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.first_rows)


def parse_page_run(
    bodies: Sequence[tuple[bytes | None, bytes]],
    rows: NDArray[np.int64],
    chunks: Sequence[ByteRange],
    leaf: LeafColumn,
) -> PageRun:
    """Parse the page indexes of many chunks of a column, checked together.

    ``bodies`` are the column index and the offset index of each. Raises :class:`BadPageIndex` if one is bad
    or just unusual: then parse each alone with ``parse_page_index``.
    """
    locations: list[tuple[int | None, int | None, int | None]] = []
    counted: list[int] = []
    for (_, body), chunk in zip(bodies, chunks, strict=True):
        most = (chunk.stop - chunk.start) // _LEAST_PAGE
        pages = _decode(RawOffsetIndex, body, "offset index", most).page_locations or ()
        locations += [(page.first_row_index, page.offset, page.compressed_page_size) for page in pages]
        counted.append(len(pages))
    first_rows, offsets, sizes = _table(locations)
    counts = np.array(counted, dtype=np.int64)
    starts, stops = (np.array([getattr(c, end) for c in chunks], dtype=np.int64) for end in ("start", "stop"))
    row_counts = _check_run(counts, first_rows, offsets, sizes, rows, starts, stops)
    count = len(first_rows)
    no_nulls = np.zeros(count, dtype=np.bool_)
    if all(bounds is None for bounds, _ in bodies):
        return PageRun(counts, row_counts, first_rows, offsets, sizes, False, no_nulls, [], [], None, None)
    levels = max(leaf.max_repetition, leaf.max_definition) + 1
    raws = [
        _decode(RawColumnIndex, bounds or b"", "column index", pages * levels)
        for (bounds, _), pages in zip(bodies, counted, strict=True)
    ]
    blank: list[bool] = _all_lists(raws, counted, "null_pages")
    null_pages = np.array(blank, dtype=np.bool_)
    null_counts, nan_counts = (
        None if all(getattr(raw, name) is None for raw in raws) else _all_counts(raws, counted, name)
        for name in ("null_counts", "nan_counts")
    )
    if null_counts is not None:
        _check_nulls(null_pages, null_counts, row_counts, leaf.max_repetition == 0)
    low, high = (_all_lists(raws, counted, name) for name in ("min_values", "max_values"))
    return PageRun(
        counts, row_counts, first_rows, offsets, sizes, True, null_pages, low, high, null_counts, nan_counts
    )


def _check_run(
    counts: NDArray[np.int64],
    first_rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int64],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the rows of each page; like ``_check_pages``, but also refuses empty pages and gaps."""
    if not len(counts) or (counts == 0).any():
        raise BadPageIndex("chunk has no pages")
    lasts = np.cumsum(counts) - 1
    firsts = lasts - counts + 1
    ends = np.repeat(stops, counts)
    if (first_rows[firsts] != 0).any() or (sizes <= 0).any() or (offsets[firsts] < starts).any():
        raise BadPageIndex("page has an invalid row, size or offset")
    # No overflow: sizes have 32 bits, and offsets are checked against the chunk's end first.
    if (offsets > ends).any() or (offsets + sizes > ends).any():
        raise BadPageIndex("page is outside its column chunk")
    after = np.empty_like(first_rows)
    after[:-1] = first_rows[1:]
    after[lasts] = rows
    row_counts = after - first_rows
    follows = offsets[:-1] + sizes[:-1] == offsets[1:]
    follows[lasts[:-1]] = True
    if (row_counts <= 0).any() or not follows.all():
        raise BadPageIndex("pages are empty, overlap or have gaps")
    return row_counts


def _all_lists(raws: Sequence[RawColumnIndex], counts: Sequence[int], name: str) -> list[Any]:
    """Concatenate one list of all column indexes."""
    lists = [getattr(raw, name) for raw in raws]
    if any(values is None for values in lists) or [*map(len, lists)] != counts:
        raise BadPageIndex(f"{name} of a column index is missing or has another length than its pages")
    return [*chain.from_iterable(lists)]


def _all_counts(raws: Sequence[RawColumnIndex], counts: Sequence[int], name: str) -> NDArray[np.int64]:
    values = np.array(_all_lists(raws, counts, name), dtype=np.int64)
    if (values < 0).any():
        raise BadPageIndex(f"{name} of a column index has unknown counts")
    return values


def page_index_ranges(
    metadata: ParquetMetadata, row_group: int, leaf: int
) -> tuple[ByteRange | None, ByteRange | None]:
    """Return the byte ranges of a chunk's column index and offset index; None if there is no readable one."""
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
    """Decode and check the page index of one chunk; without a column index it has no statistics."""
    rows = int(metadata.row_group_rows[row_group])
    chunk = metadata.chunk_range(row_group, leaf)
    first_rows, offsets, sizes = _pages(offset_index, chunk.length // _LEAST_PAGE)
    _check_pages(first_rows, offsets, sizes, rows, chunk)
    empty = PageIndex.without_statistics(rows, first_rows, offsets, sizes)
    if column_index is None:
        return empty
    column = metadata.leaves[leaf]
    # Histograms, which are not used, have an element per page and level.
    most = len(empty) * (max(column.max_repetition, column.max_definition) + 1)
    raw = _decode(RawColumnIndex, column_index, "column index", most)
    return _with_statistics(empty, raw, flat=column.max_repetition == 0)


def _pages(data: bytes, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    pages = _decode(RawOffsetIndex, data, "offset index", most).page_locations
    if pages is None:
        raise BadPageIndex("offset index has no pages")
    return _table([(page.first_row_index, page.offset, page.compressed_page_size) for page in pages])


def _table(
    locations: Sequence[tuple[int | None, int | None, int | None]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    try:
        table = np.array(locations, dtype=np.int64).reshape(-1, 3)
    except TypeError:
        # A missing field is None.
        raise BadPageIndex("page location lacks a field") from None
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
            raise BadPageIndex(f"chunk has no pages for {rows} rows")
        return
    if first_rows[0] != 0:
        raise BadPageIndex(f"first page begins at row {first_rows[0]}")
    if (first_rows[1:] < first_rows[:-1]).any():
        raise BadPageIndex("first rows of pages are not in order")
    # The last page may have no rows, so its first row may be the row count.
    if first_rows[-1] > rows or (rows and first_rows[-1] == rows and len(first_rows) == 1):
        raise BadPageIndex(f"page begins at row {first_rows[-1]} of {rows}")
    if (sizes <= 0).any():
        raise BadPageIndex("page has no bytes")
    if offsets[0] < chunk.start or (offsets > chunk.stop).any():
        raise BadPageIndex("page is outside its column chunk")
    # No overflow: both are below 2**63, and the offsets are inside the chunk.
    stops = offsets + sizes
    if stops.max() > chunk.stop:
        raise BadPageIndex("page ends outside its column chunk")
    if (offsets[1:] < stops[:-1]).any():
        raise BadPageIndex("pages overlap or are out of order")


def _with_statistics(index: PageIndex, raw: RawColumnIndex, flat: bool) -> PageIndex:
    if raw.null_pages is None or raw.min_values is None or raw.max_values is None:
        raise BadPageIndex("column index lacks a required list")
    lists: tuple[list[Any] | None, ...] = (
        raw.null_pages,
        raw.min_values,
        raw.max_values,
        raw.null_counts,
        raw.nan_counts,
    )
    if any(values is not None and len(values) != len(index) for values in lists):
        raise BadPageIndex(f"a list of the column index does not have {len(index)} elements, one per page")
    null_pages = np.array(raw.null_pages, dtype=np.bool_)
    null_counts = _counts(raw.null_counts)
    if null_counts is not None:
        _check_nulls(null_pages, null_counts, index.row_counts, flat)
    valid = raw.boundary_order in (0, 1, 2)
    return replace(
        index,
        has_statistics=True,
        null_pages=null_pages,
        min_values=raw.min_values,
        max_values=raw.max_values,
        null_counts=null_counts,
        nan_counts=_counts(raw.nan_counts),
        boundary_order=BoundaryOrder(raw.boundary_order or 0) if valid else BoundaryOrder.UNORDERED,
    )


def _check_nulls(
    null_pages: NDArray[np.bool_], null_counts: NDArray[np.int64], rows: NDArray[np.int64], flat: bool
) -> None:
    # parquet-java#3457: such a writer has mixed up its pages, so the entire index is unreliable.
    # A page without rows is a null page without nulls, which is no contradiction.
    if (null_pages & (null_counts == 0) & (rows > 0)).any():
        raise BadPageIndex("null page has no nulls")
    # Null counts of repeated leaves count values, not rows: only flat columns can be compared.
    if flat and (null_counts > rows).any():
        raise BadPageIndex("page has more nulls than rows")
    if flat and (null_pages & (null_counts != rows)).any():
        raise BadPageIndex("null page has fewer nulls than rows")


def _counts(values: list[int] | None) -> NDArray[np.int64] | None:
    if values is None:
        return None
    counts = np.array(values, dtype=np.int64)
    # Some writers use -1 for unknown counts (arrow-rs#9481).
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


# -- pages without a page index ----------------------------------------------------------------


_DATA_PAGE: Final = 0
_INDEX_PAGE: Final = 1
_DICTIONARY_PAGE: Final = 2
_DATA_PAGE_V2: Final = 3
# Nearly all headers fit the first size; one with long statistics is read again.
_HEADERS: Final = (256, 16 * 1024, 2**31)


def walk_pages(chunk: bytes, metadata: ParquetMetadata, group: int, leaf: int) -> PageIndex:
    """Return the offsets and rows of a chunk's data pages from the chunk's bytes.

    Raises :class:`BadPageIndex` for all inconsistencies, and for repeated leaves in version 1 pages, which
    have no row counts. ``chunk`` may extend beyond the chunk's end: some old writers understate its length
    (PARQUET-816).
    """
    span = metadata.chunk_range(group, leaf)
    if metadata.chunks(leaf)[group].num_values and len(chunk) < span.length:
        raise BadPageIndex(f"chunk has {len(chunk)} of {span.length} bytes")
    steps = walk_steps(metadata, group, leaf, span.start + len(chunk))
    return drive(steps, lambda wanted: chunk[wanted.start - span.start : wanted.stop - span.start])


def hop_pages(
    metadata: ParquetMetadata,
    chunks: Iterable[tuple[int, int]],
    read: Callable[[Sequence[ByteRange]], list[bytes]],
) -> dict[tuple[int, int], PageIndex]:
    """Return the page offsets of several chunks (row group and leaf) by reading only page headers.

    Chunks whose pages can't be determined are omitted.
    """
    indexes: dict[tuple[int, int], PageIndex] = {}
    walks = {key: walk_steps(metadata, *key, metadata.chunk_range(*key).stop) for key in chunks}
    bodies: dict[tuple[int, int], bytes | None] = dict.fromkeys(walks)
    while bodies:
        wanted: dict[tuple[int, int], ByteRange] = {}
        for key, body in bodies.items():
            try:
                wanted[key] = next(walks[key]) if body is None else walks[key].send(body)
            except StopIteration as done:
                indexes[key] = done.value
            except BadPageIndex:
                continue
        bodies = dict(zip(wanted, read(list(wanted.values())), strict=True)) if wanted else {}
    return indexes


def walk_steps(
    metadata: ParquetMetadata, group: int, leaf: int, end: int
) -> Generator[ByteRange, bytes, PageIndex]:
    """Walk the pages of a chunk up to ``end``: yields the range of the next header and is sent its bytes."""
    if metadata.is_encrypted(group, leaf):
        raise BadPageIndex("chunk is encrypted")
    rows = int(metadata.row_group_rows[group])
    values = metadata.chunks(leaf)[group].num_values
    flat = metadata.leaves[leaf].max_repetition == 0
    span = metadata.chunk_range(group, leaf)
    if not values:
        # Some writers record no offset for a chunk without values.
        return _index(rows, [])
    # First row, offset and size of each page.
    pages: list[tuple[int, int, int]] = []
    at, seen_rows, seen_values = span.start, 0, 0
    while at < span.stop or seen_values < values:
        head, size = yield from _header(at, end)
        if head.type == _DICTIONARY_PAGE and pages:
            raise BadPageIndex("dictionary page follows data pages")
        if head.type not in (_DICTIONARY_PAGE, _INDEX_PAGE):
            page_values, page_rows = _value_counts(head, flat)
            pages.append((seen_rows, at, size))
            seen_rows += page_rows
            seen_values += page_values
        at += size
    if (seen_rows, seen_values) != (rows, values):
        raise BadPageIndex(
            f"pages have {seen_rows} rows and {seen_values} values, but the chunk has {rows} and {values}"
        )
    return _index(rows, pages)


def _index(rows: int, pages: list[tuple[int, int, int]]) -> PageIndex:
    first_rows, offsets, sizes = np.array(pages, dtype=np.int64).reshape(-1, 3).T.copy()
    return PageIndex.without_statistics(rows, first_rows, offsets, sizes)


def _header(at: int, end: int) -> Generator[ByteRange, bytes, tuple[PageHead, int]]:
    """Return the page header at an offset, and the total bytes of header and page."""
    if at >= end:
        raise BadPageIndex("chunk ends before its last value")
    for longest in _HEADERS:
        stop = min(at + longest, end)
        piece = yield ByteRange(at, stop)
        try:
            head, length = decode_prefix(PageHead, piece, "page header")
            break
        except CorruptFileError as error:
            if stop == end:
                raise BadPageIndex(error.message) from error
    else:
        raise BadPageIndex("page header is too long")
    body = head.compressed_page_size
    if body is None or not 0 <= body <= end - at - length:
        raise BadPageIndex(f"page size is {body} bytes, but {end - at - length} are left")
    return head, length + body


def _value_counts(head: PageHead, flat: bool) -> tuple[int, int]:
    """Values and rows of a data page."""
    v1, v2 = head.data_page_header, head.data_page_header_v2
    if head.type == _DATA_PAGE and v1 is not None:
        if not flat:
            raise BadPageIndex("version 1 pages of repeated columns have no row counts")
        values = rows = v1.num_values
    elif head.type == _DATA_PAGE_V2 and v2 is not None:
        values, rows = v2.num_values, v2.num_rows
    else:
        raise BadPageIndex(f"page has type {head.type} instead of a data page")
    # Every row has at least one value, NULLs included; in flat columns exactly one.
    if values is None or rows is None or not 0 <= rows <= values or (flat and rows != values):
        raise BadPageIndex(f"page has {values} values for {rows} rows")
    return values, rows
