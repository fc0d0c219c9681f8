"""What is known of several files as one run of row groups, so that one judgement serves them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeGuard

import numpy as np

from skipstone.core.evidence import Array, ColumnFacts, Evidence, Stated
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.rows import RowSet
from skipstone.parquet.evidence import lake_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.prune.options import BloomRequest
from skipstone.prune.pages import ColumnPages, Segments
from skipstone.store.ranges import ByteRange

if TYPE_CHECKING:
    from skipstone.prune.pages import PageFacts

# Pages of a part are numbered from a multiple of this.
_PART: Final = 1 << 40
# So many pages are cut into segments once, and kept; of more only those of open row groups.
_MOST_PAGES: Final = 1 << 17
# Sets of columns whose segments are kept.
_TABLES: Final = 8
_NO_FACTS: Mapping[tuple[str, ...], Stated] = {}


@dataclass(frozen=True, slots=True, eq=False)
class RuledOut:
    """Where bloom filters at hand say that none of a leaf's values is, by the leaf's ``id``."""

    groups: dict[int, Array]
    """Per row group that was asked for."""
    pages: dict[int, Array]
    """The numbers of pages (see :class:`ColumnPages`) of row groups that may hold one, rising."""
    settled: bool
    """Whether that is all that bloom filters can say."""


class Part(Protocol):
    """A run of files whose row groups are known from the same source: footers, or an index."""

    @property
    def near(self) -> bool:
        """Whether asking for what is at hand makes no requests."""

    @property
    def counts(self) -> Array:
        """Row groups of each file."""

    @property
    def rows(self) -> Array:
        """Rows of each row group."""

    def file(self, number: int) -> ParquetMetadata:
        """One file's metadata."""

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """What is known about a column in each row group."""

    def pages(self, unit: int, ref: ColumnRef) -> PageFacts | None:
        """The pages of a chunk, where they are known without reading."""

    def page_count(self, ref: ColumnRef) -> int | None:
        """How many pages of a column are known without reading; None unless every row group's are."""

    def column_pages(self, units: Array, ref: ColumnRef) -> ColumnPages | None:
        """The pages of a column in some row groups, as far as they are known without reading."""

    def has_filters(self, path: tuple[str, ...]) -> bool:
        """Whether all bloom filters that there are of a column are at hand."""

    def absent(
        self, node: Node, units: Array, max_keys: int, pages: Mapping[tuple[str, ...], Array] | None
    ) -> RuledOut:
        """What bloom filters at hand rule out of some row groups, or of some of their ``pages`` by column."""


