"""Rows for programs: one writer per format, each a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.cli.sink import Stream
from skipstone.cli.values import TEXT, is_binary, is_nested, is_text, joined, json_objects, plain, texts
from skipstone.errors import UsageError

# Rows are gathered into row groups of about this size, or this many.
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_ROW_GROUP_ROWS = 1024 * 1024
# A comma, a quote or a line break inside; blanks at an end, which some readers strip; nothing at all.
_TO_QUOTE = r'[,"\r\n]|^\s|\s$|^$'


class RowWriter(Protocol):
    """Takes batches; what it has written is complete only after ``finish``."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""

    def finish(self) -> None:
        """Write what comes after the last row."""


class Csv:
    """RFC 4180 with a header, lines ended by a line feed; NULL is nothing, an empty text is ``""``."""

    def __init__(self, schema: pa.Schema, out: Stream) -> None:
        self._out = out
        names = pa.array(schema.names, TEXT)
        out.write((",".join(_quoted(names).to_pylist()) + "\n").encode())

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        cells = [self._cells(column) for column in batch.columns]
        # A line of one NULL would be an empty line, which readers skip.
        missing = "" if len(cells) > 1 else '""'
        cells = [pc.fill_null(column, missing) for column in cells]
        _write_texts(joined(joined(*cells, separator=","), pa.scalar("\n", TEXT)), self._out)

    @staticmethod
    def _cells(column: pa.Array) -> pa.Array:
        column = plain(column)
        found = texts(column)
        type = column.type
        return _quoted(found) if is_text(type) or is_nested(type) or is_binary(type) else found

    def finish(self) -> None:
        """Nothing comes after the last row."""


class JsonLines:
    """One JSON object per line."""

    def __init__(self, schema: pa.Schema, out: Stream) -> None:
        self._names = schema.names
        self._out = out

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        rows = json_objects(self._names, batch.columns, batch.num_rows)
        _write_texts(joined(rows, pa.scalar("\n", TEXT)), self._out)

    def finish(self) -> None:
        """Nothing comes after the last row."""


class JsonArray:
    """One JSON array of objects, each on a line of its own."""

    def __init__(self, schema: pa.Schema, out: Stream) -> None:
        self._names = schema.names
        self._out = out
        self._empty = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        if not batch.num_rows:
            return
        self._out.write(b"[\n" if self._empty else b",\n")
        self._empty = False
        rows = json_objects(self._names, batch.columns, batch.num_rows)
        _write_texts(joined(rows[:-1], pa.scalar(",\n", TEXT)), self._out)
        _write_texts(rows[-1:], self._out)

    def finish(self) -> None:
        """Close the array."""
        self._out.write(b"[]\n" if self._empty else b"\n]\n")


class Arrow:
    """An Arrow IPC stream."""

    def __init__(self, schema: pa.Schema, out: Stream) -> None:
        self._writer = pa.ipc.new_stream(out, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        self._writer.write_batch(batch)

    def finish(self) -> None:
        """Write the end of the stream."""
        self._writer.close()


class Parquet:
    """A Parquet file with a page index, batches gathered into row groups of a useful size."""

    def __init__(self, schema: pa.Schema, out: Stream) -> None:
        import pyarrow.parquet as pq

        self._waiting: list[pa.RecordBatch] = []
        try:
            self._writer = pq.ParquetWriter(out, schema, compression="zstd", write_page_index=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UsageError(f"Parquet can't hold this: {error}", hint="take another --format") from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows, or keep them until there are enough."""
        self._waiting.append(batch)
        size = sum(waiting.nbytes for waiting in self._waiting)
        rows = sum(waiting.num_rows for waiting in self._waiting)
        if size >= _ROW_GROUP_BYTES or rows >= _ROW_GROUP_ROWS:
            self._write_row_group()

    def _write_row_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=2**31)
            self._waiting.clear()

    def finish(self) -> None:
        """Write the last row group and the footer."""
        self._write_row_group()
        self._writer.close()


_WRITERS: dict[str, Callable[[pa.Schema, Stream], RowWriter]] = {
    "csv": Csv,
    "json": JsonArray,
    "jsonl": JsonLines,
    "parquet": Parquet,
    "arrow": Arrow,
}


def row_writer(format: str, schema: pa.Schema, out: Stream) -> RowWriter:
    """The writer of a format."""
    return _WRITERS[format](schema, out)


def _quoted(array: pa.Array) -> pa.Array:
    """Texts as CSV has them."""
    odd = pc.fill_null(pc.match_substring_regex(array, _TO_QUOTE), False)
    quote: Any = pa.scalar('"', TEXT)
    return pc.if_else(odd, joined(quote, pc.replace_substring(array, '"', '""'), quote), array)


def _write_texts(array: pa.Array, out: Stream) -> None:
    """Write the texts one after the other, straight from Arrow's buffer."""
    if len(array) == 0:
        return
    _, offsets, data = array.buffers()
    if data is None:
        return
    ends = memoryview(offsets).cast("q")
    first, last = ends[array.offset], ends[array.offset + len(array)]
    out.write(memoryview(data)[first:last])
