"""New tables: field ids for Arrow schemas, and parsers of partition fields and sort orders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from skipstone.core.plain import type_name
from skipstone.errors import (
    ConflictError,
    SchemaError,
    TypeMismatchError,
    UnknownColumnError,
    UsageError,
    did_you_mean,
)
from skipstone.iceberg.catalogs import catalog_errors, reason, table_name
from skipstone.iceberg.schema import arrow_type, walk_fields

_PLAIN = {
    "identity": IdentityTransform,
    "year": YearTransform,
    "years": YearTransform,
    "month": MonthTransform,
    "months": MonthTransform,
    "day": DayTransform,
    "days": DayTransform,
    "date": DayTransform,
    "hour": HourTransform,
    "hours": HourTransform,
    "void": VoidTransform,
}
_LARGEST = 2**31 - 1
_SIZED: dict[str, Callable[[int], Transform[Any, Any]]] = {
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
}
_CALL = re.compile(r"\s*(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*(?:,\s*(\d+)\s*)?\)\s*")
_ORDER = re.compile(r"\s*(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", re.IGNORECASE)


def create_table(
    catalog: Catalog,
    name: str,
    schema: pa.Schema,
    partition_by: Iterable[str],
    sort_by: Iterable[str],
    location: str | None,
    properties: dict[str, str],
    key: Iterable[str] = (),
) -> Table:
    """Create an empty table, and its namespace if it does not exist."""
    name = table_name(name)
    if not isinstance(schema, pa.Schema):
        raise UsageError(f"schema must be a pyarrow.Schema, got {type(schema).__name__}")
    made, columns = iceberg_schema(schema), _strings([key] if isinstance(key, str) else key, "key")
    if columns:
        made = keyed_schema(made, columns)
        # For writers other than ours, whose bounds are truncated by default.
        exact = {f"write.metadata.metrics.column.{column}": "full" for column in columns}
        properties = {**exact, **properties}
        if properties.get("format-version", "2") == "1":
            hint = 'omit the property "format-version", or set it to 2'
            raise UsageError("tables of format version 1 can't have a key", path=name, hint=hint)
    # Rows that are sorted by their key are found by its bounds.
    orders = sort_by if isinstance(sort_by, str) else list(sort_by) or columns
    spec, order = partition_spec(partition_by, made), sort_order(orders, made)
    with catalog_errors(catalog, name):
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(name.rpartition(".")[0])
        try:
            table = catalog.create_table(
                name, made, location=location, partition_spec=spec, sort_order=order, properties=properties
            )
        except TableAlreadyExistsError as error:
            hint = "open the table, or drop it first"
            raise ConflictError("table already exists", path=name, hint=hint) from error
    return table


def keyed_schema(schema: Schema, key: Sequence[str]) -> Schema:
    """Make columns the identifier fields of a schema; they become required."""
    names = [field.name for field in schema.fields]
    for number, column in enumerate(key):
        if column not in names:
            hint = did_you_mean(column, names, f"available columns: {', '.join(names)}")
            raise UnknownColumnError("schema has no such key column", column=column, hint=hint)
        if column in key[:number]:
            raise UsageError(f"key column {column} is listed twice", hint="list it once")
        type = schema.find_type(column)
        if not isinstance(type, PrimitiveType) or isinstance(type, FloatType | DoubleType):
            hint = "use integers, strings, dates, times, decimals, UUIDs, booleans or binary"
            raise TypeMismatchError(
                f"type {type_name(arrow_type(type))} can't be a key", column=column, hint=hint
            )
    fields = [one.model_copy(update={"required": one.required or one.name in key}) for one in schema.fields]
    ids = [schema.find_field(column).field_id for column in key]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=ids)


def iceberg_schema(schema: pa.Schema) -> Schema:
    """An Arrow schema with field ids, in Iceberg's types."""
    numbers = count(1)
    numbered = pa.schema([_numbered(field, numbers) for field in schema])
    try:
        return pyarrow_to_schema(numbered, downcast_ns_timestamp_to_us=False)
    except Exception as error:
        hint = "cast or rename the column"
        raise SchemaError(f"can't convert the schema to Iceberg: {reason(error)}", hint=hint) from error


def _numbered(field: pa.Field, numbers: Any) -> pa.Field:
    metadata = {b"PARQUET:field_id": str(next(numbers)).encode()}
    return pa.field(field.name, _type(field.type, numbers), field.nullable, metadata=metadata)


def _type(type: pa.DataType, numbers: Any) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct([_numbered(field, numbers) for field in type.fields])
    if pa.types.is_map(type):
        return pa.map_(_numbered(type.key_field, numbers), _numbered(type.item_field, numbers))
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        return pa.list_(_numbered(type.value_field, numbers))
    # Iceberg has no dictionary types.
    return _type(type.value_type, numbers) if pa.types.is_dictionary(type) else type


