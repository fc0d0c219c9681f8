"""The headers of chosen pages: do they agree with the page index, and do they need the dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.page_structs import PageHead
from skipstone.parquet.slice.plan import DICTIONARY_ENCODINGS, LeafPlan, Pages, whole_chunk
from skipstone.parquet.wire import decode_prefix
from skipstone.store.ranges import ByteRange

_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
_DATA_PAGE_V2: Final = 3
# Nearly all headers are shorter; one with long statistics is read again from the whole page.
_HEADER: Final = 256
WITHOUT_INDEX: Final = "page_index=False reads the column without its page index"


@dataclass(frozen=True, slots=True)
class Chunk:
    """The bytes of one leaf in a slice, and how many values they hold.

    ``rows`` is how many rows they must decode to. ``proven`` is false when only decoding can tell whether
    they do, because repeated values have their rows in levels, whatever a page's header says.
    """

    plan: LeafPlan
    pieces: tuple[bytes, ...]
    values: int
    rows: int
    proven: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """What a second round must bring: the dictionary page of ``chunk``, or another plan's ranges."""

    plan: LeafPlan
    ranges: tuple[ByteRange, ...]
    chunk: Chunk | None


class _OddChunk(Exception):
    """Pages that are laid out in a way that only a sequential reader understands."""


def open_leaf(
    metadata: ParquetMetadata, group: int, plan: LeafPlan, bodies: Sequence[bytes]
) -> Chunk | Missing:
    """Check what the first round brought for a leaf, and say what is still missing."""
    if plan.pages is None:
        rows = int(metadata.row_group_rows[group])
        values = metadata.chunks(plan.leaf)[group].num_values
        return Chunk(plan, tuple(bodies), values, rows, proven=True)
    try:
        return _open_pages(metadata, group, plan, plan.pages, bodies)
    except _OddChunk:
        whole = whole_chunk(metadata, group, plan.leaf)
        return Missing(whole, whole.ranges, None)


def complete(
    metadata: ParquetMetadata, group: int, missing: Missing, bodies: Sequence[bytes]
) -> Chunk | Missing:
    """Put together what both rounds brought; a dictionary that is none asks for the whole chunk."""
    chunk = missing.chunk
    if chunk is None:
        return open_leaf(metadata, group, missing.plan, bodies)
    try:
        dictionary = _dictionary(bodies[0])
    except _OddChunk:
        whole = whole_chunk(metadata, group, missing.plan.leaf)
        return Missing(whole, whole.ranges, None)
    return replace(chunk, pieces=(dictionary, *chunk.pieces))


def _open_pages(
    metadata: ParquetMetadata, group: int, plan: LeafPlan, pages: Pages, bodies: Sequence[bytes]
) -> Chunk | Missing:
    values, coded = 0, False
    flat = metadata.leaves[plan.leaf].max_repetition == 0
    data = tuple(bodies[1:]) if pages.fetched else tuple(bodies)
    places = _places(pages)
    empty: list[tuple[int, int, int]] = []
    # Page by page, since each header has to be decoded.
    for place, (body, first, last) in enumerate(
        zip(data, pages.borders[:-1], pages.borders[1:], strict=True)
    ):
        start = places[first][1]
        for number, offset, size, expected in places[first:last]:
            count, rows, encoding = _header(metadata, group, plan.leaf, body, offset - start, size)
            if flat and rows is None:
                rows = count
            if rows is not None and (rows != expected or (flat and count != expected)):
                message = f"page {number} holds {rows} rows, its page index says {expected}"
                raise _bad_index(metadata, group, plan.leaf, message)
            if not count:
                empty.append((place, offset - start, size))
            values += count
            coded = coded or encoding in DICTIONARY_ENCODINGS
    if empty:
        data = _without(data, empty)
    chunk = Chunk(plan, data, values, sum(place[3] for place in places), proven=flat)
    if not coded:
        return chunk
    if pages.fetched:
        return replace(chunk, pieces=(_dictionary(bodies[0]), *data))
    if pages.dictionary is None:
        raise _OddChunk
    return Missing(plan, (pages.dictionary,), chunk)


def _without(bodies: Sequence[bytes], empty: list[tuple[int, int, int]]) -> tuple[bytes, ...]:
    """The bodies less their pages without values, which pyarrow would take for the end of the chunk."""
    pieces = []
    for place, body in enumerate(bodies):
        last = 0
        for at, size in ((at, size) for owner, at, size in empty if owner == place):
            pieces.append(body[last:at])
            last = at + size
        pieces.append(body[last:])
    return tuple(pieces)


def _places(pages: Pages) -> list[tuple[int, int, int, int]]:
    """Number, offset, size and row count of each chosen page."""
    index, numbers = pages.index, pages.numbers.tolist()
    base, stop = numbers[0], numbers[-1] + 1
    # Lists of the span they lie in: a few slices are faster than picking pages by number.
    first_rows = [*index.first_rows[base : stop + 1].tolist(), index.rows]
    offsets, sizes = index.offsets[base:stop].tolist(), index.sizes[base:stop].tolist()
    if stop - base == 1:
        return [(base, offsets[0], sizes[0], first_rows[1] - first_rows[0])]
    return [
        (number, offsets[at], sizes[at], first_rows[at + 1] - first_rows[at])
        for number, at in ((number, number - base) for number in numbers)
    ]


def _header(
    metadata: ParquetMetadata, group: int, leaf: int, body: bytes, at: int, size: int
) -> tuple[int, int | None, int | None]:
    """Values, rows if the page counts them, and encoding of a data page."""
    stop = at + size
    try:
        try:
            head, length = decode_prefix(PageHead, bytes(body[at : min(at + _HEADER, stop)]), "page header")
        except CorruptFileError:
            if size <= _HEADER:
                raise
            head, length = decode_prefix(PageHead, bytes(body[at:stop]), "page header")
    except CorruptFileError as error:
        raise _bad_index(metadata, group, leaf, error.message) from error
    if head.type == _DICTIONARY_PAGE:
        raise _OddChunk
    if head.compressed_page_size is None or length + head.compressed_page_size != size:
        message = f"a page of {length} + {head.compressed_page_size} bytes, its page index says {size}"
        raise _bad_index(metadata, group, leaf, message)
    found = _counts(head)
    if found[0] < 0:
        raise _bad_index(metadata, group, leaf, f"a page of type {head.type} where data should be")
    return found


def _counts(head: PageHead) -> tuple[int, int | None, int | None]:
    """Values, rows if the page counts them, and encoding; -1 values for what is no data page."""
    v1, v2 = head.data_page_header, head.data_page_header_v2
    if head.type == _DATA_PAGE and v1 is not None and v1.num_values is not None:
        return v1.num_values, None, v1.encoding
    if head.type == _DATA_PAGE_V2 and v2 is not None and v2.num_values is not None:
        return v2.num_values, v2.num_rows, v2.encoding
    return -1, None, None


def _dictionary(body: bytes) -> bytes:
    """The dictionary page without what follows it."""
    try:
        head, length = decode_prefix(PageHead, body, "page header")
    except CorruptFileError as error:
        raise _OddChunk from error
    size = head.compressed_page_size
    if head.type != _DICTIONARY_PAGE or size is None or not 0 <= size <= len(body) - length:
        raise _OddChunk
    return body if length + size == len(body) else body[: length + size]


def _bad_index(metadata: ParquetMetadata, group: int, leaf: int, message: str) -> CorruptFileError:
    return CorruptFileError(
        message,
        path=metadata.path,
        unit=f"row group {group}",
        column=metadata.leaves[leaf].name,
        hint=WITHOUT_INDEX,
    )
