"""Run a slice: yields byte ranges, is sent their bytes, and returns a table."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.core.rows.rowset import RowSet
from skipstone.errors import CorruptFileError, ReadError, UsageError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import PageIndex
from skipstone.parquet.slice.columns import cut_for
from skipstone.parquet.slice.decode import FAILURES, MAGIC, FooterTemplate, SlicePart, allocate, decode_part
from skipstone.parquet.slice.pages import (
    Chunk,
    ChunkPages,
    LeafPlan,
    Missing,
    chunk_pages,
    complete,
    open_leaf,
    plan_leaves,
)
from skipstone.parquet.slice.projection import SliceProjection, projection_of
from skipstone.store.source import ByteRange


def slice_steps(
    metadata: ParquetMetadata,
    group: int,
    fields: Sequence[int],
    rows: RowSet,
    indexes: Mapping[int, PageIndex | None],
    *,
    leaves: Collection[int] | None = None,
    checksums: bool = False,
) -> Generator[list[ByteRange], list[bytes], pa.Table]:
    """Read some rows of some top-level fields of a row group: yields ranges, is sent their bytes.

    ``rows`` counts from the row group's first row. A leaf without a page index is read in full. ``leaves``
    prunes nested fields as pyarrow does; a field without named leaves is read in full. There is a second
    round only for a dictionary page that turns out to be needed, or for a chunk whose page index is wrong.
    """
    distinct = tuple(dict.fromkeys(fields))
    if not distinct:
        _check_rows(metadata, group, rows)
        return pa.table({"": pa.nulls(len(rows))}).select([])
    _check_rows(metadata, group, rows)
    pages = RowGroupPages.of(metadata, group, distinct, leaves, indexes)
    steps = part_steps(pages, rows, plan_leaves(pages.chunks, rows), checksums=checksums)
    try:
        while True:
            need = next(steps)
            bodies = yield need.ranges
            _check_lengths(metadata, group, need.ranges, bodies)
            for view, body in zip(need.views, bodies, strict=True):
                view[:] = body
    except StopIteration as stop:
        found: SlicePart | pa.Table = stop.value
    table = found if isinstance(found, pa.Table) else decode_part(found, checksums=checksums)
    return table if len(distinct) == len(fields) else table.select([distinct.index(f) for f in fields])


@dataclass(slots=True, eq=False)
class RowGroupPages:
    """The byte ranges and pages of some fields of a row group, independent of rows."""

    metadata: ParquetMetadata
    group: int
    fields: Sequence[int]
    projection: SliceProjection | None
    """None for a schema that can't be split into fields."""
    footer: FooterTemplate | None
    chunks: tuple[ChunkPages, ...]

    @classmethod
    def of(
        cls,
        metadata: ParquetMetadata,
        group: int,
        fields: Sequence[int],
        leaves: Collection[int] | None,
        indexes: Mapping[int, PageIndex | None],
    ) -> RowGroupPages:
        """Return the pages of distinct top-level fields, or of some of their leaves."""
        projection = projection_of(metadata, fields, leaves)
        if projection is None:
            return cls(metadata, group, fields, None, None, chunk_pages(metadata, group, (), indexes))
        chunks = chunk_pages(metadata, group, projection.leaves, indexes)
        footer = FooterTemplate.of(metadata, projection, chunks)
        return cls(metadata, group, fields, projection, footer, chunks)


class Need(NamedTuple):
    """Ranges of the file to read, and the memory for their bytes."""

    ranges: list[ByteRange]
    views: list[memoryview]


def part_steps(
    pages: RowGroupPages,
    rows: RowSet,
    plans: Sequence[LeafPlan],
    pool: pa.MemoryPool | None = None,
    *,
    checksums: bool = False,
) -> Generator[Need, None, SlicePart | pa.Table]:
    """Run ``slice_steps`` up to decoding, so that several parts can be decoded together.

    ``plans`` are for the rows. A row group whose schema can't be split into fields is returned decoded. Bytes
    are read directly into the slice's buffer, because large buffers are expensive to allocate.
    """
    metadata, group, projection = pages.metadata, pages.group, pages.projection
    ranges = [span for plan in plans for span in plan.ranges]
    footer = pages.footer
    buffer, bodies = allocate(ranges, 0 if footer is None else footer.room, pool)
    yield Need(ranges, bodies)
    if projection is None or footer is None:
        return read_as_it_is(metadata, group, pages.fields, plans, bodies, rows, checksums=checksums)
    chunks: dict[int, Chunk] = {}
    missing: list[Missing] = []
    at, place = 0, len(MAGIC)
    for plan in plans:
        first, here = at, place
        for start, stop in plan.ranges:
            place += stop - start
            at += 1
        found = open_leaf(metadata, group, plan, bodies[first:at], here)
        if type(found) is Missing:
            missing.append(found)
        else:
            chunks[plan.leaf] = found
    while missing:
        chunks.update((yield from _second_round(metadata, group, missing)))
    return SlicePart(metadata, group, projection, chunks, rows, pages.fields, footer, buffer, place, pool)


