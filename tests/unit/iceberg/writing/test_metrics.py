"""Metrics of data files: bounds that hold all values, counts and sizes."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
)

from skipstone.errors import UsageError
from skipstone.iceberg.partitions.values import internal
from skipstone.iceberg.writing.metrics import cut_above
from skipstone.iceberg.writing.target import Target
from tests.unit.iceberg.writing._tables import MICROS, make, write

COLUMNS = {
    "i": (IntegerType(), pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "f": (FloatType(), pa.float32(), st.floats(width=32)),
    "d": (DoubleType(), pa.float64(), st.floats()),
    "t": (StringType(), pa.string(), st.text(max_size=40)),
    "b": (BinaryType(), pa.binary(), st.binary(max_size=40) | st.just(b"\xff" * 20)),
    "n": (DecimalType(20, 3), pa.decimal128(20, 3), st.decimals(-(10**15), 10**15, places=3)),
    "ts": (TimestampType(), pa.timestamp("us"), MICROS),
    "day": (DateType(), pa.date32(), st.dates()),
    "ok": (BooleanType(), pa.bool_(), st.booleans()),
}


@settings(max_examples=40)
@given(st.data())
def test_bounds_hold_all_values(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    drawn = {
        name: data.draw(st.lists(st.none() | values, min_size=count, max_size=count))
        for name, (_, _, values) in COLUMNS.items()
    }
    fields = [NestedField(n + 1, name, type) for n, (name, (type, _, _)) in enumerate(COLUMNS.items())]
    inner = StructType(NestedField(21, "x", DoubleType()), NestedField(22, "y", StringType()))
    schema = Schema(*fields, NestedField(20, "s", inner))
    floats = drawn["d"]
    structs = [None if at % 3 == 2 else {"x": floats[at], "y": drawn["t"][at]} for at in range(count)]
    table = pa.table({name: pa.array(drawn[name], arrow) for name, (_, arrow, _) in COLUMNS.items()})
    table = table.append_column("s", pa.array(structs, pa.struct([("x", pa.float64()), ("y", pa.string())])))
    mode = data.draw(st.sampled_from(["full", "truncate(16)", "truncate(1)", "counts", "none"]))
    note = noted(schema, table, {"write.metadata.metrics.default": mode})
    assert note.rows == count
    columns = {**{name: table[name] for name in COLUMNS}, "s.x": pc.struct_field(table["s"], "x")}
    columns["s.y"] = pc.struct_field(table["s"], "y")
    for name, column in columns.items():
        number = schema.find_field(name).field_id
        type = schema.find_field(name).field_type
        assert isinstance(type, PrimitiveType)
        if mode == "none":
            assert number not in note.values
            continue
        assert (note.values[number], note.nulls[number]) == (count, column.null_count)
        plain = [v for v in internal(column.combine_chunks()).to_pylist() if v is not None]
        real = [v for v in plain if not (isinstance(v, float) and math.isnan(v))]
        assert note.nans.get(number, 0) == len(plain) - len(real)
        assert (number in note.nans) == pa.types.is_floating(column.type)
        if mode == "counts" or not real:
            assert number not in note.lower
            assert number not in note.upper
            continue
        low = from_bytes(type, note.lower[number])
        keyed = [v.encode() if isinstance(v, str) else v for v in real]
        assert (low.encode() if isinstance(low, str) else low) <= min(keyed)
        if number in note.upper:
            high = from_bytes(type, note.upper[number])
            assert (high.encode() if isinstance(high, str) else high) >= max(keyed)
        else:
            assert mode.startswith("truncate")
        if mode == "full":
            assert low == min(real, key=lambda v: v.encode() if isinstance(v, str) else v)


def noted(schema: Schema, table: pa.Table, properties: dict[str, str]) -> Any:
    import tempfile

    from skipstone.iceberg.writing.metrics import measured_columns
    from skipstone.iceberg.writing.target import store_at

    with tempfile.TemporaryDirectory() as folder:
        target = Target(
            "t", schema, PartitionSpec(), {}, folder, store_at(folder), measured_columns(schema, properties)
        )
        return write(target, table)[0].metrics


def test_zeros_and_sizes() -> None:
    schema = Schema(NestedField(1, "d", DoubleType()), NestedField(2, "l", ListType(3, LongType(), False)))
    note = noted(schema, pa.table({"d": [0.0, -0.0], "l": [[1], []]}), {})
    low, high = (from_bytes(DoubleType(), side[1]) for side in (note.lower, note.upper))
    assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)
    assert set(note.column_sizes) == {1, 3}
    assert set(note.values) == {1}
    assert note.offsets == (4,)


def test_keys_keep_their_bounds_whole(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "key", StringType(), required=True),
        NestedField(2, "other", StringType()),
        NestedField(3, "told", StringType()),
        NestedField(4, "plain", StringType()),
        identifier_field_ids=[1],
    )
    told = {"write.metadata.metrics.column.told": "truncate(3)"}
    table = make(catalog, schema=schema, partition_spec=PartitionSpec(), properties=told)
    target = Target.of(table, whole=["other"])
    long = "z" * 30
    note = write(target, pa.table({name: [long] for name in ("key", "other", "told", "plain")}))[0].metrics
    assert [len(note.lower[number]) for number in (1, 2, 3, 4)] == [30, 30, 3, 16]
    assert note.upper[3] == b"zz{"
    assert note.upper[4] == b"z" * 15 + b"{"


def test_wide_tables_keep_metrics_of_the_first_columns() -> None:
    from skipstone.iceberg.writing.metrics import measured_columns

    schema = Schema(*(NestedField(n, f"c{n}", LongType()) for n in range(1, 131)))
    kept = [one for one in measured_columns(schema, {}, [130]) if one.mode == "bounds"]
    assert [one.field_id for one in kept] == [*range(1, 101), 130]
    assert all(
        one.mode == "bounds"
        for one in measured_columns(schema, {"write.metadata.metrics.default": "truncate(16)"})
    )
    with pytest.raises(UsageError, match=r"column c1: invalid metrics mode 'some'"):
        measured_columns(schema, {"write.metadata.metrics.default": "some"})


@pytest.mark.parametrize(
    ("value", "length", "wanted"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abd"),
        ("a\U0010ffff\U0010ffffz", 3, "b"),
        ("\U0010ffff" * 4, 3, None),
        ("ab\ud7ffx", 3, "ab\ue000"),
        (b"ab\xffz", 3, b"ac"),
        (b"\xff\xff\xff", 2, None),
    ],
)
def test_bounds_are_cut_upwards(value: Any, length: int, wanted: Any) -> None:
    assert cut_above(value, length) == wanted
