"""Which bytes of a row group hold some rows of some leaves: chosen pages, dictionary pages, whole chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.core.rows import runs as run
from skipstone.core.rows.rowset import RowSet
from skipstone.errors import CorruptFileError, EncryptedFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import PageIndex
from skipstone.parquet.slice.shape import Shape, shape_of
from skipstone.store.ranges import ByteRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

DICTIONARY_ENCODINGS: Final = (2, 8)
_PLAIN_DICTIONARY: Final = 2
# The encodings of levels, which say nothing about the values: RLE and BIT_PACKED.
_LEVELS: Final = frozenset({3, 4})
_DATA_PAGES: Final = (0, 3)
# A dictionary that may or may not be needed is fetched at once if it is no larger than this: reading on
# costs an object store less than a millisecond, another request tens of them.
SMALL_DICTIONARY: Final = 64 * 1024
# parquet-mr up to 1.2.8 left the dictionary's header out of a chunk's size (PARQUET-816).
_SHORT_CHUNKS_UNTIL: Final = (1, 2, 9)
_LONGEST_HEADER: Final = 100


class Use(Enum):
    """Which data pages of a chunk need its dictionary page."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """The chosen pages of a chunk by number, and the rows they hold as runs ``starts`` to ``stops``.

    Range ``i`` of the data is pages ``borders[i]`` to ``borders[i + 1]`` of ``numbers``. ``dictionary`` is
    where the dictionary page is if there is one, ``fetched`` whether the first round brings it, before the
    data. ``key`` is equal where the rows are.
    """

    index: PageIndex
    numbers: NDArray[np.int64]
    borders: tuple[int, ...]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    key: bytes
    dictionary: ByteRange | None
    fetched: bool


@dataclass(frozen=True, slots=True)
class LeafPlan:
    """The ranges to read for one leaf; without ``pages`` it is the whole chunk, in one range."""

    leaf: int
    ranges: tuple[ByteRange, ...]
    pages: Pages | None


def slice_ranges(
    metadata: ParquetMetadata,
    group: int,
    leaves: Iterable[int],
    rows: RowSet,
    indexes: Mapping[int, PageIndex | None],
) -> list[ByteRange]:
    """The ranges that ``slice_steps`` asks for first, in its order if the leaves are in its order."""
    plans = plan_leaves(metadata, group, leaves, rows, indexes)
    return [span for plan in plans for span in plan.ranges]


def plan_leaves(
    metadata: ParquetMetadata,
    group: int,
    leaves: Iterable[int],
    rows: RowSet,
    indexes: Mapping[int, PageIndex | None],
) -> list[LeafPlan]:
    """One plan per leaf, in their order."""
    shape = shape_of(metadata)
    if shape is None:
        # The fields can't be told apart, so the row group is read as it is.
        return [whole_chunk(metadata, group, leaf) for leaf in range(len(metadata.leaves))]
    runs = rows.runs()
    # Most writers begin the pages of all columns at the same rows.
    known: dict[bytes, _Chosen] = {}
    plans = [_plan(metadata, group, leaf, runs, indexes.get(leaf), known) for leaf in leaves]
    return _keep_together(metadata, group, shape, plans)


def whole_chunk(metadata: ParquetMetadata, group: int, leaf: int) -> LeafPlan:
    """All bytes of a chunk; what is in it is pyarrow's business."""
    return LeafPlan(leaf, (_chunk_range(metadata, group, leaf),), None)


def same_rows(plans: Iterable[LeafPlan]) -> bool:
    """Whether the chosen pages of these leaves hold the same rows."""
    return len({plan.pages.key if plan.pages is not None else None for plan in plans}) == 1


