"""Arrow types in which rows are stored, the same on every engine, and conversion of arrays to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import decode_dictionary, unsliced
from skipstone.errors import SchemaError

# Positions of the digits in a UUID string.
_DIGITS = [at for at in range(36) if at not in (8, 13, 18, 23)]
_HEX = np.array([[*f"{byte:02x}".encode()] for byte in range(256)], dtype=np.uint8)
MOST_DIGITS: Final = 38

# -- types -------------------------------------------------------------------------------------

_STORED: Mapping[pa.DataType, pa.DataType] = MappingProxyType(
    {
        pa.null(): pa.int32(),
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.large_string(): pa.string(),
        pa.string_view(): pa.string(),
        pa.large_binary(): pa.binary(),
        pa.binary_view(): pa.binary(),
        pa.date64(): pa.date32(),
    }
)


def engine_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types that rows have on Spark; types that Spark lacks, such as times of day, stay."""
    return pa.schema([pa.field(field.name, _engine_type(field.type, field.name)) for field in schema])


def _engine_type(type: pa.DataType, column: str, *, nested: bool = False) -> pa.DataType:
    if isinstance(type, pa.BaseExtensionType) and not isinstance(type, pa.UuidType):
        return _engine_type(type.storage_type, column, nested=nested)
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return _engine_type(type.value_type, column, nested=nested)
    if pa.types.is_timestamp(type):
        if nested and type.unit == "ns":
            hint = "cast the column to microseconds first"
            raise SchemaError("nested columns of nanoseconds can't be ingested", column=column, hint=hint)
        return pa.timestamp("us", None if type.tz is None else "UTC")
    if pa.types.is_duration(type):
        return pa.int64() if nested else pa.duration("us")
    if pa.types.is_decimal(type) and type.precision <= MOST_DIGITS:
        return pa.decimal128(type.precision, type.scale)
    if pa.types.is_fixed_size_binary(type):
        return pa.binary()
    if pa.types.is_struct(type):
        names = [(field.name, f"{column}.{field.name}", field.type) for field in type.fields]
        return pa.struct([(name, _engine_type(inner, path, nested=True)) for name, path, inner in names])
    if pa.types.is_map(type):
        key, item = (_engine_type(inner, column, nested=True) for inner in (type.key_type, type.item_type))
        return pa.map_(key, item)
    if isinstance(type, LISTS):
        return pa.list_(_engine_type(type.value_type, f"{column}.element", nested=True))
    return _STORED.get(type, type)


LISTS: Final = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


