"""Build a slice as a valid Parquet file in memory, with unchanged pages and a new footer, and decode it."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.core.rows.rowset import RowSet
from skipstone.errors import CorruptFileError
from skipstone.parquet import compact as c
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.slice.columns import Cut, UnevenLeaves, bare, cut_for, merge, taken
from skipstone.parquet.slice.pages import ELSEWHERE, WITHOUT_INDEX, Chunk, ChunkPages, PageSelection
from skipstone.parquet.slice.projection import SliceProjection, Wanted
from skipstone.store.source import ByteRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Errors that pyarrow raises for bytes it can't decode.
FAILURES: Final = (pa.ArrowException, OSError, ValueError, MemoryError)
# A slice with more rows than the first is decoded in batches of the second, which are cut at once.
_MANY_ROWS: Final = 4 * 1024 * 1024
_FEW_ROWS: Final = 65_536
MAGIC: Final = b"PAR1"
_FILE_OFFSET: Final = (2, c.I64, c.integer(0))
_WIDE: Final = 34
# Of a column chunk after its prefix, and of what else a footer has.
_LONGEST_END: Final = 32
_MORE_ROOM: Final = 64


@dataclass(slots=True, eq=False)
class SlicePart:
    """Selected pages of one row group, read and checked, and the wanted rows."""

    metadata: ParquetMetadata
    group: int
    projection: SliceProjection
    chunks: dict[int, Chunk]
    rows: RowSet
    fields: Sequence[int]
    """Their top-level fields in the file."""
    footer: FooterTemplate
    buffer: pa.Buffer
    """Buffer of the pages."""
    end: int
    """End of the pages in the buffer."""
    pool: pa.MemoryPool | None = None
    """Memory pool to decode into; None is pyarrow's default."""


# -- the file ----------------------------------------------------------------------------------


def allocate(
    ranges: Iterable[ByteRange], room: int, pool: pa.MemoryPool | None
) -> tuple[pa.Buffer, list[memoryview]]:
    """Allocate a buffer for the bytes of ranges as laid out in a slice, with space for a footer."""
    at = len(MAGIC)
    ends = [at := at + stop - start for start, stop in ranges]
    buffer = pa.allocate_buffer(at + room, pool)
    view = memoryview(buffer).cast("B")
    view[: len(MAGIC)] = MAGIC
    return buffer, [view[start:stop] for start, stop in zip([len(MAGIC), *ends], ends, strict=False)]


@dataclass(slots=True, eq=False)
class FooterTemplate:
    """The common parts of footers for row groups with the same codecs."""

    prefixes: list[bytes]
    """Bytes before the counts and offsets of each column chunk."""
    room: int
    """Maximum bytes of a footer with one row group."""

    @classmethod
    def of(
        cls, metadata: ParquetMetadata, projection: SliceProjection, chunks: Iterable[ChunkPages]
    ) -> FooterTemplate:
        """Return the template for chunks, cached per projection and codecs."""
        slots = projection.slots
        known = {chunk.leaf: chunk.codec for chunk in chunks}
        codecs = tuple([known[leaf] if wanted else 0 for leaf, wanted in slots])
        found: FooterTemplate | None = projection.footers.get(codecs)
        if found is None:
            prefixes = [
                _prefix(metadata, leaf, codec) for (leaf, _), codec in zip(slots, codecs, strict=True)
            ]
            ends = len(projection.head) + len(projection.tail)
            room = ends + sum(map(len, prefixes)) + _LONGEST_END * len(prefixes) + _MORE_ROOM
            found = projection.footers[codecs] = cls(prefixes, room)
        return found


def file_of(part: SlicePart, rows: int) -> pa.Buffer:
    """Build a file with a part as one row group of ``rows`` rows; columns may differ in length.

    pyarrow returns at most that many rows of a column, and all rows of a column with fewer. The file is the
    buffer that the pages were read into, if they are contiguous there.
    """
    places = [part.chunks[leaf].place if wanted else 0 for leaf, wanted in part.projection.slots]
    if ELSEWHERE in places:
        return build_file(part.projection, [(part, rows)])
    footer: list[bytes] = []
    _row_group(part, rows, places, footer)
    end = b"".join(_footer(part.projection, rows, 1, footer))
    stop = part.end + len(end)
    memoryview(part.buffer).cast("B")[part.end : stop] = end
    return part.buffer.slice(0, stop)


