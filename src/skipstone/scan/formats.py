"""Values and types as strings, and writers of rows: one per format, a batch at a time."""

from __future__ import annotations

import base64
import decimal
import json
import re
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.plain import duration_text
from skipstone.errors import UsageError
from skipstone.predicate.text import interval_text
from skipstone.report.lines import visible

# 64-bit offsets: the strings of a batch may be longer than 2 GB.
TEXT = pa.large_string()

_WHOLE = r"^(-?[0-9]+)$"
_OFFSET = r"([+-][0-9]{2})([0-9]{2})$"
_TO_ESCAPE = r'["\\\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]'
_OUT_OF_RANGE = "<"
# A zero fraction of a second.
_NO_FRACTION = re.compile(r"\.0+(?=Z|[+-]\d\d:\d\d|$)")
_SHOWN_BYTES = 32
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def texts(array: pa.Array) -> pa.Array:
    """Return values as strings; NULL stays NULL, nested values are JSON, binary ones base64.

    >>> texts(pa.array([1.0, float("nan"), None])).to_pylist()
    ['1.0', 'NaN', None]
    """
    array = plain(array)
    type = array.type
    if pa.types.is_nested(type):
        return pc.if_else(array.is_null(), pa.scalar(None, TEXT), json_texts(array))
    if is_binary(type):
        return _each(array, lambda value: base64.b64encode(value).decode())
    if is_text(type):
        return _valid(array)
    if pa.types.is_floating(type):
        return _floats(array)
    if pa.types.is_decimal(type):
        # Arrow writes small ones with an exponent.
        return _patched(array.cast(TEXT), "E", lambda text: format(decimal.Decimal(text), "f"))
    if pa.types.is_timestamp(type):
        return _timestamps(array)
    if pa.types.is_interval(type):
        return pa.array([interval_text(value) if value.is_valid else None for value in array], TEXT)
    return array.cast(TEXT)


def display_texts(column: pa.ChunkedArray) -> list[str | None]:
    """The values of a column for people: bytes as hex, durations in days and hours, times without fractions
    that are all zero.
    """
    strings: list[str | None] = []
    if pa.types.is_duration(column.type):
        return [duration_text(value) if value.is_valid else None for value in column]
    for chunk in column.chunks:
        values = plain(chunk)
        if is_binary(values.type):
            strings += [None if value is None else _hex(value) for value in values.to_pylist()]
        else:
            strings += texts(values).to_pylist()
    if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
        strings = [None if value is None else value.replace("T", " ", 1) for value in strings]
        if all(value is None or _NO_FRACTION.search(value) for value in strings):
            strings = [None if value is None else _NO_FRACTION.sub("", value) for value in strings]
    return strings


def _hex(value: bytes) -> str:
    return f"0x{value[:_SHOWN_BYTES].hex()}{'…' if len(value) > _SHOWN_BYTES else ''}"


def json_texts(array: pa.Array) -> pa.Array:
    """Return values as JSON, NULL as ``null``.

    Decimals, NaN and infinities are strings, as JSON or its readers lack such numbers; so are times and
    base64. Maps are objects.

    >>> json_texts(pa.array([{"a": [1, None]}, None])).to_pylist()
    ['{"a":[1,null]}', 'null']
    """
    array = plain(array)
    type = array.type
    if pa.types.is_struct(type):
        json_values = json_objects(type.names, array.flatten(), len(array))
    elif pa.types.is_map(type):
        json_values = _map(array)
    elif pa.types.is_nested(type):
        json_values = _list(array)
    elif is_text(type):
        json_values = quoted(_valid(array))
    elif pa.types.is_floating(type):
        json_values = _floats(array)
        special = pc.fill_null(pc.match_substring_regex(json_values, "^-?[NI]"), False)
        json_values = pc.if_else(special, _wrapped('"', json_values, '"'), json_values)
    elif pa.types.is_integer(type) or pa.types.is_boolean(type) or pa.types.is_duration(type):
        json_values = texts(array)
    else:
        json_values = _wrapped('"', texts(array), '"')
    return pc.if_else(array.is_null(), "null", json_values).cast(TEXT)


def json_objects(names: list[str], columns: list[pa.Array], count: int) -> pa.Array:
    """Return one JSON object per row."""
    if not names:
        return pa.repeat(pa.scalar("{}", TEXT), count)
    parts: list[Any] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        key = visible(json.dumps(name, ensure_ascii=False))
        parts += [_text(f"{',' if number else '{'}{key}:"), json_texts(column)]
    return joined(*parts, _text("}"))


