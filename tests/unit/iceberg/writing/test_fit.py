"""Rows that fit a table's columns, and those that don't."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    FixedType,
    MapType,
    NestedField,
    StringType,
    TimeType,
    UUIDType,
)

from skipstone.errors import SchemaError
from skipstone.iceberg.writing.commit import append
from skipstone.iceberg.writing.target import Target, check_columns
from tests.unit.iceberg.writing._tables import make, write


def test_columns_go_by_name_and_widen(catalog: SqlCatalog) -> None:
    table = make(catalog)
    target = Target.of(table)
    given_rows = pa.table({"x": pa.array([1.5], pa.float32()), "id": pa.array([3], pa.int16())})
    check_columns(given_rows.schema, target.schema, "db.t")
    append(table, target, write(target, given_rows))
    assert catalog.load_table("db.t").scan().to_arrow().to_pylist() == [
        {"id": 3, "name": None, "at": None, "x": 1.5, "s": None}
    ]


@pytest.mark.parametrize(
    ("given_rows", "problem"),
    [
        ({"name": ["x"]}, "column id: required column is missing"),
        ({"id": [1], "more": [1]}, "column more: table has no such column"),
        ({"id": [1], "Name": ["x"]}, "column Name: table has no such column .rename it to name"),
        ({"id": ["x"]}, "column id: column is string"),
        ({"id": [1], "x": pa.array([1], pa.int64())}, "column x: column is int64"),
        ({"id": [1], "s": [{"a": 1, "c": 2}]}, r"column s\.c: table has no such column"),
        ({"id": [1], "s": [{"a": 1.5}]}, r"column s\.a: column is double"),
        ({"id": [1], "at": pa.array([1], pa.timestamp("us"))}, "column at: column is timestamp"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    catalog: SqlCatalog, given_rows: dict[str, Any], problem: str
) -> None:
    target = Target.of(make(catalog))
    with pytest.raises(SchemaError, match=problem):
        check_columns(pa.table(given_rows).schema, target.schema, "db.t")


def test_types_of_other_engines(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "u", UUIDType()),
        NestedField(2, "v", UUIDType()),
        NestedField(3, "f", FixedType(3)),
        NestedField(4, "t", TimeType()),
        NestedField(5, "m", MapType(6, StringType(), 7, UUIDType(), False)),
    )
    table = make(catalog, schema=schema, partition_spec=PartitionSpec())
    target = Target.of(table)
    one = uuid.uuid4()
    given_rows = pa.table(
        {
            "u": [str(one), None],
            "v": [one.bytes, None],
            "f": [b"abc", None],
            "t": pa.array([1000, None], pa.time64("ns")),
            "m": pa.array([[("k", one.bytes)], None], pa.map_(pa.string(), pa.binary())),
        }
    )
    check_columns(given_rows.schema, target.schema, "db.t")
    append(table, target, write(target, given_rows))
    found = catalog.load_table("db.t").scan().to_arrow().to_pylist()
    assert found[0] == {"u": one, "v": one, "f": b"abc", "t": dt.time(0, 0, 0, 1), "m": [("k", one)]}
    for column, value in (("f", b"abcd"), ("u", "no"), ("t", pa.array([1001], pa.time64("ns")))):
        odd = pa.table({column: value if isinstance(value, pa.Array) else [value]})
        with pytest.raises(SchemaError, match=f"column {column}"):
            target.fitted(odd.to_batches()[0])
    with pytest.raises(SchemaError, match="column id: column has NULLs"):
        Target.of(make(catalog, "db.u")).fitted(
            pa.table({"id": pa.array([None], pa.int64())}).to_batches()[0]
        )
