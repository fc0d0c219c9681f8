"""Metadata of several files as one array of row groups, so that one judgement covers all of them.

Callers can switch kinds of evidence off, and pass bloom filters that are stored elsewhere.

Pages of several columns are one list of units too. Page boundaries differ from column to column, so the units
are *segments*: the row ranges between neighbouring boundaries of any column. Each segment is in one page of
each column and has its facts, so the judge sees one evidence table, and AND, OR and NOT need no special
cases. Pages are arrays over all row groups: a few array operations cut all pages of a lake into segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np

from skipstone.core.evidence import Array, ColumnFacts, Evidence, FactOverride
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.rows import RowSet
from skipstone.parquet.bloom import BloomFilter
from skipstone.parquet.evidence import lake_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import PageIndex
from skipstone.store.source import ByteRange


@dataclass(frozen=True, slots=True)
class BloomRequest:
    """A bloom filter that pruning needs: of a column in a row group of a file.

    Examples:
        >>> import skipstone as sk
        >>> sk.BloomRequest("part-0.parquet", row_group=0, column=("country",), leaf=2).column
        ('country',)
    """

    path: str
    row_group: int
    column: tuple[str, ...]
    leaf: int


@runtime_checkable
class BloomProvider(Protocol):
    """A source of bloom filters other than the file itself, such as a cache.

    Both methods return one filter for each request; None for a filter that doesn't exist keeps its row group.

    Examples:
        >>> import skipstone as sk
        >>> class NoFilters:
        ...     def load(self, requests): return [None] * len(requests)
        ...     async def load_async(self, requests): return [None] * len(requests)
        >>> options = sk.PruneOptions(bloom_provider=NoFilters())
        >>> sk.prune("events/part-0.parquet", "country = 'DE'", options=options).row_groups
        [0]
    """

    def load(self, requests: Sequence[BloomRequest]) -> Sequence[BloomFilter | None]:
        """Return the requested filters in order."""

    async def load_async(self, requests: Sequence[BloomRequest]) -> Sequence[BloomFilter | None]:
        """Return the requested filters in order, without blocking the event loop."""


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """Options of pruning; ``sk.prune`` also accepts each field as a keyword.

    No option changes which rows match, only how many other rows are kept.

    Attributes:
        page_index: Use page indexes.
        bloom_filter: Use bloom filters.
        dictionary: Read dictionary pages of columns that are fully dictionary-encoded.
        emit_roaring: Create the bitmap of rows with the result, rather than on first use.
        case_sensitive: Whether column names are case-sensitive.
        max_bloom_keys: The longest IN list that is looked up in bloom filters. Ranges are looked up if they
            have at most 256 integers.
        bloom_provider: Where to load bloom filters from, instead of the file.
        tail_bytes: Bytes of the first request, from the file's end.

    Examples:
        >>> import skipstone as sk
        >>> options = sk.PruneOptions(page_index=False)
        >>> len(sk.prune("events/part-0.parquet", "event_id < 10", options=options).rows)
        250
    """

    page_index: bool = True
    bloom_filter: bool = True
    dictionary: bool = False
    emit_roaring: bool = False
    case_sensitive: bool = True
    max_bloom_keys: int = 1_000
    bloom_provider: BloomProvider | None = None
    tail_bytes: int = 64 * 1024


Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PageFacts:
    """The pages of one column in one row group, and what they hold."""

    index: PageIndex
    facts: ColumnFacts


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPages:
    """The pages of one column in many row groups, one after the other."""

    units: Array
    """The row group of each page, rising."""
    first_rows: Array
    """The first row of each page, counted within its row group."""
    facts: ColumnFacts
    numbers: Array
    """Number of each page in the bloom filters of an index; -1 for a page without one."""

    @classmethod
    def of(cls, pages: Iterable[tuple[int, PageFacts]]) -> ColumnPages:
        """Pages of row groups in ascending order."""
        units, found = zip(*pages, strict=True)
        counts = [len(one.index) for one in found]
        return cls(
            np.repeat(np.array(units, dtype=np.int64), counts),
            np.concatenate([one.index.first_rows for one in found]),
            ColumnFacts.concat([one.facts for one in found]),
            np.full(sum(counts), -1, dtype=np.int64),
        )

    @classmethod
    def concat(cls, parts: Sequence[ColumnPages]) -> ColumnPages:
        """Pages of several runs of row groups, sorted by row group."""
        if len(parts) == 1:
            return parts[0]
        units, first_rows, numbers = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("units", "first_rows", "numbers")
        )
        joined = cls(units, first_rows, ColumnFacts.concat([part.facts for part in parts]), numbers)
        if (units[1:] >= units[:-1]).all():
            return joined
        return joined.take(np.argsort(units, kind="stable"))

    def take(self, pages: Array) -> ColumnPages:
        """The chosen pages, in that order."""
        return ColumnPages(
            self.units[pages], self.first_rows[pages], self.facts.take(pages), self.numbers[pages]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Row ranges that no page boundary cuts, with their evidence; rows are counted within the file."""

    starts: Array
    stops: Array
    units: Array
    """The row group of each segment."""
    evidence: Evidence
    numbers: Mapping[Path, Array]
    """Per column with pages, the number of each segment's page in the bloom filters of an index, or -1."""
    filtered: bool = False
    """Whether all bloom filters of these columns are in memory or in an index."""

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(
        cls, survey: Survey, units: Array, columns: Mapping[Path, ColumnPages], evidence: Evidence
    ) -> Segments:
        """Segments of row groups in ascending order; a column without pages keeps its row group's facts."""
        rows = survey.rows[units]
        # Row groups are laid end to end, so that one search finds the pages of all of them.
        ends = np.cumsum(rows)
        begins = ends - rows
        firsts = {
            path: begins[np.searchsorted(units, pages.units)] + pages.first_rows
            for path, pages in columns.items()
        }
        edges = _edges(begins, *firsts.values())
        total = int(ends[-1]) if len(ends) else 0
        edges = edges[edges < total]
        place = np.searchsorted(ends, edges, side="right")
        owners = units[place]
        facts = {path: known.take(owners) for path, known in evidence.columns.items()}
        numbers = {}
        for path, pages in columns.items():
            # The last page that starts at or before the segment: pages without rows come first.
            at = np.searchsorted(firsts[path], edges, side="right") - 1
            known = (at >= 0) & (pages.units[at] == owners)
            base = facts[path]
            both = base.intersect(pages.facts.take(np.maximum(at, 0)))
            facts[path] = FactOverride(both, known).fallback_to(lambda base=base: base)  # type: ignore[misc]
            numbers[path] = np.where(known, pages.numbers[at], -1)
        starts = edges - begins[place] + survey.starts[owners]
        lengths = np.diff(edges, append=total)
        return cls(starts, starts + lengths, owners, Evidence(lengths, facts), numbers)