def _keep_together(
    metadata: ParquetMetadata, group: int, shape: Shape, plans: list[LeafPlan]
) -> list[LeafPlan]:
    """Take whole chunks of fields whose leaves can only be read together, or their rows could differ."""
    owners = [shape.owners[plan.leaf] for plan in plans]
    bound = {owner for owner in owners if not shape.fields[owner].mergeable and owners.count(owner) > 1}
    if not bound:
        return plans
    return [
        whole_chunk(metadata, group, plan.leaf) if owner in bound else plan
        for owner, plan in zip(owners, plans, strict=True)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    """Pages that hold some rows: by number, the rows they hold as runs, and those as a key."""

    every: bool
    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    key: bytes

    @classmethod
    def of(cls, index: PageIndex, runs: tuple[NDArray[np.int64], NDArray[np.int64]]) -> _Chosen:
        firsts, lasts = _intervals(index.first_rows, *runs)
        every = firsts[0] == 0 and lasts[0] == len(index)
        numbers = np.arange(firsts[0], lasts[0]) if len(firsts) == 1 else run.positions((firsts, lasts))
        starts = index.first_rows[firsts]
        stops = index.first_rows.take(lasts, mode="clip")
        if lasts[-1] == len(index):
            stops[-1] = index.rows
        return cls(bool(every), numbers, starts, stops, starts.tobytes() + stops.tobytes())


def _plan(
    metadata: ParquetMetadata,
    group: int,
    leaf: int,
    runs: tuple[NDArray[np.int64], NDArray[np.int64]],
    index: PageIndex | None,
    known: dict[bytes, _Chosen],
) -> LeafPlan:
    chunk = _chunk_range(metadata, group, leaf)
    if index is None:
        return LeafPlan(leaf, (chunk,), None)
    rows = index.first_rows.tobytes()
    chosen = known.get(rows)
    if chosen is None:
        chosen = known[rows] = _Chosen.of(index, runs)
    if chosen.every and not _has_empty_pages(index):
        return LeafPlan(leaf, (chunk,), None)
    numbers = chosen.numbers
    head = int(index.offsets[0])
    # Whatever stands before the first data page; not every writer says that it is a dictionary page.
    dictionary = ByteRange(chunk.start, head) if head > chunk.start else None
    use = dictionary_use(metadata, group, leaf) if dictionary is not None else Use.SOME
    fetched = dictionary is not None and (
        use is Use.ALL or (use is Use.SOME and dictionary.length <= SMALL_DICTIONARY)
    )
    ranges = [dictionary] if fetched and dictionary is not None else []
    borders: tuple[int, ...] = (0, 1)
    if len(numbers) == 1:
        begin = int(index.offsets[numbers[0]])
        ranges.append(ByteRange(begin, begin + int(index.sizes[numbers[0]])))
    else:
        begins = index.offsets[numbers]
        ends = begins + index.sizes[numbers]
        apart = (begins[1:] != ends[:-1]).nonzero()[0].tolist()
        borders = (0, *(at + 1 for at in apart), len(numbers))
        ranges += map(ByteRange, begins[list(borders[:-1])].tolist(), ends[[*apart, -1]].tolist())
    pages = Pages(index, numbers, borders, chosen.starts, chosen.stops, chosen.key, dictionary, fetched)
    return LeafPlan(leaf, tuple(ranges), pages)


def _has_empty_pages(index: PageIndex) -> bool:
    """Whether pages without rows stand among the others: to pyarrow such a page is the chunk's end."""
    return bool((index.first_rows[1:] == index.first_rows[:-1]).any())


def _intervals(
    first_rows: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pages that hold rows of the runs, as maximal half-open intervals of page numbers."""
    # Of pages that begin at one row the last is the one that has it; the others have no rows.
    firsts = first_rows.searchsorted(starts, "right") - 1
    lasts = first_rows.searchsorted(stops, "left")
    if len(firsts) > 1:
        apart = firsts[1:] > lasts[:-1]
        firsts = firsts[np.concatenate(([True], apart))]
        lasts = lasts[np.concatenate((apart, [True]))]
    return firsts, lasts


def _chunk_range(metadata: ParquetMetadata, group: int, leaf: int) -> ByteRange:
    key = ("slice chunk", group, leaf)
    found: ByteRange | None = metadata.memo.get(key)
    if found is None:
        if metadata.is_encrypted(group, leaf):
            raise EncryptedFileError(
                "the column is encrypted",
                path=metadata.path,
                unit=f"row group {group}",
                column=metadata.leaves[leaf].name,
                hint="Skipstone has no keys; choose other columns",
            )
        found = metadata.chunk_range(group, leaf)
        writer = metadata.writer
        old = writer.application == "parquet-mr" and () < writer.version < _SHORT_CHUNKS_UNTIL
        if old and metadata.size is not None:
            found = ByteRange(found.start, min(found.stop + _LONGEST_HEADER, metadata.size))
        metadata.memo[key] = found
    return found


def dictionary_use(metadata: ParquetMetadata, group: int, leaf: int) -> Use:
    """Which data pages of a chunk need its dictionary page, as far as the footer tells."""
    key = ("slice dictionary", group, leaf)
    found: Use | None = metadata.memo.get(key)
    if found is None:
        found = metadata.memo[key] = _footer_use(metadata, group, leaf)
    return found


def _footer_use(metadata: ParquetMetadata, group: int, leaf: int) -> Use:
    """What encoding statistics, else the list of encodings, say about a chunk's data pages."""
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
