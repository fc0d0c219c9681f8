"""Record files in a draft, from their footers, page indexes and, where requested, values."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.blocks import Blocks, facets_of, read_blocks
from skipstone.aggregate.states.sketches import sketches
from skipstone.aggregate.states.state import ALL_FACETS, Facet
from skipstone.core.domain.keys import Kind, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.errors import EncryptedFileError
from skipstone.index.draft import ColumnDraft, Draft, FilterStack, Pages
from skipstone.index.levels import UNKNOWN, LevelBounds
from skipstone.index.marks import marks_of
from skipstone.index.spec import LISTS, Path, Spec
from skipstone.lake.files import Files
from skipstone.parquet.bloom import (
    BadBloom,
    BloomFilter,
    bloom_range,
    has_bloom,
    parse_bloom,
    whole_bloom_range,
)
from skipstone.parquet.evidence import (
    BoundLeaf,
    find_leaf,
    lake_facts,
    own_type,
    page_facts,
    row_group_counts,
    trust_of,
)
from skipstone.parquet.measure import ChunkMeasure, NotMeasurable, build_bloom, measure
from skipstone.parquet.metadata import ParquetMetadata, all_chunks
from skipstone.parquet.pageindex import (
    BadPageIndex,
    PageIndex,
    PageRun,
    hop_pages,
    page_index_ranges,
    parse_page_index,
    parse_page_run,
    walk_pages,
)
from skipstone.parquet.recorded import check_chunks, record_chunks
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.slice import slice_steps
from skipstone.parquet.values import widen
from skipstone.store.source import ByteRange, drive
from skipstone.store.store import ListedFile

# Lower than usual: a row group has several pages, and each can be a false positive.
_PAGE_FPP: Final = 0.003
# Larger row groups are not measured: a few bytes can claim any number of NULLs, which all take memory.
_MOST_ROWS: Final = 1 << 27


class Origin(IntEnum):
    """Origin of the facts about a column in a file."""

    NOWHERE = 0
    FOOTER = 1
    PAGE_INDEX = 2
    VALUES = 3


def record_files(files: Files, entries: Sequence[ListedFile], spec: Spec) -> Draft:
    """Record files, in their order; an error if one of them can't be read.

    Files of one schema are recorded together, in arrays, if metadata is enough for the spec. If values must
    be read, each file is recorded alone, because its columns are held in memory.
    """
    footers = files.footers(entries)
    for footer in footers:
        if footer.has_secrets:
            raise EncryptedFileError("file is partly encrypted", path=footer.path)
    alone = any(getattr(spec, name) for name in LISTS)
    groups: dict[object, list[int]] = {}
    for number, footer in enumerate(footers):
        groups.setdefault(number if alone else id(footer.schema_group), []).append(number)
    drafts = [
        _Recorder(files, [entries[n] for n in mine], [footers[n] for n in mine], spec).draft()
        for mine in groups.values()
    ]
    order = np.argsort([number for mine in groups.values() for number in mine])
    draft = Draft.concat(drafts)
    return draft if alone or len(groups) == 1 else draft.take(order)


@dataclass(slots=True)
class _Recorder:
    """Records files of one schema; their row groups are numbered consecutively."""

    files: Files
    entries: Sequence[ListedFile]
    footers: Sequence[ParquetMetadata]
    spec: Spec
    owners: list[tuple[ParquetMetadata, int]] = field(default_factory=list)
    """The file of each row group, and the row group's number in it."""
    bodies: dict[int, list[tuple[bytes | None, bytes] | None]] = field(default_factory=dict)
    """By leaf, per row group: column index (if bounds are wanted) and offset index, if there is one."""
    indexes: dict[tuple[int, int], PageIndex | None] = field(default_factory=dict)
    """Individually parsed page indexes, by row group and leaf."""

    def draft(self) -> Draft:
        """Record the files."""
        files = self.footers
        first = files[0]
        counts = [file.row_group_count for file in files]
        self.owners = [(file, group) for file in files for group in range(file.row_group_count)]
        sizes = np.array([entry.size for entry in self.entries], dtype=np.int64)
        chunks = record_chunks(files)
        check_chunks(chunks, first.leaves, [file.row_group_rows for file in files], sizes)
        self._fetch()
        return Draft(
            keys=[entry.key for entry in self.entries],
            versions=[repr(entry.version) for entry in self.entries],
            marks=marks_of(self.entries, self.files.naming),
            sizes=sizes,
            schemas=[first.shell()],
            schema_numbers=np.zeros(len(files), dtype=np.uint32),
            counts=np.array(counts, dtype=np.int64),
            group_rows=np.concatenate([file.row_group_rows for file in files]),
            group_sizes=self._group_sizes(chunks, counts),
            chunk_counts=np.array(counts, dtype=np.int64) * len(first.leaves),
            chunks=chunks,
            columns=self._columns(),
        )

    def _group_sizes(self, chunks: Array, counts: list[int]) -> Array:
        """Bytes of each row group: uncompressed, if the writer recorded it, and stored."""
        leaves = len(self.footers[0].leaves)
        sizes = np.zeros((len(self.owners), 2), dtype=np.int64)
        sizes[:, 0] = [file.row_groups[group].total_byte_size or 0 for file, group in self.owners]
        first = np.cumsum(counts) - counts
        units = [np.tile(np.arange(at, at + count), leaves) for at, count in zip(first, counts, strict=True)]
        np.add.at(sizes[:, 1], np.concatenate(units), chunks["size"])
        return sizes

    # -- page indexes ------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Read the required page indexes, one request per file."""
        if not self.spec.pages:
            return
        leaves = self.footers[0].leaves
        indexed = {path for path, _ in self.spec.columns}
        self.bodies = {leaf.index: [] for leaf in leaves}
        for entry, file in zip(self.entries, self.footers, strict=True):
            wanted: list[tuple[int, ByteRange | None, ByteRange | None]] = []
            for leaf in leaves:
                for group in range(file.row_group_count):
                    bounds, offsets = page_index_ranges(file, group, leaf.index)
                    wanted.append((leaf.index, bounds if leaf.path in indexed else None, offsets))
            spans = [span for _, bounds, offsets in wanted if offsets for span in (bounds, offsets) if span]
            bodies = dict(zip(spans, self.files.read(entry, spans), strict=True)) if spans else {}
            for number, bounds, offsets in wanted:
                bound = None if bounds is None else bodies.get(bounds)
                self.bodies[number].append(None if offsets is None else (bound, bodies[offsets]))
        if self.spec.values:
            self._read_page_headers(indexed)

    def _read_page_headers(self, indexed: set[Path]) -> None:
        """Locate the pages of unindexed columns by their headers, where there is no page index.

        A query that selects few rows reads pages of all its columns, not only of those in its predicate.
        """
        first = 0
        for entry, file in zip(self.entries, self.footers, strict=True):
            missing = [
                (group, leaf.index)
                for group in range(file.row_group_count)
                for leaf in file.leaves
                if leaf.path not in indexed and self._index(first + group, leaf.index) is None
            ]
            indexes = hop_pages(file, missing, partial(self.files.read, entry))
            self.indexes.update({(first + group, leaf): index for (group, leaf), index in indexes.items()})
            first += file.row_group_count

    def _index(self, unit: int, leaf: int) -> PageIndex | None:
        """Return the pages of one chunk; for unindexed columns only offsets."""
        key = (unit, leaf)
        if key not in self.indexes:
            body = self.bodies[leaf][unit] if self.bodies else None
            self.indexes[key] = None if body is None else self._parse(*body, unit, leaf)
        return self.indexes[key]

    def _parse(self, bounds: bytes | None, offsets: bytes, unit: int, leaf: int) -> PageIndex | None:
        file, group = self.owners[unit]
        try:
            index = parse_page_index(bounds, offsets, file, group, leaf)
            return index if index.is_contiguous else None
        except BadPageIndex:
            # The offsets may be valid without the bounds.
            return None if bounds is None else self._parse(None, offsets, unit, leaf)

    def _all_indexes(self, leaf: int) -> list[PageIndex | None]:
        return [self._index(unit, leaf) for unit in range(len(self.owners))]

    def _run(self, leaf: LeafColumn) -> PageRun | None:
        """Return the pages of all chunks of a column, if all of them are valid."""
        bodies = self.bodies[leaf.index]
        if None in bodies or any(index == leaf.index for _, index in self.indexes):
            return None
        chunks = [file.chunk_range(group, leaf.index) for file, group in self.owners]
        rows = np.concatenate([file.row_group_rows for file in self.footers])
        try:
            return parse_page_run(bodies, rows, chunks, leaf)  # type: ignore[arg-type]  # None is not in it
        except BadPageIndex:
            return None

    # -- columns -----------------------------------------------------------------------------

    def _columns(self) -> dict[Path, ColumnDraft]:
        """Record all indexed columns, and page offsets of the others."""
        drafts: dict[Path, ColumnDraft] = {}
        for path, type in self.spec.columns:
            drafts[path] = self._column(ColumnRef(path, type))
        if self.spec.pages:
            for leaf in self.footers[0].leaves:
                if leaf.path not in drafts:
                    drafts[leaf.path] = ColumnDraft(pages=self._page_offsets(leaf))
        return drafts

    def _page_offsets(self, leaf: LeafColumn) -> Pages:
        run = self._run(leaf)
        return _pages(self._all_indexes(leaf.index), None) if run is None else _run_pages(run, None)

    def _column(self, ref: ColumnRef) -> ColumnDraft:
        files = self.footers
        bound = find_leaf(files[0], ref)
        facts = lake_facts(files, ref)
        unknown = np.full(len(facts), UNKNOWN, dtype=np.int64)
        level = LevelBounds(facts, *row_group_counts(files, ref), unknown, unknown)
        if bound is None:
            # Missing, nested or of an unordered type: there are only the footer's facts.
            return ColumnDraft(ref.type, level, origins=self._origins(Origin.FOOTER))
        needs_values = self._needs_values(bound)
        read = [self._measure(bound, unit) if needs_values else None for unit in range(len(facts))]
        if any(read):
            return self._read_column(bound, level, read)
        pages, origins = self._indexed_pages(bound, ref)
        return ColumnDraft(ref.type, level, pages, self._blooms(bound, read), origins=origins)

    def _origins(self, origin: Origin) -> Array:
        return np.full(len(self.footers), origin, dtype=np.uint8)

    def _needs_values(self, bound: BoundLeaf) -> bool:
        """Whether the spec requires reading the column's values."""
        spec, path, leaf = self.spec, bound.ref.path, bound.leaf
        if path in (*spec.sums, *spec.sketches, *spec.blooms, *spec.ids):
            return True
        if path not in spec.values:
            return False
        if self._lacks_nan_counts(bound):
            return True
        indexes = self._all_indexes(leaf.index)
        return spec.pages and not all(index is not None and index.has_statistics for index in indexes)

    def _lacks_nan_counts(self, bound: BoundLeaf) -> bool:
        floating = key_space(bound.ref.type).kind is Kind.FLOAT
        stats = [chunk.statistics for chunk in all_chunks(self.footers, bound.leaf.index)]
        return floating and not all(s is not None and s.nan_count is not None for s in stats)

    # -- page indexes of columns -------------------------------------------------------------

    def _indexed_pages(self, bound: BoundLeaf, ref: ColumnRef) -> tuple[Pages | None, Array]:
        """Return the pages from page indexes, and the origin of facts per file."""
        if not self.spec.pages:
            return None, self._origins(Origin.FOOTER)
        first = self.footers[0]
        run = self._run(bound.leaf)
        if run is not None:
            level = _page_level(first, bound, run, ref) if run.has_statistics else None
            origin = Origin.PAGE_INDEX if run.has_statistics else Origin.FOOTER
            return _run_pages(run, level), self._origins(origin)
        indexes = self._all_indexes(bound.leaf.index)
        deep = {
            id(file)
            for (file, _), index in zip(self.owners, indexes, strict=True)
            if index is not None and index.has_statistics
        }
        origins = np.array(
            [Origin.PAGE_INDEX if id(file) in deep else Origin.FOOTER for file in self.footers],
            dtype=np.uint8,
        )
        if not deep:
            return _pages(indexes, None), origins
        levels = [_page_level(first, bound, index, ref) for index in indexes if index is not None]
        return _pages(indexes, LevelBounds.concat(levels)), origins

    # -- values ------------------------------------------------------------------------------

    def _measure(self, bound: BoundLeaf, unit: int) -> _ChunkValues | None:
        """Read the values of one chunk, and measure its pages."""
        (metadata, group), leaf = self.owners[unit], bound.leaf
        entry = self._entry(unit)
        span = metadata.chunk_range(group, leaf.index)
        fetched: dict[ByteRange, bytes] = {}

        def fetch(ranges: Sequence[ByteRange]) -> list[bytes]:
            missing = [r for r in ranges if r not in fetched]
            fetched.update(zip(missing, self.files.read(entry, missing), strict=True))
            return [fetched[r] for r in ranges]

        rows = int(metadata.row_group_rows[group])
        if not 0 < rows <= _MOST_ROWS:
            return None
        top = [f.name for f in metadata.arrow_schema].index(leaf.path[0])
        everything = RowSet.all(rows)
        table = drive(slice_steps(metadata, group, [top], everything, {}, leaves=[leaf.index]), fetch)
        column = table.column(0)
        for name in leaf.path[1:]:
            column = pc.struct_field(column, name)
        index = self._index(unit, leaf.index)
        if index is None and self.spec.pages:
            try:
                (body,) = fetch([span])
                index = self.indexes[unit, leaf.index] = walk_pages(body, metadata, group, leaf.index)
            except BadPageIndex:
                index = None
        own = own_type(metadata, leaf.path)
        try:
            first = np.zeros(1, dtype=np.int64) if index is None else index.first_rows
            measured = measure(own, _with_zone(column, own), first)
            return _ChunkValues(column, own, measured, index is not None)
        except NotMeasurable:
            return None

    def _entry(self, unit: int) -> ListedFile:
        owner = self.owners[unit][0]
        return next(entry for entry, file in zip(self.entries, self.footers, strict=True) if file is owner)

    def _read_column(
        self, bound: BoundLeaf, level: LevelBounds, read: Sequence[_ChunkValues | None]
    ) -> ColumnDraft:
        """Use the facts of values, and of the footer for chunks that could not be measured."""
        ref = bound.ref
        own = next(chunk.type for chunk in read if chunk is not None)
        steps = widen(storage_type(own), storage_type(ref.type))
        groups, pages, indexes = [], [], []
        for unit, chunk in enumerate(read):
            index = self._index(unit, bound.leaf.index)
            if chunk is None or steps is None:
                groups.append(level.take(np.array([unit])))
                if index is not None:
                    pages.append(_page_level(self.footers[0], bound, index, ref))
            else:
                level_of_pages = chunk.level(steps, ref.type)
                groups.append(chunk.whole(level_of_pages))
                if chunk.paged:
                    pages.append(level_of_pages)
            indexes.append(index)
        deep = _pages(indexes, LevelBounds.concat(pages) if pages else None) if self.spec.pages else None
        return ColumnDraft(
            ref.type,
            LevelBounds.concat(groups),
            deep,
            self._blooms(bound, read),
            self._page_blooms(bound, read),
            self._origins(Origin.VALUES),
            self._sums(bound, read) if ref.path in self.spec.sums else {},
            self._sketches(ref.type, read) if ref.path in self.spec.sketches else {},
        )

    def _sums(self, bound: BoundLeaf, read: Sequence[_ChunkValues | None]) -> dict[str, Blocks]:
        """Compute block aggregates of row groups and pages, as keys of the index's type."""
        if not facets_of(bound.ref.type) & Facet.SUM:
            return {}
        groups, pages = [Blocks.unknown(bound.ref.type, 0)], [Blocks.unknown(bound.ref.type, 0)]
        for unit, one in enumerate(read):
            index = self._index(unit, bound.leaf.index) if self.spec.pages else None
            blocks = _sum_chunk(bound.ref.type, one, index)
            if index is not None:
                pages.append(blocks)
            groups.append(blocks.merge(np.zeros(1, dtype=np.int64)))
        levels = {"group": Blocks.concat(groups), "page": Blocks.concat(pages)}
        return {level: blocks for level, blocks in levels.items() if blocks.facets.any()}

    @staticmethod
    def _sketches(type: pa.DataType, read: Sequence[_ChunkValues | None]) -> dict[str, list[bytes]]:
        try:
            by_chunk = [sketches(type, _with_zone(chunk.values, chunk.type)) for chunk in read if chunk]
        except NotMeasurable:
            return {}
        if len(by_chunk) < len(read):
            return {}
        return {kind: [kinds[kind] for kinds in by_chunk] for kind in by_chunk[0]}

    # -- bloom filters -----------------------------------------------------------------------

    def _blooms(self, bound: BoundLeaf, read: Sequence[_ChunkValues | None]) -> dict[int, FilterStack]:
        """Return the files' own filters, and requested filters of row groups without known pages."""
        own = self._own_blooms(bound) if self.spec.own_blooms else {}
        filters = []
        for unit, one in enumerate(read):
            bloom = own.get(unit)
            if bloom is None and bound.ref.path in self.spec.blooms and one is not None and not one.paged:
                bloom = build_bloom(bound.leaf, one.values)
            if bloom is not None:
                filters.append((unit, bloom))
        return _stack(filters)

    def _page_blooms(self, bound: BoundLeaf, read: Sequence[_ChunkValues | None]) -> dict[int, FilterStack]:
        """Build the requested filters of pages, which also serve for row groups."""
        filters: list[tuple[int, BloomFilter]] = []
        first = 0
        for unit, one in enumerate(read):
            index = self._index(unit, bound.leaf.index)
            if index is None:
                continue
            if one is not None and one.paged and bound.ref.path in self.spec.blooms:
                pages = zip(index.first_rows.tolist(), index.row_counts.tolist(), strict=True)
                for page, (row, count) in enumerate(pages):
                    values = one.values.slice(row, count)
                    bloom = build_bloom(bound.leaf, values, fpp=_PAGE_FPP) if count else None
                    if bloom is not None:
                        filters.append((first + page, bloom))
            first += len(index)
        return _stack(filters)

    def _own_blooms(self, bound: BoundLeaf) -> dict[int, BloomFilter]:
        """Read the filters in the files, by row group."""
        leaf = bound.leaf.index
        filters: dict[int, BloomFilter] = {}
        first = 0
        for entry, file in zip(self.entries, self.footers, strict=True):
            if has_bloom(file, leaf):
                own = self._file_blooms(entry, file, leaf)
                filters.update({first + group: bloom for group, bloom in own.items()})
            first += file.row_group_count
        return filters

    def _file_blooms(self, entry: ListedFile, file: ParquetMetadata, leaf: int) -> dict[int, BloomFilter]:
        spans: dict[int, ByteRange] = {}
        for group in range(file.row_group_count):
            try:
                span = bloom_range(file, group, leaf)
            except BadBloom:
                continue
            if span is not None:
                spans[group] = span
        bodies = self.files.read(entry, list(spans.values())) if spans else []
        filters: dict[int, BloomFilter] = {}
        for group, body in zip(spans, bodies, strict=True):
            with suppress(BadBloom):
                whole = whole_bloom_range(file, group, leaf, body)
                if whole.length > len(body):
                    (body,) = self.files.read(entry, [whole])  # noqa: PLW2901
                filters[group] = parse_bloom(body)
        return filters