def _second_round(
    metadata: ParquetMetadata, group: int, missing: list[Missing]
) -> Generator[Need, None, dict[int, Chunk]]:
    """Fetch missing ranges; what is still missing afterwards stays in the list."""
    ranges = [span for state in missing for span in state.ranges]
    _, bodies = allocate(ranges, 0, None)
    yield Need(ranges, bodies)
    found: dict[int, Chunk] = {}
    waiting, missing[:] = missing[:], []
    at = 0
    for state in waiting:
        end = at + len(state.ranges)
        result = complete(metadata, group, state, bodies[at:end])
        at = end
        if isinstance(result, Missing):
            missing.append(result)
        else:
            found[state.plan.leaf] = result
    return found


def _check_rows(metadata: ParquetMetadata, group: int, rows: RowSet) -> None:
    total = int(metadata.row_group_rows[group])
    if rows.is_empty or rows.total != total:
        what = "no rows" if rows.is_empty else f"rows of {rows.total:,} for {total:,}"
        raise UsageError(what, path=metadata.path, unit=f"row group {group}")


def _check_lengths(
    metadata: ParquetMetadata, group: int, ranges: Sequence[ByteRange], bodies: Sequence[bytes]
) -> None:
    for (start, stop), body in zip(ranges, bodies, strict=True):
        if len(body) != stop - start:
            message = f"{ByteRange(start, stop)}: got {len(body)} bytes"
            raise ReadError(message, path=metadata.path, unit=f"row group {group}")


class _SparseFile(io.RawIOBase):
    """A file with some parts at their offsets; the rest is zeros."""

    def __init__(self, parts: list[tuple[int, bytes | memoryview]]) -> None:
        super().__init__()
        self._parts = sorted(parts, key=itemgetter(0))
        self._starts = [start for start, _ in self._parts]
        self._size = max(start + len(data) for start, data in self._parts)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        start = min(self._position, self._size)
        stop = self._size if size is None or size < 0 else min(start + size, self._size)
        out = bytearray(stop - start)
        # Chunks don't overlap in a valid file; in others the later part wins.
        for at, data in self._parts[max(bisect_right(self._starts, start) - 1, 0) :]:
            if at >= stop:
                break
            low, high = max(at, start), min(at + len(data), stop)
            if low < high:
                out[low - start : high - start] = data[low - at : high - at]
        self._position = stop
        return bytes(out)


def read_as_it_is(
    metadata: ParquetMetadata,
    group: int,
    fields: Sequence[int],
    plans: Sequence[LeafPlan],
    bodies: Sequence[memoryview],
    rows: RowSet,
    *,
    checksums: bool,
) -> pa.Table:
    """Decode the rows of the fields from whole chunks of all leaves."""
    parts: list[tuple[int, bytes | memoryview]]
    parts = [(plan.ranges[0].start, body) for plan, body in zip(plans, bodies, strict=True)]
    end = max((plan.ranges[0].stop for plan in plans), default=4)
    trailer = metadata.footer + len(metadata.footer).to_bytes(4, "little") + b"PAR1"
    source = pa.PythonFile(_SparseFile([*parts, (end, trailer)]), mode="r")
    try:
        file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=checksums)
        table = file.read_row_group(group, use_threads=False)
    except FAILURES as error:
        raise CorruptFileError(str(error), path=metadata.path, unit=f"row group {group}") from error
    if len(table) != rows.total or table.num_columns != len(metadata.arrow_schema):
        found = f"{table.num_columns} columns of {len(table)} rows"
        message = f"{found} decoded, expected {len(metadata.arrow_schema)} of {rows.total}"
        raise CorruptFileError(message, path=metadata.path, unit=f"row group {group}")
    chosen = table.select(list(fields))
    return cut_for(rows, None).apply_all(chosen).replace_schema_metadata(None)