@dataclass(frozen=True, slots=True, eq=False)
class Footers:
    """Files whose footers were read."""

    files: Sequence[ParquetMetadata]
    counts: Array
    rows: Array

    @property
    def near(self) -> bool:
        """Footers are in memory."""
        return True

    @classmethod
    def of(cls, files: Iterable[ParquetMetadata]) -> Footers:
        """These footers."""
        known = tuple(files)
        rows = [np.zeros(0, dtype=np.int64), *[file.row_group_rows for file in known]]
        return cls(known, np.array([*map(len, rows[1:])], dtype=np.int64), np.concatenate(rows))

    def file(self, number: int) -> ParquetMetadata:
        """One footer."""
        return self.files[number]

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """What the footers say."""
        return lake_facts(self.files, ref)

    def pages(self, unit: int, ref: ColumnRef) -> PageFacts | None:  # noqa: ARG002
        """Page indexes must be read."""
        return None

    def page_count(self, ref: ColumnRef) -> int | None:  # noqa: ARG002
        """Page indexes must be read."""
        return None

    def column_pages(self, units: Array, ref: ColumnRef) -> ColumnPages | None:  # noqa: ARG002
        """Page indexes must be read."""
        return None

    def has_filters(self, path: tuple[str, ...]) -> bool:  # noqa: ARG002
        """Bloom filters must be read."""
        return False

    def absent(
        self,
        node: Node,  # noqa: ARG002
        units: Array,  # noqa: ARG002
        max_keys: int,  # noqa: ARG002
        pages: Mapping[tuple[str, ...], Array] | None,  # noqa: ARG002
    ) -> RuledOut:
        """Bloom filters must be read."""
        return RuledOut({}, {}, settled=False)


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """N files, their row groups numbered through; ``given`` are facts per file that no footer states.

    Where ``given`` states a column's facts, the files are not asked: where a partition column is stored in
    them as well, the partition's value stands.
    """

    parts: tuple[Part, ...]
    given: Mapping[tuple[str, ...], Stated]
    owners: Array
    """The file of each row group."""
    numbers: Array
    """The row group's number within its file."""
    firsts: Array
    """The first row group of each file, and one past the last."""
    rows: Array
    starts: Array
    """The first row of each row group, counted within its file."""
    totals: Array
    """Rows of each file."""
    near: bool
    """Whether asking for what is at hand makes no requests."""
    _facts: dict[tuple[tuple[str, ...], str], ColumnFacts] = field(default_factory=dict)
    _tables: dict[tuple[ColumnRef, ...], Segments | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        files: Iterable[ParquetMetadata],
        given: Mapping[tuple[str, ...], Stated] = _NO_FACTS,
    ) -> Survey:
        """Number the row groups of ``files`` through."""
        return cls.joined([Footers.of(files)], given)

    @classmethod
    def joined(cls, parts: Iterable[Part], given: Mapping[tuple[str, ...], Stated] = _NO_FACTS) -> Survey:
        """Several runs of files, one after the other."""
        known = tuple(part for part in parts if len(part.counts))
        nothing = np.zeros(0, dtype=np.int64)
        counts = np.concatenate([nothing, *(part.counts for part in known)])
        rows = np.concatenate([nothing, *(part.rows for part in known)])
        firsts = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=firsts[1:])
        owners = np.repeat(np.arange(len(counts)), counts)
        before = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(rows, out=before[1:])
        starts = before[:-1] - before[firsts[owners]]
        totals = before[firsts[1:]] - before[firsts[:-1]]
        numbers = np.arange(len(rows)) - firsts[owners]
        near = all(part.near for part in known)
        return cls(known, given, owners, numbers, firsts, rows, starts, totals, near)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def count(self) -> int:
        """How many files there are."""
        return len(self.totals)

    @property
    def stops(self) -> Array:
        """One past the last row of each row group, counted within its file."""
        return self.starts + self.rows

    def metadata(self, number: int) -> ParquetMetadata:
        """The metadata of a file."""
        for part in self.parts:
            if number < len(part.counts):
                return part.file(number)
            number -= len(part.counts)
        raise IndexError(number)

    def files(self) -> Iterator[ParquetMetadata]:
        """The metadata of every file."""
        return (part.file(number) for part in self.parts for number in range(len(part.counts)))

    def file(self, unit: int) -> ParquetMetadata:
        """The metadata of the file that a row group belongs to."""
        return self.metadata(int(self.owners[unit]))

    def units(self, file: int) -> range:
        """The row groups of a file."""
        return range(int(self.firsts[file]), int(self.firsts[file + 1]))

    def evidence(self, refs: Sequence[ColumnRef]) -> Evidence:
        """What is known about the columns in each row group."""
        return Evidence(self.rows, {ref.path: self.facts(ref) for ref in refs})

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """What is known about one column in each row group; worked out once per survey."""
        key = (ref.path, str(ref.type))
        found = self._facts.get(key)
        if found is None:
            given = self.given.get(ref.path)
            found = (
                self._stored(ref)
                if given is None
                else given.take(self.owners).over(lambda: self._stored(ref))
            )
            self._facts[key] = found
        return found

    def _stored(self, ref: ColumnRef) -> ColumnFacts:
        if not self.parts:
            return ColumnFacts.unknown(ref.type, 0)
        return ColumnFacts.concat([part.facts(ref) for part in self.parts])

    def gives(self, path: tuple[str, ...]) -> bool:
        """Whether no file is to be asked about a column."""
        given = self.given.get(path)
        return given is not None and given.where is None

    def states(self, unit: int, path: tuple[str, ...]) -> bool:
        """Whether a partition states a column of a row group, whatever its file says."""
        given = self.given.get(path)
        return given is not None and (given.where is None or bool(given.where[self.owners[unit]]))

    def pages(self, unit: int, ref: ColumnRef) -> PageFacts | None:
        """The pages of a column in a row group, where they are known without reading."""
        for part in self.parts:
            if unit < len(part.rows):
                return part.pages(unit, ref)
            unit -= len(part.rows)
        raise IndexError(unit)

    def column_pages(self, units: Array, ref: ColumnRef) -> ColumnPages | None:
        """The pages of a column in some row groups (rising), as far as they are known without reading.

        Where a partition states the column, its pages say nothing.
        """
        given = self.given.get(ref.path)
        if given is not None:
            units = units[:0] if given.where is None else units[~given.where[self.owners[units]]]
        found = []
        first = 0
        for number, part in enumerate(self.parts):
            last = first + len(part.rows)
            mine = units[(units >= first) & (units < last)]
            pages = part.column_pages(mine - first, ref) if len(mine) else None
            if pages is not None:
                base = number * _PART
                found.append(replace(pages, units=pages.units + first, numbers=pages.numbers + base))
            first = last
        return ColumnPages.concat(found) if found else None

    def table(self, refs: tuple[ColumnRef, ...]) -> Segments | None:
        """All rows as segments of these columns' pages; None unless every page is known without reading."""
        found = self._tables.get(refs, ...)
        if found is ...:
            if len(self._tables) >= _TABLES:
                self._tables.clear()
            found = self._tables[refs] = self._table(refs)
        return found

    def _table(self, refs: tuple[ColumnRef, ...]) -> Segments | None:
        stored = [ref for ref in refs if not self.gives(ref.path)]
        counts = [part.page_count(ref) for ref in stored for part in self.parts]
        if None in counts or sum(count for count in counts if count) > _MOST_PAGES:
            return None
        every = np.arange(len(self))
        columns = {ref.path: self.column_pages(every, ref) for ref in stored}
        known = {path: pages for path, pages in columns.items() if pages is not None}
        filtered = all(part.has_filters(ref.path) for ref in stored for part in self.parts)
        found = Segments.of(self, every, known, self.evidence(refs))
        return replace(found, filtered=filtered)

    def absent(
        self,
        node: Node,
        units: Array,
        max_keys: int,
        pages: Mapping[tuple[str, ...], Array] | None = None,
    ) -> tuple[RuledOut, Array]:
        """What bloom filters at hand rule out, and of ``units`` those with filters still to read.

        Row groups are numbered through, and masks are of all of them. With ``pages``, numbers of pages of
        each column, only those are looked up where pages have filters.
        """
        if len(self.parts) == 1 and not self.given:
            found = self.parts[0].absent(node, units, max_keys, pages)
            for leaf, absent in found.groups.items():
                found.groups[leaf] = np.zeros(len(self.rows), dtype=bool)
                found.groups[leaf][units] = absent
            return found, units[:0] if found.settled else units
        masks: dict[int, Array] = {}
        gone: dict[int, list[Array]] = {}
        given = {id(leaf) for leaf in node.leaves() if self.gives(leaf.ref.path)} if self.given else ()
        unread = []
        first = 0
        for number, part in enumerate(self.parts):
            last, base = first + len(part.rows), number * _PART
            mine = units[(units >= first) & (units < last)] if len(self.parts) > 1 else units
            if len(mine):
                some = None
                if pages is not None:
                    some = {path: p[(p >= base) & (p < base + _PART)] - base for path, p in pages.items()}
                found = part.absent(node, mine - first, max_keys, some)
                for leaf, absent in found.groups.items():
                    if leaf not in given:
                        mask = masks.setdefault(leaf, np.zeros(len(self), dtype=bool))
                        mask[mine] = absent
                for leaf, numbers in found.pages.items():
                    if leaf not in given:
                        gone.setdefault(leaf, []).append(numbers + base)
                if not found.settled:
                    unread.append(mine)
            first = last
        deeper = {leaf: np.sort(np.concatenate(parts)) for leaf, parts in gone.items()}
        return RuledOut(masks, deeper, not unread), np.concatenate([units[:0], *unread])

    def row_sets(self, owners: Array, starts: Array, stops: Array) -> dict[int, RowSet]:
        """Row ranges, each of the file that owns it, as one row set per file that has any."""
        if not len(owners) or (owners == owners[0]).all():
            return {
                file: RowSet.from_ranges(int(self.totals[file]), starts, stops)
                for file in owners[:1].tolist()
            }
        order = np.argsort(owners, kind="stable")
        owners, starts, stops = owners[order], starts[order], stops[order]
        files, first = np.unique(owners, return_index=True)
        edges = [*first.tolist(), len(owners)]
        return {
            file: RowSet.from_ranges(int(self.totals[file]), starts[a:b], stops[a:b])
            for file, a, b in zip(files.tolist(), edges[:-1], edges[1:], strict=True)
        }


# -- what is not known yet ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bytes of one of the survey's files."""

    file: int
    range: ByteRange


Need: TypeAlias = list[Fetch] | list[BloomRequest]
Unusable: TypeAlias = Callable[[int, tuple[str, ...], str, str], None]
"""Takes note of metadata that can't be used: row group, column, what it is, why."""


def is_blooms(need: Need) -> TypeGuard[list[BloomRequest]]:
    """Whether bloom filters are asked for, rather than bytes."""
    return bool(need) and isinstance(need[0], BloomRequest)


def ranges_of(need: Need) -> list[ByteRange]:
    """The ranges of a need for bytes of one file."""
    return [fetch.range for fetch in need if isinstance(fetch, Fetch)]