def to_engine_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to the types of :func:`engine_schema`; digits below microseconds are an error."""
    if batch.schema.equals(schema):
        return batch
    arrays = [_engine_array(array, field) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _engine_array(array: pa.Array, field: pa.Field) -> pa.Array:
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    try:
        if pa.types.is_timestamp(plain.type) or pa.types.is_duration(plain.type):
            return plain.cast(field.type)
        return convert(array, field.type)
    except pa.ArrowException as error:
        hint = "round the column to microseconds" if pa.types.is_temporal(plain.type) else "cast the column"
        raise SchemaError(
            f"values can't be ingested: {error}", column=field.name, hint=f"{hint} first"
        ) from error


def durations_as_int64(schema: pa.Schema) -> pa.Schema:
    """Replace intervals by int64 microseconds, as Spark does; its row metadata records the original type."""
    fields = [field.with_type(pa.int64()) if pa.types.is_duration(field.type) else field for field in schema]
    return pa.schema(fields)


def to_stored_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch to the types in which it is stored."""
    if not any(pa.types.is_duration(type) for type in batch.schema.types):
        return batch
    columns = [c.view(pa.int64()) if pa.types.is_duration(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=durations_as_int64(batch.schema))


# -- Spark's description of a schema -----------------------------------------------------------

_NAMES: Mapping[pa.DataType, str] = MappingProxyType(
    {
        pa.bool_(): "boolean",
        pa.int8(): "byte",
        pa.int16(): "short",
        pa.int32(): "integer",
        pa.int64(): "long",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
        pa.timestamp("us"): "timestamp_ntz",
        pa.timestamp("us", "UTC"): "timestamp",
        pa.duration("us"): "interval day to second",
    }
)


def spark_json(schema: pa.Schema) -> str | None:
    """Return an engine schema in Spark's JSON format; None if a column has a type that Spark lacks.

    >>> spark_json(pa.schema([("id", pa.int64())]))
    '{"fields":[{"metadata":{},"name":"id","nullable":true,"type":"long"}],"type":"struct"}'
    """
    try:
        return json.dumps(_spark_type(pa.struct(list(schema))), separators=(",", ":"), sort_keys=True)
    except KeyError:
        return None


def _spark_type(type: pa.DataType) -> Any:
    if pa.types.is_struct(type):
        fields = [
            {"name": field.name, "type": _spark_type(field.type), "nullable": True, "metadata": {}}
            for field in type.fields
        ]
        return {"type": "struct", "fields": fields}
    if pa.types.is_map(type):
        kinds = {"keyType": _spark_type(type.key_type), "valueType": _spark_type(type.item_type)}
        return {"type": "map", **kinds, "valueContainsNull": True}
    if pa.types.is_list(type):
        return {"type": "array", "elementType": _spark_type(type.value_type), "containsNull": True}
    if pa.types.is_decimal128(type):
        return f"decimal({type.precision},{type.scale})"
    return _NAMES[type]


# -- arrays ------------------------------------------------------------------------------------


def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array to the Arrow type of its column in Spark; values don't change."""
    if array.type == target:
        return array
    if isinstance(array, pa.ExtensionArray):
        if isinstance(array.type, pa.UuidType) and pa.types.is_string(target):
            return _uuid_strings(array.storage)
        return convert(array.storage, target)
    source = array.type
    if pa.types.is_dictionary(source):
        return convert(decode_dictionary(array), target)
    if pa.types.is_run_end_encoded(source):
        return convert(pc.run_end_decode(array), target)
    if pa.types.is_struct(target):
        return _convert_struct(array, target)
    if pa.types.is_map(target):
        return _convert_map(array, target)
    if pa.types.is_list(target):
        return _convert_list(array, target)
    if pa.types.is_duration(source) and pa.types.is_integer(target):
        return array.view(pa.int64()).cast(target)
    if pa.types.is_duration(target) and pa.types.is_integer(source):
        return array.cast(pa.int64()).view(pa.duration("us")).cast(target)
    if pa.types.is_timestamp(source) and source.unit == "ns":
        return _floor_micros(array).cast(target)
    return array.cast(target)


def _uuid_strings(array: pa.FixedSizeBinaryArray) -> pa.Array:
    """Format UUIDs as strings of lower-case digits with dashes."""
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.string())
    stored = np.frombuffer(array.buffers()[1], np.uint8, len(array) * 16, array.offset * 16)
    texts = np.full((len(array), 36), ord("-"), np.uint8)
    texts[:, _DIGITS] = _HEX[stored].reshape(-1, len(_DIGITS))
    made = pa.Array.from_buffers(pa.binary(36), len(array), [None, pa.py_buffer(texts)])
    return pc.if_else(array.is_valid(), made.cast(pa.binary()).cast(pa.string()), None)


def _floor_micros(array: pa.Array) -> pa.Array:
    """Round nanoseconds down to microseconds, before 1970 too, as Spark does for INT96."""
    nanos = array.view(pa.int64())
    whole = pc.divide(nanos, 1_000)
    late = pc.less(pc.subtract(nanos, pc.multiply(whole, 1_000)), 0)
    return pc.subtract(whole, late.cast(pa.int64())).view(pa.timestamp("us", array.type.tz))


def _convert_struct(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Unlike flatten(), field() does not apply the struct's own NULLs to its children.
    parts = [array.field(number) for number in range(array.type.num_fields)]
    children = [convert(part, field.type) for part, field in zip(parts, target.fields, strict=True)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=target.fields, mask=mask)


def _convert_list(array: pa.Array, target: pa.DataType) -> pa.Array:
    if not isinstance(array, pa.ListArray):
        if isinstance(array, pa.FixedSizeListArray | pa.ListViewArray | pa.LargeListViewArray):
            # Their values may have gaps or another order.
            values = array.flatten()
            lengths = pc.fill_null(pc.list_value_length(array), 0)
            ends = pc.cumulative_sum(lengths.cast(pa.int64()))
            offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
            mask = array.is_null() if array.null_count else None
            return pa.ListArray.from_arrays(offsets, convert(values, target.value_type), target, mask=mask)
        array = array.cast(pa.list_(array.type.value_field))
    array = unsliced(array) if array.offset else array
    mask = array.is_null() if array.null_count else None
    values = convert(array.values, target.value_type)
    return pa.ListArray.from_arrays(array.offsets, values, target, mask=mask)


def _convert_map(array: pa.Array, target: pa.DataType) -> pa.Array:
    array = unsliced(array) if array.offset else array
    keys, items = convert(array.keys, target.key_type), convert(array.items, target.item_type)
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(array.offsets, keys, items, target, mask=mask)
