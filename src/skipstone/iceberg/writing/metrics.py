"""Metrics of data files for manifests, collected while rows are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    FixedType,
    FloatType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)

from skipstone.errors import UsageError
from skipstone.iceberg.metadata import integer_property
from skipstone.iceberg.partitions.values import PartitionKey, internal
from skipstone.iceberg.writing.sorting import OrderCheck
from skipstone.parquet.write.columns import leaf_paths

DEFAULT_MODE: Final = "write.metadata.metrics.default"
COLUMN_MODE: Final = "write.metadata.metrics.column."
MAX_COLUMNS: Final = "write.metadata.metrics.max-inferred-column-defaults"
_TRUNCATED: Final = re.compile(r"truncate\((\d+)\)")
_LAST: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class MetricsColumn:
    """A column with metrics: a leaf outside lists and maps."""

    field_id: int
    path: tuple[str, ...]
    type: PrimitiveType
    mode: Literal["none", "counts", "bounds"]
    length: int | None
    """Characters or bytes that bounds are truncated to; None: not truncated."""


@dataclass(frozen=True, slots=True)
class FileMetrics:
    """Metrics of a data file, as manifests record them."""

    key: PartitionKey
    rows: int
    column_sizes: dict[int, int]
    values: dict[int, int]
    nulls: dict[int, int]
    nans: dict[int, int]
    lower: dict[int, bytes]
    upper: dict[int, bytes]
    offsets: tuple[int, ...]
    sort_order: int | None = None
    """The table's sort order that the rows are in, if any."""


def measured_columns(
    schema: Schema, properties: Mapping[str, str], whole: Iterable[int] = (), table: str | None = None
) -> tuple[MetricsColumn, ...]:
    """Columns with metrics according to table properties; bounds of ``whole`` ids are not truncated."""
    table_mode = properties.get(DEFAULT_MODE)
    default = table_mode or "truncate(16)"
    most = integer_property(properties, MAX_COLUMNS, 100, table=table)
    untruncated = set(whole)
    columns = []
    for number, (path, leaf) in enumerate(_leaves(schema.fields, ())):
        column_mode = properties.get(COLUMN_MODE + ".".join(path))
        # Without a setting, only the first columns of a very wide table have metrics.
        usual = default if table_mode or number < most else "none"
        mode = column_mode or ("full" if leaf.field_id in untruncated else usual)
        columns.append(_measured(leaf, path, mode))
    return tuple(columns)


def _leaves(
    fields: Iterable[NestedField], above: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], NestedField]]:
    for one in fields:
        path = (*above, one.name)
        if isinstance(one.field_type, StructType):
            yield from _leaves(one.field_type.fields, path)
        elif isinstance(one.field_type, PrimitiveType):
            yield path, one


def _measured(leaf: NestedField, path: tuple[str, ...], mode: str) -> MetricsColumn:
    assert isinstance(leaf.field_type, PrimitiveType)
    plain = mode.strip().lower()
    cut = _TRUNCATED.fullmatch(plain)
    if plain not in ("none", "counts", "full") and (cut is None or int(cut[1]) < 1):
        hint = "use none, counts, truncate(length) or full"
        raise UsageError(f"invalid metrics mode {mode!r}", column=".".join(path), hint=hint)
    if plain == "none":
        return MetricsColumn(leaf.field_id, path, leaf.field_type, "none", None)
    # Writers disagree on the order of UUIDs, so their bounds are useless.
    counts = plain == "counts" or isinstance(leaf.field_type, UUIDType)
    truncated = isinstance(leaf.field_type, StringType | BinaryType | FixedType)
    length = int(cut[1]) if cut and truncated else None
    return MetricsColumn(leaf.field_id, path, leaf.field_type, "counts" if counts else "bounds", length)


@dataclass(slots=True)
class _ColumnTally:
    values: int = 0
    nulls: int = 0
    nans: int = 0
    least: Any = None
    most: Any = None


