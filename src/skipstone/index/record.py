"""Files into a draft: what their footers, their page indexes and, where asked, their values say."""

from __future__ import annotations

from collections.abc import Sequence
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
from skipstone.index.draft import ColumnDraft, Draft, Pages, Stack
from skipstone.index.levels import UNKNOWN, LevelBounds
from skipstone.index.marks import marks_of
from skipstone.index.spec import LISTS, Path, Spec
from skipstone.lake.files import Files
from skipstone.parquet.bloom import BadBloom, BloomFilter, bloom_length, bloom_range, has_bloom, parse_bloom
from skipstone.parquet.evidence import (
    BoundLeaf,
    find_leaf,
    lake_facts,
    null_counts_trusted,
    own_type,
    page_facts,
    row_group_counts,
)
from skipstone.parquet.measure import Measured, NotMeasurable, build_bloom, measure
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


def record_files(files: Files, entries: Sequence[ListedFile], spec: Spec) -> Draft:
    """What an index keeps of files, in their order; an error if one of them can't be read.

    Files of one schema are recorded together, in arrays, as far as their metadata tells what is asked for.
    Where values must be read each file is recorded alone, since its columns are held meanwhile.
    """
    footers = files.footers(entries)
    for footer in footers:
        if footer.has_secrets:
            raise EncryptedFileError("some of it is encrypted", path=footer.path)
    alone = any(getattr(spec, name) for name in LISTS)
    groups: dict[object, list[int]] = {}
    for number, footer in enumerate(footers):
        groups.setdefault(number if alone else id(footer.kin), []).append(number)
    drafts = [
        _Recorder(files, [entries[n] for n in mine], [footers[n] for n in mine], spec).draft()
        for mine in groups.values()
    ]
    order = np.argsort([number for mine in groups.values() for number in mine])
    draft = Draft.concat(drafts)
    return draft if alone or len(groups) == 1 else draft.take(order)