def _edges(begins: Array, *firsts: Array) -> Array:
    """Distinct first rows of row groups and pages, in order."""
    if len(firsts) == 1 and len(begins):
        # Pages of one column are in order, and normally one begins at the start of each row group.
        (pages,) = firsts
        if len(pages) and (pages[1:] > pages[:-1]).all():
            at = pages.searchsorted(begins)
            if (pages.take(at, mode="clip") == begins).all():
                return pages
    return np.unique(np.concatenate([begins, *firsts]))


def segments(
    survey: Survey,
    units: Sequence[int],
    indexed: Mapping[tuple[int, Path], PageFacts],
    evidence: Evidence,
) -> Segments:
    """Segments of row groups, from pages by row group and column path."""
    mine: dict[Path, list[tuple[int, PageFacts]]] = {}
    for (unit, path), pages in sorted(indexed.items(), key=lambda item: item[0][0]):
        mine.setdefault(path, []).append((unit, pages))
    columns = {path: ColumnPages.of(found) for path, found in mine.items()}
    return Segments.of(survey, np.array(sorted(units), dtype=np.int64), columns, evidence)


# Pages of a part are numbered from a multiple of this.
_PART: Final = 1 << 40
# Up to this many pages are cut into segments once and cached; beyond it, only those of open row groups.
_MOST_PAGES: Final = 1 << 17
# Sets of columns whose segments are cached.
_TABLES: Final = 8
_NO_FACTS: Mapping[tuple[str, ...], FactOverride] = {}


