"""Let pyarrow decode a slice, field by field where rows differ, and check what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.slice.build import build_file, schema_file
from skipstone.parquet.slice.cut import Cut, cut_for
from skipstone.parquet.slice.merge import UnevenLeaves, merge
from skipstone.parquet.slice.pages import WITHOUT_INDEX, Chunk
from skipstone.parquet.slice.plan import same_rows
from skipstone.parquet.slice.projection import Projection, Wanted
from skipstone.rows.rowset import RowSet

# What pyarrow raises for bytes that it can't decode.
FAILURES: Final = (pa.ArrowException, OSError, ValueError, MemoryError)


class Decoder:
    """One slice being decoded."""

    __slots__ = ("_chunks", "_cuts", "_group", "_limit", "_metadata", "_projection", "_reader")

    def __init__(
        self,
        metadata: ParquetMetadata,
        group: int,
        projection: Projection,
        chunks: Mapping[int, Chunk],
        rows: RowSet,
        *,
        checksums: bool,
    ) -> None:
        self._metadata = metadata
        self._group = group
        self._projection = projection
        self._chunks = chunks
        self._cuts = {_key(chunk): cut_for(rows, chunk.plan.pages) for chunk in chunks.values()}
        self._limit = self._last_row()
        data = build_file(metadata, group, projection, chunks, self._limit)
        try:
            self._reader = open_file(data, checksums=checksums)
        except FAILURES as error:
            raise self._corrupt(str(error), projection.leaves[0]) from error

    def table(self) -> pa.Table:
        """The wanted rows of all fields."""
        fields = self._projection.fields
        chunks = [self._chunks[leaf] for leaf in self._projection.leaves]
        if same_rows([chunk.plan for chunk in chunks]) and not any(self._apart(field) for field in fields):
            table = self._read(fields)
            cut = self._cut(self._projection.leaves[0])
            return cut.apply_all(table).replace_schema_metadata(None)
        columns, names = [], []
        for field in fields:
            if self._apart(field):
                name, column = self._merged(field)
            else:
                part = self._read([field])
                name, column = part.field(0), self._cut(field.leaves[0]).apply(part.column(0))
            names.append(name)
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=pa.schema(names))

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
            alone = self._read([Wanted((leaf,), (column,))])
            chains.append(_one_array(self._cut(leaf).apply(alone.column(0))))
        target = self._target(field)
        try:
            merged = merge(target.type, chains)
            merged.validate()
        except (UnevenLeaves, *FAILURES) as error:
            raise self._corrupt(str(error), field.leaves[0]) from error
        return target, pa.chunked_array([merged])

    def _target(self, field: Wanted) -> pa.Field:
        """What the field is when pyarrow reads these leaves of it together."""
        memo = self._metadata.kin.memo
        key = ("slice target", field.leaves)
        if key not in memo:
            reader = open_file(schema_file(self._projection), checksums=False)
            memo[key] = reader.read_row_groups([], column_indices=field.columns, use_threads=False).field(0)
        return memo[key]

    def _read(self, fields: Sequence[Wanted]) -> pa.Table:
        columns = [column for field in fields for column in field.columns]
        try:
            table = self._reader.read_row_group(0, column_indices=columns, use_threads=False)
            for field, column in zip(fields, table.columns, strict=True):
                if len(field.leaves) > 1:
                    column.validate()
        except FAILURES as error:
            raise self._blame(fields, error) from error
        for field, column in zip(fields, table.columns, strict=True):
            chunk = self._chunks[field.leaves[0]]
            expected = min(chunk.rows, self._limit)
            if len(column) != expected:
                message = f"{len(column)} rows were decoded where {expected} should be"
                hint = None if chunk.plan.pages is None else WITHOUT_INDEX
                raise self._corrupt(message, field.leaves[0], hint)
        return table

    def _blame(self, fields: Sequence[Wanted], error: Exception) -> CorruptFileError:
        """The error, with the name of the first leaf that can't be read alone."""
        pairs = [pair for field in fields for pair in zip(field.leaves, field.columns, strict=True)]
        for leaf, column in pairs if len(pairs) > 1 else ():
            try:
                self._reader.read_row_group(0, column_indices=[column], use_threads=False)
            except FAILURES as reason:
                return self._corrupt(str(reason), leaf)
        return self._corrupt(str(error), pairs[0][0])

    def _corrupt(self, message: str, leaf: int, hint: str | None = None) -> CorruptFileError:
        return CorruptFileError(
            message,
            path=self._metadata.path,
            unit=f"row group {self._group}",
            column=self._metadata.leaves[leaf].name,
            hint=hint,
        )


def _key(chunk: Chunk) -> bytes | None:
    return chunk.plan.pages.key if chunk.plan.pages is not None else None


def open_file(data: bytes, *, checksums: bool) -> pq.core.ParquetReader:
    """pyarrow's reader of a file in memory."""
    source = pa.BufferReader(data)
    return pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=checksums).reader


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
