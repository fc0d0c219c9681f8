"""The row groups of several files as one list of units, so that one judgement serves them all.

Callers can switch kinds of evidence on and off, and provide bloom filters from elsewhere.

Pages are one list of units too. Page boundaries differ between columns, so the units are *segments*: the row
ranges between neighbouring boundaries of any column. Each segment is within one page of each column and takes
its facts, so the judge sees one evidence table, and AND, OR and NOT need no special cases. Pages are arrays
over all row groups: a few array operations cut a lake's pages into segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np

from skipstone.core.evidence import Array, ColumnFacts, Evidence, FactOverride
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.rows import RowSet
from skipstone.parquet.bloom import BloomFilter
from skipstone.parquet.evidence import lake_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import PageIndex
from skipstone.store.source import ByteRange

if TYPE_CHECKING:
    from skipstone.prune.blooms import Hashes


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
        max_bloom_keys: The most values of an IN list or a semi join that are looked up in one bloom filter.
            Of a longer list, only the values between the bounds of the row group or page are looked up, and
            count. Ranges are looked up if they have at most 256 integers.
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
    """The pages of one column in one row group, and their facts."""

    index: PageIndex
    facts: ColumnFacts


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPages:
    """The pages of one column in many row groups, concatenated."""

    units: Array
    """The row group of each page, ascending."""
    first_rows: Array
    """The first row of each page in its row group."""
    facts: ColumnFacts
    numbers: Array
    """Number of each page in the loaded bloom filters; -1 without a filter."""

    @classmethod
    def of(cls, pages: Iterable[tuple[int, PageFacts]]) -> ColumnPages:
        """The pages of row groups in ascending order."""
        units, facts = zip(*pages, strict=True)
        counts = [len(one.index) for one in facts]
        return cls(
            np.repeat(np.array(units, dtype=np.int64), counts),
            np.concatenate([one.index.first_rows for one in facts]),
            ColumnFacts.concat([one.facts for one in facts]),
            np.full(sum(counts), -1, dtype=np.int64),
        )

    @classmethod
    def concat(cls, parts: Sequence[ColumnPages]) -> ColumnPages:
        """Concatenate, sorted by row group."""
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
    """Row ranges without page boundaries inside, with their evidence; rows are relative to the file."""

    starts: Array
    stops: Array
    units: Array
    """The row group of each segment."""
    evidence: Evidence
    numbers: Mapping[Path, Array]
    """Per column with pages, the number of each segment's page in the loaded bloom filters, or -1."""
    filtered: bool = False
    """Whether all bloom filters of these columns are loaded."""

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(
        cls, survey: Survey, units: Array, columns: Mapping[Path, ColumnPages], evidence: Evidence
    ) -> Segments:
        """The segments of row groups (ascending); a column without pages has its row group's facts."""
        rows = survey.rows[units]
        # Row groups are laid end to end, so that one search finds the pages of all.
        ends = np.cumsum(rows)
        begins = ends - rows
        firsts = {
            path: begins[np.searchsorted(units, pages.units)] + pages.first_rows
            for path, pages in columns.items()
        }
        edges = _edges(begins, *firsts.values())
        total = int(ends[-1]) if len(ends) else 0
        edges = edges[edges < total]
        index = np.searchsorted(ends, edges, side="right")
        owners = units[index]
        facts = {path: column.take(owners) for path, column in evidence.columns.items()}
        numbers = {}
        for path, pages in columns.items():
            # The last page that starts at or before the segment: empty pages come earlier.
            at = np.searchsorted(firsts[path], edges, side="right") - 1
            paged = (at >= 0) & (pages.units[at] == owners)
            base = facts[path]
            both = base.intersect(pages.facts.take(np.maximum(at, 0)))
            facts[path] = FactOverride(both, paged).fallback_to(lambda base=base: base)  # type: ignore[misc]
            numbers[path] = np.where(paged, pages.numbers[at], -1)
        starts = edges - begins[index] + survey.starts[owners]
        lengths = np.diff(edges, append=total)
        return cls(starts, starts + lengths, owners, Evidence(lengths, facts), numbers)


