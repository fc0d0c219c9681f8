"""Which bytes of a row group hold some rows of some leaves: chosen pages, dictionary pages, whole chunks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from skipstone.core.rows.rowset import RowSet
from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import PageIndex
from skipstone.parquet.slice.projection import Shape, shape_of
from skipstone.store.source import ByteRange

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


class Chosen(NamedTuple):
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

    def __init__(self, index: PageIndex) -> None:
        self.first_rows: NDArray[np.int64] = index.first_rows
        self.count = len(index)
        self.rows: list[int] = [*index.first_rows.tolist(), index.rows]
        """The first row of each page, and the number of rows."""
        # To pyarrow a page without rows is the chunk's end.
        self.has_empty = bool((index.first_rows[1:] == index.first_rows[:-1]).any())

    def choose(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Chosen | None:
        """The pages that hold rows of these runs; None if that is every page."""
        # Of pages that begin at one row the last is the one that has it; the others have no rows.
        at = self.rows
        if len(starts) == 1:
            first = bisect_right(at, starts.item(0), 0, self.count) - 1
            last = bisect_left(at, stops.item(0), 0, self.count)
            if first == 0 and last == self.count and not self.has_empty:
                return None
            return Chosen(((first, last),), ((at[first], at[last]),), at[last] - at[first])
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
        return Chosen(pages, rows, sum([stop - start for start, stop in rows]))


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
        chosen: Chosen | None,
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
        every = range(len(metadata.leaves))
        return tuple([_pages(metadata, group, leaf, None, {}) for leaf in every])
    wanted = list(leaves)
    together = _read_together(shape, wanted)
    known: dict[bytes, Borders] = {}
    return tuple(
        [
            _pages(metadata, group, leaf, None if leaf in together else indexes.get(leaf), known)
            for leaf in wanted
        ]
    )


def plan_leaves(chunks: Sequence[ChunkPages], rows: RowSet) -> list[LeafPlan]:
    """One plan per chunk, in their order."""
    starts, stops = rows.runs()
    # Most writers begin the pages of all columns at the same rows.
    known: dict[Borders, Chosen | None] = {}
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
            ranges += (ByteRange(offsets[first], offsets[last - 1] + sizes[last - 1]),)
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


def _read_together(shape: Shape, leaves: Sequence[int]) -> set[int]:
    """Leaves of fields whose leaves can only be read together, or their rows could differ."""
    owners = [shape.owners[leaf] for leaf in leaves]
    if len(set(owners)) == len(owners):
        return set()
    bound = {owner for owner in owners if not shape.fields[owner].mergeable and owners.count(owner) > 1}
    return {leaf for leaf, owner in zip(leaves, owners, strict=True) if owner in bound}


def _pages(
    metadata: ParquetMetadata,
    group: int,
    leaf: int,
    index: PageIndex | None,
    known: dict[bytes, Borders],
) -> ChunkPages:
    whole, codec, use = metadata.chunk_layout(group, leaf)
    writer = metadata.writer
    if writer.application == "parquet-mr" and () < writer.version < _SHORT_CHUNKS_UNTIL and metadata.size:
        whole = ByteRange(whole.start, min(whole.stop + _LONGEST_HEADER, metadata.size))
    offsets = [] if index is None else index.offsets.tolist()
    if index is None or not offsets:
        return ChunkPages(leaf, whole, codec)
    key, sizes = index.first_rows.tobytes(), index.sizes.tolist()
    if key not in known:
        known[key] = Borders(index)
    ends = [offset + size for offset, size in zip(offsets, sizes, strict=True)]
    # Whatever stands before the first data page; not every writer says that it is a dictionary page.
    dictionary, fetched = None, False
    if offsets[0] > whole.start:
        dictionary = ByteRange(whole.start, offsets[0])
        use = use or dictionary_use(metadata, group, leaf)
        fetched = use is Use.ALL or (use is Use.SOME and offsets[0] - whole.start <= SMALL_DICTIONARY)
    return ChunkPages(
        leaf, whole, codec, known[key], offsets, sizes, offsets[1:] == ends[:-1], dictionary, fetched
    )


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
