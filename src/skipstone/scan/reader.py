"""Reads rows of one file: page slices, or pyarrow's own reader for whole row groups."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import accumulate, product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError, ReadError, SkipstoneError
from skipstone.lake.conform import conform
from skipstone.lake.files import Files
from skipstone.parquet.evidence import find_leaf, page_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.recorded import RecordedMetadata
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.slice import (
    FAILURES,
    Decoder,
    RowGroupPages,
    SlicePart,
    decode_batches,
    decode_together,
    open_reader,
    part_steps,
    plan_leaves,
    slice_ranges,
)
from skipstone.parquet.slice.columns import bare, cut, taken
from skipstone.prune.survey import PageFacts
from skipstone.report.trace import Phase
from skipstone.scan.options import Route
from skipstone.scan.projection import Path, Projection
from skipstone.store.local import identity_of
from skipstone.store.source import ByteRange, Source, coalesce, gone_error, stale_error
from skipstone.store.store import IN_MEMORY, ListedFile

_PAGE_WEIGHT = 100
# Below this size, slicing an indexed file's pages costs less than opening its footer.
_WORTH_A_FOOTER = 8 * 1024 * 1024
# Rows decoded at a time if few rows of a row group are requested.
_STEP = 65_536
# Records of a run that are buffered before they are summed.
_MANY_RECORDS = 4_096
_PHASES = ("sort keys", "predicate columns", "rows", "filter", "other columns")


class Log:
    """Rows, seconds and reads of each phase of a run: records of all threads, summed on demand.

    The bytes of a phase are those of column data that no earlier read had fetched. Gaps between ranges, and
    metadata, are not data; a dictionary that two pieces of a row group need is counted once. So a run never
    reads more bytes than its columns have.
    """

    __slots__ = ("_done", "_lock", "_phases", "_reads", "_seen")

    def __init__(self) -> None:
        self._done: deque[tuple[str, int, float]] = deque()
        self._reads: deque[tuple[str, Sequence[ByteRange], Source, int | None, bool]] = deque()
        self._phases: dict[str, Phase] = {}
        self._seen: dict[Source, tuple[ByteRange, ...]] = {}
        self._lock = threading.Lock()

    def add(self, phase: str, rows: int, seconds: float) -> None:
        """Record the rows that a phase returned, and its seconds."""
        self._done.append((phase, rows, seconds))
        if len(self._done) > _MANY_RECORDS:
            self.phases()

    def reads(
        self,
        phase: str,
        ranges: Sequence[ByteRange],
        source: Source,
        gap: int | None = None,
        *,
        data: bool = True,
    ) -> None:
        """Record ranges read in a phase; ranges up to ``gap`` bytes apart were one request."""
        self._reads.append((phase, ranges, source, gap, data))
        if len(self._reads) > _MANY_RECORDS:
            self.phases()

    def phases(self) -> tuple[Phase, ...]:
        """The phases in the order in which a row passes through them."""
        with self._lock:
            phases = self._phases
            while self._done:
                name, rows, seconds = self._done.popleft()
                old = phases.get(name, Phase(name, 0, 0, 0, 0.0))
                phases[name] = Phase(name, old.rows + rows, old.requests, old.bytes, old.seconds + seconds)
            while self._reads:
                name, ranges, source, gap, data = self._reads.popleft()
                old = phases.get(name, Phase(name, 0, 0, 0, 0.0))
                requests = len(coalesce(ranges, source.gap if gap is None else gap).requests)
                size = self._new_bytes(source, ranges) if data and name in _PHASES else 0
                phases[name] = Phase(name, old.rows, old.requests + requests, old.bytes + size, old.seconds)
            return tuple(phases[name] for name in _PHASES if name in phases)

    def _new_bytes(self, source: Source, ranges: Sequence[ByteRange]) -> int:
        seen = self._seen.get(source, ())
        now = self._seen[source] = coalesce([*seen, *ranges], 0).requests
        return sum([r.length for r in now]) - sum([r.length for r in seen])


@dataclass(frozen=True, slots=True, eq=False)
class FileReader:
    """Reads columns of one file in the lake's types; partition columns come from the file's directory."""

    files: Files
    entry: ListedFile
    metadata: ParquetMetadata
    partition: Mapping[str, pa.Scalar]
    route: Route = "auto"
    checksums: bool = False
    log: Log = field(default_factory=Log)
    pool: pa.MemoryPool | None = None
    """Memory pool to decode into; None is pyarrow's default."""
    cached: bool = True
    """Whether to use page offsets of earlier reads."""

    @classmethod
    def open(
        cls,
        files: Files,
        entry: ListedFile,
        partition: Mapping[str, pa.Scalar],
        route: Route = "auto",
        checksums: bool = False,
        log: Log | None = None,
        pool: pa.MemoryPool | None = None,
    ) -> FileReader:
        """Load the file's layout from the cache, an index or the footer."""
        return cls(files, entry, files.layout(entry), partition, route, checksums, log or Log(), pool)

    def columns(self, wanted: Projection) -> FileColumns:
        """The requested columns that this file has."""
        key = (FileColumns, wanted.paths, tuple(self.partition))
        memo = self.metadata.schema_group.memo
        columns: FileColumns | None = memo.get(key)
        if columns is None:
            columns = memo[key] = _file_columns(self.metadata, wanted, self.partition)
        return columns

    def read_whole(self, groups: Sequence[int], wanted: Projection, phase: str = "rows") -> pa.Table:
        """Requested columns of whole row groups, in the lake's types; requires ``opens``."""
        mine = self.columns(wanted)
        counts = self.metadata.row_group_rows[list(groups)].tolist()
        if not mine.fields:
            table = bare(sum(counts))
        elif all(self._opens(group, mine) for group in groups):
            table = self._whole(groups, mine, phase)
        else:
            parts = zip(groups, counts, strict=True)
            fetched = [self._part(group, RowSet.all(rows), mine, phase) for group, rows in parts]
            table = joined([self._decoded(part) for part in fetched])
        return self.to_lake_schema(table, wanted)

    def read(self, group: int, rows: RowSet, wanted: Projection, phase: str = "rows") -> pa.Table:
        """Requested columns of some rows (relative to the row group), in the lake's types."""
        return self.finish(self.fetch(group, rows, wanted, phase), group, rows, wanted)

    def fetch(
        self, group: int, rows: RowSet, wanted: Projection, phase: str = "rows"
    ) -> SlicePart | pa.Table:
        """The pages that ``read`` decodes, or a decoded table if pages are not sliced."""
        mine = self.columns(wanted)
        if not mine.fields:
            return bare(len(rows))
        if self.entry.version == IN_MEMORY and mine.flat:
            held = self.files.table(self.entry)
            if held is not None:
                return self._held(held, group, rows, mine)
        if self._opens(group, mine) and rows.is_full:
            return self._whole([group], mine, phase)
        if self.route == "pyarrow":
            return joined([*self._chosen(group, rows, mine, _STEP, phase, use_threads=False)])
        return self._part(group, rows, mine, phase)

    def _held(self, table: pa.Table, group: int, rows: RowSet, mine: FileColumns) -> pa.Table:
        """Some rows of a file in memory."""
        start, columns = int(self.metadata.row_group_starts[group]), [table.column(at) for at in mine.fields]
        starts, stops = rows.runs()
        if len(starts) == 1:
            columns = [one.slice(start + int(starts[0]), int(stops[0] - starts[0])) for one in columns]
        else:
            at = pa.array(rows.positions() + start)
            columns = [one.take(at) for one in columns]
        return pa.Table.from_arrays(columns, list(mine.names))

    def finish(self, fetched: SlicePart | pa.Table, group: int, rows: RowSet, wanted: Projection) -> pa.Table:
        """Decode fetched rows into the lake's types."""
        table = self._decoded(fetched)
        if table.num_rows != len(rows):
            raise self._corrupt(f"{len(table)} rows decoded, expected {len(rows)}", group, None)
        return self.to_lake_schema(table, wanted)

    def decode_matching(
        self, part: SlicePart, first: Projection, rest: Projection, test: Callable[[pa.Table], Array]
    ) -> tuple[pa.Table, pa.Table | None]:
        """The first columns of fetched rows that pass a test, and the other columns; None if no row passes.

        The other columns are decoded only up to the last row that passes.
        """
        decoder = Decoder(part, checksums=self.checksums)
        positions = {number: position for position, number in enumerate(part.fields)}
        table = decoder.table([positions[number] for number in self.columns(first).fields])
        if len(table) != len(part.rows):
            raise self._corrupt(f"{len(table)} rows decoded, expected {len(part.rows)}", part.group, None)
        table = self.to_lake_schema(table, first)
        chosen = test(table)
        if not len(chosen):
            return table.slice(0, 0), None
        others = decoder.rows_at([positions[number] for number in self.columns(rest).fields], chosen)
        return taken(table, chosen), self.to_lake_schema(others, rest)

    def _decoded(self, fetched: SlicePart | pa.Table) -> pa.Table:
        return (
            Decoder(fetched, checksums=self.checksums).table() if isinstance(fetched, SlicePart) else fetched
        )

    def planned(self, group: int, rows: RowSet, wanted: Projection) -> list[ByteRange]:
        """The ranges that a read would request, from the available page indexes."""
        leaves = self.columns(wanted).leaves
        if rows.is_full or self.route == "pyarrow":
            return [self.metadata.chunk_range(group, leaf) for leaf in leaves]
        return slice_ranges(self.metadata, group, leaves, rows, self._indexes(group, leaves, "forecast"))

    def batches(
        self, group: int, rows: RowSet, wanted: Projection, most: int, phase: str = "rows"
    ) -> Generator[pa.Table]:
        """``read`` in batches, for row groups too large to hold."""
        for table in self._chosen(group, rows, self.columns(wanted), most, phase, use_threads=True):
            yield self.to_lake_schema(table, wanted)

    @property
    def opens(self) -> bool:
        """Whether pyarrow opens the file itself: it is local and the route allows it."""
        return self.route != "slice" and self.files.opens(self.entry)

    # -- the two routes ----------------------------------------------------------------------

    def _opens(self, group: int, mine: FileColumns) -> bool:
        """Whether pyarrow reads the file itself; small reads of indexed files avoid opening the footer."""
        if not isinstance(self.metadata, RecordedMetadata):
            return self.opens
        if self.metadata.group_sizes(group)[1] <= _WORTH_A_FOOTER:
            return False
        key = ("stored bytes", group, mine.leaves)
        size: int | None = self.metadata.memo.get(key)
        if size is None:
            size = sum(self.metadata.chunk_range(group, leaf).length for leaf in mine.leaves)
            self.metadata.memo[key] = size
        return size > _WORTH_A_FOOTER and self.opens

    def _whole(self, groups: Sequence[int], mine: FileColumns, phase: str) -> pa.Table:
        tables = []
        try:
            raw, reader = self._open(groups, mine, phase)
            with raw:
                # Individually: extra rows in one must not hide rows missing in another.
                for group in groups:
                    table = reader.read_row_group(group, column_indices=mine.leaves, use_threads=False)
                    if len(table) != self.metadata.row_group_rows[group]:
                        raise self._blame([group], mine)
                    tables.append(table)
        except FAILURES as error:
            raise self._blame(groups, mine, error) from error
        return joined(tables)

    def _chosen(
        self, group: int, rows: RowSet, mine: FileColumns, most: int, phase: str, *, use_threads: bool
    ) -> Generator[pa.Table]:
        """Some rows of a row group, decoded in batches up to the last of them."""
        first, stop = 0, rows.last + 1
        try:
            with closing(
                self._stream(group, mine, min(most, stop), phase, use_threads=use_threads)
            ) as tables:
                for table in tables:
                    last = min(first + len(table), stop)
                    chosen = rows.slice(first, last)
                    if not chosen.is_empty:
                        yield cut(table.slice(0, last - first), chosen)
                    first = last
                    if first == stop:
                        return
        except FAILURES as error:
            raise self._blame([group], mine, error) from error
        raise self._blame([group], mine)

    def _stream(
        self, group: int, mine: FileColumns, most: int, phase: str, *, use_threads: bool
    ) -> Generator[pa.Table]:
        """All rows of a row group in batches; the caller checks their number."""
        total = int(self.metadata.row_group_rows[group])
        if not mine.fields:
            yield from (bare(min(most, total - first)) for first in range(0, total, most))
        elif self._opens(group, mine):
            raw, reader = self._open([group], mine, phase)
            with raw:
                for batch in reader.iter_batches(
                    most, row_groups=[group], column_indices=mine.leaves, use_threads=use_threads
                ):
                    yield pa.Table.from_batches([batch])
        else:
            part = self._part(group, RowSet.all(total), mine, phase)
            if isinstance(part, SlicePart):
                yield from decode_batches(part, most, checksums=self.checksums)
            else:
                yield part

    def _open(
        self, groups: Sequence[int], mine: FileColumns, phase: str
    ) -> tuple[pa.OSFile, pq.core.ParquetReader]:
        """The open file, which the caller closes, and pyarrow's reader of it."""
        path = self.files.path(self.entry)
        try:
            raw = pa.OSFile(path)
            # After opening: either this is the file being read, or a replacement, which has another identity.
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                gone = gone_error(path)
                if self.files.explain is not None:
                    self.files.explain(gone)
                raise gone from error
            raise ReadError(str(error), path=path, hint="open the lake again") from error
        version = self.entry.version
        # Files of a table are immutable and identified by name and size.
        if version is None and status.st_size != self.entry.size:
            raise stale_error(path, self.entry.size, status.st_size)
        if version is not None and identity_of(status) != version:
            raise stale_error(path)
        # pyarrow bypasses our store, so its reads are counted here.
        chunks, size = self._chunk_ranges(tuple(groups), mine.leaves)
        source = self.files.source(self.entry)
        self.log.reads(phase, chunks, source, 0)
        source.counter.add(len(chunks), size)
        metadata = pyarrow_metadata(self.files.footer(self.entry))
        return raw, open_reader(raw, self.pool, checksums=self.checksums, metadata=metadata)

    def _chunk_ranges(
        self, groups: tuple[int, ...], leaves: tuple[int, ...]
    ) -> tuple[Sequence[ByteRange], int]:
        """Ranges of whole chunks, adjacent ones merged, and their total size."""
        memo, key = self.metadata.memo, ("chunk ranges", groups, leaves)
        whole: tuple[Sequence[ByteRange], int] | None = memo.get(key)
        if whole is None:
            chunks = [self.metadata.chunk_range(group, leaf) for group in groups for leaf in leaves]
            size = sum([stop - start for start, stop in chunks])
            whole = memo[key] = coalesce(chunks, 0).requests, size
        return whole

    def _blame(
        self, groups: Sequence[int], mine: FileColumns, error: Exception | None = None
    ) -> SkipstoneError:
        """The error for row groups that can't be decoded or have fewer rows than recorded.

        It names the first column that is corrupt.
        """
        for group, leaf in product(groups, mine.leaves):
            column = self.metadata.leaves[leaf]
            at = mine.names.index(column.path[0])
            alone = FileColumns((mine.fields[at],), (leaf,), (mine.names[at],), mine.flat)
            total = int(self.metadata.row_group_rows[group])
            try:
                rows = sum(map(len, self._stream(group, alone, _STEP, "rows", use_threads=False)))
            except FAILURES as cause:
                return self._corrupt(f"values can't be decoded: {_first_line(cause)}", group, column.name)
            except SkipstoneError as cause:
                return cause
            if rows != total:
                return self._corrupt(f"{rows} rows decoded, expected {total}", group, column.name)
        reason = "columns differ in length" if error is None else _first_line(error)
        return self._corrupt(f"row group can't be decoded: {reason}", groups[0], None)

    def _corrupt(self, message: str, group: int, column: str | None) -> CorruptFileError:
        return CorruptFileError(message, path=self.metadata.path, unit=f"row group {group}", column=column)

    def _part(self, group: int, rows: RowSet, mine: FileColumns, phase: str) -> SlicePart | pa.Table:
        pages = self._pages(group, rows, mine, phase)
        plans = plan_leaves(pages.chunks, rows)
        pieces = [plan for plan in plans if plan.chosen is not None]
        if not pieces and not rows.is_full and self._opens(group, mine):
            # Slicing would read the same bytes in more steps.
            return joined([*self._chosen(group, rows, mine, _STEP, phase, use_threads=False)])
        steps = part_steps(pages, rows, plans, self.pool, checksums=self.checksums)
        try:
            while True:
                need = next(steps)
                self.log.reads(phase, need.ranges, self.files.source(self.entry))
                self.files.read_into(self.entry, need.ranges, need.views)
        except StopIteration as stop:
            result: SlicePart | pa.Table = stop.value
            return result
        except ReadError as error:
            _locate(error, group, mine.names)
            raise

    # -- page indexes ------------------------------------------------------------------------

    def _pages(self, group: int, rows: RowSet, mine: FileColumns, phase: str) -> RowGroupPages:
        """Page offsets of the columns; whole chunks if all rows are read."""
        whole = rows.is_full
        key = (RowGroupPages, self.entry, group, mine.fields, mine.leaves, whole)
        layout: RowGroupPages | None = self.files.cache.get(key) if self.cached else None
        if layout is None:
            indexes = {} if whole else self._indexes(group, mine.leaves, phase)
            layout = RowGroupPages.of(self.metadata, group, mine.fields, mine.leaves, indexes)
            pages = [1 if chunk.borders is None else chunk.borders.count for chunk in layout.chunks]
            self.files.cache.put(key, layout, _PAGE_WEIGHT * sum(pages))
        return layout

    def _indexes(self, group: int, leaves: Sequence[int], phase: str) -> dict[int, PageIndex | None]:
        """The page index of each leaf; None if it is missing or invalid."""
        indexes: dict[int, PageIndex | None] = {}
        wanted: list[tuple[int, ByteRange]] = []
        for leaf, recorded in zip(leaves, self.metadata.all_page_offsets(group, leaves), strict=True):
            index = recorded
            if index is None:
                index = self.files.cache.get((PageIndex, self.entry, group, leaf))
            indexes[leaf] = index
            if index is None:
                span = page_index_ranges(self.metadata, group, leaf)[1]
                wanted += [] if span is None else [(leaf, span)]
        if wanted:
            names = [self.metadata.leaves[leaf].name for leaf, _ in wanted]
            ranges = [span for _, span in wanted]
            self.log.reads(phase, ranges, self.files.source(self.entry), data=False)
            try:
                bodies = self.files.read(self.entry, ranges)
            except ReadError as error:
                _locate(error, group, names)
                raise
            for (leaf, _), body in zip(wanted, bodies, strict=True):
                try:
                    index = parse_page_index(None, body, self.metadata, group, leaf)
                except BadPageIndex:
                    continue
                indexes[leaf] = index
                key = (PageIndex, self.entry, group, leaf)
                self.files.cache.put(key, index, _PAGE_WEIGHT * len(index))
        return indexes

    def page_facts(self, group: int, ref: ColumnRef) -> PageFacts | None:
        """The facts of a column's pages; None without a valid column index."""
        bound = find_leaf(self.metadata, ref)
        if bound is None:
            return None
        first, second = page_index_ranges(self.metadata, group, bound.leaf.index)
        if first is None or second is None:
            return None
        # As planning caches them.
        key = (PageFacts, self.metadata.identity, group, (ref.path, str(ref.type)))
        cached: PageFacts | None = self.files.cache.get(key)
        if cached is not None:
            return cached
        self.log.reads("sort keys", [first, second], self.files.source(self.entry), data=False)
        bounds, offsets = self.files.read(self.entry, [first, second])
        try:
            index = parse_page_index(bounds, offsets, self.metadata, group, bound.leaf.index)
        except BadPageIndex:
            return None
        pages = PageFacts(index, page_facts(self.metadata, bound, index))
        self.files.cache.put(key, pages, _PAGE_WEIGHT * len(index) + len(bounds))
        return pages

    # -- the lake's types --------------------------------------------------------------------

    def to_lake_schema(self, table: pa.Table, wanted: Projection) -> pa.Table:
        """Convert a table to the lake's schema; add partition columns, and NULL for missing ones."""
        schema = wanted.schema
        if table.schema.equals(schema, check_metadata=True):
            return table
        for name in wanted.names:
            value = self.partition.get(name)
            if value is not None:
                table = table.append_column(schema.field(name), pa.repeat(value, len(table)))
            elif pa.types.is_timestamp(schema.field(name).type):
                table = self._zoned(table, name, schema.field(name).type)
        return conform(table, schema, path=self.metadata.path, evolution=self.files.evolution)

    def _zoned(self, table: pa.Table, name: str, type: pa.DataType) -> pa.Table:
        """Add the zone to INT96 and old timestamps, which are instants but which pyarrow reads without one.

        Only if other files of the lake have a zone.
        """
        position = table.schema.get_field_index(name)
        if type.tz is None or position < 0 or table.schema.field(position).type.tz is not None:
            return table
        meant = self.metadata.query_schema.field(name).type
        column = table.column(position).cast(meant) if meant.tz is not None else table.column(position)
        return table.set_column(position, pa.field(name, column.type), column)


