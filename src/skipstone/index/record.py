"""One file into one draft: what its footer, its page index and, where asked, its values say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.blocks import Blocks, facets_of, read_blocks
from skipstone.aggregate.states.sketches import sketches
from skipstone.aggregate.states.state import EVERY, Facet
from skipstone.core.domain.keys import Kind, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.index.draft import ColumnDraft, Draft, Pages, Stack
from skipstone.index.levels import UNKNOWN, Level
from skipstone.index.marks import marks_of
from skipstone.index.spec import Path, Spec
from skipstone.lake.files import Files
from skipstone.parquet.bloom import BadBloom, BloomFilter, bloom_length, bloom_range, has_bloom, parse_bloom
from skipstone.parquet.evidence import (
    BoundLeaf,
    find_leaf,
    own_type,
    page_facts,
    row_group_counts,
    row_group_facts,
)
from skipstone.parquet.makebloom import build_bloom
from skipstone.parquet.measure import Measured, NotMeasurable, measure
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.recorded import check_chunks, record_chunks
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.slice import slice_steps
from skipstone.parquet.trust import null_counts_trusted
from skipstone.parquet.values import widen
from skipstone.parquet.walk import hop_pages, walk_pages
from skipstone.store.place import Listed
from skipstone.store.ranges import ByteRange
from skipstone.store.steps import drive

# A row group has some pages, each of which may err.
_PAGE_FPP: Final = 0.003
# Row groups of more rows are not measured: a few bytes can claim any number of NULLs, which all take memory.
_MOST_ROWS: Final = 1 << 27


class Origin(IntEnum):
    """Where the facts about a column in a file came from."""

    NOWHERE = 0
    FOOTER = 1
    PAGE_INDEX = 2
    VALUES = 3


def record_file(files: Files, entry: Listed, spec: Spec) -> Draft:
    """What an index keeps of one file; an error if the file can't be read."""
    metadata = files.footer(entry)
    recorder = _Recorder(files, entry, metadata, spec)
    recorder.fetch()
    chunks = record_chunks(metadata)
    check_chunks(chunks, metadata.leaves, metadata.row_group_rows, entry.size)
    groups = metadata.row_group_count
    return Draft(
        keys=[entry.key],
        versions=[repr(entry.version)],
        marks=marks_of([entry], files.naming),
        sizes=np.array([entry.size], dtype=np.int64),
        kins=[metadata.shell()],
        kin=np.zeros(1, dtype=np.uint32),
        counts=np.array([groups], dtype=np.int64),
        group_rows=metadata.row_group_rows,
        group_sizes=np.array([metadata.group_sizes(g) for g in range(groups)], dtype=np.int64).reshape(-1, 2),
        chunk_counts=np.array([len(chunks)], dtype=np.int64),
        chunks=chunks,
        columns=recorder.columns(),
    )