@dataclass(frozen=True, slots=True, eq=False)
class _ChunkValues:
    """The values of one chunk, measured."""

    values: pa.ChunkedArray
    type: pa.DataType
    measured: ChunkMeasure
    paged: bool
    """Whether the measures are per page, not of the whole chunk."""

    def level(self, steps: Sequence[Any], type: pa.DataType) -> LevelBounds:
        """Return the facts per page, in the index's type."""
        facts = self.measured.facts
        for step in steps:
            facts = facts.through(step)
        unknown = np.full(len(facts), UNKNOWN, dtype=np.int64)
        measured = self.measured
        return LevelBounds(replace(facts, type=type), measured.nulls, measured.nans, unknown, measured.rises)

    def whole(self, pages: LevelBounds) -> LevelBounds:
        """Return the facts of the chunk as one unit."""
        chunk = pages.hull(np.zeros(1, dtype=np.int64))
        return replace(chunk, distinct=np.array([self.measured.distinct], dtype=np.int64))


def _with_zone(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Add the zone to INT96 and deprecated timestamps, which are instants but read by pyarrow without one."""
    if pa.types.is_timestamp(type) and pa.types.is_timestamp(values.type) and values.type.tz is None:
        return values.cast(type)
    return values


def _page_level(
    metadata: ParquetMetadata, bound: BoundLeaf, index: PageIndex | PageRun, ref: ColumnRef
) -> LevelBounds:
    facts = page_facts(metadata, bound, index)
    unknown = np.full(len(index), UNKNOWN, dtype=np.int64)
    trust = trust_of(metadata, bound.leaf)
    exact = trust.zero and trust.exact and trust.dictionary is False
    nulls = index.null_counts if exact and index.null_counts is not None else unknown
    nans = unknown
    if key_space(ref.type).kind is not Kind.FLOAT:
        nans = np.zeros(len(index), dtype=np.int64)
    elif index.nan_counts is not None:
        nans = index.nan_counts
    return LevelBounds(facts, nulls, nans, unknown, unknown)


def _sum_chunk(type: pa.DataType, one: _ChunkValues | None, index: PageIndex | None) -> Blocks:
    """Compute the aggregates of a chunk's pages, or of the whole chunk if they are unknown."""
    starts = np.zeros(1, dtype=np.int64) if index is None else index.first_rows
    try:
        return (
            Blocks.unknown(type, len(starts))
            if one is None
            else read_blocks(type, one.values, starts, ALL_FACETS)
        )
    except NotMeasurable:
        return Blocks.unknown(type, len(starts))


def _stack(filters: Sequence[tuple[int, BloomFilter]]) -> dict[int, FilterStack]:
    """Group filters by size, each with its unit."""
    alike: dict[int, list[tuple[int, BloomFilter]]] = {}
    for unit, bloom in filters:
        alike.setdefault(len(bloom.blocks), []).append((unit, bloom))
    return {
        size: FilterStack(
            np.array([unit for unit, _ in same], dtype=np.int64),
            np.stack([bloom.blocks for _, bloom in same]),
        )
        for size, same in alike.items()
    }


def _pages(indexes: Sequence[PageIndex | None], level: LevelBounds | None) -> Pages:
    present = [index for index in indexes if index is not None]
    none = np.zeros(0, dtype=np.int64)
    return Pages(
        counts=np.array([0 if index is None else len(index) for index in indexes], dtype=np.int64),
        first_rows=np.concatenate([none, *(index.first_rows for index in present)]),
        offsets=np.concatenate([none, *(index.offsets for index in present)]),
        sizes=np.concatenate([none, *(index.sizes for index in present)]).astype(np.int32),
        level=level,
    )


def _run_pages(run: PageRun, level: LevelBounds | None) -> Pages:
    return Pages(run.counts, run.first_rows, run.offsets, run.sizes.astype(np.int32), level)
