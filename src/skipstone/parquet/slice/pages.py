"""The pages of a row group that contain some rows of some leaves.

First, the byte ranges to read: selected pages, dictionary pages, whole chunks. Then, checks of the bytes:
whether page headers agree with the page index, and whether pages need the dictionary.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

import numpy as np

from skipstone.core.rows.rowset import RowSet
from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import PageIndex
from skipstone.parquet.slice.projection import SliceShape, shape_of
from skipstone.parquet.structs import PageHead
from skipstone.parquet.wire import decode_prefix
from skipstone.store.source import ByteRange, range_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Interval = tuple[int, int]


DICTIONARY_ENCODINGS: Final = (2, 8)
_PLAIN_DICTIONARY: Final = 2
# Encodings of levels, not of values: RLE and BIT_PACKED.
_LEVELS: Final = frozenset({3, 4})
_DATA_PAGES: Final = (0, 3)
# A dictionary that may be needed is read at once up to this size: reading on takes an object store less than
# a millisecond, another request tens of them.
SMALL_DICTIONARY: Final = 512 * 1024
# parquet-mr up to 1.2.8 left the dictionary's header out of a chunk's size (PARQUET-816).
_SHORT_CHUNKS_UNTIL: Final = (1, 2, 9)
_LONGEST_HEADER: Final = 100


class Use(Enum):
    """Which data pages of a chunk need its dictionary page."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


class PageSelection(NamedTuple):
    """Pages that contain some rows, as intervals of page numbers, and their rows as intervals.

    The intervals of rows distinguish columns with different rows.
    """

    pages: tuple[Interval, ...]
    rows: tuple[Interval, ...]
    held: int
    """Number of rows."""