@dataclass(frozen=True, slots=True, eq=False)
class RuledOut:
    """Row groups and pages that bloom filters rule out, by the leaf's ``id``."""

    groups: dict[int, Array]
    """Whether each requested row group holds none of the values."""
    pages: dict[int, Array]
    """Numbers of pages (see :class:`ColumnPages`) without any of the values, in ascending order."""
    settled: bool
    """Whether no other bloom filter can rule out more."""


class SurveyPart(Protocol):
    """A run of files whose metadata has one source: footers, or an index."""

    @property
    def near(self) -> bool:
        """Whether reading this metadata makes no requests."""

    @property
    def counts(self) -> Array:
        """Row groups of each file."""

    @property
    def rows(self) -> Array:
        """Rows of each row group."""

    def file(self, number: int) -> ParquetMetadata:
        """One file's metadata."""

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """Facts about a column in each row group."""

    def pages(self, unit: int, ref: ColumnRef) -> PageFacts | None:
        """Pages of a chunk, if they are available without reading the file."""

    def page_count(self, ref: ColumnRef) -> int | None:
        """Number of pages of a column; None unless those of every row group are available."""

    def column_pages(self, units: Array, ref: ColumnRef) -> ColumnPages | None:
        """Pages of a column in some row groups, as far as they are available without reading the files."""

    def has_filters(self, path: tuple[str, ...]) -> bool:
        """Whether all bloom filters of a column are available."""

    def absent(
        self, node: Node, units: Array, max_keys: int, pages: Mapping[tuple[str, ...], Array] | None
    ) -> RuledOut:
        """What available bloom filters rule out in row groups, or in some of their ``pages`` by column."""