def _edges(begins: Array, *firsts: Array) -> Array:
    """Sorted, distinct first rows of row groups and pages."""
    if len(firsts) == 1 and len(begins):
        # The pages of one column are sorted, and usually one begins with each row group.
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
    """The segments of row groups, from pages by row group and column path."""
    mine: dict[Path, list[tuple[int, PageFacts]]] = {}
    for (unit, path), pages in sorted(indexed.items(), key=lambda item: item[0][0]):
        mine.setdefault(path, []).append((unit, pages))
    columns = {path: ColumnPages.of(pages) for path, pages in mine.items()}
    return Segments.of(survey, np.array(sorted(units), dtype=np.int64), columns, evidence)


# Pages of a part are numbered from a multiple of this.
_PART: Final = 1 << 40
# Up to this many pages, all segments are cached; with more, only those of undecided row groups are built.
_MAX_PAGES: Final = 1 << 17
# Column sets whose segments are cached.
_TABLES: Final = 8
_NO_FACTS: Mapping[tuple[str, ...], FactOverride] = {}


@dataclass(frozen=True, slots=True, eq=False)
class RuledOut:
    """Units in which loaded bloom filters exclude all values of a leaf, by the leaf's ``id``."""

    groups: dict[int, Array]
    """Mask over the requested row groups."""
    pages: dict[int, Array]
    """Ascending numbers of pages (see :class:`ColumnPages`) in row groups that may have a value."""
    settled: bool
    """Whether no further bloom filters exist."""


