"""Let pyarrow decode a slice, field by field where rows differ, and check what it gives."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import CorruptFileError
from skipstone.parquet.slice.build import Part, build_file, schema_file
from skipstone.parquet.slice.cut import Cut, cut_for
from skipstone.parquet.slice.merge import UnevenLeaves, merge
from skipstone.parquet.slice.pages import WITHOUT_INDEX, Chunk
from skipstone.parquet.slice.plan import same_rows
from skipstone.parquet.slice.projection import Wanted

# What pyarrow raises for bytes that it can't decode.
FAILURES: Final = (pa.ArrowException, OSError, ValueError, MemoryError)
# A slice of more rows than the first is decoded so many rows at a time, and only what is wanted is kept.
_MANY_ROWS: Final = 4 * 1024 * 1024
_FEW_ROWS: Final = 65_536


def decode_part(part: Part, *, checksums: bool) -> pa.Table:
    """The wanted rows of a part."""
    return Decoder(part, checksums=checksums).table()


def decode_batches(part: Part, rows: int, *, checksums: bool) -> Generator[pa.Table]:
    """All rows of a part that has whole chunks, so many at a time."""
    yield from Decoder(part, checksums=checksums).batches(rows)


def decode_together(parts: Sequence[Part], *, checksums: bool) -> pa.Table | None:
    """The wanted rows of all parts, one after the other, decoded as one file.

    None if they are not alike, or if something is wrong with one: alone, each tells what.
    """
    projection = parts[0].projection
    if any(part.projection is not projection for part in parts):
        return None
    decoders = [Decoder(part, checksums=checksums) for part in parts]
    if not all(decoder.plain for decoder in decoders):
        return None
    # All that the pages hold: pyarrow begins a row group where the pages of the one before it end.
    rows = [decoder.held for decoder in decoders]
    columns = [column for field in projection.fields for column in field.columns]
    try:
        reader = open_file(build_file(projection, zip(parts, rows, strict=True)), checksums=checksums)
        table = reader.read_row_groups([*range(len(rows))], column_indices=columns, use_threads=False)
    except FAILURES:
        return None
    if any(len(column) != sum(rows) for column in table.columns):
        return None
    ends = [0, *accumulate(rows)]
    cut = Cut.joined([decoder.cut for decoder in decoders], ends[:-1])
    return cut.apply_all(table).replace_schema_metadata(None)


class Decoder:
    """One part being decoded."""

    __slots__ = ("_checksums", "_chunks", "_cuts", "_even", "_limit", "_opened", "_part", "_projection")

    def __init__(self, part: Part, *, checksums: bool) -> None:
        self._part = part
        self._projection = part.projection
        self._checksums = checksums
        self._chunks = part.chunks
        pages = {_key(chunk): chunk.plan.pages for chunk in part.chunks.values()}
        self._cuts = {key: cut_for(part.rows, some) for key, some in pages.items()}
        self._limit = self._last_row()
        # Whether the pages of all leaves hold the same rows, so that pyarrow can read them together.
        self._even = len(self._cuts) == 1 and not any(map(self._apart, self._projection.fields))
        self._opened: pq.core.ParquetReader | None = None

    @property
    def plain(self) -> bool:
        """Whether the parts of every column are values without nesting, as many as page headers say."""
        leaves = self._part.metadata.leaves
        return self._even and all(
            chunk.plan.pages is not None and len(leaves[leaf].path) == 1 and not leaves[leaf].max_repetition
            for leaf, chunk in self._chunks.items()
        )

    @property
    def held(self) -> int:
        """How many rows the pages hold, if all hold the same."""
        return self._chunks[self._projection.leaves[0]].rows

    @property
    def cut(self) -> Cut:
        """Where the wanted rows are in every column, if all hold the same rows."""
        return self._cut(self._projection.leaves[0])

    def table(self) -> pa.Table:
        """The wanted rows of all fields."""
        fields = self._projection.fields
        if self._even:
            return self._rows(fields).replace_schema_metadata(None)
        columns, names = [], []
        for field in fields:
            if self._apart(field):
                name, column = self._merged(field)
            else:
                part = self._rows([field])
                name, column = part.field(0), part.column(0)
            names.append(name)
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=pa.schema(names))

    def batches(self, rows: int) -> Generator[pa.Table]:
        """All rows of all fields a few at a time, where whole chunks are at hand."""
        for table in self._batches(self._projection.fields, rows):
            yield table.replace_schema_metadata(None)

    @property
    def _reader(self) -> pq.core.ParquetReader:
        if self._opened is None:
            data = build_file(self._projection, [(self._part, self._limit)])
            try:
                self._opened = open_file(data, checksums=self._checksums)
            except FAILURES as error:
                raise self._corrupt(str(error), self._projection.leaves[0]) from error
        return self._opened

    def _last_row(self) -> int:
        """How many rows of each column are worth decoding."""
        if all(chunk.proven for chunk in self._chunks.values()):
            return max(int(cut.stops[-1]) for cut in self._cuts.values())
        # One more than there should be, so that a page with more rows than its index says is noticed.
        return max(chunk.rows for chunk in self._chunks.values()) + 1

    def _cut(self, leaf: int) -> Cut:
        return self._cuts[_key(self._chunks[leaf])]

    def _apart(self, field: Wanted) -> bool:
        """Whether a field's leaves must be read one by one, or pyarrow could pair values of other rows."""
        if len(field.leaves) == 1:
            return False
        chunks = [self._chunks[leaf] for leaf in field.leaves]
        return not all(chunk.proven for chunk in chunks) or not same_rows([chunk.plan for chunk in chunks])

    def _merged(self, field: Wanted) -> tuple[pa.Field, pa.ChunkedArray]:
        chains = []
        for leaf, column in zip(field.leaves, field.columns, strict=True):
            alone = self._rows([Wanted((leaf,), (column,))])
            chains.append(_one_array(alone.column(0)))
        target = self._target(field)
        try:
            merged = merge(target.type, chains)
            merged.validate()
        except (UnevenLeaves, *FAILURES) as error:
            raise self._corrupt(str(error), field.leaves[0]) from error
        return target, pa.chunked_array([merged])

    def _target(self, field: Wanted) -> pa.Field:
        """What the field is when pyarrow reads these leaves of it together."""
        memo = self._part.metadata.kin.memo
        key = ("slice target", field.leaves)
        if key not in memo:
            reader = open_file(schema_file(self._projection), checksums=False)
            memo[key] = reader.read_row_groups([], column_indices=field.columns, use_threads=False).field(0)
        return memo[key]

    def _rows(self, fields: Sequence[Wanted]) -> pa.Table:
        """The wanted rows of fields whose pages hold the same rows."""
        cut = self._cut(fields[0].leaves[0])
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
        reader = self._reader
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
            for batch in self._reader.iter_batches(
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
                message = f"{rows} rows were decoded where {expected} should be"
                hint = None if chunk.plan.pages is None else WITHOUT_INDEX
                raise self._corrupt(message, field.leaves[0], hint)

    def _blame(self, fields: Sequence[Wanted], error: Exception) -> CorruptFileError:
        """The error, with the name of the first leaf that can't be read alone, or lacks rows."""
        pairs = [pair for field in fields for pair in zip(field.leaves, field.columns, strict=True)]
        for leaf, column in pairs if len(pairs) > 1 else ():
            try:
                # A few rows at a time: whatever is wrong with them, they may be many.
                batches = self._reader.iter_batches(
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
    """pyarrow pairs the leaves of a field without a look at whether they fit."""
    for field, column in zip(fields, table.columns, strict=True):
        if len(field.leaves) > 1:
            column.validate()


def _key(chunk: Chunk) -> bytes | None:
    return chunk.plan.pages.key if chunk.plan.pages is not None else None


def open_file(data: bytes, *, checksums: bool) -> pq.core.ParquetReader:
    """pyarrow's reader of a file in memory."""
    reader = pq.core.ParquetReader()
    reader.open(
        pa.BufferReader(data),
        pre_buffer=False,
        page_checksum_verification=checksums,
        arrow_extensions_enabled=True,  # as pyarrow's own reader of files has it
    )
    return reader


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
