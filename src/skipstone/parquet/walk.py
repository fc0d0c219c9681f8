"""Where the pages of a chunk are when no page index says so: its page headers, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final

import numpy as np

from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.page_structs import PageHead
from skipstone.parquet.pageindex import BadPageIndex, PageIndex
from skipstone.parquet.wire import decode_prefix
from skipstone.store.ranges import ByteRange
from skipstone.store.steps import drive

_DATA_PAGE: Final = 0
_INDEX_PAGE: Final = 1
_DICTIONARY_PAGE: Final = 2
_DATA_PAGE_V2: Final = 3
# Nearly all headers fit the first; one with long statistics is read again from more bytes.
_HEADERS: Final = (256, 16 * 1024, 2**31)


def walk_pages(chunk: bytes, metadata: ParquetMetadata, group: int, leaf: int) -> PageIndex:
    """The places and rows of a chunk's data pages, without statistics, from all of the chunk's bytes.

    Raises :class:`BadPageIndex` for everything doubtful, and for repeated leaves in pages of the first
    version, which don't count their rows. ``chunk`` may go on after the chunk's end: some old writers
    understate its length (PARQUET-816).
    """
    span = metadata.chunk_range(group, leaf)
    if metadata.chunks(leaf)[group].num_values and len(chunk) < span.length:
        raise BadPageIndex(f"the chunk has {len(chunk)} of {span.length} bytes")
    steps = walk_steps(metadata, group, leaf, span.start + len(chunk))
    return drive(steps, lambda wanted: chunk[wanted.start - span.start : wanted.stop - span.start])


def hop_pages(
    metadata: ParquetMetadata,
    chunks: Iterable[tuple[int, int]],
    read: Callable[[Sequence[ByteRange]], list[bytes]],
) -> dict[tuple[int, int], PageIndex]:
    """The same of several chunks (row group and leaf), of which just the headers are read, side by side.

    Chunks whose pages can't be told are left out.
    """
    found: dict[tuple[int, int], PageIndex] = {}
    walks = {key: walk_steps(metadata, *key, metadata.chunk_range(*key).stop) for key in chunks}
    bodies: dict[tuple[int, int], bytes | None] = dict.fromkeys(walks)
    while bodies:
        wanted: dict[tuple[int, int], ByteRange] = {}
        for key, body in bodies.items():
            try:
                wanted[key] = next(walks[key]) if body is None else walks[key].send(body)
            except StopIteration as done:
                found[key] = done.value
            except BadPageIndex:
                continue
        bodies = dict(zip(wanted, read(list(wanted.values())), strict=True)) if wanted else {}
    return found


def walk_steps(
    metadata: ParquetMetadata, group: int, leaf: int, end: int
) -> Generator[ByteRange, bytes, PageIndex]:
    """A walk that yields where the next header is and is sent its bytes; ``end`` is where they end."""
    if metadata.is_encrypted(group, leaf):
        raise BadPageIndex("the chunk is encrypted")
    rows = int(metadata.row_group_rows[group])
    values = metadata.chunks(leaf)[group].num_values
    flat = metadata.leaves[leaf].max_repetition == 0
    span = metadata.chunk_range(group, leaf)
    if not values:
        # Some writers give a chunk without values no place at all.
        return _index(rows, [])
    # First row, offset and size of each page; page by page, since each header has to be decoded.
    pages: list[tuple[int, int, int]] = []
    at, seen_rows, seen_values = span.start, 0, 0
    while at < span.stop or seen_values < values:
        head, size = yield from _header(at, end)
        if head.type == _DICTIONARY_PAGE and pages:
            raise BadPageIndex("a dictionary page after data pages")
        if head.type not in (_DICTIONARY_PAGE, _INDEX_PAGE):
            page_values, page_rows = _counts(head, flat)
            pages.append((seen_rows, at, size))
            seen_rows += page_rows
            seen_values += page_values
        at += size
    if (seen_rows, seen_values) != (rows, values):
        raise BadPageIndex(
            f"the pages hold {seen_rows} rows and {seen_values} values, the chunk {rows} and {values}"
        )
    return _index(rows, pages)


def _index(rows: int, pages: list[tuple[int, int, int]]) -> PageIndex:
    first_rows, offsets, sizes = np.array(pages, dtype=np.int64).reshape(-1, 3).T.copy()
    return PageIndex.places(rows, first_rows, offsets, sizes)


def _header(at: int, end: int) -> Generator[ByteRange, bytes, tuple[PageHead, int]]:
    """The page header at a place, and the bytes of the header and the page together."""
    if at >= end:
        raise BadPageIndex("the chunk ends before its last value")
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
        raise BadPageIndex("a page header without end")
    body = head.compressed_page_size
    if body is None or not 0 <= body <= end - at - length:
        raise BadPageIndex(f"a page of {body} bytes where {end - at - length} are left")
    return head, length + body


def _counts(head: PageHead, flat: bool) -> tuple[int, int]:
    """Values and rows of a data page."""
    v1, v2 = head.data_page_header, head.data_page_header_v2
    if head.type == _DATA_PAGE and v1 is not None:
        if not flat:
            raise BadPageIndex("pages of the first version don't count the rows of repeated values")
        values = rows = v1.num_values
    elif head.type == _DATA_PAGE_V2 and v2 is not None:
        values, rows = v2.num_values, v2.num_rows
    else:
        raise BadPageIndex(f"a page of type {head.type} where data should be")
    # Every row has a value or what stands for a missing one; in flat columns just one.
    if values is None or rows is None or not 0 <= rows <= values or (flat and rows != values):
        raise BadPageIndex(f"a page of {values} values in {rows} rows")
    return values, rows
