"""Reading rows of one file: page slices, or pyarrow's own reader where a row group is read whole."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import accumulate, product
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.core.evidence import Array
from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError, ReadError, SkipstoneError
from skipstone.lake.conform import conform
from skipstone.lake.files import Files
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.recorded import RecordedMetadata
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.slice import (
    FAILURES,
    Part,
    decode_batches,
    decode_part,
    decode_together,
    part_steps,
    slice_ranges,
)
from skipstone.parquet.slice.cut import cut_for, take_values
from skipstone.scan.options import Route
from skipstone.scan.projection import Path, Projection
from skipstone.store.local import identity_of
from skipstone.store.place import Listed
from skipstone.store.ranges import ByteRange, coalesce
from skipstone.store.source import stale
from skipstone.store.steps import drive

_PAGE_WEIGHT = 100
# Rows in runs shorter than this, on average, are sooner told one by one than run by run.
_SCATTERED = 64
# Below this, cutting an indexed file's pages out costs less than opening its footer.
_WORTH_A_FOOTER = 8 * 1024 * 1024
# Rows decoded at a time where few of a row group are wanted.
_STEP = 65_536


class Meter(threading.local):
    """What the reads of one thread have asked for."""

    requests = 0
    bytes = 0

    def add(self, ranges: Sequence[ByteRange], gap: int) -> None:
        """Count ranges as the store will ask for them."""
        self.requests += len(coalesce(ranges, gap).requests)
        self.bytes += sum(wanted.length for wanted in ranges)


@dataclass(frozen=True, slots=True, eq=False)
class FileReader:
    """Reads columns of one file in the lake's types; partition columns come from the file's directory."""

    files: Files
    entry: Listed
    metadata: ParquetMetadata
    partition: dict[str, pa.Scalar]
    route: Route = "auto"
    checksums: bool = False
    meter: Meter = field(default_factory=Meter)

    @classmethod
    def open(
        cls,
        files: Files,
        entry: Listed,
        partition: dict[str, pa.Scalar],
        route: Route,
        checksums: bool,
        meter: Meter,
    ) -> FileReader:
        """Find out where everything is: from an index, the footer, or the cache."""
        return cls(files, entry, files.layout(entry), partition, route, checksums, meter)

    def columns(self, wanted: Projection) -> FileColumns:
        """What this file has of the wanted columns."""
        key = (FileColumns, wanted.paths, tuple(self.partition))
        memo = self.metadata.kin.memo
        found: FileColumns | None = memo.get(key)
        if found is None:
            found = memo[key] = _file_columns(self.metadata, wanted, self.partition)
        return found

    def read_whole(self, groups: Sequence[int], wanted: Projection) -> pa.Table:
        """Whole row groups of the wanted columns, in the lake's types; only where ``opens`` is true."""
        mine = self.columns(wanted)
        counts = self.metadata.row_group_rows[list(groups)].tolist()
        if not mine.fields:
            table = bare(sum(counts))
        elif all(self._opens(group, mine) for group in groups):
            table = self._whole(groups, mine)
        else:
            parts = zip(groups, counts, strict=True)
            found = [self._part(group, RowSet.all(rows), mine, {}) for group, rows in parts]
            table = joined([self._decoded(part) for part in found])
        return self.dress(table, wanted)

    def read(self, group: int, rows: RowSet, wanted: Projection) -> pa.Table:
        """The chosen rows (counted within the row group) of the wanted columns, in the lake's types."""
        return self.finish(self.fetch(group, rows, wanted), group, rows, wanted)

    def fetch(self, group: int, rows: RowSet, wanted: Projection) -> Part | pa.Table:
        """What ``read`` decodes; or has decoded already, where pages are not cut out."""
        mine = self.columns(wanted)
        if not mine.fields:
            return bare(len(rows))
        pyarrow = self.route == "pyarrow"
        indexes = {} if rows.is_full or pyarrow else self._indexes(group, mine.leaves)
        opens = self._opens(group, mine)
        if opens and rows.is_full:
            return self._whole([group], mine)
        if pyarrow or (opens and _needs_every_page(rows, indexes.values())):
            # Cutting pages out would read the same bytes, with more steps.
            return joined([*self._chosen(group, rows, mine, _STEP, use_threads=False)])
        return self._part(group, rows, mine, indexes)

    def finish(self, found: Part | pa.Table, group: int, rows: RowSet, wanted: Projection) -> pa.Table:
        """What was fetched of some rows in the lake's types."""
        table = self._decoded(found)
        if len(table) != len(rows):
            raise self._corrupt(f"{len(table)} rows came back for {len(rows)}", group, None)
        return self.dress(table, wanted)

    def _decoded(self, found: Part | pa.Table) -> pa.Table:
        return found if isinstance(found, pa.Table) else decode_part(found, checksums=self.checksums)

    def planned(self, group: int, rows: RowSet, wanted: Projection) -> list[ByteRange]:
        """The ranges a read would ask for, as far as the page indexes at hand tell."""
        leaves = self.columns(wanted).leaves
        if rows.is_full or self.route == "pyarrow":
            return [self.metadata.chunk_range(group, leaf) for leaf in leaves]
        return slice_ranges(self.metadata, group, leaves, rows, self._indexes(group, leaves))

    def batches(self, group: int, rows: RowSet, wanted: Projection, most: int) -> Generator[pa.Table]:
        """What ``read`` gives, a few rows at a time: for row groups too large to hold."""
        for table in self._chosen(group, rows, self.columns(wanted), most, use_threads=True):
            yield self.dress(table, wanted)

    @property
    def opens(self) -> bool:
        """Whether pyarrow can open the file itself, and may."""
        return self.files.place.local and self.route != "slice"

    # -- the two routes ----------------------------------------------------------------------

    def _opens(self, group: int, mine: FileColumns) -> bool:
        """Whether pyarrow may read the file itself; for little of an indexed file, no footer is opened."""
        if not self.opens or not isinstance(self.metadata, RecordedMetadata):
            return self.opens
        key = ("stored bytes", group, tuple(mine.leaves))
        size: int | None = self.metadata.memo.get(key)
        if size is None:
            size = sum(self.metadata.chunk_range(group, leaf).length for leaf in mine.leaves)
            self.metadata.memo[key] = size
        return size > _WORTH_A_FOOTER

    def _whole(self, groups: Sequence[int], mine: FileColumns) -> pa.Table:
        tables = []
        try:
            with self._open(groups, mine) as file:
                # One by one: rows that one lacks must not be made up for by the next.
                for group in groups:
                    table = file.reader.read_row_group(group, column_indices=mine.leaves, use_threads=False)
                    if len(table) != self.metadata.row_group_rows[group]:
                        raise self._blame([group], mine)
                    tables.append(table)
        except FAILURES as error:
            raise self._blame(groups, mine, error) from error
        return joined(tables)

    def _chosen(
        self, group: int, rows: RowSet, mine: FileColumns, most: int, *, use_threads: bool
    ) -> Generator[pa.Table]:
        """Chosen rows of a row group, decoded a few at a time and no further than the last of them."""
        first, stop = 0, rows.last + 1
        try:
            with closing(self._stream(group, mine, min(most, stop), use_threads=use_threads)) as tables:
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

    def _stream(self, group: int, mine: FileColumns, most: int, *, use_threads: bool) -> Generator[pa.Table]:
        """All rows of a row group, as they are decoded; nobody has counted them."""
        total = int(self.metadata.row_group_rows[group])
        if not mine.fields:
            yield from (bare(min(most, total - first)) for first in range(0, total, most))
        elif self._opens(group, mine):
            with self._open([group], mine) as file:
                for batch in file.reader.iter_batches(
                    most, row_groups=[group], column_indices=mine.leaves, use_threads=use_threads
                ):
                    yield pa.Table.from_batches([batch])
        else:
            part = self._part(group, RowSet.all(total), mine, {})
            if isinstance(part, Part):
                yield from decode_batches(part, most, checksums=self.checksums)
            else:
                yield part

    def _open(self, groups: Sequence[int], mine: FileColumns) -> pq.ParquetFile:
        path = self.files.path(self.entry)
        try:
            raw = pa.OSFile(path)
            # After it is open: what is checked is what is read, or it has been replaced and that shows.
            found = FilePath(path).stat()
        except OSError as error:
            reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
            raise ReadError(reason, path=path, hint="open the lake again") from error
        version = self.entry.version
        # Files of a table are known by name and size alone, and never change.
        if version is None and found.st_size != self.entry.size:
            raise stale(path, self.entry.size, found.st_size)
        if version is not None and identity_of(found) != version:
            raise stale(path)
        chunks = [self.metadata.chunk_range(group, leaf) for group in groups for leaf in mine.leaves]
        # pyarrow reads past our own store; what it reads is known all the same.
        before = self.meter.requests, self.meter.bytes
        self.meter.add(chunks, 0)
        counter = self.files.source(self.entry).counter
        counter.add(self.meter.requests - before[0], self.meter.bytes - before[1])
        metadata = pyarrow_metadata(self.files.footer(self.entry))
        return pq.ParquetFile(raw, metadata=metadata, page_checksum_verification=self.checksums)

    def _blame(
        self, groups: Sequence[int], mine: FileColumns, error: Exception | None = None
    ) -> SkipstoneError:
        """The error for row groups that can't be decoded, or hold fewer rows than they say.

        It names the first column at fault.
        """
        for group, leaf in product(groups, mine.leaves):
            column = self.metadata.leaves[leaf]
            at = mine.names.index(column.path[0])
            alone = FileColumns([mine.fields[at]], [leaf], [mine.names[at]])
            total = int(self.metadata.row_group_rows[group])
            try:
                found = sum(map(len, self._stream(group, alone, _STEP, use_threads=False)))
            except FAILURES as cause:
                return self._corrupt(f"the values can't be decoded: {_first_line(cause)}", group, column.name)
            except SkipstoneError as cause:
                return cause
            if found != total:
                return self._corrupt(f"{found} rows came back for {total}", group, column.name)
        reason = "columns differ in length" if error is None else _first_line(error)
        return self._corrupt(f"the row group can't be decoded: {reason}", groups[0], None)

    def _corrupt(self, message: str, group: int, column: str | None) -> CorruptFileError:
        return CorruptFileError(message, path=self.metadata.path, unit=f"row group {group}", column=column)

    def _part(
        self, group: int, rows: RowSet, mine: FileColumns, indexes: Mapping[int, PageIndex | None]
    ) -> Part | pa.Table:
        steps = part_steps(
            self.metadata,
            group,
            mine.fields,
            rows,
            indexes,
            leaves=mine.leaves,
            checksums=self.checksums,
        )
        return drive(steps, lambda need: self._fetch(need, group, mine.names))

    def _fetch(self, ranges: Sequence[ByteRange], group: int, columns: Sequence[str]) -> list[bytes]:
        """Bytes of the file; an error says what was being read."""
        self.meter.add(ranges, self.files.source(self.entry).gap)
        try:
            return self.files.read(self.entry, ranges)
        except ReadError as error:
            error.unit = error.unit or f"row group {group}"
            error.column = error.column or ", ".join(columns)
            raise

    # -- page indexes ------------------------------------------------------------------------

    def _indexes(self, group: int, leaves: Sequence[int]) -> dict[int, PageIndex | None]:
        """Where the pages of each leaf are; None where the file doesn't say, or not credibly."""
        key = (PageIndex, self.entry, group, tuple(leaves))
        together: dict[int, PageIndex | None] | None = self.files.cache.get(key)
        if together is not None:
            return together
        found: dict[int, PageIndex | None] = {}
        wanted: list[tuple[int, ByteRange]] = []
        for leaf in leaves:
            kept = self.files.cache.get(self._key(group, leaf)) or self._known(group, leaf)
            if kept is not None:
                found[leaf] = kept
                continue
            place = page_index_ranges(self.metadata, group, leaf)[1]
            if place is None:
                found[leaf] = None
            else:
                wanted.append((leaf, place))
        if wanted:
            names = [self.metadata.leaves[leaf].name for leaf, _ in wanted]
            bodies = self._fetch([place for _, place in wanted], group, names)
            for (leaf, _), body in zip(wanted, bodies, strict=True):
                found[leaf] = self._parsed(group, leaf, body)
        self.files.cache.put(key, found, _PAGE_WEIGHT * sum(len(i) for i in found.values() if i is not None))
        return found

    def _known(self, group: int, leaf: int) -> PageIndex | None:
        index = self.metadata.known_places(group, leaf)
        if index is not None:
            self.files.cache.put(self._key(group, leaf), index, _PAGE_WEIGHT * len(index))
        return index

    def _parsed(self, group: int, leaf: int, body: bytes) -> PageIndex | None:
        try:
            index = parse_page_index(None, body, self.metadata, group, leaf)
        except BadPageIndex:
            return None
        self.files.cache.put(self._key(group, leaf), index, _PAGE_WEIGHT * len(index))
        return index

    def _key(self, group: int, leaf: int) -> tuple[Any, ...]:
        return (PageIndex, self.entry, group, leaf)

    # -- the lake's types --------------------------------------------------------------------

    def dress(self, table: pa.Table, wanted: Projection) -> pa.Table:
        """The file's columns as the lake's, with partition columns added and missing ones NULL."""
        if table.schema.equals(wanted.schema, check_metadata=True):
            return table
        for name in wanted.names:
            value = self.partition.get(name)
            if value is not None:
                table = table.append_column(wanted.schema.field(name), pa.repeat(value, len(table)))
            elif pa.types.is_timestamp(wanted.schema.field(name).type):
                table = self._zoned(table, name, wanted.schema.field(name).type)
        return conform(table, wanted.schema, path=self.metadata.path, evolution=self.files.evolution)

    def _zoned(self, table: pa.Table, name: str, type: pa.DataType) -> pa.Table:
        """INT96 and old timestamps are instants, though pyarrow reads them without a zone.

        Where other files of the lake have a zone, so must these.
        """
        place = table.schema.get_field_index(name)
        if type.tz is None or place < 0 or table.schema.field(place).type.tz is not None:
            return table
        meant = self.metadata.query_schema.field(name).type
        column = table.column(place).cast(meant) if meant.tz is not None else table.column(place)
        return table.set_column(place, pa.field(name, column.type), column)


