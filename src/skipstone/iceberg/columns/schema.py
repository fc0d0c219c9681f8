"""An Iceberg table's columns: their Arrow types, and their names in files, which are found by field id.

A column that a file lacks is, in this order: the identity partition value, the column that the name mapping
gives its id to, the field's initial default, NULL. A file without any ids is refused in a table without a
name mapping: other readers refuse it too, or go by position.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from skipstone.core.domain.keys import storage_type
from skipstone.errors import SchemaError
from skipstone.parquet.metadata import ParquetMetadata

Path: TypeAlias = tuple[str, ...]

_TYPES: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
    UnknownType: pa.null(),
    # Well-known binary, as it is stored.
    GeometryType: pa.binary(),
    GeographyType: pa.binary(),
}


# -- types -------------------------------------------------------------------------------------


def arrow_schema(schema: Schema) -> pa.Schema:
    """The table's columns, in the types that pyarrow reads from files without an Arrow schema."""
    return pa.schema([_arrow_field(field, (field.name,)) for field in schema.fields])


def arrow_type(type: IcebergType, path: Path = ()) -> pa.DataType:
    """The Arrow type of a field at ``path``."""
    if isinstance(type, StructType):
        return pa.struct([_arrow_field(field, (*path, field.name)) for field in type.fields])
    if isinstance(type, ListType):
        return pa.list_(_arrow_field(type.element_field, (*path, "element")))
    if isinstance(type, MapType):
        key, value = (
            _arrow_field(field, (*path, field.name)) for field in (type.key_field, type.value_field)
        )
        return pa.map_(key, value)
    if isinstance(type, DecimalType):
        return pa.decimal128(type.precision, type.scale)
    if isinstance(type, FixedType):
        return pa.binary(len(type))
    found = _TYPES.get(type.__class__)
    if found is None:
        raise SchemaError(f"type {type!r} can't be read", column=".".join(path), hint="drop the column")
    return found


def _arrow_field(field: NestedField, path: Path) -> pa.Field:
    return pa.field(field.name, arrow_type(field.field_type, path), nullable=field.optional)


# -- fields ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed:
    """A field of a struct, and where it is.

    In ``path`` and ``ids``, what lists and maps hold is called ``element``, ``key`` and ``value``. ``parent``
    is the id of the field whose struct it is in.
    """

    field: NestedField
    path: Path
    ids: Path
    parent: int | None
    repeated: bool


def placed(
    fields: Iterable[NestedField],
    path: Path = (),
    ids: Path = (),
    parent: int | None = None,
    repeated: bool = False,
) -> Iterator[Placed]:
    """All fields of structs, outer ones first."""
    for field in fields:
        at = Placed(field, (*path, field.name), (*ids, str(field.field_id)), parent, repeated)
        yield at
        yield from _inside(field.field_type, at.path, at.ids, field.field_id, repeated)


def _inside(type: IcebergType, path: Path, ids: Path, parent: int, repeated: bool) -> Iterator[Placed]:
    if isinstance(type, StructType):
        yield from placed(type.fields, path, ids, parent, repeated)
    elif isinstance(type, ListType):
        yield from _inside(type.element_type, (*path, "element"), (*ids, "element"), parent, True)
    elif isinstance(type, MapType):
        for name, part in (("key", type.key_type), ("value", type.value_type)):
            yield from _inside(part, (*path, name), (*ids, name), parent, True)


def field_paths(schema: Schema) -> dict[int, Path]:
    """The paths of the stored columns outside of lists and maps, by field id."""
    return {
        found.field.field_id: found.path
        for found in placed(schema.fields)
        if not found.repeated and found.field.field_type.is_primitive
    }


def defaults(schema: Schema) -> dict[Path, pa.Scalar]:
    """The initial defaults of fields, nested ones included, as scalars of their Arrow types."""
    return {
        found.path: _scalar(found.field, found.path)
        for found in placed(schema.fields)
        if found.field.initial_default is not None
    }


def _scalar(field: NestedField, path: Path) -> pa.Scalar:
    value: Any = field.initial_default
    type = arrow_type(field.field_type, path)
    try:
        if isinstance(value, uuid.UUID):
            return pa.ExtensionScalar.from_storage(type, pa.scalar(value.bytes, type.storage_type))
        return pa.scalar(value, type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        message = f"its initial default {value!r} is no {field.field_type}: {error}"
        raise SchemaError(message, column=".".join(path)) from error


def missing(metadata: ParquetMetadata, schema: pa.Schema) -> tuple[Path, ...]:
    """The fields of the table that a file, by the names it is seen under, lacks; not those inside of one."""
    return tuple(_missing(list(schema), list(metadata.arrow_schema), ()))


def _missing(wanted: list[pa.Field], own: list[pa.Field], above: Path) -> Iterator[Path]:
    there = {field.name: storage_type(field.type) for field in own}
    for field in wanted:
        path = (*above, field.name)
        type = there.get(field.name)
        if type is None:
            yield path
        elif pa.types.is_struct(field.type) and pa.types.is_struct(type):
            yield from _missing(list(field.type.fields), list(type.fields), path)