class Borders:
    """The first rows of pages, which are the same for all columns of most row groups."""

    __slots__ = ("count", "first_rows", "has_empty", "rows")

    def __init__(self, first_rows: NDArray[np.int64], rows: list[int]) -> None:
        self.first_rows = first_rows
        self.count = first_rows.size
        self.rows = rows
        """The first row of each page, and the number of rows."""
        # pyarrow treats a page without rows as the end of the chunk.
        self.has_empty = bool(np.logical_or.reduce(first_rows[1:] == first_rows[:-1]))

    def choose(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> PageSelection | None:
        """Return the pages with rows of these runs; None for all pages."""
        # Of pages that begin at the same row only the last has rows.
        at = self.rows
        if len(starts) == 1:
            first = bisect_right(at, starts.item(0), 0, self.count) - 1
            last = bisect_left(at, stops.item(0), 0, self.count)
            if first == 0 and last == self.count and not self.has_empty:
                return None
            return PageSelection(((first, last),), ((at[first], at[last]),), at[last] - at[first])
        firsts = self.first_rows.searchsorted(starts, "right") - 1
        lasts = self.first_rows.searchsorted(stops, "left")
        apart = firsts[1:] > lasts[:-1]
        pages = tuple(
            zip(
                firsts[np.concatenate(([True], apart))].tolist(),
                lasts[np.concatenate((apart, [True]))].tolist(),
                strict=True,
            )
        )
        if pages[0] == (0, self.count) and not self.has_empty:
            return None
        rows = tuple([(at[first], at[last]) for first, last in pages])
        return PageSelection(pages, rows, sum([stop - start for start, stop in rows]))


@dataclass(slots=True, eq=False)
class ChunkPages:
    """One chunk: its byte range and its pages; without ``borders`` it is read in full.

    ``dictionary`` is the byte range of the dictionary page, if any; ``fetched`` if the first round reads it,
    before the data.
    """

    leaf: int
    whole: ByteRange
    codec: int
    borders: Borders | None = None
    offsets: Sequence[int] = ()
    sizes: Sequence[int] = ()
    contiguous: bool = True
    dictionary: ByteRange | None = None
    fetched: bool = False


class LeafPlan:
    """The ranges to read for one leaf; without ``chosen`` pages the whole chunk, in one range.

    Range ``i`` of the data has the pages of ``spans[i]``.
    """

    __slots__ = ("chosen", "chunk", "leaf", "ranges", "spans")

    def __init__(
        self,
        chunk: ChunkPages,
        chosen: PageSelection | None,
        ranges: list[ByteRange],
        spans: Sequence[Interval] = (),
    ) -> None:
        self.leaf, self.chunk, self.chosen, self.ranges, self.spans = chunk.leaf, chunk, chosen, ranges, spans


def slice_ranges(
    metadata: ParquetMetadata,
    group: int,
    leaves: Iterable[int],
    rows: RowSet,
    indexes: Mapping[int, PageIndex | None],
) -> list[ByteRange]:
    """Return the first ranges that ``slice_steps`` yields, in the order of the leaves."""
    plans = plan_leaves(chunk_pages(metadata, group, leaves, indexes), rows)
    return [span for plan in plans for span in plan.ranges]


def chunk_pages(
    metadata: ParquetMetadata,
    group: int,
    leaves: Iterable[int],
    indexes: Mapping[int, PageIndex | None],
) -> tuple[ChunkPages, ...]:
    """Return the byte ranges and pages of the chunks of these leaves."""
    shape = shape_of(metadata)
    if shape is None:
        # The schema can't be split into fields, so the row group is read in full.
        wanted, together, indexes = list(range(len(metadata.leaves))), set(), {}
    else:
        wanted = list(leaves)
        together = _read_together(shape, wanted)
    wholes = _whole_chunks(metadata, group, wanted)
    paged = [index for leaf in wanted if (index := indexes.get(leaf)) is not None and leaf not in together]
    # All at once, as lists: on short arrays calls cost more than work.
    all_rows, all_offsets, all_sizes, follows = _joined(paged)
    # Most writers begin the pages of all columns at the same rows.
    every_borders: list[Borders] = []
    chunks: list[ChunkPages] = []
    at = 0
    for leaf, (whole, codec, recorded_use) in zip(wanted, wholes, strict=True):
        index = None if leaf in together else indexes.get(leaf)
        count = 0 if index is None else index.first_rows.size
        if index is None or not count:
            chunks += (ChunkPages(leaf, whole, codec),)
            continue
        end = at + count
        rows, offsets, sizes = [*all_rows[at:end], index.rows], all_offsets[at:end], all_sizes[at:end]
        contiguous = False not in follows[at + 1 : end]
        at = end
        for borders in every_borders:
            if borders.rows == rows:
                break
        else:
            borders = Borders(index.first_rows, rows)
            every_borders += (borders,)
        # Everything before the first data page: not every writer declares its dictionary page.
        dictionary, fetched = None, False
        if offsets[0] > whole.start:
            dictionary = range_of((whole.start, offsets[0]))
            use = recorded_use or dictionary_use(metadata, group, leaf)
            fetched = use is Use.ALL or (use is Use.SOME and offsets[0] - whole.start <= SMALL_DICTIONARY)
        chunks += (ChunkPages(leaf, whole, codec, borders, offsets, sizes, contiguous, dictionary, fetched),)
    return tuple(chunks)


def _whole_chunks(
    metadata: ParquetMetadata, group: int, leaves: Sequence[int]
) -> list[tuple[ByteRange, int, Use | None]]:
    """Return the byte ranges of chunks, their codecs and, if recorded, their dictionary use."""
    layouts = metadata.chunk_layouts(group, leaves)
    writer, size = metadata.schema_group.writer, metadata.size
    if writer.application != "parquet-mr" or not () < writer.version < _SHORT_CHUNKS_UNTIL or not size:
        return layouts
    return [
        (ByteRange(whole.start, min(whole.stop + _LONGEST_HEADER, size)), codec, use)
        for whole, codec, use in layouts
    ]


def _joined(indexes: Sequence[PageIndex]) -> tuple[list[int], list[int], list[int], list[bool]]:
    """Return first rows, offsets and sizes of the pages of chunks, and whether each follows the previous."""
    if not indexes:
        return [], [], [], []
    first_rows = np.concatenate([index.first_rows for index in indexes])
    offsets = np.concatenate([index.offsets for index in indexes])
    sizes = np.concatenate([index.sizes for index in indexes])
    follows = [False, *(offsets[1:] == offsets[:-1] + sizes[:-1]).tolist()]
    return first_rows.tolist(), offsets.tolist(), sizes.tolist(), follows


def plan_leaves(chunks: Sequence[ChunkPages], rows: RowSet) -> list[LeafPlan]:
    """Return one plan per chunk, in their order."""
    starts, stops = rows.runs()
    # Most writers begin the pages of all columns at the same rows.
    known: dict[Borders, PageSelection | None] = {}
    # += on lists instead of append(): this runs for every column of every row group, and saves a call.
    plans: list[LeafPlan] = []
    for chunk in chunks:
        borders = chunk.borders
        if borders is None:
            plans += (LeafPlan(chunk, None, [chunk.whole]),)
            continue
        if borders in known:
            chosen = known[borders]
        else:
            chosen = known[borders] = borders.choose(starts, stops)
        if chosen is None:
            plans += (LeafPlan(chunk, None, [chunk.whole]),)
            continue
        offsets, sizes = chunk.offsets, chunk.sizes
        spans = chosen.pages if chunk.contiguous else _side_by_side(chunk, chosen.pages)
        ranges = [chunk.dictionary] if chunk.fetched and chunk.dictionary is not None else []
        for first, last in spans:
            ranges += (range_of((offsets[first], offsets[last - 1] + sizes[last - 1])),)
        plans += (LeafPlan(chunk, chosen, ranges, spans),)
    return plans


def _side_by_side(chunk: ChunkPages, pages: Iterable[Interval]) -> list[Interval]:
    """Split intervals of pages at gaps between pages."""
    found = []
    for first, last in pages:
        start = first
        for page in range(first + 1, last):
            if chunk.offsets[page] != chunk.offsets[page - 1] + chunk.sizes[page - 1]:
                found.append((start, page))
                start = page
        found.append((start, last))
    return found


def _read_together(shape: SliceShape, leaves: Sequence[int]) -> set[int]:
    """Return the leaves of fields that must be read together, because their rows could differ."""
    owners = [shape.owners[leaf] for leaf in leaves]
    if len(set(owners)) == len(owners):
        return set()
    bound = {owner for owner in owners if not shape.fields[owner].mergeable and owners.count(owner) > 1}
    return {leaf for leaf, owner in zip(leaves, owners, strict=True) if owner in bound}


def dictionary_use(metadata: ParquetMetadata, group: int, leaf: int) -> Use:
    """Return a chunk's dictionary use, from its encoding statistics or its list of encodings."""
    try:
        details = metadata._detail(group, leaf)
    except CorruptFileError:
        return Use.SOME
    stats = details.encoding_stats if details is not None else None
    if stats:
        pages = [entry for entry in stats if entry.page_type in _DATA_PAGES and entry.count != 0]
        coded = sum(entry.encoding in DICTIONARY_ENCODINGS for entry in pages)
        if pages:
            return Use.NONE if not coded else Use.ALL if coded == len(pages) else Use.SOME
    encodings = set(details.encodings or ()) if details is not None else set()
    if not encodings:
        return Use.SOME
    if encodings.isdisjoint(DICTIONARY_ENCODINGS):
        return Use.NONE
    # Writers of the old encoding list it for the dictionary page too, so PLAIN means a data page.
    return Use.ALL if encodings - _LEVELS == {_PLAIN_DICTIONARY} else Use.SOME


# -- headers of chosen pages --------------------------------------------------------------------

_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
_DATA_PAGE_V2: Final = 3
# Nearly all headers are shorter; one with long statistics is parsed again from the entire page.
_HEADER: Final = 256
WITHOUT_INDEX: Final = "pass page_index=False to read the column without its page index"

ELSEWHERE: Final = -1
"""Position of pieces that are not contiguous in the buffer."""

# Thrift's compact protocol.
_TRUE, _FALSE, _I32, _I64, _BINARY, _STRUCT = 1, 2, 5, 6, 8, 12
_LONGEST_VARINT: Final = 63


@dataclass(slots=True, eq=False)
class Chunk:
    """The bytes of one leaf in a slice, and their number of values.

    ``rows`` is the number of rows they must decode to. ``proven`` is false if only decoding can verify that,
    because rows of repeated values are encoded in levels.
    """

    chosen: PageSelection | None
    pieces: Sequence[memoryview]
    values: int
    rows: int
    proven: bool
    size: int
    """Total bytes of the pieces."""
    place: int
    """Position of the pieces in the buffer, if they are contiguous there."""


@final
class Missing(NamedTuple):
    """Ranges for a second round: the dictionary page of ``chunk``, or a whole chunk."""

    plan: LeafPlan
    ranges: list[ByteRange]
    chunk: Chunk | None


class _OddChunk(Exception):
    """Pages with a layout that only a sequential reader supports."""


def open_leaf(
    metadata: ParquetMetadata, group: int, plan: LeafPlan, bodies: Sequence[memoryview], place: int
) -> Chunk | Missing:
    """Check the bytes that the first round read for a leaf, and return the chunk, or what is missing."""
    if plan.chosen is None:
        rows, (body,) = metadata.row_group_rows.item(group), bodies
        values = metadata.chunks(plan.leaf)[group].num_values
        return Chunk(None, bodies, values, rows, True, len(body), place)
    try:
        return _open_pages(metadata, group, plan, plan.chosen, bodies, place)
    except _OddChunk:
        return _whole(plan.chunk)


def complete(
    metadata: ParquetMetadata, group: int, missing: Missing, bodies: Sequence[memoryview]
) -> Chunk | Missing:
    """Combine the bytes of both rounds; an invalid dictionary page requires the whole chunk."""
    chunk = missing.chunk
    if chunk is None:
        return open_leaf(metadata, group, missing.plan, bodies, ELSEWHERE)
    try:
        dictionary = _dictionary(bodies[0], len(bodies[0]))
        pieces, size = [dictionary, *chunk.pieces], chunk.size + len(dictionary)
        return replace(chunk, pieces=pieces, size=size, place=ELSEWHERE)
    except _OddChunk:
        return _whole(missing.plan.chunk)


def _whole(chunk: ChunkPages) -> Missing:
    return Missing(LeafPlan(chunk, None, [chunk.whole]), [chunk.whole], None)


def _open_pages(
    metadata: ParquetMetadata,
    group: int,
    plan: LeafPlan,
    chosen: PageSelection,
    bodies: Sequence[memoryview],
    place: int,
) -> Chunk | Missing:
    chunk, leaf = plan.chunk, plan.leaf
    assert chunk.borders is not None
    offsets, sizes, first_rows = chunk.offsets, chunk.sizes, chunk.borders.rows
    flat = metadata.schema_group.leaves[leaf].max_repetition == 0
    data = bodies[1:] if chunk.fetched else bodies
    values = total = 0
    coded = False
    empty: list[tuple[int, int, int]] = []
    # Page by page: each header must be decoded.
    for number, (first, last) in enumerate(plan.spans):
        body, start = data[number], offsets[first]
        for page in range(first, last):
            at, size = offsets[page] - start, sizes[page]
            count, rows, encoding = _data_page(metadata, group, leaf, body, at, size)
            expected = first_rows[page + 1] - first_rows[page]
            if flat and rows is None:
                rows = count
            if rows is not None and (rows != expected or (flat and count != expected)):
                message = f"page {page} has {rows} rows, but its page index records {expected}"
                raise _bad_index(metadata, group, leaf, message)
            if not count:
                empty.append((number, at, size))
            else:
                total += size
            values += count
            coded = coded or encoding in DICTIONARY_ENCODINGS
    if empty:
        data, place = _without(data, empty), ELSEWHERE
    if chunk.fetched and chunk.dictionary is not None:
        start, stop = chunk.dictionary
        if coded:
            dictionary = _dictionary(bodies[0], stop - start)
            data = [dictionary, *data]
            if dictionary is bodies[0]:
                total += stop - start
            else:
                total, place = total + len(dictionary), ELSEWHERE
        elif place != ELSEWHERE:
            place += stop - start
    found = Chunk(chosen, data, values, chosen.held, flat, total, place)
    if not coded or chunk.fetched:
        return found
    if chunk.dictionary is None:
        raise _OddChunk
    return Missing(plan, [chunk.dictionary], found)


def _without(bodies: Sequence[memoryview], empty: list[tuple[int, int, int]]) -> list[memoryview]:
    """Remove pages without values, which pyarrow would treat as the end of the chunk."""
    pieces = []
    for place, body in enumerate(bodies):
        last = 0
        for at, size in ((at, size) for owner, at, size in empty if owner == place):
            pieces.append(body[last:at])
            last = at + size
        pieces.append(body[last:])
    return pieces


# Kind, compressed bytes, values (None for other than data pages), rows if the page has them, encoding, and
# bytes of the header itself. A plain tuple, because one is created for every page read.
Head: TypeAlias = tuple[int | None, int | None, int | None, int | None, int | None, int]


def _data_page(
    metadata: ParquetMetadata, group: int, leaf: int, body: memoryview, at: int, size: int
) -> tuple[int, int | None, int | None]:
    """Return the values, the rows if the page has them, and the encoding of a data page."""
    found = page_head(body, at, at + size)
    if found is None:
        try:
            found = _thrift_head(body, at, at + size)
        except CorruptFileError as error:
            raise _bad_index(metadata, group, leaf, error.message) from error
    kind, compressed, count, rows, encoding, length = found
    if kind == _DICTIONARY_PAGE:
        raise _OddChunk
    if compressed is None or length + compressed != size:
        message = f"page has {length} + {compressed} bytes, but its page index records {size}"
        raise _bad_index(metadata, group, leaf, message)
    if count is None:
        raise _bad_index(metadata, group, leaf, f"page has type {kind} instead of a data page")
    return count, rows, encoding


def page_head(data: memoryview, at: int, stop: int) -> Head | None:  # noqa: C901
    """Parse a page header in the layout of all known writers; None if only Thrift can parse it.

    Field by field without calls, because this runs for every page read.
    """
    kind = compressed = values = rows = encoding = None
    depth = field = top = inner = 0
    position = at
    try:
        while True:
            byte = data[position]
            position += 1
            if not byte:
                if not depth:
                    break
                depth -= 1
                field = inner if depth else top
                continue
            step, wire = byte >> 4, byte & 0x0F
            if not step:
                return None
            field += step
            if wire == _STRUCT:
                if depth == 0:
                    top = field
                elif depth == 1:
                    inner = field
                else:
                    return None
                depth += 1
                field = 0
                continue
            if wire in (_TRUE, _FALSE):
                continue
            if wire not in (_I32, _I64, _BINARY):
                return None
            value = shift = 0
            byte = 0x80
            while byte > 0x7F:
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > _LONGEST_VARINT:
                    return None
            if wire == _BINARY:
                position += value
                continue
            if depth > 1:
                continue
            if wire != _I32 or value >> 32:
                return None
            value = value >> 1 ^ -(value & 1)
            if depth == 0:
                if field == 1:
                    kind = value
                elif field == 3:
                    compressed = value
            elif kind == _DATA_PAGE and top == 5:
                if field == 1:
                    values = value
                elif field == 2:
                    encoding = value
            elif kind == _DATA_PAGE_V2 and top == 8:
                if field == 1:
                    values = value
                elif field == 3:
                    rows = value
                elif field == 4:
                    encoding = value
    except IndexError:
        return None
    if position > stop or (values is not None and values < 0):
        return None
    return kind, compressed, values, rows, encoding, position - at


def _thrift_head(body: memoryview, at: int, stop: int) -> Head:
    try:
        head, length = decode_prefix(PageHead, bytes(body[at : min(at + _HEADER, stop)]), "page header")
    except CorruptFileError:
        if stop - at <= _HEADER:
            raise
        head, length = decode_prefix(PageHead, bytes(body[at:stop]), "page header")
    v1, v2 = head.data_page_header, head.data_page_header_v2
    values = rows = encoding = None
    if head.type == _DATA_PAGE and v1 is not None:
        values, encoding = v1.num_values, v1.encoding
    elif head.type == _DATA_PAGE_V2 and v2 is not None:
        values, rows, encoding = v2.num_values, v2.num_rows, v2.encoding
    if values is not None and values < 0:
        values = None
    return head.type, head.compressed_page_size, values, rows, encoding, length


def _dictionary(body: memoryview, held: int) -> memoryview:
    """Return the dictionary page in some bytes, without what follows it."""
    try:
        kind, size, _, _, _, length = page_head(body, 0, held) or _thrift_head(body, 0, held)
    except CorruptFileError as error:
        raise _OddChunk from error
    if kind != _DICTIONARY_PAGE or size is None or not 0 <= size <= held - length:
        raise _OddChunk
    return body if length + size == held else body[: length + size]


def _bad_index(metadata: ParquetMetadata, group: int, leaf: int, message: str) -> CorruptFileError:
    return CorruptFileError(
        message,
        path=metadata.path,
        unit=f"row group {group}",
        column=metadata.leaves[leaf].name,
        hint=WITHOUT_INDEX,
    )