def _needs_every_page(rows: RowSet, indexes: Iterable[PageIndex | None]) -> bool:
    """Whether each page of each leaf holds one of the rows."""
    first, last = rows.first, rows.last
    return all(
        index is None
        # The outer pages tell at once for most rows.
        or (
            (len(index) == 1 or first < index.first_rows[1])
            and last >= index.first_rows[-1]
            and bool(rows.counts(index.first_rows, index.first_rows + index.row_counts).all())
        )
        for index in indexes
    )


def read_together(parts: Sequence[tuple[FileReader, int, RowSet]], wanted: Projection) -> pa.Table:
    """Rows of several row groups, as ``read`` gives them, one after the other; decoded as one if possible."""
    found = [reader.fetch(group, rows, wanted) for reader, group, rows in parts]
    cut_out = [part for part in found if isinstance(part, Part)]
    table = None
    if len(cut_out) == len(found):
        table = decode_together(cut_out, checksums=parts[0][0].checksums)
    if table is not None:
        if table.schema.equals(wanted.schema, check_metadata=True):
            return table
        ends = accumulate(len(rows) for _, _, rows in parts)
        found = [
            table.slice(end - len(rows), len(rows)) for end, (_, _, rows) in zip(ends, parts, strict=True)
        ]
    finished = [
        reader.finish(part, group, rows, wanted)
        for part, (reader, group, rows) in zip(found, parts, strict=True)
    ]
    return joined(finished)


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Wanted columns as a file has them: top-level fields, and the leaves to read of them."""

    fields: list[int]
    leaves: list[int]
    names: list[str]


def _file_columns(metadata: ParquetMetadata, wanted: Projection, partition: dict[str, Any]) -> FileColumns:
    schema = metadata.arrow_schema
    fields: list[int] = []
    leaves: list[int] = []
    names: list[str] = []
    asked = wanted.below
    for name in wanted.names:
        if name in partition:
            continue
        places = schema.get_all_field_indices(name)
        if not places:
            continue
        if len(places) > 1:
            raise CorruptFileError(
                "the file has the column more than once",
                path=metadata.path,
                column=name,
                hint="leave it out of columns=",
            )
        fields.append(places[0])
        names.append(name)
        below = metadata.kin.leaves_of(name)
        leaves += {leaf for path in asked[name] for leaf in _leaves_at(below, path)}
    return FileColumns(fields, sorted(leaves), names)


def _leaves_at(below: Sequence[LeafColumn], path: Path) -> list[int]:
    """The leaves at a path into a column; of a struct that lacks it, one that tells where that is NULL."""
    for depth in range(len(path), -1, -1):
        found = [leaf.index for leaf in below if leaf.path[1 : 1 + depth] == path[:depth]]
        if found:
            return found if depth == len(path) else found[:1]
    return []


def pyarrow_metadata(metadata: ParquetMetadata) -> pq.FileMetaData:
    """The footer as pyarrow has it, parsed once."""
    if pq.FileMetaData not in metadata.memo:
        footer = metadata.footer
        shell = b"".join((b"PAR1", footer, len(footer).to_bytes(4, "little"), b"PAR1"))
        metadata.memo[pq.FileMetaData] = pq.read_metadata(pa.BufferReader(shell))
    found: pq.FileMetaData = metadata.memo[pq.FileMetaData]
    return found


def estimate(metadata: ParquetMetadata, group: int, leaves: Sequence[int]) -> int:
    """About how many bytes the leaves of a row group take when they are decoded."""
    key = (estimate, group, tuple(leaves))
    found: int | None = metadata.memo.get(key)
    if found is None:
        stored = sum(metadata.chunks(leaf)[group].total_compressed_size for leaf in leaves)
        plain, packed = metadata.group_sizes(group)
        # Dictionaries make text far smaller in the file than in memory; how much can't be told.
        least = 16 * int(metadata.row_group_rows[group]) * len(leaves)
        found = metadata.memo[key] = max(int(plain * stored / max(packed, 1)), stored, least)
    return found


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def bare(rows: int) -> pa.Table:
    """A table of no columns that still knows its number of rows."""
    return pa.table({"": pa.nulls(rows)}).select([])


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of one schema one after the other, rows of tables without columns included."""
    if tables[0].num_columns:
        return pa.concat_tables(tables)
    return bare(sum(table.num_rows for table in tables))


def take(table: pa.Table, positions: Array) -> pa.Table:
    """Rows of a table at positions in any order, whatever its types."""
    if not table.num_columns:
        return bare(len(positions))
    columns = [_taken(column, positions) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _taken(column: pa.ChunkedArray, where: Array) -> pa.ChunkedArray:
    if column.num_chunks != 1:
        try:
            return column.take(pa.array(where, pa.int64()))
        except pa.ArrowNotImplementedError:
            column = pa.chunked_array([column.combine_chunks()], column.type)
    return pa.chunked_array([take_values(column.chunk(0), where)], column.type)


def cut(table: pa.Table, rows: RowSet) -> pa.Table:
    """The chosen rows of a table, whatever its types."""
    if rows.is_full:
        return table
    if not table.num_columns:
        return bare(len(rows))
    return cut_for(rows, None).apply_all(table)


def kept(table: pa.Table, mask: Array) -> pa.Table:
    """The rows of a table where a mask is true, whatever its types."""
    borders = int(np.count_nonzero(mask[1:] != mask[:-1]))
    if borders * _SCATTERED > len(mask):
        return take(table, np.flatnonzero(mask))
    return cut(table, RowSet.from_mask(mask))
