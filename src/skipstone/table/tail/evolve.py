"""Rows written under one schema of a table, read under a later one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from skipstone.errors import SchemaError
from skipstone.iceberg.writing.target import fit
from skipstone.lake.schema import is_list

_ID = b"PARQUET:field_id"


def adapt(rows: pa.Table, wanted: pa.Schema, table: str) -> pa.Table:
    """Convert rows to another schema of their table: fields are matched by id, at every level.

    Fields that were dropped are dropped, and new ones are NULL.
    """
    own = rows.schema
    if own.equals(wanted, check_metadata=True):
        return rows
    ids = {_id(field) for field in own}
    for field in wanted:
        if not field.nullable and _id(field) not in ids:
            hint = "flush the tail before adding required columns"
            raise SchemaError(
                "unflushed rows lack a required column", path=table, column=field.name, hint=hint
            )
    renamed = pa.schema(_renamed(list(own), list(wanted)))
    batches = [pa.record_batch(_Renamed(batch, renamed)) for batch in rows.combine_chunks().to_batches()]
    return pa.Table.from_batches([fit(batch, wanted, table) for batch in batches], wanted)


def check_key(written: pa.Schema, now: pa.Schema, table: str) -> None:
    """Raise if the key columns are others than those that rows were written with."""
    before, after = ({_id(field) for field in schema} for schema in (written, now))
    if before != after:
        names = ", ".join(written.names)
        hint = f"set the table's identifier fields to {names} again, and flush the tail before changing them"
        raise SchemaError(f"unflushed rows were written with the key {names}", path=table, hint=hint)


def key_columns(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """The key columns of a schema, with their field ids."""
    return pa.schema([schema.field(name) for name in names])


def same_fields(fields: pa.Schema, other: pa.Schema) -> list[pa.Field]:
    """The columns of another schema of the table that have the ids of some fields, in their order."""
    by_id = {_id(field): field for field in other}
    return [by_id[_id(field)] for field in fields if _id(field) in by_id]


def _renamed(own: Sequence[pa.Field], wanted: Sequence[pa.Field]) -> list[pa.Field]:
    """Fields with the later names of their ids; those that were dropped get names that no later field has."""
    later = {_id(field): field for field in wanted}
    mark = "#"
    while any(field.name.startswith(mark) for field in wanted):
        mark += "#"
    fields = []
    for at, field in enumerate(own):
        to = later.get(_id(field))
        if to is None:
            fields.append(field.with_name(f"{mark}{at}"))
        else:
            fields.append(field.with_name(to.name).with_type(_renamed_type(field.type, to.type)))
    return fields


def _renamed_type(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        return pa.struct(_renamed(own.fields, wanted.fields))
    if is_list(own) and is_list(wanted):
        return pa.list_(own.value_field.with_type(_renamed_type(own.value_type, wanted.value_type)))
    if pa.types.is_map(own) and pa.types.is_map(wanted):
        key = own.key_field.with_type(_renamed_type(own.key_type, wanted.key_type))
        return pa.map_(key, own.item_field.with_type(_renamed_type(own.item_type, wanted.item_type)))
    return own


@dataclass(frozen=True, slots=True)
class _Renamed:
    """The buffers of a batch under another schema of the same layout."""

    batch: pa.RecordBatch
    schema: pa.Schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.schema.__arrow_c_schema__(), self.batch.__arrow_c_array__(requested_schema)[1]


def _id(field: pa.Field) -> bytes:
    number: bytes = (field.metadata or {}).get(_ID, field.name.encode())
    return number