@dataclass(frozen=True, slots=True, eq=False)
class Footers:
    """Files whose footers were read."""

    files: Sequence[ParquetMetadata]
    counts: Array
    rows: Array

    @property
    def near(self) -> bool:
        """True: footers are in memory."""
        return True

    @classmethod
    def of(cls, files: Iterable[ParquetMetadata]) -> Footers:
        """Build from footers."""
        known = tuple(files)
        rows = [np.zeros(0, dtype=np.int64), *[file.row_group_rows for file in known]]
        return cls(known, np.array([*map(len, rows[1:])], dtype=np.int64), np.concatenate(rows))

    def file(self, number: int) -> ParquetMetadata:
        """One footer."""
        return self.files[number]

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """Facts from the footers."""
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
    """N files with their row groups numbered across files; ``overrides`` are facts per file from partitions.

    Overrides take precedence: where a partition column is stored in the files as well, the partition's value
    counts.
    """

    parts: tuple[SurveyPart, ...]
    overrides: Mapping[tuple[str, ...], FactOverride]
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
    """Whether reading this metadata makes no requests."""
    _facts: dict[tuple[tuple[str, ...], str], ColumnFacts] = field(default_factory=dict)
    _tables: dict[tuple[ColumnRef, ...], Segments | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        files: Iterable[ParquetMetadata],
        overrides: Mapping[tuple[str, ...], FactOverride] = _NO_FACTS,
    ) -> Survey:
        """Build from the footers of ``files``."""
        return cls.joined([Footers.of(files)], overrides)

    @classmethod
    def joined(
        cls, parts: Iterable[SurveyPart], overrides: Mapping[tuple[str, ...], FactOverride] = _NO_FACTS
    ) -> Survey:
        """Concatenate several runs of files."""
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
        return cls(known, overrides, owners, numbers, firsts, rows, starts, totals, near)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def count(self) -> int:
        """Number of files."""
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
        """Facts about columns in each row group."""
        return Evidence(self.rows, {ref.path: self.facts(ref) for ref in refs})

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """Facts about one column in each row group; computed once per survey."""
        key = (ref.path, str(ref.type))
        found = self._facts.get(key)
        if found is None:
            override = self.overrides.get(ref.path)
            found = (
                self._stored(ref)
                if override is None
                else override.take(self.owners).fallback_to(lambda: self._stored(ref))
            )
            self._facts[key] = found
        return found

    def _stored(self, ref: ColumnRef) -> ColumnFacts:
        if not self.parts:
            return ColumnFacts.unknown(ref.type, 0)
        return ColumnFacts.concat([part.facts(ref) for part in self.parts])

    def gives(self, path: tuple[str, ...]) -> bool:
        """Whether partitions provide a column for all files."""
        override = self.overrides.get(path)
        return override is not None and override.where is None

    def states(self, unit: int, path: tuple[str, ...]) -> bool:
        """Whether a partition provides a column of a row group, regardless of its file."""
        override = self.overrides.get(path)
        return override is not None and (override.where is None or bool(override.where[self.owners[unit]]))

    def pages(self, unit: int, ref: ColumnRef) -> PageFacts | None:
        """Pages of a column in a row group, if they are available without reading the file."""
        for part in self.parts:
            if unit < len(part.rows):
                return part.pages(unit, ref)
            unit -= len(part.rows)
        raise IndexError(unit)

    def column_pages(self, units: Array, ref: ColumnRef) -> ColumnPages | None:
        """Pages of a column in row groups (ascending), as far as they are available without reading files.

        Where a partition states the column, its pages say nothing.
        """
        override = self.overrides.get(ref.path)
        if override is not None:
            units = units[:0] if override.where is None else units[~override.where[self.owners[units]]]
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
        """All rows as segments of these columns' pages; None unless all pages are available."""
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
        """What available bloom filters rule out, and those of ``units`` whose filters are still to be read.

        Masks have one element per row group of the survey. ``pages`` (page numbers by column) limits the
        look-up to those pages where pages have filters.
        """
        if len(self.parts) == 1 and not self.overrides:
            found = self.parts[0].absent(node, units, max_keys, pages)
            for leaf, absent in found.groups.items():
                found.groups[leaf] = np.zeros(len(self.rows), dtype=bool)
                found.groups[leaf][units] = absent
            return found, units[:0] if found.settled else units
        masks: dict[int, Array] = {}
        gone: dict[int, list[Array]] = {}
        provided = {id(leaf) for leaf in node.leaves() if self.gives(leaf.ref.path)} if self.overrides else ()
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
                    if leaf not in provided:
                        mask = masks.setdefault(leaf, np.zeros(len(self), dtype=bool))
                        mask[mine] = absent
                for leaf, numbers in found.pages.items():
                    if leaf not in provided:
                        gone.setdefault(leaf, []).append(numbers + base)
                if not found.settled:
                    unread.append(mine)
            first = last
        deeper = {leaf: np.sort(np.concatenate(parts)) for leaf, parts in gone.items()}
        return RuledOut(masks, deeper, not unread), np.concatenate([units[:0], *unread])

    def row_sets(self, owners: Array, starts: Array, stops: Array) -> dict[int, RowSet]:
        """Row ranges by owning file, as one row set per file."""
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


# -- requests ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bytes of one of the survey's files."""

    file: int
    range: ByteRange


Need: TypeAlias = list[Fetch] | list[BloomRequest]
Unusable: TypeAlias = Callable[[int, tuple[str, ...], str, str], None]
"""Notes unusable metadata: row group, column, kind and reason."""


def is_blooms(need: Need) -> TypeGuard[list[BloomRequest]]:
    """Whether bloom filters are requested, not bytes."""
    return bool(need) and isinstance(need[0], BloomRequest)


def ranges_of(need: Need) -> list[ByteRange]:
    """Byte ranges of a request for one file."""
    return [fetch.range for fetch in need if isinstance(fetch, Fetch)]