@dataclass(slots=True)
class FileTally:
    """Collects the metrics of one data file."""

    key: PartitionKey
    columns: tuple[MetricsColumn, ...]
    ids: Mapping[str, int]
    """Field ids of all leaves by path."""
    order: OrderCheck | None = None
    """Compares the rows; None if the table has no sort order."""
    rows: int = 0
    seen: dict[int, _ColumnTally] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Add a row group."""
        self.rows += rows.num_rows
        if self.order is not None:
            self.order.add(rows)
        for one in self.columns:
            if one.mode != "none":
                seen = self.seen.setdefault(one.field_id, _ColumnTally())
                _add_values(seen, one, _values(rows, one.path))

    def end(self, footer: pq.FileMetaData) -> FileMetrics:
        """The metrics; sizes and offsets come from the footer."""
        sizes: dict[int, int] = {}
        offsets = []
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            chunks = [group.column(at) for at in range(group.num_columns)]
            for chunk in chunks:
                leaf = self.ids[chunk.path_in_schema]
                sizes[leaf] = sizes.get(leaf, 0) + chunk.total_compressed_size
            offsets.append(min(_start(chunk) for chunk in chunks))
        by_id = {one.field_id: one for one in self.columns}
        bounds = {number: _bounds(by_id[number], seen) for number, seen in self.seen.items()}
        return FileMetrics(
            key=self.key,
            rows=self.rows,
            column_sizes=sizes,
            values={number: seen.values for number, seen in self.seen.items()},
            nulls={number: seen.nulls for number, seen in self.seen.items()},
            nans={number: seen.nans for number, seen in self.seen.items() if _is_float(by_id[number])},
            lower={number: low for number, (low, _) in bounds.items() if low is not None},
            upper={number: high for number, (_, high) in bounds.items() if high is not None},
            offsets=tuple(offsets),
            sort_order=self.order.order.id if self.order is not None and self.order.holds else None,
        )


def leaf_ids(schema: pa.Schema) -> dict[str, int]:
    """Field ids of all leaves of a schema, by path."""
    return dict(zip(leaf_paths(schema), _ids(list(schema)), strict=True))


def _ids(fields: Iterable[pa.Field]) -> Iterable[int]:
    for one in fields:
        if pa.types.is_nested(one.type):
            yield from _ids([one.type.field(at) for at in range(one.type.num_fields)])
        else:
            yield int(one.metadata[b"PARQUET:field_id"])


def _values(rows: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    column: pa.ChunkedArray = rows.column(path[0])
    # struct_field returns NULL for values under a NULL struct.
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _add_values(seen: _ColumnTally, column: MetricsColumn, values: pa.ChunkedArray) -> None:
    """Add the values of a row group, which can be many chunks of a few rows."""
    seen.values += len(values)
    seen.nulls += values.null_count
    if _is_float(column):
        nans = pc.sum(pc.is_nan(values)).as_py() or 0
        seen.nans += nans
        if nans == len(values) - values.null_count:
            return
    if column.mode != "bounds" or values.null_count == len(values):
        return
    bounds = pc.min_max(pa.chunked_array([internal(chunk) for chunk in values.chunks])).as_py()
    least, most = bounds["min"], bounds["max"]
    seen.least = least if seen.least is None else min(seen.least, least)
    seen.most = most if seen.most is None else max(seen.most, most)


def _is_float(column: MetricsColumn) -> bool:
    return isinstance(column.type, FloatType | DoubleType)


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    return int(chunk.data_page_offset if first is None else min(first, chunk.data_page_offset))


# -- bounds ------------------------------------------------------------------------------------


def _bounds(column: MetricsColumn, seen: _ColumnTally) -> tuple[bytes | None, bytes | None]:
    if seen.least is None:
        return None, None
    least, most = seen.least, seen.most
    if _is_float(column):
        # min_max does not distinguish -0.0 and 0.0.
        least, most = (-0.0 if least == 0 else least), (0.0 if most == 0 else most)
    if column.length is not None:
        least, most = least[: column.length], cut_above(most, column.length)
    if isinstance(column.type, FixedType):
        return least, most
    low = to_bytes(column.type, least)
    return low, None if most is None else to_bytes(column.type, most)


def cut_above(value: Any, length: int) -> Any:
    """The least string or bytes of at most ``length`` that is above all values with the same prefix.

    None if there is none; a short value is returned unchanged.

    >>> cut_above("skipstone", 4), cut_above(bytes([7, 255, 255]), 2), cut_above(b"a", 2)
    ('skiq', b'\\x08', b'a')
    """
    if len(value) <= length:
        return value
    text = isinstance(value, str)
    for end in range(length, 0, -1):
        last = ord(value[end - 1]) if text else value[end - 1]
        if last < (_LAST if text else 0xFF):
            after = last + 1
            if not text:
                return value[: end - 1] + bytes([after])
            return value[: end - 1] + chr(_SURROGATES.stop if after in _SURROGATES else after)
    return None
