"""A whole row group through its own footer, for files whose schema can't be taken apart."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.core.rows.rowset import RowSet
from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.slice.cut import cut_for
from skipstone.parquet.slice.decode import FAILURES
from skipstone.parquet.slice.plan import LeafPlan


class _SparseFile(io.RawIOBase):
    """A file of which some parts are there, each at its place, and the rest is zeros."""

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
        # Chunks don't overlap in a sound file; in others the later part stands.
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
    """The rows of the fields, with whole chunks of all leaves at hand."""
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
        message = f"{found} were decoded where {len(metadata.arrow_schema)} of {rows.total} should be"
        raise CorruptFileError(message, path=metadata.path, unit=f"row group {group}")
    chosen = table.select(list(fields))
    return cut_for(rows, None).apply_all(chosen).replace_schema_metadata(None)
