"""Rows brought to the columns of a table: by name, widened without loss, with the field ids in the schema."""

from __future__ import annotations

import uuid

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.errors import SchemaError
from skipstone.lake.conform import check_readable, conform
from skipstone.lake.schema import is_list


def stored_columns(schema: Schema) -> pa.Schema:
    """The columns of a table's files in Arrow's types, each with its field id."""
    return pa.schema([_plain(field) for field in schema_to_pyarrow(schema)])


def _plain(field: pa.Field) -> pa.Field:
    """A field with offsets of 32 bits: batches are small."""
    type = field.type
    if pa.types.is_large_string(type):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(type):
        return field.with_type(pa.binary())
    if pa.types.is_struct(type):
        return field.with_type(pa.struct([_plain(part) for part in type.fields]))
    if pa.types.is_large_list(type):
        return field.with_type(pa.list_(_plain(type.value_field)))
    if pa.types.is_map(type):
        return field.with_type(pa.map_(_plain(type.key_field), _plain(type.item_field)))
    return field


def check_columns(given: pa.Schema, wanted: pa.Schema, table: str) -> None:
    """Refuse rows that a table can't take, whatever their values, and name the first column that is wrong."""
    _check_names(list(given), list(wanted), table, "")
    check_readable(given, _between(given, wanted), "the new rows", table)


def fit(rows: pa.RecordBatch, wanted: pa.Schema, table: str) -> pa.RecordBatch:
    """The rows in the table's columns; those that are missing are NULL."""
    given = pa.Table.from_batches([rows])
    for at, field in enumerate(given.schema):
        if is_text(field.type) and field.name in wanted.names and _is_uuid(wanted.field(field.name).type):
            given = given.set_column(at, field.name, _uuids(given.column(at), field.name, table))
    between = _between(given.schema, wanted)
    made = conform(given, between, path=table)
    columns = [_cast(made.column(at), field, table) for at, field in enumerate(wanted)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _cast(column: pa.ChunkedArray, field: pa.Field, table: str) -> pa.Array:
    whole = column.combine_chunks()
    if whole.type.equals(field.type):
        return whole
    try:
        return whole.cast(field.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"a value doesn't fit the table's type {field.type}: {error}",
            path=table,
            column=field.name,
            hint="cast the column before",
        ) from error


# -- names -------------------------------------------------------------------------------------


def _check_names(given: list[pa.Field], wanted: list[pa.Field], table: str, above: str) -> None:
    known = {field.name: field for field in wanted}
    folded = {field.name.casefold(): field.name for field in wanted}
    for field in given:
        name = f"{above}{field.name}"
        if field.name not in known:
            other = folded.get(field.name.casefold())
            problem = f"the table calls it {above}{other}" if other else "the table has no such column"
            hint = "rename it" if other else "drop it, or add it to the table's schema first"
            raise SchemaError(problem, path=table, column=name, hint=hint)
        _check_parts(field.type, known[field.name].type, table, name)
    names = {field.name for field in given}
    for field in wanted:
        if not field.nullable and field.name not in names:
            hint = "add it to the rows"
            raise SchemaError("the table requires it", path=table, column=f"{above}{field.name}", hint=hint)


def _check_parts(own: pa.DataType, wanted: pa.DataType, table: str, name: str) -> None:
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        _check_names(own.fields, wanted.fields, table, f"{name}.")
    elif is_list(own) and is_list(wanted):
        _check_parts(own.value_type, wanted.value_type, table, f"{name}.element")
    elif pa.types.is_map(own) and pa.types.is_map(wanted):
        _check_parts(own.key_type, wanted.key_type, table, f"{name}.key")
        _check_parts(own.item_type, wanted.item_type, table, f"{name}.value")


# -- types that other engines have other types for ---------------------------------------------


def _between(given: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The wanted columns, with the given types where pyarrow's own cast checks the values."""
    own = {field.name: field.type for field in given}
    return pa.schema([_parted(field, own) for field in wanted])


def _parted(field: pa.Field, own: dict[str, pa.DataType]) -> pa.Field:
    return field.with_type(_left(own[field.name], field.type)) if field.name in own else field


def _left(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if _is_uuid(wanted) or pa.types.is_fixed_size_binary(wanted):
        bytes_like = is_binary(own) or pa.types.is_fixed_size_binary(own)
        # Texts at the top are parsed; those in structs are not, and are refused.
        return own if bytes_like or _is_uuid(own) or (is_text(own) and _is_uuid(wanted)) else wanted
    if pa.types.is_time(wanted):
        return own if pa.types.is_time(own) else wanted
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        types = {field.name: field.type for field in own.fields}
        return pa.struct([_parted(part, types) for part in wanted.fields])
    if is_list(own) and pa.types.is_list(wanted):
        return pa.list_(wanted.value_field.with_type(_left(own.value_type, wanted.value_type)))
    if pa.types.is_map(own) and pa.types.is_map(wanted):
        key = wanted.key_field.with_type(_left(own.key_type, wanted.key_type))
        return pa.map_(key, wanted.item_field.with_type(_left(own.item_type, wanted.item_type)))
    return wanted


def _is_uuid(type: pa.DataType) -> bool:
    return isinstance(type, pa.BaseExtensionType) and type.extension_name == "arrow.uuid"


def _uuids(column: pa.ChunkedArray, name: str, table: str) -> pa.Array:
    try:
        # There is no kernel that parses them.
        found = [None if text is None else uuid.UUID(text).bytes for text in column.to_pylist()]
    except ValueError as error:
        raise SchemaError(f"a text is no UUID: {error}", path=table, column=name, hint="mend it") from error
    return pa.array(found, pa.binary(16))
