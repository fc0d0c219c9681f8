"""The pages of a row group that hold some rows of some leaves.

First which bytes to read: chosen pages, dictionary pages, whole chunks. Then what came: do the headers of the
pages agree with the page index, and do they need the dictionary.
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
# The encodings of levels, which say nothing about the values: RLE and BIT_PACKED.
_LEVELS: Final = frozenset({3, 4})
_DATA_PAGES: Final = (0, 3)
# A dictionary that may or may not be needed is fetched at once if it is no larger than this: reading on
# costs an object store less than a millisecond, another request tens of them.
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
    """Pages that hold some rows, as intervals of page numbers, and the rows they hold as intervals.

    The second tells columns apart that hold different rows.
    """

    pages: tuple[Interval, ...]
    rows: tuple[Interval, ...]
    held: int
    """How many rows they are."""


class Borders:
    """The rows that pages begin at, the same for all columns of most row groups."""

    __slots__ = ("count", "first_rows", "has_empty", "rows")

    def __init__(self, first_rows: NDArray[np.int64], rows: list[int]) -> None:
        self.first_rows = first_rows
        self.count = first_rows.size
        self.rows = rows
        """The first row of each page, and the number of rows."""
        # To pyarrow a page without rows is the chunk's end.
        self.has_empty = bool(np.logical_or.reduce(first_rows[1:] == first_rows[:-1]))

    def choose(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> PageSelection | None:
        """The pages that hold rows of these runs; None if that is every page."""
        # Of pages that begin at one row the last is the one that has it; the others have no rows.
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
    """One chunk: all its bytes, and where its pages are; without ``borders`` it is read whole.

    ``dictionary`` is where the dictionary page is if there is one, ``fetched`` whether the first round
    brings it, before the data.
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
    """The ranges to read for one leaf; without ``chosen`` pages it is the whole chunk, in one range.

    Range ``i`` of the data holds the pages of ``spans[i]``.
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
    """The ranges that ``slice_steps`` asks for first, in its order if the leaves are in its order."""
    plans = plan_leaves(chunk_pages(metadata, group, leaves, indexes), rows)
    return [span for plan in plans for span in plan.ranges]


def chunk_pages(
    metadata: ParquetMetadata,
    group: int,
    leaves: Iterable[int],
    indexes: Mapping[int, PageIndex | None],
) -> tuple[ChunkPages, ...]:
    """Where everything is in the chunks of these leaves."""
    shape = shape_of(metadata)
    if shape is None:
        # The fields can't be told apart, so the row group is read as it is.
        wanted, together, indexes = list(range(len(metadata.leaves))), set(), {}
    else:
        wanted = list(leaves)
        together = _read_together(shape, wanted)
    wholes = _whole_chunks(metadata, group, wanted)
    paged = [index for leaf in wanted if (index := indexes.get(leaf)) is not None and leaf not in together]
    # All at once, as lists: of short arrays each call costs more than what it does.
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
        # Whatever is before the first data page; not every writer says that it is a dictionary page.
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
    """The bytes of chunks, their codecs, and which data pages need the dictionary page, if recorded."""
    layouts = metadata.chunk_layouts(group, leaves)
    writer, size = metadata.kin.writer, metadata.size
    if writer.application != "parquet-mr" or not () < writer.version < _SHORT_CHUNKS_UNTIL or not size:
        return layouts
    return [
        (ByteRange(whole.start, min(whole.stop + _LONGEST_HEADER, size)), codec, use)
        for whole, codec, use in layouts
    ]


def _joined(indexes: Sequence[PageIndex]) -> tuple[list[int], list[int], list[int], list[bool]]:
    """Pages of several chunks: first rows, offsets, sizes, and whether each follows the one before it."""
    if not indexes:
        return [], [], [], []
    first_rows = np.concatenate([index.first_rows for index in indexes])
    offsets = np.concatenate([index.offsets for index in indexes])
    sizes = np.concatenate([index.sizes for index in indexes])
    follows = [False, *(offsets[1:] == offsets[:-1] + sizes[:-1]).tolist()]
    return first_rows.tolist(), offsets.tolist(), sizes.tolist(), follows


def plan_leaves(chunks: Sequence[ChunkPages], rows: RowSet) -> list[LeafPlan]:
    """One plan per chunk, in their order."""
    starts, stops = rows.runs()
    # Most writers begin the pages of all columns at the same rows.
    known: dict[Borders, PageSelection | None] = {}
    # Lists are added to by +=, which is no call: this is done for every column of every row group.
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
    """Intervals of pages, cut where a page doesn't begin where the one before it ends."""
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
    """Leaves of fields whose leaves can only be read together, or their rows could differ."""
    owners = [shape.owners[leaf] for leaf in leaves]
    if len(set(owners)) == len(owners):
        return set()
    bound = {owner for owner in owners if not shape.fields[owner].mergeable and owners.count(owner) > 1}
    return {leaf for leaf, owner in zip(leaves, owners, strict=True) if owner in bound}


