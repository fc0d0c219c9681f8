"""Columns of a table to write: look-up by dotted path, and conversion to Parquet's types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone.core.arrays import plain
from skipstone.core.plain import type_name
from skipstone.errors import SchemaError, UnknownColumnError, did_you_mean

# Arrow has no kernels to take or filter views.
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def find_path(schema: pa.Schema, name: str) -> tuple[str, ...]:
    """Return the path of a column or nested field; a column with the full name takes precedence.

    >>> find_path(pa.schema([("s", pa.struct([("x", pa.int64())]))]), "s.x")
    ('s', 'x')
    """
    if len(schema.get_all_field_indices(name)) == 1:
        return (name,)
    path = tuple(name.split("."))
    fields = list(schema)
    for part in path:
        hits = [field for field in fields if field.name == part]
        if len(hits) != 1:
            problem = "name is ambiguous" if hits else "unknown column"
            names = ", ".join(field.name for field in fields) or "none"
            hint = did_you_mean(part, [field.name for field in fields], f"available columns: {names}")
            raise UnknownColumnError(problem, column=name, hint=hint)
        type = hits[0].type
        fields = list(type.fields) if pa.types.is_struct(type) else []
    return path


def find_type(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column or nested field."""
    first, *rest = find_path(schema, name)
    type = schema.field(first).type
    for part in rest:
        type = type.field(part).type
    return type


def find_column(table: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray:
    """Return the values of a column or nested field in plain layout, NULL where the struct is NULL."""
    first, *rest = find_path(table.schema, name)
    column = table.column(first)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    for part in rest:
        chunks = [pc.struct_field(chunk, [part]) for chunk in chunks]
    whole = [plain(chunk) for chunk in chunks]
    type = whole[0].type if whole else plain(pa.array([], find_type(table.schema, name))).type
    return pa.chunked_array(whole, type)


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of each Parquet leaf of an array, in the file's order."""
    type = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from leaves(array.storage)
    elif pa.types.is_struct(type):
        for child in array.flatten():
            yield from leaves(child)
    elif pa.types.is_map(type):
        # The children ignore the map's slice.
        start, stop = array.offsets[0].as_py() or 0, array.offsets[-1].as_py() or 0
        yield from leaves(array.keys.slice(start, stop - start))
        yield from leaves(array.items.slice(start, stop - start))
    elif pa.types.is_nested(type):
        yield from leaves(array.flatten())
    else:
        yield array


def leaf_paths(schema: pa.Schema) -> list[str]:
    """Return the dotted paths of the leaves of a file with this schema."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, store_schema=False).close()
    stored = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [stored.column(at).path for at in range(len(stored))]


def leaves_of(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Return the dotted paths of the leaves of these columns, in the file's order."""
    paths = leaf_paths(schema)
    for name in names:
        if not any(_within(path, name) for path in paths):
            hint = did_you_mean(name, paths, f"available leaf columns: {', '.join(paths)}")
            raise UnknownColumnError("unknown column", column=name, hint=hint)
    return tuple(path for path in paths if any(_within(path, name) for name in names))


def _within(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


# -- stored types ------------------------------------------------------------------------------


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema as written: plain values for dictionaries, runs and views, no schema metadata."""
    fields = [field.with_type(_stored(field.type)) for field in schema]
    for field in fields:
        _check(field)
    return pa.schema(fields)


def _stored(type: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return _stored(type.value_type)
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_stored(field.type)) for field in type.fields])
    if pa.types.is_map(type):
        key, item = type.key_field, type.item_field
        return pa.map_(key.with_type(_stored(key.type)), item.with_type(_stored(item.type)))
    if pa.types.is_fixed_size_list(type):
        return pa.list_(type.value_field.with_type(_stored(type.value_type)), type.list_size)
    if pa.types.is_list(type) or pa.types.is_list_view(type):
        return pa.list_(type.value_field.with_type(_stored(type.value_type)))
    if pa.types.is_large_list(type) or pa.types.is_large_list_view(type):
        return pa.large_list(type.value_field.with_type(_stored(type.value_type)))
    return _PLAIN.get(type, type)


def _check(field: pa.Field) -> None:
    hint = "omit the column, or cast it to a type that Parquet supports"
    if _has_duration(field.type):
        # A duration would be read back as a number.
        raise SchemaError(f"Parquet does not support {type_name(field.type)}", column=field.name, hint=hint)
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field]), store_schema=False).close()
    except (pa.ArrowException, ValueError) as error:
        raise SchemaError(
            f"Parquet does not support {type_name(field.type)}: {error}", column=field.name, hint=hint
        ) from error


def _has_duration(type: pa.DataType) -> bool:
    if pa.types.is_nested(type):
        return any(_has_duration(type.field(at).type) for at in range(type.num_fields))
    return bool(pa.types.is_duration(type))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch's columns to the order and types of a stored schema."""
    if batch.schema.equals(schema):
        return batch.replace_schema_metadata(None)
    if sorted(batch.schema.names) != sorted(schema.names):
        problem = f"batch has the columns {', '.join(batch.schema.names) or 'none'}"
        raise SchemaError(problem, hint=f"use the columns {', '.join(schema.names)} in all batches")
    columns = [_as(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as(array: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if array.type.equals(field.type):
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowException as error:
        problem = f"batch has type {type_name(array.type)} instead of {type_name(field.type)}: {error}"
        raise SchemaError(problem, column=field.name, hint="use the same types in all batches") from error