@dataclass(slots=True)
class _Recorder:
    """Records files of one schema, whose row groups are numbered through."""

    files: Files
    entries: Sequence[ListedFile]
    footers: Sequence[ParquetMetadata]
    spec: Spec
    owners: list[tuple[ParquetMetadata, int]] = field(default_factory=list)
    """The file of each row group, and the row group's number in it."""
    bodies: dict[int, list[tuple[bytes | None, bytes] | None]] = field(default_factory=dict)
    """By leaf, per row group: column index, if bounds are wanted, and offset index, if there is one."""
    indexes: dict[tuple[int, int], PageIndex | None] = field(default_factory=dict)
    """By row group and leaf, as far as they were looked at one by one."""

    def draft(self) -> Draft:
        """All that is recorded."""
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
            kins=[first.shell()],
            kin=np.zeros(len(files), dtype=np.uint32),
            counts=np.array(counts, dtype=np.int64),
            group_rows=np.concatenate([file.row_group_rows for file in files]),
            group_sizes=self._group_sizes(chunks, counts),
            chunk_counts=np.array(counts, dtype=np.int64) * len(first.leaves),
            chunks=chunks,
            columns=self._columns(),
        )

    def _group_sizes(self, chunks: Array, counts: list[int]) -> Array:
        """Bytes of each row group: decoded, as far as the writer says, and as they are stored."""
        leaves = len(self.footers[0].leaves)
        sizes = np.zeros((len(self.owners), 2), dtype=np.int64)
        sizes[:, 0] = [file.row_groups[group].total_byte_size or 0 for file, group in self.owners]
        first = np.cumsum(counts) - counts
        units = [np.tile(np.arange(at, at + count), leaves) for at, count in zip(first, counts, strict=True)]
        np.add.at(sizes[:, 1], np.concatenate(units), chunks["size"])
        return sizes

    # -- page indexes ------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Read every page index that is wanted, those of a file together."""
        if not self.spec.pages:
            return
        leaves = self.footers[0].leaves
        known = {path for path, _ in self.spec.columns}
        self.bodies = {leaf.index: [] for leaf in leaves}
        for entry, file in zip(self.entries, self.footers, strict=True):
            wanted: list[tuple[int, ByteRange | None, ByteRange | None]] = []
            for leaf in leaves:
                deep = leaf.path in known
                for group in range(file.row_group_count):
                    bounds, places = page_index_ranges(file, group, leaf.index)
                    wanted.append((leaf.index, bounds if deep else None, places))
            spans = [span for _, bounds, places in wanted if places for span in (bounds, places) if span]
            found = dict(zip(spans, self.files.read(entry, spans), strict=True)) if spans else {}
            for number, bounds, places in wanted:
                bound = None if bounds is None else found.get(bounds)
                self.bodies[number].append(None if places is None else (bound, found[places]))
        if self.spec.values:
            self._hop(known)

    def _hop(self, known: set[Path]) -> None:
        """Find the pages of columns without facts from their headers, where there is no page index.

        A query that reads few rows wants pages of every column, not just of those it asks about.
        """
        first = 0
        for entry, file in zip(self.entries, self.footers, strict=True):
            missing = [
                (group, leaf.index)
                for group in range(file.row_group_count)
                for leaf in file.leaves
                if leaf.path not in known and self._index(first + group, leaf.index) is None
            ]
            found = hop_pages(file, missing, partial(self.files.read, entry))
            self.indexes.update({(first + group, leaf): index for (group, leaf), index in found.items()})
            first += file.row_group_count

    def _index(self, unit: int, leaf: int) -> PageIndex | None:
        """The pages of one chunk; those of columns without facts have places only."""
        key = (unit, leaf)
        if key not in self.indexes:
            body = self.bodies[leaf][unit] if self.bodies else None
            self.indexes[key] = None if body is None else self._parsed(*body, unit, leaf)
        return self.indexes[key]

    def _parsed(self, bounds: bytes | None, places: bytes, unit: int, leaf: int) -> PageIndex | None:
        file, group = self.owners[unit]
        try:
            found = parse_page_index(bounds, places, file, group, leaf)
            return found if found.is_contiguous else None
        except BadPageIndex:
            # Bounds that can't be trusted leave the places.
            return None if bounds is None else self._parsed(None, places, unit, leaf)

    def _all_indexes(self, leaf: int) -> list[PageIndex | None]:
        return [self._index(unit, leaf) for unit in range(len(self.owners))]

    def _run(self, leaf: LeafColumn) -> PageRun | None:
        """The pages of all chunks of a column, if nothing is wrong with any of them."""
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
        """Every column that has facts, and every other whose pages are known."""
        drafts: dict[Path, ColumnDraft] = {}
        for path, type in self.spec.columns:
            drafts[path] = self._column(ColumnRef(path, type))
        if self.spec.pages:
            for leaf in self.footers[0].leaves:
                if leaf.path not in drafts:
                    drafts[leaf.path] = ColumnDraft(pages=self._places(leaf))
        return drafts

    def _places(self, leaf: LeafColumn) -> Pages:
        run = self._run(leaf)
        return _pages(self._all_indexes(leaf.index), None) if run is None else _run_pages(run, None)

    def _column(self, ref: ColumnRef) -> ColumnDraft:
        files = self.footers
        bound = find_leaf(files[0], ref)
        told = lake_facts(files, ref)
        nobody = np.full(len(told), UNKNOWN, dtype=np.int64)
        level = LevelBounds(told, *row_group_counts(files, ref), nobody, nobody)
        if bound is None:
            # Missing, nested or of a type that can't be compared: what the footer says is all there is.
            return ColumnDraft(ref.type, level, origins=self._origins(Origin.FOOTER))
        wanted = self._wanted(bound)
        read = [self._measured(bound, unit) if wanted else None for unit in range(len(told))]
        if any(read):
            return self._read_column(bound, level, read)
        pages, origins = self._indexed_pages(bound, ref)
        return ColumnDraft(ref.type, level, pages, self._blooms(bound, read), origins=origins)

    def _origins(self, origin: Origin) -> Array:
        return np.full(len(self.footers), origin, dtype=np.uint8)

    def _wanted(self, bound: BoundLeaf) -> bool:
        """Whether the values must be read for what the spec asks of the column."""
        spec, path, leaf = self.spec, bound.ref.path, bound.leaf
        if path in (*spec.sums, *spec.sketches, *spec.blooms, *spec.ids):
            return True
        if path not in spec.values:
            return False
        if self._lacks_nan_counts(bound):
            return True
        found = self._all_indexes(leaf.index)
        return spec.pages and not all(index is not None and index.has_statistics for index in found)

    def _lacks_nan_counts(self, bound: BoundLeaf) -> bool:
        floating = key_space(bound.ref.type).kind is Kind.FLOAT
        stats = [chunk.statistics for chunk in all_chunks(self.footers, bound.leaf.index)]
        return floating and not all(s is not None and s.nan_count is not None for s in stats)

    # -- what the footer says ----------------------------------------------------------------

    def _indexed_pages(self, bound: BoundLeaf, ref: ColumnRef) -> tuple[Pages | None, Array]:
        """The pages as page indexes have them, and per file where its facts came from."""
        if not self.spec.pages:
            return None, self._origins(Origin.FOOTER)
        first = self.footers[0]
        run = self._run(bound.leaf)
        if run is not None:
            level = _page_level(first, bound, run, ref) if run.has_statistics else None
            origin = Origin.PAGE_INDEX if run.has_statistics else Origin.FOOTER
            return _run_pages(run, level), self._origins(origin)
        found = self._all_indexes(bound.leaf.index)
        deep = {
            id(file)
            for (file, _), index in zip(self.owners, found, strict=True)
            if index is not None and index.has_statistics
        }
        origins = [Origin.PAGE_INDEX if id(file) in deep else Origin.FOOTER for file in self.footers]
        told = np.array(origins, dtype=np.uint8)
        if not deep:
            return _pages(found, None), told
        levels = [_page_level(first, bound, index, ref) for index in found if index is not None]
        return _pages(found, LevelBounds.concat(levels)), told

    # -- what the values say -----------------------------------------------------------------

    def _measured(self, bound: BoundLeaf, unit: int) -> _Read | None:
        """The values of one chunk, and the facts about its pages."""
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
            found = measure(own, _labelled(column, own), first)
            return _Read(column, own, found, index is not None)
        except NotMeasurable:
            return None

    def _entry(self, unit: int) -> ListedFile:
        owner = self.owners[unit][0]
        return next(entry for entry, file in zip(self.entries, self.footers, strict=True) if file is owner)

    def _read_column(self, bound: BoundLeaf, level: LevelBounds, read: Sequence[_Read | None]) -> ColumnDraft:
        """The facts of the footer where a chunk could not be measured, else those of its values."""
        ref = bound.ref
        own = next(one.type for one in read if one is not None)
        steps = widen(storage_type(own), storage_type(ref.type))
        groups, pages, indexes = [], [], []
        for unit, one in enumerate(read):
            index = self._index(unit, bound.leaf.index)
            if one is None or steps is None:
                groups.append(level.take(np.array([unit])))
                if index is not None:
                    pages.append(_page_level(self.footers[0], bound, index, ref))
            else:
                mine = one.level(steps, ref.type)
                groups.append(one.whole(mine))
                if one.paged:
                    pages.append(mine)
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

    def _sums(self, bound: BoundLeaf, read: Sequence[_Read | None]) -> dict[str, Blocks]:
        """Block aggregates in keys of the index's type, by row group and by page."""
        if not facets_of(bound.ref.type) & Facet.SUM:
            return {}
        groups, pages = [Blocks.unknown(bound.ref.type, 0)], [Blocks.unknown(bound.ref.type, 0)]
        for unit, one in enumerate(read):
            index = self._index(unit, bound.leaf.index) if self.spec.pages else None
            found = _summed(bound.ref.type, one, index)
            if index is not None:
                pages.append(found)
            groups.append(found.merge(np.zeros(1, dtype=np.int64)))
        levels = {"group": Blocks.concat(groups), "page": Blocks.concat(pages)}
        return {level: blocks for level, blocks in levels.items() if blocks.facets.any()}

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
        for unit, one in enumerate(read):
            bloom = own.get(unit)
            if bloom is None and bound.ref.path in self.spec.blooms and one is not None and not one.paged:
                bloom = build_bloom(bound.leaf, one.values)
            if bloom is not None:
                found.append((unit, bloom))
        return _stacked(found)

    def _page_blooms(self, bound: BoundLeaf, read: Sequence[_Read | None]) -> dict[int, Stack]:
        """Filters of pages, where they are asked for: they tell of row groups as well."""
        found: list[tuple[int, BloomFilter]] = []
        first = 0
        for unit, one in enumerate(read):
            index = self._index(unit, bound.leaf.index)
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
        """The filters that the files have, by row group."""
        leaf = bound.leaf.index
        found: dict[int, BloomFilter] = {}
        first = 0
        for entry, file in zip(self.entries, self.footers, strict=True):
            if has_bloom(file, leaf):
                mine = self._file_blooms(entry, file, leaf)
                found.update({first + group: bloom for group, bloom in mine.items()})
            first += file.row_group_count
        return found

    def _file_blooms(self, entry: ListedFile, file: ParquetMetadata, leaf: int) -> dict[int, BloomFilter]:
        places: dict[int, ByteRange] = {}
        for group in range(file.row_group_count):
            try:
                span = bloom_range(file, group, leaf)
            except BadBloom:
                continue
            if span is not None:
                places[group] = span
        bodies = self.files.read(entry, list(places.values())) if places else []
        found: dict[int, BloomFilter] = {}
        for (group, span), body in zip(places.items(), bodies, strict=True):
            try:
                found[group] = self._bloom(entry, span, body)
            except BadBloom:
                continue
        return found

    def _bloom(self, entry: ListedFile, span: ByteRange, body: bytes) -> BloomFilter:
        length = bloom_length(body)
        if length > len(body):
            if span.start + length > entry.size:
                raise BadBloom("the filter ends outside the file")
            (body,) = self.files.read(entry, [ByteRange(span.start, span.start + length)])
        return parse_bloom(body)


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """The values of one chunk and what they say."""

    values: pa.ChunkedArray
    type: pa.DataType
    measured: Measured
    paged: bool
    """Whether the facts are of pages, or of the whole chunk."""

    def level(self, steps: Sequence[Any], type: pa.DataType) -> LevelBounds:
        """Per page, in the index's type."""
        facts = self.measured.facts
        for step in steps:
            facts = facts.through(step)
        nobody = np.full(len(facts), UNKNOWN, dtype=np.int64)
        measured = self.measured
        return LevelBounds(replace(facts, type=type), measured.nulls, measured.nans, nobody, measured.rises)

    def whole(self, pages: LevelBounds) -> LevelBounds:
        """The chunk as one unit."""
        one = pages.hull(np.zeros(1, dtype=np.int64))
        return replace(one, distinct=np.array([self.measured.distinct], dtype=np.int64))


