"""Rows that fit a table's columns, and those that don't."""

from __future__ import annotations

import datetime as dt
import decimal
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
from skipstone.iceberg.writing.target import Target, check_columns, fit
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
        ({"id": [1.0]}, "column id: column is double"),
        ({"id": [decimal.Decimal(1)]}, "column id: column is decimal"),
        ({"id": [1], "x": ["1"]}, "column x: column is string"),
        ({"id": [1], "x": [True]}, "column x: column is bool"),
        ({"id": [1], "x": [decimal.Decimal(1)]}, "column x: column is decimal"),
        ({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}, "column at: column is timestamp"),
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


NARROW, WIDE = pa.decimal128(10, 2), pa.decimal128(38, 10)
FLOATS = {pa.float64(): 2**53, pa.float32(): 2**24}
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def fitted(values: pa.Array, type: pa.DataType) -> list[Any]:
    """Values as a column, in structs, lists and maps of a table, which must be the same everywhere."""
    keys = pa.array([str(at) for at in range(len(values))])
    ends = pa.array([0, len(values)], pa.int32())
    rows = [
        pa.record_batch({"c": values}),
        pa.record_batch({"c": pa.StructArray.from_arrays([values], ["a"])}),
        pa.record_batch({"c": pa.ListArray.from_arrays(ends, values)}),
        pa.record_batch({"c": pa.MapArray.from_arrays(ends, keys, values)}),
    ]
    types = [type, pa.struct({"a": type}), pa.list_(type), pa.map_(pa.string(), type)]
    made = [fit(one, pa.schema({"c": kind}), "db.t") for one, kind in zip(rows, types, strict=True)]
    assert [one.schema.field("c").type for one in made] == types
    plain, struct, listed, mapped = (one.column("c") for one in made)
    assert struct.field("a").equals(plain)
    assert listed.values.equals(plain)
    assert mapped.items.equals(plain)
    return list(plain.to_pylist())


@pytest.mark.parametrize("type", INTEGERS, ids=str)
def test_integers_that_fit_become_floats_and_decimals(type: pa.DataType) -> None:
    bits = type.bit_width
    signed = pa.types.is_signed_integer(type)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    near = [limit + step for limit in (2**24, 2**53, 10**8, 10**10) for step in (-2, -1, 0, 1, 2)]
    tried = sorted({low, low + 1, -1, 0, 1, 5, high - 1, high, *near, *(-one for one in near)})
    tried = [one for one in tried if low <= one <= high]
    for wanted in (pa.float32(), pa.float64(), NARROW, WIDE):
        limit = FLOATS.get(wanted, 10 ** (wanted.precision - wanted.scale) - 1 if wanted not in FLOATS else 0)
        fits = [one for one in tried if abs(one) <= limit]
        assert fitted(pa.array([*fits, None], type), wanted) == [*fits, None]
        for one in set(tried) - set(fits):
            with pytest.raises(SchemaError, match=r"db\.t, column c: can't convert .* to the table's type"):
                fitted(pa.array([one, None], type), wanted)


def test_decimals_and_times_of_other_scales_fit_if_nothing_is_lost() -> None:
    texts = ["5", "5.1", "-5.120", "99999999.99", "-99999999.99", "0.01", "1E+3", "0E-8"]
    for text in texts:
        value = decimal.Decimal(text)
        own = pa.array([value]).type
        for kind in (own, pa.decimal256(60, 20)):
            assert fitted(pa.array([value, None], kind), NARROW) == [value, None]
    most = decimal.Decimal(10**28 - 1)
    assert fitted(pa.array([most, -most]), WIDE) == [most, -most]
    for text in ("5.123", "0.001", "100000000", "-100000000", "1E+70", "1E+28", "1E-11"):
        wanted = [NARROW, WIDE] if abs(decimal.Decimal(text).adjusted()) > 10 else [NARROW]
        for type in wanted:
            with pytest.raises(SchemaError, match="column c: can't convert decimal"):
                fitted(pa.array([decimal.Decimal(text)]), type)
    for zone, own in ((None, None), ("UTC", "UTC"), ("UTC", "Europe/Zurich")):
        micros = pa.timestamp("us", zone)
        ns = pa.array([-1000, 1_500_000, None], pa.timestamp("ns", own))
        assert fitted(ns, micros) == pa.array([-1, 1500, None], micros).to_pylist()
        for unit, odd in (("ns", 1), ("ns", -999), ("s", 2**62), ("ms", -(2**62))):
            with pytest.raises(SchemaError, match="column c: can't convert timestamp"):
                fitted(pa.array([odd], pa.timestamp(unit, own)), micros)