def decode_all(
    fetched: Sequence[SlicePart | pa.Table],
    targets: Sequence[tuple[FileReader, int, RowSet]],
    wanted: Projection,
) -> pa.Table:
    """Decode fetched rows of several row groups into one table in the lake's types.

    If possible, they are decoded as one file.
    """
    if len(fetched) == 1:
        reader, group, rows = targets[0]
        return reader.finish(fetched[0], group, rows, wanted)
    table = None
    parts = [part for part in fetched if isinstance(part, SlicePart)]
    if len(parts) == len(fetched):
        table = decode_together(parts, checksums=targets[0][0].checksums)
    if table is not None:
        if table.schema.equals(wanted.schema, check_metadata=True):
            return table
        ends = accumulate(len(rows) for _, _, rows in targets)
        fetched = [
            table.slice(end - len(rows), len(rows)) for end, (_, _, rows) in zip(ends, targets, strict=True)
        ]
    finished = [
        reader.finish(part, group, rows, wanted)
        for part, (reader, group, rows) in zip(fetched, targets, strict=True)
    ]
    return joined(finished)


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Requested columns that a file has: top-level fields, and their leaves to read."""

    fields: tuple[int, ...]
    leaves: tuple[int, ...]
    names: tuple[str, ...]
    flat: bool
    """Whether no column is nested."""


def _file_columns(metadata: ParquetMetadata, wanted: Projection, partition: Mapping[str, Any]) -> FileColumns:
    schema = metadata.arrow_schema
    fields: list[int] = []
    leaves: list[int] = []
    names: list[str] = []
    asked = wanted.below
    for name in wanted.names:
        if name in partition:
            continue
        indices = schema.get_all_field_indices(name)
        if not indices:
            continue
        if len(indices) > 1:
            raise CorruptFileError(
                "column appears more than once",
                path=metadata.path,
                column=name,
                hint="leave it out of columns=",
            )
        fields.append(indices[0])
        names.append(name)
        below = metadata.schema_group.leaves_of(name)
        leaves += {leaf for path in asked[name] for leaf in _leaves_at(below, path)}
    flat = not any(pa.types.is_nested(schema.field(at).type) for at in fields)
    return FileColumns(tuple(fields), tuple(sorted(leaves)), tuple(names), flat)


def _leaves_at(below: Sequence[LeafColumn], path: Path) -> list[int]:
    """The leaves at a path into a column; for a missing path, a leaf with the NULLs of the struct."""
    for depth in range(len(path), -1, -1):
        leaves = [leaf.index for leaf in below if leaf.path[1 : 1 + depth] == path[:depth]]
        if leaves:
            return leaves if depth == len(path) else leaves[:1]
    return []


def pyarrow_metadata(metadata: ParquetMetadata) -> pq.FileMetaData:
    """pyarrow's view of the footer, parsed once."""
    if pq.FileMetaData not in metadata.memo:
        footer = metadata.footer
        shell = b"".join((b"PAR1", footer, len(footer).to_bytes(4, "little"), b"PAR1"))
        # Not pq.read_metadata(), which also looks for nested columns.
        reader = open_reader(pa.BufferReader(shell), None, checksums=False)
        metadata.memo[pq.FileMetaData] = reader.metadata
    parsed: pq.FileMetaData = metadata.memo[pq.FileMetaData]
    return parsed