def _labelled(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """INT96 and old timestamps are instants, though pyarrow reads them without a zone."""
    if pa.types.is_timestamp(type) and pa.types.is_timestamp(values.type) and values.type.tz is None:
        return values.cast(type)
    return values


def _page_level(
    metadata: ParquetMetadata, bound: BoundLeaf, index: PageIndex | PageRun, ref: ColumnRef
) -> LevelBounds:
    facts = page_facts(metadata, bound, index)
    nobody = np.full(len(index), UNKNOWN, dtype=np.int64)
    trusted = index.null_counts is not None and null_counts_trusted(bound.leaf, metadata.writer)
    nulls = index.null_counts if trusted and index.null_counts is not None else nobody
    nans = nobody
    if key_space(ref.type).kind is not Kind.FLOAT:
        nans = np.zeros(len(index), dtype=np.int64)
    elif index.nan_counts is not None:
        nans = index.nan_counts
    return LevelBounds(facts, nulls, nans, nobody, nobody)


def _summed(type: pa.DataType, one: _Read | None, index: PageIndex | None) -> Blocks:
    """The aggregates of a chunk's pages, or of all of it where they are not known."""
    starts = np.zeros(1, dtype=np.int64) if index is None else index.first_rows
    try:
        return (
            Blocks.unknown(type, len(starts))
            if one is None
            else read_blocks(type, one.values, starts, ALL_FACETS)
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


def _pages(indexes: Sequence[PageIndex | None], level: LevelBounds | None) -> Pages:
    known = [index for index in indexes if index is not None]
    none = np.zeros(0, dtype=np.int64)
    return Pages(
        counts=np.array([0 if index is None else len(index) for index in indexes], dtype=np.int64),
        first_rows=np.concatenate([none, *(index.first_rows for index in known)]),
        offsets=np.concatenate([none, *(index.offsets for index in known)]),
        sizes=np.concatenate([none, *(index.sizes for index in known)]).astype(np.int32),
        level=level,
    )


def _run_pages(run: PageRun, level: LevelBounds | None) -> Pages:
    return Pages(run.counts, run.first_rows, run.offsets, run.sizes.astype(np.int32), level)