def dictionary_use(metadata: ParquetMetadata, group: int, leaf: int) -> Use:
    """What encoding statistics, else the list of encodings, say about a chunk's need of its dictionary."""
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
    # Writers of the old encoding mark the dictionary page with it too, so PLAIN would be a data page's.
    return Use.ALL if encodings - _LEVELS == {_PLAIN_DICTIONARY} else Use.SOME


# -- headers of chosen pages --------------------------------------------------------------------

_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
_DATA_PAGE_V2: Final = 3
# Nearly all headers are shorter; one with long statistics is read again from the whole page.
_HEADER: Final = 256
WITHOUT_INDEX: Final = "page_index=False reads the column without its page index"

ELSEWHERE: Final = -1
"""The place of pieces that have to be put together."""

# Thrift's compact protocol.
_TRUE, _FALSE, _I32, _I64, _BINARY, _STRUCT = 1, 2, 5, 6, 8, 12
_LONGEST_VARINT: Final = 63


@dataclass(slots=True, eq=False)
class Chunk:
    """The bytes of one leaf in a slice, and how many values they hold.

    ``rows`` is how many rows they must decode to. ``proven`` is false when only decoding can tell whether
    they do, because repeated values have their rows in levels, whatever a page's header says.
    """

    chosen: PageSelection | None
    pieces: Sequence[memoryview]
    values: int
    rows: int
    proven: bool
    size: int
    """Bytes of the pieces."""
    place: int
    """Where the pieces begin in the buffer they were read into, if they stand there one after the other."""


@final
class Missing(NamedTuple):
    """What a second round must bring: the dictionary page of ``chunk``, or a whole chunk."""

    plan: LeafPlan
    ranges: list[ByteRange]
    chunk: Chunk | None


class _OddChunk(Exception):
    """Pages that are laid out in a way that only a sequential reader understands."""


def open_leaf(
    metadata: ParquetMetadata, group: int, plan: LeafPlan, bodies: Sequence[memoryview], place: int
) -> Chunk | Missing:
    """Check what the first round brought for a leaf to a place, and say what is still missing."""
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
    """Put together what both rounds brought; a dictionary that is none asks for the whole chunk."""
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
    flat = metadata.kin.leaves[leaf].max_repetition == 0
    data = bodies[1:] if chunk.fetched else bodies
    values = total = 0
    coded = False
    empty: list[tuple[int, int, int]] = []
    # Page by page, since each header has to be decoded.
    for number, (first, last) in enumerate(plan.spans):
        body, start = data[number], offsets[first]
        for page in range(first, last):
            at, size = offsets[page] - start, sizes[page]
            count, rows, encoding = _data_page(metadata, group, leaf, body, at, size)
            expected = first_rows[page + 1] - first_rows[page]
            if flat and rows is None:
                rows = count
            if rows is not None and (rows != expected or (flat and count != expected)):
                message = f"page {page} holds {rows} rows, its page index says {expected}"
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
    """The bodies less their pages without values, which pyarrow would take for the end of the chunk."""
    pieces = []
    for place, body in enumerate(bodies):
        last = 0
        for at, size in ((at, size) for owner, at, size in empty if owner == place):
            pieces.append(body[last:at])
            last = at + size
        pieces.append(body[last:])
    return pieces


# Kind, compressed bytes, values (none for what is not a data page), rows if the page counts them, encoding,
# and the bytes of the header itself. A plain tuple, since one is made for every page that is read.
Head: TypeAlias = tuple[int | None, int | None, int | None, int | None, int | None, int]


def _data_page(
    metadata: ParquetMetadata, group: int, leaf: int, body: memoryview, at: int, size: int
) -> tuple[int, int | None, int | None]:
    """Values, rows if the page counts them, and encoding of a data page."""
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
        message = f"a page of {length} + {compressed} bytes, its page index says {size}"
        raise _bad_index(metadata, group, leaf, message)
    if count is None:
        raise _bad_index(metadata, group, leaf, f"a page of type {kind} where data should be")
    return count, rows, encoding


def page_head(data: memoryview, at: int, stop: int) -> Head | None:  # noqa: C901
    """The header of a page laid out as all writers known do it; None for what only Thrift can judge.

    Field by field without a call, since this is done for every page that is read.
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
    """The dictionary page without what follows it, of so many bytes."""
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