def estimate(metadata: ParquetMetadata, group: int, leaves: tuple[int, ...]) -> int:
    """Estimated decoded bytes of the leaves of a row group."""
    key = (estimate, group, leaves)
    size: int | None = metadata.memo.get(key)
    if size is None:
        plain, packed = metadata.group_sizes(group)
        stored = packed
        if len(leaves) < len(metadata.leaves):
            stored = sum([metadata.chunks(leaf)[group].total_compressed_size for leaf in leaves])
        # Dictionary-encoded strings are larger in memory by an unknown factor.
        least = 16 * int(metadata.row_group_rows[group]) * len(leaves)
        size = metadata.memo[key] = max(int(plain * stored / max(packed, 1)), stored, least)
    return size


def _locate(error: ReadError, group: int, columns: Sequence[str]) -> None:
    """Add the row group and the columns to an error."""
    error.unit = error.unit or f"row group {group}"
    error.column = error.column or ", ".join(columns)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables of one schema, with or without columns."""
    if len(tables) == 1:
        return tables[0]
    if tables[0].num_columns:
        return pa.concat_tables(tables)
    return bare(sum(table.num_rows for table in tables))


def filtered(table: pa.Table, mask: Array) -> pa.Table:
    """The rows of a table where a mask is true."""
    return taken(table, mask.nonzero()[0])