def build_file(projection: SliceProjection, parts: Iterable[tuple[SlicePart, int]]) -> pa.Buffer:
    """Build a file with each part as one row group, by copying the pieces."""
    pieces: list[bytes | memoryview] = [MAGIC]
    position = len(MAGIC)
    total = count = 0
    footer: list[bytes] = []
    for part, rows in parts:
        places = []
        for leaf, wanted in projection.slots:
            places.append(position)
            if wanted:
                chunk = part.chunks[leaf]
                pieces += chunk.pieces
                position += chunk.size
        _row_group(part, rows, places, footer)
        total += rows
        count += 1
    # One join, because these can be many bytes.
    pieces += _footer(projection, total, count, footer)
    return pa.py_buffer(b"".join(pieces))


def _row_group(part: SlicePart, rows: int, places: Sequence[int], footer: list[bytes]) -> None:
    """Add a row group to a footer."""
    projection = part.projection
    total = 0
    footer.append(projection.row_group)
    prefixes = part.footer.prefixes
    for (leaf, wanted), prefix, place in zip(projection.slots, prefixes, places, strict=True):
        if not wanted:
            footer += (prefix, _chunk_end(0, 0, len(MAGIC)))
            continue
        chunk = part.chunks[leaf]
        footer += (prefix, _chunk_end(chunk.values, chunk.size, place))
        total += chunk.size
    footer += (b"\x16", c.integer(total), b"\x16", c.integer(rows), b"\0")


def _footer(projection: SliceProjection, rows: int, groups: int, footer: list[bytes]) -> list[bytes]:
    """Return the footer with its row groups, and the end of the file."""
    # Fields 3 and 4: the row count, and the row groups.
    head = [projection.head, b"\x16", c.integer(rows), b"\x19", c.list_head(c.STRUCT, groups)]
    whole = [*head, *footer, projection.tail]
    return [*whole, sum(map(len, whole)).to_bytes(4, "little"), MAGIC]


def _prefix(metadata: ParquetMetadata, leaf: int, codec: int) -> bytes:
    column = metadata.leaves[leaf]
    path = [c.binary(step.encode()) for step in column.path]
    fields = [
        (1, c.I32, c.integer(column.physical)),
        (2, c.LIST, c.list_head(c.I32, 0)),
        (3, c.LIST, c.listing(c.BINARY, path)),
        (4, c.I32, c.integer(codec)),
    ]
    return c.open_structure([_FILE_OFFSET, (3, c.STRUCT, c.open_structure(fields))])


def _chunk_end(values: int, size: int, offset: int) -> bytes:
    """Encode the end of a column chunk: fields 5, 6, 7 and 9 of its metadata, and both ends."""
    if (values | size | offset) >> _WIDE:
        length = c.integer(size)
        parts = (b"\x16", c.integer(values), b"\x16", length, b"\x16", length, b"\x26", c.integer(offset))
        return b"".join((*parts, b"\0\0"))
    # Five bytes per number, however small: one call instead of many.
    v, s, o = values << 1, size << 1, offset << 1
    s0, s1, s2, s3, s4 = s & 127 | 128, s >> 7 & 127 | 128, s >> 14 & 127 | 128, s >> 21 & 127 | 128, s >> 28
    # fmt: off
    return bytes((
        0x16, v & 127 | 128, v >> 7 & 127 | 128, v >> 14 & 127 | 128, v >> 21 & 127 | 128, v >> 28,
        0x16, s0, s1, s2, s3, s4,
        0x16, s0, s1, s2, s3, s4,
        0x26, o & 127 | 128, o >> 7 & 127 | 128, o >> 14 & 127 | 128, o >> 21 & 127 | 128, o >> 28,
        0, 0,
    ))
    # fmt: on


def malloc_pool() -> pa.MemoryPool | None:
    """glibc's malloc as a memory pool; None without glibc, or if the user chose a pool."""
    try:
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        return None
    return pa.system_memory_pool() if glibc and "ARROW_DEFAULT_MEMORY_POOL" not in os.environ else None


