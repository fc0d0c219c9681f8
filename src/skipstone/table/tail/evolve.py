"""Rows written under one schema of a table, read under a later one."""

from __future__ import annotations

import pyarrow as pa

from skipstone.errors import SchemaError
from skipstone.iceberg.writing.target import fit

_ID = b"PARQUET:field_id"


def adapt(rows: pa.Table, wanted: pa.Schema, table: str) -> pa.Table:
    """Convert rows to another schema of their table: columns are matched by field id.

    Columns that were dropped are dropped, and new ones are NULL.
    """
    own = rows.schema
    if own.equals(wanted, check_metadata=True):
        return rows
    places = {_id(field): at for at, field in enumerate(own)}
    columns, fields = [], []
    for field in wanted:
        at = places.get(_id(field))
        if at is None and not field.nullable:
            hint = "flush the tail before adding required columns"
            raise SchemaError(
                "unflushed rows lack a required column", path=table, column=field.name, hint=hint
            )
        columns.append(pa.nulls(len(rows), field.type) if at is None else rows.column(at))
        fields.append(field if at is None else own.field(at).with_name(field.name))
    renamed = pa.Table.from_arrays(columns, schema=pa.schema(fields)).combine_chunks()
    return pa.Table.from_batches([fit(batch, wanted, table) for batch in renamed.to_batches()], wanted)


def _id(field: pa.Field) -> bytes:
    number: bytes = (field.metadata or {}).get(_ID, field.name.encode())
    return number
