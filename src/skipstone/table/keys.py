"""The key of a table: its columns, and one comparable value per row.

A key is encoded as an integer if it is one column of integers, dates, times, timestamps, booleans or narrow
decimals, and as bytes otherwise. Equal keys have equal codes, and codes sort like keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import binary_keys, numbers, plain
from skipstone.core.domain.keys import Kind, is_text, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.errors import (
    SchemaError,
    SkipstoneError,
    TypeMismatchError,
    UnknownColumnError,
    UsageError,
    shorten,
)
from skipstone.iceberg.writing.target import fit
from skipstone.predicate.values import cast_exactly, exact_array, value_array
from skipstone.write.rows import is_of

if TYPE_CHECKING:
    from skipstone.scan.table import Table
    from skipstone.table.overlay import OverlayTable
    from skipstone.typing import KeysLike

# The end of a string inside a key, and a zero byte in the string, so that codes sort like keys.
_END: Final = pa.scalar(b"\0\0", pa.large_binary())
_ZERO: Final = b"\0\xff"
_NOTHING: Final = pa.scalar(b"", pa.large_binary())
_SIGN: Final = np.uint64(1 << 63)
_HINT: Final = (
    'create the table with key=["..."], or set its identifier fields; rows of a table without a key are '
    "appended by skipstone.ingest(rows, table)"
)


@dataclass(frozen=True, slots=True)
class Keys:
    """The key columns of a table, in the order of its identifier fields."""

    table: str
    schema: pa.Schema
    """Names and types of the key columns."""

    @classmethod
    def of(cls, table: Table | OverlayTable) -> Keys:
        """Return the key of a table; raise an error if it has none."""
        iceberg, schema = table.iceberg_schema, table.schema
        names = [iceberg.find_column_name(number) for number in iceberg.identifier_field_ids]
        if not names:
            raise UsageError("table has no key", path=table.name, hint=_HINT)
        nested = [name for name in names if name not in schema.names]
        if nested:
            problem = "key columns inside structs are not supported"
            raise SchemaError(problem, path=table.name, column=nested[0], hint="use top-level columns")
        fields = [schema.field(name).with_nullable(False).remove_metadata() for name in names]
        for field in fields:
            if key_space(field.type).kind is Kind.FLOAT or pa.types.is_nested(field.type):
                hint = "use integers, strings, dates, times, decimals, UUIDs, booleans or binary"
                problem = f"type {type_name(field.type)} can't be a key"
                raise SchemaError(problem, path=table.name, column=field.name, hint=hint)
        return cls(table.name, pa.schema(fields))

    @property
    def names(self) -> list[str]:
        """Names of the key columns."""
        return list(self.schema.names)

    @property
    def types(self) -> list[pa.DataType]:
        """Types of the key columns."""
        return list(self.schema.types)

    # -- codes -------------------------------------------------------------------------------

    def encode(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return one code per row: int64, or binary, fixed-size if all key columns are.

        The key columns of ``rows`` must have the table's types.
        """
        columns = [self._column(rows, field) for field in self.schema]
        if len(columns) == 1 and _is_number(self.types[0]):
            return pa.array(np.ascontiguousarray(numbers(columns[0]), dtype=np.int64))
        if len(columns) == 1:
            return binary_keys(columns[0]).cast(pa.large_binary())
        if all(map(_width, self.types)):
            return _fixed(columns, self.types)
        last = len(columns) - 1
        parts = [
            _part(column, type, last=number == last)
            for number, (column, type) in enumerate(zip(columns, self.types, strict=True))
        ]
        return pc.binary_join_element_wise(*parts, _NOTHING)

    def _column(self, rows: pa.Table | pa.RecordBatch, field: pa.Field) -> pa.Array:
        """A key column in its plain layout; raises an error if it contains NULL."""
        column = rows.column(field.name)
        if column.null_count:
            raise SchemaError(
                f"key has {column.null_count:,} NULL value{'s' if column.null_count > 1 else ''}",
                path=self.table,
                column=field.name,
                hint="remove the rows, or fill in their keys",
            )
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return plain(whole)

    def last_versions(self, rows: pa.Table | pa.RecordBatch) -> Array:
        """Return the index of the last row of each key, ascending."""
        return last_of_each(self.encode(rows))

    # -- keys from users ---------------------------------------------------------------------

    def parse(self, keys: KeysLike) -> pa.Table:
        """Convert keys to a table of the key columns in the table's types.

        Keys are a value (``3``), a tuple with one value per column (``("a", 3)``), a mapping by column, a
        list of any of these, an Arrow array, or a table with the key columns, which can have others.
        """
        if isinstance(keys, bytearray | memoryview):
            keys = bytes(keys)
        if isinstance(keys, int | str | bytes | tuple | list):
            return self._of_values(keys)
        if is_of(keys, "pyspark.sql."):
            hint = "collect the keys first, as in frame.toArrow()"
            raise UsageError("keys can't be a Spark data frame", path=self.table, hint=hint)
        if hasattr(keys, "dtype") and getattr(keys, "ndim", 1) == 1:
            keys = value_array(keys)  # a series, or an array of NumPy
        if isinstance(keys, pa.Array | pa.ChunkedArray):
            single = self._single and not pa.types.is_struct(keys.type)
            return self._of_columns({self.names[0]: keys}) if single else self._of_structs(keys)
        if hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__"):
            return self.select(pa.table(keys))
        if is_of(keys, "pandas.") and hasattr(keys, "columns"):
            return self.select(pa.Table.from_pandas(keys, preserve_index=False))
        return self._of_values(keys)

    @property
    def _single(self) -> bool:
        return len(self.schema) == 1

    def select(self, rows: pa.Table) -> pa.Table:
        """Return the key columns of rows, in the table's types."""
        self.check(rows)
        return self._of_columns({name: rows.column(name) for name in self.names})

    def check(self, rows: pa.Table, once: Sequence[str] = ()) -> None:
        """Refuse rows without a key column, with NULL in one, or with two columns of a name.

        Other columns may share a name, unless they are named in ``once``.
        """
        missing = [name for name in self.names if name not in rows.column_names]
        if missing:
            hint = f"key columns: {', '.join(self.names)}"
            raise UnknownColumnError("rows lack a key column", path=self.table, column=missing[0], hint=hint)
        for name in (*self.names, *once):
            if rows.column_names.count(name) > 1:
                hint = "rename or drop one of them"
                raise SchemaError("two columns have this name", path=self.table, column=name, hint=hint)
        for name in self.names:
            if rows.column(name).null_count:
                raise self._null(name)

    def _of_structs(self, keys: pa.Array | pa.ChunkedArray) -> pa.Table:
        if not pa.types.is_struct(keys.type):
            raise self._wrong(f"an array of {type_name(keys.type)}")
        chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
        return self.select(pa.Table.from_batches([pa.RecordBatch.from_struct_array(one) for one in chunks]))

    def _of_values(self, keys: Any) -> pa.Table:
        """Keys given as Python values, of which one alone need not be in a list."""
        some: Sequence[Any]
        if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
            some = [keys]
        else:
            some = list(keys)
            if not self._single and isinstance(keys, tuple) and not any(map(_is_tuple, some)):
                some = [keys]
        columns: dict[str, list[Any]] = {name: [] for name in self.names}
        for key in some:
            for name, value in zip(columns, self._values(key), strict=True):
                columns[name].append(value)
        arrays = {name: self._array(values, name) for name, values in columns.items()}
        return self._of_columns(arrays)

    def _values(self, key: Any) -> Sequence[Any]:
        """One value per key column."""
        if isinstance(key, Mapping):
            if set(key) != set(self.names):
                raise self._wrong(f"mapping with {', '.join(map(str, key)) or 'no columns'}")
            return [key[name] for name in self.names]
        if self._single:
            return key if isinstance(key, tuple) and len(key) == 1 else (key,)
        if not isinstance(key, tuple | list) or len(key) != len(self.schema):
            raise self._wrong(repr(key))
        return key

    def _array(self, values: list[Any], name: str) -> pa.Array:
        field = self.schema.field(name)
        if any(value is None for value in values):
            raise self._null(name)
        try:
            return exact_array(values, field.type)
        except (SkipstoneError, pa.ArrowException, TypeError, ValueError, OverflowError):
            raise self._type(field, shorten(repr(values[:3]), 100)) from None

    def _of_columns(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
        table = pa.table(dict(columns))
        for name in self.names:
            if table.column(name).null_count:
                raise self._null(name)
        arrays = [self._cast(table.column(field.name), field) for field in self.schema]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _cast(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        if column.type.equals(field.type):
            return column
        try:
            if is_text(column.type) and isinstance(field.type, pa.BaseExtensionType):
                # No Arrow kernel parses UUIDs.
                batches = pa.table({field.name: column.combine_chunks()}).to_batches()
                return pa.chunked_array(
                    [fit(one, pa.schema([field]), self.table).column(0) for one in batches], field.type
                )
            return cast_exactly(column, field.type)
        except (TypeMismatchError, pa.ArrowException) as error:
            raise self._type(field, str(error)) from error

    def _type(self, field: pa.Field, detail: str) -> SkipstoneError:
        problem = f"key values are not of type {type_name(field.type)}: {detail}"
        hint = "pass values of the column's type"
        return SchemaError(problem, path=self.table, column=field.name, hint=hint)

    def _wrong(self, what: str) -> SkipstoneError:
        one = self.names[0] if self._single else f"({', '.join(self.names)})"
        hint = f"pass keys as {one}, a list of them, or a table with these columns"
        return UsageError(f"{what} is not a key", path=self.table, hint=hint)

    def _null(self, name: str) -> SkipstoneError:
        return SchemaError("key can't be NULL", path=self.table, column=name, hint="pass a value")

    # -- messages ----------------------------------------------------------------------------

    def text(self, keys: pa.Table, most: int = 3) -> str:
        """Return the first keys as text, as in ``region = 'EU', id = 3``."""
        shown = [
            ", ".join(f"{name} = {value!r}" for name, value in row.items())
            for row in keys.select(self.names).slice(0, most).to_pylist()
        ]
        more = [f"{len(keys) - most:,} more"] if len(keys) > most else []
        return "; ".join([*shown, *more])


@dataclass(frozen=True)
class KeySet:
    """Codes of distinct keys, to look other codes up in."""

    codes: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def find(self, others: pa.Array) -> Array:
        """Return the index in ``codes`` of each of the others, -1 if it is not there."""
        codes, order = self.codes, None
        if len(codes) == 1:
            if isinstance(codes, pa.Int64Array):
                return _index_of_one(others.to_numpy() == codes.to_numpy()[0])
            return _index_of_one(pc.equal(others, codes[0]).to_numpy(zero_copy_only=False))
        if pa.types.is_integer(codes.type) and len(codes) > _SLICED and len(others):
            # Most row groups span a part of the keys: only that part is hashed.
            ends = pc.min_max(others)
            ranked, order = self._sorted
            first = int(ranked.searchsorted(ends["min"].as_py(), "left"))
            last = int(ranked.searchsorted(ends["max"].as_py(), "right"))
            codes, order = pa.array(ranked[first:last]), order[first:last]
        at: Array = pc.index_in(others, value_set=codes).fill_null(-1).to_numpy(zero_copy_only=False)
        at = at.astype(np.int64)
        return at if order is None or not len(order) else np.where(at < 0, -1, order[at])

    @cached_property
    def _sorted(self) -> tuple[Array, Array]:
        values = self.codes.to_numpy()
        order = np.argsort(values, kind="stable")
        return values[order], order


_SLICED: Final = 65_536


def _index_of_one(mask: Array) -> Array:
    """The index of one key, where it is found."""
    return mask.astype(np.int64) - 1


def last_of_each(codes: pa.Array) -> Array:
    """Return the index of the last occurrence of each code, ascending."""
    unique = pc.dictionary_encode(codes)
    last = np.zeros(len(unique.dictionary), dtype=np.int64)
    # NumPy assigns in order, so that the last occurrence stays.
    last[unique.indices.to_numpy()] = np.arange(len(codes))
    return np.sort(last)


def repeated(codes: pa.Array) -> Array:
    """Return the indices of codes that occurred before, ascending."""
    unique = pc.dictionary_encode(codes)
    first = np.zeros(len(unique.dictionary), dtype=np.int64)
    first[unique.indices.to_numpy()[::-1]] = np.arange(len(codes))[::-1]
    mask = np.ones(len(codes), dtype=bool)
    mask[first] = False
    return np.flatnonzero(mask)


# -- parts of composite codes ------------------------------------------------------------------


def _is_tuple(value: Any) -> bool:
    return isinstance(value, tuple | list | Mapping)


def _is_number(type: pa.DataType) -> bool:
    return key_space(type).kind is Kind.INT


def _width(type: pa.DataType) -> int:
    """Bytes of a part of fixed width; 0 for others."""
    if _is_number(type):
        return 8
    stored = storage_type(type)
    if pa.types.is_fixed_size_binary(stored):
        return int(stored.byte_width)
    return key_space(type).width


def _big_endian(column: pa.Array) -> Array:
    """Numbers as bytes that sort like them."""
    values = numbers(column).astype(np.int64).view(np.uint64) ^ _SIGN
    return values.astype(">u8").view(np.uint8).reshape(-1, 8)


def _bytes_of(column: pa.Array, type: pa.DataType) -> Array:
    """A column of fixed width as rows of bytes."""
    if _is_number(type):
        return _big_endian(column)
    width, values = _width(type), binary_keys(column)
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    return data[values.offset * width : (values.offset + len(values)) * width].reshape(-1, width)


def _fixed(columns: Sequence[pa.Array], types: Sequence[pa.DataType]) -> pa.Array:
    parts = [_bytes_of(column, type) for column, type in zip(columns, types, strict=True)]
    joined = np.ascontiguousarray(np.hstack(parts))
    count, width = joined.shape
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, pa.py_buffer(joined)])


def _part(column: pa.Array, type: pa.DataType, *, last: bool) -> pa.Array:
    if _width(type):
        return _fixed([column], [type]).cast(pa.large_binary())
    part = binary_keys(column).cast(pa.large_binary())
    if last:
        return part
    if pc.any(pc.match_substring(part, b"\0")).as_py():
        part = pc.replace_substring(part, b"\0", _ZERO)
    return pc.binary_join_element_wise(part, _END, _NOTHING)