def pool_for_much() -> pa.MemoryPool:
    """Memory pool for reads of hundreds of megabytes: malloc in place of mimalloc, pyarrow's default.

    mimalloc requests huge pages and soon returns freed ones to the system, so that every large read has its
    memory zeroed again, at up to half the CPU time of a full scan. malloc reuses it; small reads, which
    mimalloc serves from memory that it retains, are faster there.
    """
    pool = pa.default_memory_pool()
    return pool if pool.backend_name != "mimalloc" else malloc_pool() or pool


def open_reader(
    source: pa.NativeFile,
    pool: pa.MemoryPool | None,
    *,
    checksums: bool,
    metadata: pq.FileMetaData | None = None,
) -> pq.core.ParquetReader:
    """Open pyarrow's reader of a file; ``metadata`` saves parsing the footer."""
    reader = pq.core.ParquetReader(pool)
    reader.open(
        source,
        metadata=metadata,
        pre_buffer=False,
        page_checksum_verification=checksums,
        arrow_extensions_enabled=True,  # the default of pq.ParquetFile
    )
    return reader


def open_file(data: pa.Buffer, pool: pa.MemoryPool | None, *, checksums: bool) -> pq.core.ParquetReader:
    """pyarrow's reader of a file in memory."""
    return open_reader(pa.BufferReader(data), pool, checksums=checksums)


# -- decoding ----------------------------------------------------------------------------------


def decode_part(part: SlicePart, *, checksums: bool) -> pa.Table:
    """Decode the wanted rows of a part."""
    return Decoder(part, checksums=checksums).table()


def decode_batches(part: SlicePart, rows: int, *, checksums: bool) -> Generator[pa.Table]:
    """Decode all rows of a part with whole chunks, in batches."""
    yield from Decoder(part, checksums=checksums).batches(rows)


def decode_together(parts: Sequence[SlicePart], *, checksums: bool) -> pa.Table | None:
    """Decode the wanted rows of all parts as one file.

    None if the parts differ, or if one is damaged: decoding it alone raises a specific error.
    """
    projection = parts[0].projection
    # Flat values only: their page headers have the number of rows.
    if not projection.flat or any(part.projection is not projection for part in parts):
        return None
    for part in parts:
        chosen = {chunk.chosen for chunk in part.chunks.values()}
        if len(chosen) > 1 or None in chosen:
            return None
    decoders = [Decoder(part, checksums=checksums) for part in parts]
    # All rows of the pages: pyarrow starts a row group where the pages of the previous one end.
    rows = [decoder.held for decoder in decoders]
    try:
        data = build_file(projection, zip(parts, rows, strict=True))
        reader = open_file(data, parts[0].pool, checksums=checksums)
        table = reader.read_row_groups(
            [*range(len(rows))], column_indices=projection.columns, use_threads=False
        )
    except FAILURES:
        return None
    if any(len(column) != sum(rows) for column in table.columns):
        return None
    ends = [0, *accumulate(rows)]
    cut = Cut.joined([decoder.cut for decoder in decoders], ends[:-1])
    return cut.apply_all(table).replace_schema_metadata(None)


