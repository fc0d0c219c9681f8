"""New tables: Arrow schemas with field ids, partition fields and sort orders written as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
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

from skipstone.errors import ConflictError, SchemaError, UnknownColumnError, UsageError

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
_SIZED = {"bucket": BucketTransform, "truncate": TruncateTransform}
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
) -> Table:
    """Make an empty table, and its namespace if it is not there."""
    if "." not in name:
        raise UsageError(f"{name!r} is no table's name", hint='give namespace and table, as in "db.events"')
    if not isinstance(schema, pa.Schema):
        raise UsageError(f"the schema is a {type(schema).__name__}", hint="give a pyarrow.Schema")
    made = iceberg_schema(schema)
    spec, order = partition_spec(partition_by, made), sort_order(sort_by, made)
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(name.rpartition(".")[0])
    try:
        return catalog.create_table(
            name, made, location=location, partition_spec=spec, sort_order=order, properties=properties
        )
    except TableAlreadyExistsError as error:
        hint = "open it, or drop it first"
        raise ConflictError("the table exists already", path=name, hint=hint) from error


def iceberg_schema(schema: pa.Schema) -> Schema:
    """An Arrow schema with field ids, in Iceberg's types."""
    numbers = count(1)
    numbered = pa.schema([_numbered(field, numbers) for field in schema])
    try:
        return pyarrow_to_schema(numbered, downcast_ns_timestamp_to_us=False)
    except Exception as error:
        raise SchemaError(f"Iceberg has no such type: {error}", hint="cast the column") from error


def _numbered(field: pa.Field, numbers: Any) -> pa.Field:
    known = {b"PARQUET:field_id": str(next(numbers)).encode()}
    return pa.field(field.name, _type(field.type, numbers), field.nullable, metadata=known)


def _type(type: pa.DataType, numbers: Any) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct([_numbered(field, numbers) for field in type.fields])
    if pa.types.is_map(type):
        return pa.map_(_numbered(type.key_field, numbers), _numbered(type.item_field, numbers))
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        return pa.list_(_numbered(type.value_field, numbers))
    return type


def partition_spec(fields: Iterable[str], schema: Schema) -> PartitionSpec:
    """Partition fields as in ``day(ts)``, ``bucket(16, id)`` or a column's name."""
    if isinstance(fields, str):
        raise UsageError(f"partition_by={fields!r}", hint='give a list such as ["day(ts)"]')
    made = []
    for number, text in enumerate(fields):
        transform, column = parse_transform(text)
        source = _source(column, schema)
        name = column if isinstance(transform, IdentityTransform) else f"{column}_{_kind(transform)}"
        field_id = PARTITION_FIELD_ID_START + number
        made.append(PartitionField(source, field_id, transform, name.replace(".", "_")))
    return PartitionSpec(*made)


def parse_transform(text: str) -> tuple[Transform[Any, Any], str]:
    """A transform and its column.

    >>> parse_transform("bucket(16, id)")
    (BucketTransform(num_buckets=16), 'id')
    """
    if "(" not in text:
        return IdentityTransform(), text.strip()
    call = _CALL.fullmatch(text)
    name = call[1].lower() if call is not None else ""
    size = (call[2] or call[4]) if call is not None else None
    if call is not None and size is None and name in _PLAIN:
        return _PLAIN[name](), call[3]
    if call is not None and size is not None and name in _SIZED and int(size) > 0:
        return _SIZED[name](int(size)), call[3]
    raise UsageError(
        f"{text!r} is no partition field",
        hint="give a column, year, month, day, hour(column), bucket(n, column) or truncate(w, column)",
    )


def sort_order(terms: Iterable[str], schema: Schema) -> SortOrder:
    """A sort order as in ``ts desc nulls last``."""
    if isinstance(terms, str):
        raise UsageError(f"sort_by={terms!r}", hint='give a list such as ["ts desc", "id"]')
    fields = []
    for text in terms:
        found = _ORDER.fullmatch(text)
        assert found is not None
        transform, column = parse_transform(found[1])
        descending = (found[2] or "").lower() == "desc"
        first = (found[3] or ("last" if descending else "first")).lower() == "first"
        fields.append(
            SortField(
                _source(column, schema),
                transform,
                SortDirection.DESC if descending else SortDirection.ASC,
                NullOrder.NULLS_FIRST if first else NullOrder.NULLS_LAST,
            )
        )
    return SortOrder(*fields)


def _source(column: str, schema: Schema) -> int:
    try:
        return int(schema.find_field(column).field_id)
    except ValueError as error:
        hint = f"it has {', '.join(field.name for field in schema.fields)}"
        raise UnknownColumnError("the schema has no such column", column=column, hint=hint) from error


def _kind(transform: Transform[Any, Any]) -> str:
    return str(transform).partition("[")[0]