class SurveyPart(Protocol):
    """Files whose row groups come from the same source: footers or an index."""

    @property
    def near(self) -> bool:
        """Whether loaded metadata is accessed without requests."""

    @property
    def counts(self) -> Array:
        """Row groups of each file."""

    @property
    def rows(self) -> Array:
        """Rows of each row group."""

    def file(self, number: int) -> ParquetMetadata:
        """Metadata of a file."""

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """Facts of a column per row group."""

    def pages(self, unit: int, ref: ColumnRef) -> PageFacts | None:
        """The pages of a chunk, if loaded."""

    def page_count(self, ref: ColumnRef) -> int | None:
        """Number of pages of a column; None unless those of every row group are loaded."""

    def column_pages(self, units: Array, ref: ColumnRef) -> ColumnPages | None:
        """The loaded pages of a column in some row groups."""

    def has_filters(self, path: tuple[str, ...]) -> bool:
        """Whether all bloom filters of a column are loaded."""

    def absent(
        self,
        node: Node,
        units: Array,
        max_keys: int,
        pages: Mapping[tuple[str, ...], Array] | None,
        hashes: Hashes | None,
    ) -> RuledOut:
        """Probe loaded bloom filters of row groups, or of their ``pages`` by column.

        ``hashes`` keeps those of values, if parts can have them in common.
        """


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
        """Collect the row groups of files."""
        footers = tuple(files)
        rows = [np.zeros(0, dtype=np.int64), *[file.row_group_rows for file in footers]]
        return cls(footers, np.array([*map(len, rows[1:])], dtype=np.int64), np.concatenate(rows))

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
        hashes: Hashes | None,  # noqa: ARG002
    ) -> RuledOut:
        """Bloom filters must be read."""
        return RuledOut({}, {}, settled=False)


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """The row groups of N files, numbered consecutively.

    ``overrides`` are facts per file, from partitions, which replace those of the files: if files also store a
    partition column, the partition's value wins.
    """

    parts: tuple[SurveyPart, ...]
    overrides: Mapping[tuple[str, ...], FactOverride]
    owners: Array
    """The file of each row group."""
    numbers: Array
    """Number of each row group in its file."""
    firsts: Array
    """The first row group of each file, and one past the last."""
    rows: Array
    starts: Array
    """The first row of each row group in its file."""
    totals: Array
    """Rows of each file."""
    near: bool
    """Whether loaded metadata is accessed without requests."""
    _facts: dict[tuple[tuple[str, ...], str], ColumnFacts] = field(default_factory=dict)
    _tables: dict[tuple[ColumnRef, ...], Segments | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        files: Iterable[ParquetMetadata],
        overrides: Mapping[tuple[str, ...], FactOverride] = _NO_FACTS,
    ) -> Survey:
        """A survey of footers."""
        return cls.joined([Footers.of(files)], overrides)

    @classmethod
    def joined(
        cls, parts: Iterable[SurveyPart], overrides: Mapping[tuple[str, ...], FactOverride] = _NO_FACTS
    ) -> Survey:
        """Concatenate parts."""
        used = tuple(part for part in parts if len(part.counts))
        nothing = np.zeros(0, dtype=np.int64)
        counts = np.concatenate([nothing, *(part.counts for part in used)])
        rows = np.concatenate([nothing, *(part.rows for part in used)])
        firsts = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=firsts[1:])
        owners = np.repeat(np.arange(len(counts)), counts)
        before = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(rows, out=before[1:])
        starts = before[:-1] - before[firsts[owners]]
        totals = before[firsts[1:]] - before[firsts[:-1]]
        numbers = np.arange(len(rows)) - firsts[owners]
        near = all(part.near for part in used)
        return cls(used, overrides, owners, numbers, firsts, rows, starts, totals, near)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def count(self) -> int:
        """Number of files."""
        return len(self.totals)

    @property
    def stops(self) -> Array:
        """The row after the last of each row group in its file."""
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
        """Metadata of a row group's file."""
        return self.metadata(int(self.owners[unit]))

    def units(self, file: int) -> range:
        """The row groups of a file."""
        return range(int(self.firsts[file]), int(self.firsts[file + 1]))

    def evidence(self, refs: Sequence[ColumnRef]) -> Evidence:
        """Evidence of columns per row group."""
        return Evidence(self.rows, {ref.path: self.facts(ref) for ref in refs})

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """Facts of one column per row group; cached."""
        key = (ref.path, str(ref.type))
        facts = self._facts.get(key)
        if facts is None:
            override = self.overrides.get(ref.path)
            facts = (
                self._stored(ref)
                if override is None
                else override.take(self.owners).fallback_to(lambda: self._stored(ref))
            )
            self._facts[key] = facts
        return facts

    def _stored(self, ref: ColumnRef) -> ColumnFacts:
        if not self.parts:
            return ColumnFacts.unknown(ref.type, 0)
        return ColumnFacts.concat([part.facts(ref) for part in self.parts])

    def gives(self, path: tuple[str, ...]) -> bool:
        """Whether partitions override a column in all files."""
        override = self.overrides.get(path)
        return override is not None and override.where is None

    def states(self, unit: int, path: tuple[str, ...]) -> bool:
        """Whether a partition overrides a column of a row group."""
        override = self.overrides.get(path)
        return override is not None and (override.where is None or bool(override.where[self.owners[unit]]))

    def pages(self, unit: int, ref: ColumnRef) -> PageFacts | None:
        """The pages of a column in a row group, if loaded."""
        for part in self.parts:
            if unit < len(part.rows):
                return part.pages(unit, ref)
            unit -= len(part.rows)
        raise IndexError(unit)

    def column_pages(self, units: Array, ref: ColumnRef) -> ColumnPages | None:
        """The loaded pages of a column in some row groups (ascending).

        Row groups whose partition overrides the column are left out.
        """
        override = self.overrides.get(ref.path)
        if override is not None:
            units = units[:0] if override.where is None else units[~override.where[self.owners[units]]]
        loaded = []
        first = 0
        for number, part in enumerate(self.parts):
            last = first + len(part.rows)
            mine = units[(units >= first) & (units < last)]
            pages = part.column_pages(mine - first, ref) if len(mine) else None
            if pages is not None:
                base = number * _PART
                loaded.append(replace(pages, units=pages.units + first, numbers=pages.numbers + base))
            first = last
        return ColumnPages.concat(loaded) if loaded else None

    def table(self, refs: tuple[ColumnRef, ...]) -> Segments | None:
        """Segments of all rows by these columns' pages; None unless every page is loaded."""
        table = self._tables.get(refs, ...)
        if table is ...:
            if len(self._tables) >= _TABLES:
                self._tables.clear()
            table = self._tables[refs] = self._table(refs)
        return table

    def _table(self, refs: tuple[ColumnRef, ...]) -> Segments | None:
        stored = [ref for ref in refs if not self.gives(ref.path)]
        counts = [part.page_count(ref) for ref in stored for part in self.parts]
        if None in counts or sum(count for count in counts if count) > _MAX_PAGES:
            return None
        every = np.arange(len(self))
        columns = {ref.path: self.column_pages(every, ref) for ref in stored}
        paged = {path: pages for path, pages in columns.items() if pages is not None}
        filtered = all(part.has_filters(ref.path) for ref in stored for part in self.parts)
        return replace(Segments.of(self, every, paged, self.evidence(refs)), filtered=filtered)

    def absent(
        self,
        node: Node,
        units: Array,
        max_keys: int,
        pages: Mapping[tuple[str, ...], Array] | None = None,
    ) -> tuple[RuledOut, Array]:
        """Probe loaded bloom filters; returns what they rule out, and the units with filters to read.

        Masks cover all row groups. With ``pages``, page numbers by column, only those pages are probed if
        pages have filters.
        """
        if len(self.parts) == 1 and not self.overrides:
            ruled_out = self.parts[0].absent(node, units, max_keys, pages, None)
            for leaf, absent in ruled_out.groups.items():
                ruled_out.groups[leaf] = np.zeros(len(self.rows), dtype=bool)
                ruled_out.groups[leaf][units] = absent
            return ruled_out, units[:0] if ruled_out.settled else units
        masks: dict[int, Array] = {}
        gone: dict[int, list[Array]] = {}
        overridden = (
            {id(leaf) for leaf in node.leaves() if self.gives(leaf.ref.path)} if self.overrides else ()
        )
        unread = []
        first = 0
        is_split = len(self.parts) > 1
        hashes: Hashes | None = {} if is_split else None
        for number, part in enumerate(self.parts):
            last, base = first + len(part.rows), number * _PART
            mine = units[(units >= first) & (units < last)] if is_split else units
            if mine.size:
                some = None
                if pages is not None:
                    some = {path: p[(p >= base) & (p < base + _PART)] - base for path, p in pages.items()}
                ruled_out = part.absent(node, mine - first, max_keys, some, hashes)
                for leaf, absent in ruled_out.groups.items():
                    if leaf not in overridden:
                        mask = masks.setdefault(leaf, np.zeros(len(self), dtype=bool))
                        mask[mine] = absent
                for leaf, numbers in ruled_out.pages.items():
                    if leaf not in overridden:
                        gone.setdefault(leaf, []).append(numbers + base)
                if not ruled_out.settled:
                    unread.append(mine)
            first = last
        deeper = {leaf: np.sort(np.concatenate(parts)) for leaf, parts in gone.items()}
        return RuledOut(masks, deeper, not unread), np.concatenate([units[:0], *unread])

    def row_sets(self, owners: Array, starts: Array, stops: Array) -> dict[int, RowSet]:
        """Row ranges as one row set per file."""
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


# -- requests of the cascade -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bytes of one of the survey's files."""

    file: int
    range: ByteRange


Need: TypeAlias = list[Fetch] | list[BloomRequest]
Unusable: TypeAlias = Callable[[int, tuple[str, ...], str, str], None]
"""Records unusable metadata: row group, column, kind, reason."""


def is_blooms(need: Need) -> TypeGuard[list[BloomRequest]]:
    """Whether bloom filters are requested, not bytes."""
    return bool(need) and isinstance(need[0], BloomRequest)


def ranges_of(need: Need) -> list[ByteRange]:
    """The requested byte ranges of one file."""
    return [fetch.range for fetch in need if isinstance(fetch, Fetch)]