def joined(*parts: Any, separator: str = "") -> pa.Array:
    """Concatenate strings row by row; NULL if any of them is."""
    return pc.binary_join_element_wise(*parts, _text(separator))


def quoted(array: pa.Array) -> pa.Array:
    """Return strings as JSON strings."""
    plain_text = _wrapped('"', array, '"')
    odd = pc.fill_null(pc.match_substring_regex(array, _TO_ESCAPE), False)
    if not odd.true_count:
        return plain_text
    escaped = [visible(json.dumps(text, ensure_ascii=False)) for text in array.filter(odd).to_pylist()]
    return pc.replace_with_mask(plain_text, odd, pa.array(escaped, TEXT))


def plain(array: pa.Array) -> pa.Array:
    """Return the array without dictionaries and extensions; UUIDs become strings."""
    if isinstance(array, pa.ExtensionArray):
        if array.type == pa.uuid():
            return _each(array.storage, lambda value: str(uuid.UUID(bytes=value)))
        return plain(array.storage)
    return plain(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array


def plain_type(type: pa.DataType) -> pa.DataType:
    """Return the type of :func:`plain`."""
    if isinstance(type, pa.BaseExtensionType):
        return TEXT if type == pa.uuid() else plain_type(type.storage_type)
    return plain_type(type.value_type) if pa.types.is_dictionary(type) else type


def is_text(type: pa.DataType) -> bool:
    """Whether values are strings."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def is_binary(type: pa.DataType) -> bool:
    """Whether values are bytes."""
    types = pa.types
    return bool(
        types.is_binary(type)
        or types.is_large_binary(type)
        or types.is_binary_view(type)
        or types.is_fixed_size_binary(type)
    )


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, TEXT)


def _wrapped(before: str, array: pa.Array, after: str) -> pa.Array:
    return joined(_text(before), array, _text(after))


def _list(array: pa.Array) -> pa.Array:
    return _wrapped("[", _joined_lists(array, json_texts(array.flatten())), "]")


def _map(array: pa.Array) -> pa.Array:
    fields = [("key", array.type.key_type), ("value", array.type.item_type)]
    array = array.cast(pa.large_list(pa.struct(fields)))
    keys, values = array.flatten().flatten()
    pairs = joined(quoted(texts(keys)), json_texts(values), separator=":")
    return _wrapped("{", _joined_lists(array, pairs), "}")


def _joined_lists(array: pa.Array, items: pa.Array) -> pa.Array:
    """Join the items of each list; ``items`` has no values of NULL lists."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pc.binary_join(pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), items), _text(","))


def _floats(array: pa.Array) -> pa.Array:
    strings = pc.replace_substring_regex(array.cast(TEXT), _WHOLE, r"\1.0")
    return _patched(strings, "n", lambda text: _SPECIAL[text])


def _timestamps(array: pa.Array) -> pa.Array:
    """ISO 8601; a value beyond the calendar is its number."""
    local = array.cast(pa.timestamp(array.type.unit))
    strings = local.cast(TEXT)
    if array.type.tz is not None:
        zoned = pc.replace_substring_regex(array.cast(TEXT), _OFFSET, r"\1:\2")
        # Arrow's calendar wraps around for these.
        strings = pc.if_else(pc.starts_with(strings, _OUT_OF_RANGE), strings, zoned)
    dated = pc.replace_substring(strings, " ", "T", max_replacements=1)
    return pc.if_else(pc.starts_with(strings, _OUT_OF_RANGE), strings, dated)


def _patched(array: pa.Array, having: str, change: Callable[[str], str]) -> pa.Array:
    """Change the few strings that contain ``having``."""
    chosen = pc.fill_null(pc.match_substring(array, having), False)
    if not chosen.true_count:
        return array
    changed = [change(text) for text in array.filter(chosen).to_pylist()]
    return pc.replace_with_mask(array, chosen, pa.array(changed, TEXT))


def _each(array: pa.Array, change: Callable[[bytes], str]) -> pa.Array:
    return pa.array([None if value is None else change(value) for value in array.to_pylist()], TEXT)


def _valid(array: pa.Array) -> pa.Array:
    """Make strings valid UTF-8, which those of a Parquet file may not be."""
    array = array.cast(TEXT)
    raw = array.cast(pa.large_binary())
    try:
        return raw.cast(TEXT)
    except pa.ArrowInvalid:
        return _each(raw, lambda value: value.decode(errors="backslashreplace"))


# -- writers -----------------------------------------------------------------------------------

# Rows are gathered into row groups of about this size, or this many.
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_ROW_GROUP_ROWS = 1024 * 1024
# Strings with a comma, a quote or a line break, with blanks at an end, which some readers strip, or empty.
_TO_QUOTE = r'[,"\r\n]|^\s|\s$|^$'


class ByteStream(Protocol):
    """A stream that rows are written to."""

    closed: bool

    def write(self, data: Any, /) -> int:
        """Write bytes, or any buffer."""


class RowWriter(Protocol):
    """Writes batches; the output is complete only after ``finish``."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""

    def finish(self) -> None:
        """Complete the output."""


class Csv:
    """RFC 4180 with a header and line feeds; NULL is empty, an empty string is ``""``."""

    def __init__(self, schema: pa.Schema, out: ByteStream) -> None:
        self._out = out
        names = pa.array(schema.names, TEXT)
        out.write((",".join(_quoted(names).to_pylist()) + "\n").encode())

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        cells = [self._cells(column) for column in batch.columns]
        # A line with a single NULL would be empty, and readers skip empty lines.
        missing = "" if len(cells) > 1 else '""'
        cells = [pc.fill_null(column, missing) for column in cells]
        _write_texts(joined(joined(*cells, separator=","), _text("\n")), self._out)

    @staticmethod
    def _cells(column: pa.Array) -> pa.Array:
        column = plain(column)
        strings = texts(column)
        type = column.type
        return _quoted(strings) if is_text(type) or pa.types.is_nested(type) or is_binary(type) else strings

    def finish(self) -> None:
        """Do nothing."""


class Json:
    """JSON objects, one per line, optionally in one array."""

    def __init__(self, schema: pa.Schema, out: ByteStream, *, array: bool) -> None:
        self._names = schema.names
        self._out = out
        self._array = array
        self._empty = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        rows = json_objects(self._names, batch.columns, batch.num_rows)
        if not self._array:
            _write_texts(joined(rows, _text("\n")), self._out)
        elif batch.num_rows:
            self._out.write(b"[\n" if self._empty else b",\n")
            self._empty = False
            _write_texts(joined(rows[:-1], _text(",\n")), self._out)
            _write_texts(rows[-1:], self._out)

    def finish(self) -> None:
        """Close the array."""
        if self._array:
            self._out.write(b"[]\n" if self._empty else b"\n]\n")


class Arrow:
    """An Arrow IPC stream."""

    def __init__(self, schema: pa.Schema, out: ByteStream) -> None:
        self._writer = pa.ipc.new_stream(out, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        self._writer.write_batch(batch)

    def finish(self) -> None:
        """Write the end of the stream."""
        self._writer.close()


class Parquet:
    """A Parquet file with a page index and row groups of a useful size."""

    def __init__(self, schema: pa.Schema, out: ByteStream) -> None:
        import pyarrow.parquet as pq

        self._waiting: list[pa.RecordBatch] = []
        try:
            self._writer = pq.ParquetWriter(out, schema, compression="zstd", write_page_index=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UsageError(
                f"Parquet can't store these columns: {error}", hint="use another --format"
            ) from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Collect rows, and write a row group when there are enough."""
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


_WRITERS: dict[str, Callable[[pa.Schema, ByteStream], RowWriter]] = {
    "csv": Csv,
    "json": partial(Json, array=True),
    "jsonl": partial(Json, array=False),
    "parquet": Parquet,
    "arrow": Arrow,
}


def row_writer(format: str, schema: pa.Schema, out: ByteStream) -> RowWriter:
    """Return the writer of a format."""
    return _WRITERS[format](schema, out)


def _quoted(array: pa.Array) -> pa.Array:
    """Quote strings for CSV."""
    odd = pc.fill_null(pc.match_substring_regex(array, _TO_QUOTE), False)
    quote = _text('"')
    return pc.if_else(odd, joined(quote, pc.replace_substring(array, '"', '""'), quote), array)


def _write_texts(array: pa.Array, out: ByteStream) -> None:
    """Write strings directly from Arrow's buffer."""
    if len(array) == 0:
        return
    _, offsets, data = array.buffers()
    if data is None:
        return
    ends = memoryview(offsets).cast("q")
    first, last = ends[array.offset], ends[array.offset + len(array)]
    out.write(memoryview(data)[first:last])
