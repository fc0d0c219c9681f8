"""A sample of a lake: footers spread over the listing, page indexes and dictionaries' heads of some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from skipstone.errors import CorruptFileError
from skipstone.evidence import Array
from skipstone.ir.nodes import ColumnRef
from skipstone.lake.base import BaseLake
from skipstone.parquet.dictionary import dictionary_complete, dictionary_range
from skipstone.parquet.evidence import BoundLeaf, find_leaf, page_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.page_structs import PageHeader
from skipstone.parquet.pageindex import BadPageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.wire import decode_prefix
from skipstone.prune.pages import PageFacts, Path
from skipstone.prune.survey import Survey
from skipstone.store.place import Listed
from skipstone.store.ranges import ByteRange

# Chunks whose page indexes are read at most, over all questions.
_MOST_CHUNKS = 2_048
_HEADERS = 8
# The head of a dictionary page, with room to spare.
_HEADER_BYTES = 256


@dataclass(slots=True, eq=False)
class Sample:
    """Some of a lake's files, their row groups numbered through."""

    lake: BaseLake
    files: Array
    """Numbers of the sampled files in the lake's listing."""
    footers: tuple[ParquetMetadata, ...]
    survey: Survey
    _pages: dict[tuple[int, Path], PageFacts | None] = field(default_factory=dict)

    @classmethod
    def of(cls, lake: BaseLake, most: int) -> Sample:
        """Up to ``most`` files, spread evenly over the listing."""
        files = spread(np.arange(len(lake.entries)), most)
        footers = tuple(lake.access.footers([lake.entries[number] for number in files.tolist()]))
        return cls(lake, files, footers, Survey.of(footers, lake.stated(files)))

    @property
    def whole(self) -> bool:
        """Whether every file of the lake is in it."""
        return len(self.files) == len(self.lake.entries)

    @property
    def rows(self) -> int:
        """Rows of the sampled files."""
        return int(self.survey.rows.sum())

    @property
    def scale(self) -> float:
        """How many times larger the lake is, by its files' bytes."""
        if self.whole:
            return 1.0
        entries = self.lake.entries
        seen = sum(entries[number].size for number in self.files.tolist())
        return max(sum(entry.size for entry in entries) / seen, 1.0) if seen else 1.0

    # -- page indexes ------------------------------------------------------------------------

    def pages(self, units: Iterable[int], refs: Sequence[ColumnRef]) -> dict[tuple[int, Path], PageFacts]:
        """The page indexes of the columns in these row groups, as far as there are any to be read."""
        wanted = [(unit, ref) for unit in units for ref in refs]
        missing = [(unit, ref) for unit, ref in wanted if (unit, ref.path) not in self._pages]
        self._load(missing[: max(_MOST_CHUNKS - len(self._pages), 0)])
        found = ((key, self._pages.get(key)) for key in ((unit, ref.path) for unit, ref in wanted))
        return {key: pages for key, pages in found if pages is not None}

    def _load(self, wanted: Sequence[tuple[int, ColumnRef]]) -> None:
        places: list[tuple[int, BoundLeaf]] = []
        ranges: list[ByteRange] = []
        for unit, ref in wanted:
            self._pages[unit, ref.path] = None
            bound = self.leaf(unit, ref)
            if bound is None:
                continue
            column, offset = page_index_ranges(self.survey.file(unit), self._group(unit), bound.leaf.index)
            if column is not None and offset is not None:
                places.append((unit, bound))
                ranges += [column, offset]
        bodies = iter(self._read([unit for unit, _ in places for _ in range(2)], ranges))
        for unit, bound in places:
            file, group = self.survey.file(unit), self._group(unit)
            try:
                index = parse_page_index(next(bodies), next(bodies), file, group, bound.leaf.index)
            except BadPageIndex:
                continue  # planning does without it as well
            if index.has_statistics:
                self._pages[unit, bound.ref.path] = PageFacts(index, page_facts(file, bound, index))

    def leaf(self, unit: int, ref: ColumnRef) -> BoundLeaf | None:
        """Where a row group's file stores the column; None for a partition's column."""
        return None if self.survey.gives(ref.path) else find_leaf(self.survey.file(unit), ref)

    def _group(self, unit: int) -> int:
        return int(self.survey.numbers[unit])

    def _read(self, units: Sequence[int], ranges: Sequence[ByteRange]) -> list[bytes]:
        owners = [self.lake.entries[self.files[self.survey.owners[unit]]] for unit in units]
        wanted: dict[Listed, list[ByteRange]] = {}
        for owner, place in zip(owners, ranges, strict=True):
            wanted.setdefault(owner, []).append(place)
        bodies = {entry: iter(found) for entry, found in self.lake.access.read_many(wanted).items()}
        return [next(bodies[owner]) for owner in owners]

    # -- distinct values ---------------------------------------------------------------------

    def distinct(self, ref: ColumnRef) -> list[tuple[int, int]]:
        """Of some row groups, their number and how many values their dictionary lists, where it is complete.

        Empty where values are too many for dictionaries, or written without.
        """
        units = spread(np.flatnonzero(self.survey.rows > 0), _HEADERS).tolist()
        places: list[tuple[int, ByteRange]] = []
        for unit in units:
            bound = self.leaf(unit, ref)
            if bound is None:
                continue
            file, group, leaf = self.survey.file(unit), self._group(unit), bound.leaf.index
            place = dictionary_range(file, group, leaf)
            if place is not None and dictionary_complete(file, group, leaf):
                places.append((unit, ByteRange(place.start, min(place.start + _HEADER_BYTES, place.stop))))
        bodies = self._read([unit for unit, _ in places], [place for _, place in places])
        counts = [(unit, _listed(body)) for (unit, _), body in zip(places, bodies, strict=True)]
        return [(unit, count) for unit, count in counts if count]


def _listed(page: bytes) -> int:
    """How many values the dictionary page that begins here holds; zero if it doesn't say."""
    try:
        header, _ = decode_prefix(PageHeader, page, "page header")
    except CorruptFileError:
        return 0
    listed = header.dictionary_page_header
    return (listed.num_values or 0) if listed is not None else 0


def spread(items: Array, most: int) -> Array:
    """At most ``most`` of the items, evenly spread, in their order."""
    if len(items) <= most:
        return items
    return items[np.unique(np.linspace(0, len(items) - 1, most).round().astype(np.int64))]