@dataclass(slots=True)
class _Recorder:
    files: Files
    entry: Listed
    metadata: ParquetMetadata
    spec: Spec
    indexes: dict[tuple[int, int], PageIndex] = field(default_factory=dict)
    """By row group and leaf; those of columns without facts have places only."""

    def fetch(self) -> None:
        """Read every page index that is wanted, together."""
        if not self.spec.pages:
            return
        wanted: list[tuple[int, int, bool]] = []
        ranges: list[ByteRange] = []
        known = {path for path, _ in self.spec.columns}
        for leaf in self.metadata.leaves:
            for group in range(self.metadata.row_group_count):
                bounds, places = page_index_ranges(self.metadata, group, leaf.index)
                if places is None:
                    continue
                deep = bounds is not None and leaf.path in known
                wanted.append((group, leaf.index, deep))
                ranges += [bounds, places] if deep and bounds is not None else [places]
        bodies = iter(self.files.read(self.entry, ranges) if ranges else ())
        for group, number, deep in wanted:
            bounds_body = next(bodies) if deep else None
            places_body = next(bodies)
            found = self._parsed(bounds_body, places_body, group, number)
            if found is not None:
                self.indexes[group, number] = found
        if self.spec.values:
            self._hop(known)

    def _hop(self, known: set[Path]) -> None:
        """Find the pages of columns without facts from their headers, where there is no page index.

        A query that reads few rows wants pages of every column, not just of those it asks about.
        """
        missing = [
            (group, leaf.index)
            for leaf in self.metadata.leaves
            for group in range(self.metadata.row_group_count)
            if leaf.path not in known and (group, leaf.index) not in self.indexes
        ]
        found = hop_pages(self.metadata, missing, lambda ranges: self.files.read(self.entry, ranges))
        self.indexes.update(found)

    def _parsed(self, bounds: bytes | None, places: bytes, group: int, leaf: int) -> PageIndex | None:
        try:
            found = parse_page_index(bounds, places, self.metadata, group, leaf)
            return found if found.is_contiguous else None
        except BadPageIndex:
            # Bounds that can't be trusted leave the places.
            return None if bounds is None else self._parsed(None, places, group, leaf)

    def columns(self) -> dict[Path, ColumnDraft]:
        """Every column that has facts, and every other whose pages are known."""
        drafts: dict[Path, ColumnDraft] = {}
        for path, type in self.spec.columns:
            drafts[path] = self._column(ColumnRef(path, type))
        if self.spec.pages:
            for leaf in self.metadata.leaves:
                if leaf.path not in drafts:
                    drafts[leaf.path] = ColumnDraft(pages=self._places(leaf))
        return drafts

    def _places(self, leaf: LeafColumn) -> Pages:
        found = [self.indexes.get((group, leaf.index)) for group in range(self.metadata.row_group_count)]
        return _pages(found, None)

    def _column(self, ref: ColumnRef) -> ColumnDraft:
        bound = find_leaf(self.metadata, ref)
        told = row_group_facts(self.metadata, ref)
        nobody = np.full(len(told), UNKNOWN, dtype=np.int64)
        level = Level(told, *row_group_counts(self.metadata, ref), nobody, nobody)
        if bound is None:
            # Missing, nested or of a type that can't be compared: what the footer says is all there is.
            return ColumnDraft(ref.type, level, origins=_origin(Origin.FOOTER))
        wanted = self._wanted(bound)
        read = [self._measured(bound, group) if wanted else None for group in range(len(told))]
        if not any(read):
            pages = self._told_pages(bound, ref)
            deep = pages is not None and pages.level is not None
            origin = Origin.PAGE_INDEX if deep else Origin.FOOTER
            return ColumnDraft(ref.type, level, pages, self._blooms(bound, read), origins=_origin(origin))
        return self._read_column(bound, level, read)

    def _wanted(self, bound: BoundLeaf) -> bool:
        """Whether the values must be read for what the spec asks of the column."""
        spec, path, leaf = self.spec, bound.ref.path, bound.leaf
        if path in (*spec.sums, *spec.sketches, *spec.blooms, *spec.ids):
            return True
        if path not in spec.values:
            return False
        if self._counts_nans(bound):
            return True
        groups = range(self.metadata.row_group_count)
        found = [self.indexes.get((group, leaf.index)) for group in groups]
        return spec.pages and not all(index is not None and index.has_statistics for index in found)

    def _counts_nans(self, bound: BoundLeaf) -> bool:
        floating = key_space(bound.ref.type).kind is Kind.FLOAT
        stats = [chunk.statistics for chunk in self.metadata.chunks(bound.leaf.index)]
        return floating and not all(s is not None and s.nan_count is not None for s in stats)

    # -- what the footer says ----------------------------------------------------------------

    def _told_pages(self, bound: BoundLeaf, ref: ColumnRef) -> Pages | None:
        if not self.spec.pages:
            return None
        groups = range(self.metadata.row_group_count)
        found = [self.indexes.get((group, bound.leaf.index)) for group in groups]
        if not any(index is not None and index.has_statistics for index in found):
            return _pages(found, None)
        levels = [_page_level(self.metadata, bound, index, ref) for index in found if index is not None]
        return _pages(found, Level.concat(levels))

    # -- what the values say -----------------------------------------------------------------

    def _measured(self, bound: BoundLeaf, group: int) -> _Read | None:
        """The values of one chunk, and the facts about its pages."""
        metadata, leaf = self.metadata, bound.leaf
        span = metadata.chunk_range(group, leaf.index)
        fetched: dict[ByteRange, bytes] = {}

        def fetch(ranges: Sequence[ByteRange]) -> list[bytes]:
            missing = [r for r in ranges if r not in fetched]
            fetched.update(zip(missing, self.files.read(self.entry, missing), strict=True))
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
        index = self.indexes.get((group, leaf.index))
        if index is None and self.spec.pages:
            try:
                (body,) = fetch([span])
                index = self.indexes[group, leaf.index] = walk_pages(body, metadata, group, leaf.index)
            except BadPageIndex:
                index = None
        own = own_type(metadata, leaf.path)
        try:
            first = np.zeros(1, dtype=np.int64) if index is None else index.first_rows
            found = measure(own, _labelled(column, own), first)
            return _Read(column, own, found, index is not None)
        except NotMeasurable:
            return None

    def _read_column(self, bound: BoundLeaf, level: Level, read: Sequence[_Read | None]) -> ColumnDraft:
        """The facts of the footer where a chunk could not be measured, else those of its values."""
        ref = bound.ref
        own = next(one.type for one in read if one is not None)
        steps = widen(storage_type(own), storage_type(ref.type))
        groups, pages, indexes = [], [], []
        for group, one in enumerate(read):
            index = self.indexes.get((group, bound.leaf.index))
            if one is None or steps is None:
                groups.append(level.take(np.array([group])))
                if index is not None:
                    pages.append(_page_level(self.metadata, bound, index, ref))
            else:
                mine = one.level(steps, ref.type)
                groups.append(one.whole(mine))
                if one.paged:
                    pages.append(mine)
            indexes.append(index)
        deep = _pages(indexes, Level.concat(pages) if pages else None) if self.spec.pages else None
        return ColumnDraft(
            ref.type,
            Level.concat(groups),
            deep,
            self._blooms(bound, read),
            self._page_blooms(bound, read),
            _origin(Origin.VALUES),
            self._sums(bound, read) if ref.path in self.spec.sums else {},
            self._sketches(ref.type, read) if ref.path in self.spec.sketches else {},
        )

    def _sums(self, bound: BoundLeaf, read: Sequence[_Read | None]) -> dict[str, Blocks]:
        """Block aggregates in keys of the index's type, by row group and by page."""
        if not facets_of(bound.ref.type) & Facet.SUM:
            return {}
        groups, pages = [Blocks.unknown(bound.ref.type, 0)], [Blocks.unknown(bound.ref.type, 0)]
        for group, one in enumerate(read):
            index = self.indexes.get((group, bound.leaf.index)) if self.spec.pages else None
            found = _summed(bound.ref.type, one, index)
            if index is not None:
                pages.append(found)
            groups.append(found.merge(np.zeros(1, dtype=np.int64)))
        levels = {"group": Blocks.concat(groups), "page": Blocks.concat(pages)}
        return {level: blocks for level, blocks in levels.items() if blocks.known.any()}

    @staticmethod
    def _sketches(type: pa.DataType, read: Sequence[_Read | None]) -> dict[str, list[bytes]]:
        try:
            found = [sketches(type, _labelled(one.values, one.type)) for one in read if one is not None]
        except NotMeasurable:
            return {}
        if len(found) < len(read):
            return {}
        return {kind: [one[kind] for one in found] for kind in found[0]}

    # -- bloom filters -----------------------------------------------------------------------

    def _blooms(self, bound: BoundLeaf, read: Sequence[_Read | None]) -> dict[int, Stack]:
        """Filters of row groups: the file's own, and those asked for where there are no pages to filter."""
        own = self._own_blooms(bound) if self.spec.own_blooms else {}
        found = []
        for group, one in enumerate(read):
            bloom = own.get(group)
            if bloom is None and bound.ref.path in self.spec.blooms and one is not None and not one.paged:
                bloom = build_bloom(bound.leaf, one.values)
            if bloom is not None:
                found.append((group, bloom))
        return _stacked(found)

    def _page_blooms(self, bound: BoundLeaf, read: Sequence[_Read | None]) -> dict[int, Stack]:
        """Filters of pages, where they are asked for: they tell of row groups as well."""
        found: list[tuple[int, BloomFilter]] = []
        first = 0
        for group, one in enumerate(read):
            index = self.indexes.get((group, bound.leaf.index))
            if index is None:
                continue
            if one is not None and one.paged and bound.ref.path in self.spec.blooms:
                places = zip(index.first_rows.tolist(), index.row_counts.tolist(), strict=True)
                for page, (row, count) in enumerate(places):
                    values = one.values.slice(row, count)
                    bloom = build_bloom(bound.leaf, values, fpp=_PAGE_FPP) if count else None
                    if bloom is not None:
                        found.append((first + page, bloom))
            first += len(index)
        return _stacked(found)

    def _own_blooms(self, bound: BoundLeaf) -> dict[int, BloomFilter]:
        leaf = bound.leaf.index
        if not has_bloom(self.metadata, leaf):
            return {}
        places: dict[int, ByteRange] = {}
        for group in range(self.metadata.row_group_count):
            try:
                span = bloom_range(self.metadata, group, leaf)
            except BadBloom:
                continue
            if span is not None:
                places[group] = span
        bodies = self.files.read(self.entry, list(places.values())) if places else []
        found: dict[int, BloomFilter] = {}
        for (group, span), body in zip(places.items(), bodies, strict=True):
            try:
                found[group] = self._bloom(span, body)
            except BadBloom:
                continue
        return found

    def _bloom(self, span: ByteRange, body: bytes) -> BloomFilter:
        length = bloom_length(body)
        if length > len(body):
            if span.start + length > self.entry.size:
                raise BadBloom("the filter ends outside the file")
            (body,) = self.files.read(self.entry, [ByteRange(span.start, span.start + length)])
        return parse_bloom(body)


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """The values of one chunk and what they say."""

    values: pa.ChunkedArray
    type: pa.DataType
    measured: Measured
    paged: bool
    """Whether the facts are of pages, or of the whole chunk."""

    def level(self, steps: Sequence[Any], type: pa.DataType) -> Level:
        """Per page, in the index's type."""
        facts = self.measured.facts
        for step in steps:
            facts = facts.through(step)
        nobody = np.full(len(facts), UNKNOWN, dtype=np.int64)
        measured = self.measured
        return Level(replace(facts, type=type), measured.nulls, measured.nans, nobody, measured.rises)

    def whole(self, pages: Level) -> Level:
        """The chunk as one unit."""
        one = pages.hull(np.zeros(1, dtype=np.int64))
        return replace(one, distinct=np.array([self.measured.distinct], dtype=np.int64))


