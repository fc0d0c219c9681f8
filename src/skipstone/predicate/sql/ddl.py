"""Schemas as DDL: ``id bigint, name string, tags array<string>``."""

from __future__ import annotations

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from skipstone.errors import UsageError
from skipstone.predicate.sql.types import arrow_type

_HINT = "write column names with Spark's types, such as 'id bigint, name string'"


def parse_schema(text: str) -> pa.Schema:
    """Parse a list of columns with Spark's types; constraints and comments are ignored.

    >>> parse_schema("id long, tags array<string>").names
    ['id', 'tags']
    """
    try:
        made = sqlglot.parse_one(f"CREATE TABLE t ({text}\n)", dialect="spark")
    except SqlglotError as error:
        near = getattr(error, "errors", None) or [{}]
        where = f" near {near[0]['highlight']!r}" if near[0].get("highlight") else ""
        raise UsageError(f"schema {text!r} can't be parsed{where}", hint=_HINT) from None
    columns = made.this.expressions if isinstance(made, exp.Create) else []
    if not columns or not isinstance(made.this, exp.Schema):
        raise UsageError(f"schema {text!r} has no columns", hint=_HINT)
    return pa.schema([_field(column) for column in columns])


def _field(column: exp.Expr) -> pa.Field:
    kind = column.args.get("kind")
    if not isinstance(column, exp.ColumnDef) or kind is None:
        name = column.name or column.sql("spark")
        raise UsageError(f"column {name} has no type in the schema", hint=_HINT)
    return pa.field(column.name, _type(kind, column.name))


def _type(kind: exp.DataType, column: str) -> pa.DataType:
    inner = kind.expressions
    if kind.this == exp.DType.STRUCT:
        return pa.struct([_field(field) for field in inner])
    if kind.this == exp.DType.ARRAY and len(inner) == 1:
        return pa.list_(_type(inner[0], column))
    if kind.this == exp.DType.MAP and len(inner) == 2:
        return pa.map_(_type(inner[0], column), _type(inner[1], column))
    if kind.this == exp.DType.CHAR:
        return pa.string()
    found = arrow_type(kind, "spark")
    if found is None:
        raise UsageError(f"unsupported type {kind.sql('spark')}", column=column, hint=_HINT)
    return found
