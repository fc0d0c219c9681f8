"""Slices of files in memory, and what pyarrow reads instead of them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.core.rows import RowSet
from skipstone.errors import SkipstoneError
from skipstone.parquet.metadata import ParquetMetadata, footer_length, parse_footer
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.slice import slice_ranges, slice_steps
from skipstone.store.source import ByteRange


class Lake:
    """One file's bytes with its footer and page indexes."""

    def __init__(self, data: bytes, name: str = "file.parquet") -> None:
        self.data = data
        length = footer_length(data, len(data), name)
        self.metadata: ParquetMetadata = parse_footer(data[-8 - length : -8], name, len(data))

    @cached_property
    def file(self) -> pq.ParquetFile:
        return pq.ParquetFile(pa.BufferReader(self.data))

    @cached_property
    def owners(self) -> list[int]:
        """For each leaf, which top-level field it belongs to; told by pyarrow, not by the code under test."""
        tops: list[int] = []
        for leaf in range(len(self.metadata.leaves)):
            table = self.file.reader.read_row_groups([], column_indices=[leaf], use_threads=False)
            tops.append(self._top(table.schema.names[0], tops))
        return tops

    def _top(self, name: str, before: list[int]) -> int:
        names = self.metadata.arrow_schema.names
        last = before[-1] if before else 0
        return last if before and names[last] == name else names.index(name, last + bool(before))

    def indexes(self, group: int) -> dict[int, PageIndex | None]:
        found: dict[int, PageIndex | None] = {}
        for leaf in range(len(self.metadata.leaves)):
            _, span = page_index_ranges(self.metadata, group, leaf)
            try:
                found[leaf] = span and parse_page_index(
                    None, self.data[span.start : span.stop], self.metadata, group, leaf
                )
            except (BadPageIndex, SkipstoneError):
                found[leaf] = None
        return found

    def slice(
        self,
        group: int,
        fields: Sequence[int],
        rows: RowSet,
        indexes: Mapping[int, PageIndex | None] | None = None,
        *,
        leaves: Collection[int] | None = None,
        checksums: bool = False,
    ) -> tuple[pa.Table, list[list[ByteRange]]]:
        """The slice, and the rounds of ranges it asked for."""
        indexes = self.indexes(group) if indexes is None else indexes
        steps = slice_steps(self.metadata, group, fields, rows, indexes, leaves=leaves, checksums=checksums)
        rounds: list[list[ByteRange]] = []
        bodies: Any = None
        while True:
            try:
                rounds.append(steps.send(bodies))
            except StopIteration as end:
                return end.value, rounds
            bodies = [self.data[span.start : span.stop] for span in rounds[-1]]

    def chosen(self, fields: Sequence[int], leaves: Collection[int] | None) -> list[int]:
        """The leaves of the fields in order, pruned."""
        found: list[int] = []
        for field in fields:
            own = [leaf for leaf, owner in enumerate(self.owners) if owner == field]
            found += [leaf for leaf in own if leaves is None or leaf in leaves] or own
        return found

    def expected(
        self, group: int, fields: Sequence[int], rows: RowSet, leaves: Collection[int] | None = None
    ) -> pa.Table:
        """The same by pyarrow: the whole row group, then the rows."""
        columns = self.chosen(fields, leaves)
        table = self.file.reader.read_row_group(group, column_indices=columns, use_threads=False)
        picked = [pick(column, rows) for column in table.columns]
        return pa.Table.from_arrays(picked, schema=table.schema)

    def check(
        self,
        group: int,
        fields: Sequence[int],
        rows: RowSet,
        indexes: Mapping[int, PageIndex | None],
        *,
        leaves: Collection[int] | None = None,
        checksums: bool = False,
    ) -> None:
        """The slice is what pyarrow reads, in schema and rows; what pyarrow can't read is a clear error."""
        try:
            wanted = self.expected(group, fields, rows, leaves)
        except (pa.ArrowException, OSError):
            with contextlib.suppress(SkipstoneError):
                self.slice(group, fields, rows, indexes, leaves=leaves, checksums=checksums)
            return
        found, rounds = self.slice(group, fields, rows, indexes, leaves=leaves, checksums=checksums)
        where = f"group {group}, fields {list(fields)}, leaves {leaves}, {rows!r}"
        plain = wanted.schema.remove_metadata()
        assert found.schema.equals(plain, check_metadata=True), f"{where}: {found.schema} is not {plain}"
        for name, left, right in zip(found.column_names, found.columns, wanted.columns, strict=True):
            left.validate(full=True)
            assert same(left, right), f"{where}: {name} differs"
        chosen = self.chosen(fields, leaves)
        assert rounds[0] == slice_ranges(self.metadata, group, chosen, rows, indexes)


def pick(column: pa.ChunkedArray, rows: RowSet) -> pa.ChunkedArray:
    try:
        return column.take(pa.array(rows.positions()))
    except pa.ArrowNotImplementedError:
        pieces = [column.slice(start, stop - start) for start, stop in rows.ranges()]
        return pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks], type=column.type)


def same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(left.type):
        left, right = left.cast(left.type.value_type), right.cast(right.type.value_type)
    if len(left) != len(right) or left.type != right.type:
        return False
    # To equals NaN is not NaN; as text it is. Nested dictionaries may differ and still say the same.
    return (
        left.equals(right) or _text(left) == _text(right) or repr(left.to_pylist()) == repr(right.to_pylist())
    )


def _text(column: pa.ChunkedArray) -> str:
    array = pa.concat_arrays(column.chunks)
    return str(array.to_string(window=1 << 30, container_window=1 << 30))


def random_rows(rng: random.Random, total: int) -> RowSet:
    """A set that is never empty: one row, some runs, scattered rows, nearly all, all."""
    style = rng.randrange(7)
    if style == 0:
        return RowSet.from_positions(total, [rng.randrange(total)])
    if style == 1:
        return RowSet.all(total)
    if style <= 3:
        start = rng.randrange(total)
        return RowSet.from_ranges(total, [(start, min(total, start + rng.randrange(1, 40)))])
    if style == 4:
        starts = [rng.randrange(total) for _ in range(rng.randrange(1, 5))]
        return RowSet.from_ranges(total, [(s, min(total, s + rng.randrange(1, 30))) for s in starts])
    share = rng.choice([0.02, 0.3, 0.97])
    mask = np.array([rng.random() < share for _ in range(total)])
    mask[rng.randrange(total)] = True
    return RowSet.from_mask(mask)