class Decoder:
    """Decodes one part."""

    __slots__ = ("_checksums", "_chunks", "_cuts", "_limit", "_opened", "_part", "_projection")

    def __init__(self, part: SlicePart, *, checksums: bool) -> None:
        self._part = part
        self._projection = part.projection
        self._checksums = checksums
        self._chunks = part.chunks
        cuts: dict[PageSelection | None, Cut] = {}
        self._cuts = cuts
        proven, held = True, 0
        for chunk in part.chunks.values():
            key = chunk.chosen
            if key not in cuts:
                cuts[key] = cut_for(part.rows, None if key is None else key.rows)
            proven = proven and chunk.proven
            held = max(held, chunk.rows)
        # Rows of each column to decode. If rows are counted by levels, one more than expected, so that a page
        # with more rows than in its index is detected.
        self._limit: int = max([cut.stop for cut in cuts.values()]) if proven else held + 1
        self._opened: pq.core.ParquetReader | None = None

    @property
    def held(self) -> int:
        """Number of rows of the pages, if it is the same for all columns."""
        return self._chunks[self._projection.leaves[0]].rows

    @property
    def cut(self) -> Cut:
        """Positions of the wanted rows in every column, if all have the same rows."""
        return self._cuts[self._chunks[self._projection.leaves[0]].chosen]

    def table(self, some: Sequence[int] | None = None) -> pa.Table:
        """Decode the wanted rows of all or some fields; fields with the same rows are read together."""
        fields = self._projection.fields
        if some is not None:
            fields = tuple([fields[place] for place in some])
        if not fields:
            return bare(len(self._part.rows))
        chosen = self._chunks[fields[0].leaves[0]].chosen
        for field in fields:
            if field.leaves[1:] or self._chunks[field.leaves[0]].chosen is not chosen:
                return self._apart_table(fields)
        return self._rows(fields).replace_schema_metadata(None)

    def _apart_table(self, fields: Sequence[Wanted]) -> pa.Table:
        """Decode the wanted rows of fields that can't all be read together."""
        alike: dict[object, list[int]] = {}
        apart: list[int] = []
        for place, field in enumerate(fields):
            if len(field.leaves) > 1 and self._apart(field):
                apart.append(place)
            else:
                alike.setdefault(self._chunks[field.leaves[0]].chosen, []).append(place)
        if len(alike) == 1 and not apart:
            return self._rows(fields).replace_schema_metadata(None)
        names: list[pa.Field] = [None] * len(fields)
        columns: list[pa.ChunkedArray] = [None] * len(fields)
        for places in alike.values():
            part = self._rows([fields[place] for place in places])
            for place, name, column in zip(places, part.schema, part.columns, strict=True):
                names[place], columns[place] = name, column
        for place in apart:
            names[place], columns[place] = self._merged(fields[place])
        return pa.Table.from_arrays(columns, schema=pa.schema(names))

    def rows_at(self, some: Sequence[int], chosen: NDArray[np.int64]) -> pa.Table:
        """Decode chosen rows of some flat fields, up to the last one."""
        fields = [self._projection.fields[place] for place in some]
        if not fields:
            return bare(len(chosen))
        if len(self._cuts) == 1:
            (cut,) = self._cuts.values()
            return self._first_rows(fields, cut.at(chosen)).replace_schema_metadata(None)
        names: list[pa.Field] = [None] * len(fields)
        columns: list[pa.ChunkedArray] = [None] * len(fields)
        for key, cut in self._cuts.items():
            places = [at for at, field in enumerate(fields) if self._chunks[field.leaves[0]].chosen == key]
            if not places:
                continue
            part = self._first_rows([fields[place] for place in places], cut.at(chosen))
            for place, name, column in zip(places, part.schema, part.columns, strict=True):
                names[place], columns[place] = name, column
        return pa.Table.from_arrays(columns, schema=pa.schema(names))

    def _first_rows(self, fields: Sequence[Wanted], positions: NDArray[np.int64]) -> pa.Table:
        """Decode the rows at ascending positions of fields whose pages have the same rows."""
        columns = [column for field in fields for column in field.columns]
        stop, held = positions.item(-1) + 1, 0
        batches = []
        try:
            for batch in self._reader().iter_batches(
                stop, row_groups=[0], column_indices=columns, use_threads=False
            ):
                batches.append(batch)
                held += batch.num_rows
                if held >= stop:
                    break
        except FAILURES as error:
            raise self._blame(fields, error) from error
        if held < stop:
            self._check_count(fields, held)
        return taken(pa.Table.from_batches(batches), positions)

    def batches(self, rows: int) -> Generator[pa.Table]:
        """Decode all rows of all fields in batches; the part must have whole chunks."""
        for table in self._batches(self._projection.fields, rows):
            yield table.replace_schema_metadata(None)

    def _reader(self) -> pq.core.ParquetReader:
        if self._opened is None:
            data = file_of(self._part, self._limit)
            try:
                self._opened = open_file(data, self._part.pool, checksums=self._checksums)
            except FAILURES as error:
                raise self._corrupt(str(error), self._projection.leaves[0]) from error
        return self._opened

    def _apart(self, field: Wanted) -> bool:
        """Whether a field's leaves must be read individually: pyarrow could pair values of different rows."""
        chunks = [self._chunks[leaf] for leaf in field.leaves]
        return not all(chunk.proven for chunk in chunks) or len({chunk.chosen for chunk in chunks}) > 1

    def _merged(self, field: Wanted) -> tuple[pa.Field, pa.ChunkedArray]:
        chains = []
        for leaf, column in zip(field.leaves, field.columns, strict=True):
            alone = self._rows([Wanted((leaf,), (column,))]).column(0)
            chains.append(alone.chunk(0) if alone.num_chunks == 1 else pa.concat_arrays(alone.chunks))
        target = self._target(field)
        try:
            merged = merge(target.type, chains)
            merged.validate()
        except (UnevenLeaves, *FAILURES) as error:
            raise self._corrupt(str(error), field.leaves[0]) from error
        return target, pa.chunked_array([merged])

    def _target(self, field: Wanted) -> pa.Field:
        """Return the field as pyarrow reads these leaves together."""
        memo = self._part.metadata.schema_group.memo
        key = ("slice target", field.leaves)
        if key not in memo:
            reader = open_file(build_file(self._projection, ()), None, checksums=False)
            memo[key] = reader.read_row_groups([], column_indices=field.columns, use_threads=False).field(0)
        return memo[key]

    def _rows(self, fields: Sequence[Wanted]) -> pa.Table:
        """Decode the wanted rows of fields whose pages have the same rows."""
        cut = self._cuts[self._chunks[fields[0].leaves[0]].chosen]
        if self._limit <= _MANY_ROWS:
            return cut.apply_all(self._read(fields))
        found, first = [], 0
        for table in self._batches(fields, _FEW_ROWS):
            last = first + len(table)
            found.append(cut.window(first, last).apply_all(table))
            first = last
        self._check_count(fields, first)
        return pa.concat_tables(found)

    def _read(self, fields: Sequence[Wanted]) -> pa.Table:
        reader = self._reader()
        columns = [column for field in fields for column in field.columns]
        try:
            table = reader.read_row_group(0, column_indices=columns, use_threads=False)
            _validate(fields, table)
        except FAILURES as error:
            raise self._blame(fields, error) from error
        self._check_count(fields, len(table))
        return table

    def _batches(self, fields: Sequence[Wanted], rows: int) -> Generator[pa.Table]:
        columns = [column for field in fields for column in field.columns]
        try:
            for batch in self._reader().iter_batches(
                rows, row_groups=[0], column_indices=columns, use_threads=False
            ):
                table = pa.Table.from_batches([batch])
                _validate(fields, table)
                yield table
        except FAILURES as error:
            raise self._blame(fields, error) from error

    def _check_count(self, fields: Sequence[Wanted], rows: int) -> None:
        for field in fields:
            chunk = self._chunks[field.leaves[0]]
            expected = min(chunk.rows, self._limit)
            if rows != expected:
                message = f"{rows} rows decoded, expected {expected}"
                hint = None if chunk.chosen is None else WITHOUT_INDEX
                raise self._corrupt(message, field.leaves[0], hint)

    def _blame(self, fields: Sequence[Wanted], error: Exception) -> CorruptFileError:
        """Return the error for the first leaf that can't be read alone, or lacks rows."""
        pairs = [pair for field in fields for pair in zip(field.leaves, field.columns, strict=True)]
        for leaf, column in pairs if len(pairs) > 1 else ():
            try:
                # In small batches: a damaged leaf may claim many rows.
                batches = self._reader().iter_batches(
                    _FEW_ROWS, row_groups=[0], column_indices=[column], use_threads=False
                )
                self._check_count([Wanted((leaf,), (column,))], sum(map(len, batches)))
            except FAILURES as reason:
                return self._corrupt(str(reason), leaf)
            except CorruptFileError as short:
                return short
        return self._corrupt(str(error), pairs[0][0])

    def _corrupt(self, message: str, leaf: int, hint: str | None = None) -> CorruptFileError:
        return CorruptFileError(
            message,
            path=self._part.metadata.path,
            unit=f"row group {self._part.group}",
            column=self._part.metadata.leaves[leaf].name,
            hint=hint,
        )


def _validate(fields: Sequence[Wanted], table: pa.Table) -> None:
    """Validate nested columns: pyarrow pairs the leaves of a field without checking them."""
    for place, field in enumerate(fields):
        if field.leaves[1:]:
            table.column(place).validate()