def _labelled(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """INT96 and old timestamps are instants, though pyarrow reads them without a zone."""
    if pa.types.is_timestamp(type) and pa.types.is_timestamp(values.type) and values.type.tz is None:
        return values.cast(type)
    return values


def _page_level(metadata: ParquetMetadata, bound: BoundLeaf, index: PageIndex, ref: ColumnRef) -> Level:
    facts = page_facts(metadata, bound, index)
    nobody = np.full(len(index), UNKNOWN, dtype=np.int64)
    trusted = index.null_counts is not None and null_counts_trusted(bound.leaf, metadata.writer)
    nulls = index.null_counts if trusted and index.null_counts is not None else nobody
    nans = nobody
    if key_space(ref.type).kind is not Kind.FLOAT:
        nans = np.zeros(len(index), dtype=np.int64)
    elif index.nan_counts is not None:
        nans = index.nan_counts
    return Level(facts, nulls, nans, nobody, nobody)


def _summed(type: pa.DataType, one: _Read | None, index: PageIndex | None) -> Blocks:
    """The aggregates of a chunk's pages, or of all of it where they are not known."""
    starts = np.zeros(1, dtype=np.int64) if index is None else index.first_rows
    try:
        return (
            Blocks.unknown(type, len(starts)) if one is None else read_blocks(type, one.values, starts, EVERY)
        )
    except NotMeasurable:
        return Blocks.unknown(type, len(starts))


def _stacked(filters: Sequence[tuple[int, BloomFilter]]) -> dict[int, Stack]:
    """Filters by size, each with the unit it belongs to."""
    alike: dict[int, list[tuple[int, BloomFilter]]] = {}
    for unit, bloom in filters:
        alike.setdefault(len(bloom.blocks), []).append((unit, bloom))
    return {
        size: Stack(
            np.array([unit for unit, _ in same], dtype=np.int64),
            np.stack([bloom.blocks for _, bloom in same]),
        )
        for size, same in alike.items()
    }


def _pages(indexes: Sequence[PageIndex | None], level: Level | None) -> Pages:
    known = [index for index in indexes if index is not None]
    none = np.zeros(0, dtype=np.int64)
    return Pages(
        counts=np.array([0 if index is None else len(index) for index in indexes], dtype=np.int64),
        first_rows=np.concatenate([none, *(index.first_rows for index in known)]),
        offsets=np.concatenate([none, *(index.offsets for index in known)]),
        sizes=np.concatenate([none, *(index.sizes for index in known)]).astype(np.int32),
        level=level,
    )


def _origin(origin: Origin) -> Array:
    return np.array([origin], dtype=np.uint8)