def partition_spec(fields: Iterable[str], schema: Schema) -> PartitionSpec:
    """Parse partition fields such as ``day(ts)``, ``bucket(16, id)`` or a column name."""
    if isinstance(fields, str):
        raise UsageError(
            f"partition_by must be a list, got the string {fields!r}", hint='pass a list such as ["day(ts)"]'
        )
    made: dict[str, PartitionField] = {}
    for text in _strings(fields, "partition_by"):
        transform, column = parse_transform(text)
        source = _source(column, transform, schema)
        plain = isinstance(transform, IdentityTransform)
        name = (column if plain else f"{column}_{_kind(transform)}").replace(".", "_")
        if name in made or (name in schema.column_names and not (plain and name == column)):
            raise UsageError(
                f"partition field {text!r} needs the name {name!r}, which is already used",
                hint="use each column and transform once, and rename a column of that name",
            )
        made[name] = PartitionField(source, PARTITION_FIELD_ID_START + len(made), transform, name)
    return PartitionSpec(*made.values())


def transform_text(transform: Transform[Any, Any], column: str) -> str:
    """Write a transform of a column as in ``partition_by``.

    >>> transform_text(*parse_transform("bucket(16, id)"))
    'bucket(16, id)'
    """
    name, bracket, size = str(transform).rstrip("]").partition("[")
    if name == "identity":
        return column
    return f"{name}({size}, {column})" if bracket else f"{name}({column})"


def partition_texts(metadata: TableMetadata) -> list[str]:
    """The fields by which new files of a table are partitioned, as in ``partition_by``."""
    name_of, fields = metadata.schema().find_column_name, metadata.spec().fields
    return [transform_text(field.transform, name_of(field.source_id) or field.name) for field in fields]


def parse_transform(text: str) -> tuple[Transform[Any, Any], str]:
    """Parse a transform and its column.

    >>> parse_transform("bucket(16, id)")
    (BucketTransform(num_buckets=16), 'id')
    """
    if "(" not in text:
        return IdentityTransform(), text.strip()
    call = _CALL.fullmatch(text)
    name = call[1].lower() if call is not None else ""
    both = call is not None and call[2] is not None and call[4] is not None
    size = (call[2] or call[4]) if call is not None and not both else None
    if call is not None and size is None and not both and name in _PLAIN:
        return _PLAIN[name](), call[3]
    if call is not None and size is not None and name in _SIZED and 0 < int(size) <= _LARGEST:
        return _SIZED[name](int(size)), call[3]
    raise UsageError(
        f"invalid partition field {text!r}",
        hint="use a column, year, month, day or hour(column), bucket(n, column) or truncate(w, column)",
    )


def sort_order(terms: Iterable[str], schema: Schema) -> SortOrder:
    """Parse a sort order such as ``ts desc nulls last``."""
    if isinstance(terms, str):
        raise UsageError(
            f"sort_by must be a list, got the string {terms!r}", hint='pass a list such as ["ts desc", "id"]'
        )
    fields = []
    for text in _strings(terms, "sort_by"):
        term = _ORDER.fullmatch(text)
        if term is None:
            raise UsageError(f"invalid sort term {text!r}", hint='use columns, as in ["ts desc", "id"]')
        transform, column = parse_transform(term[1])
        descending = (term[2] or "").lower() == "desc"
        first = (term[3] or ("last" if descending else "first")).lower() == "first"
        fields.append(
            SortField(
                _source(column, transform, schema),
                transform,
                SortDirection.DESC if descending else SortDirection.ASC,
                NullOrder.NULLS_FIRST if first else NullOrder.NULLS_LAST,
            )
        )
    return SortOrder(*fields)


def _strings(terms: Any, what: str) -> list[str]:
    some: list[Any] = list(terms) if isinstance(terms, Iterable) else [None]
    if not all(isinstance(text, str) for text in some):
        raise UsageError(
            f"{what} must be a list of strings, got {terms!r}", hint="pass a list such as ['day(ts)']"
        )
    return some


def _source(column: str, transform: Transform[Any, Any], schema: Schema) -> int:
    """Field id of a column that a transform applies to: primitive, and outside lists and maps."""
    source = next(
        (one for one in walk_fields(schema.fields) if ".".join(one.path) == column and not one.repeated), None
    )
    if source is None:
        hint = f"available columns: {', '.join(field.name for field in schema.fields)}"
        what = "schema has no such column outside lists and maps"
        raise UnknownColumnError(what, column=column, hint=hint)
    type = source.field.field_type
    if not type.is_primitive or not transform.can_transform(type):
        raise TypeMismatchError(
            f"{_kind(transform)} does not apply to type {type_name(arrow_type(type))}",
            column=column,
            hint="use a transform that fits the type, or another column",
        )
    return int(source.field.field_id)


def _kind(transform: Transform[Any, Any]) -> str:
    return str(transform).partition("[")[0]
