"""Files in older types, and without some fields."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    LongType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

import skipstone as sk
from skipstone.core.rows import RowSet
from skipstone.errors import SchemaError
from skipstone.iceberg.schema import FieldNaming, arrow_schema
from skipstone.lake.conform import Evolution, conform
from tests.unit.iceberg._files import f, read, values


def one_column(path: Path, array: pa.Array, type: IcebergType, **options: Any) -> tuple[FieldNaming, Schema]:
    table = pa.table([array], schema=pa.schema([f("old", 1, array.type)]))
    pq.write_table(table, path, row_group_size=len(array) // 2, **options)
    schema = Schema(NestedField(1, "new", type))
    return FieldNaming.of(schema), schema


@pytest.mark.parametrize("stored_as", [pa.uuid(), pa.binary(16)])
@pytest.mark.parametrize("keep", [True, False])
def test_uuids_by_both_routes(tmp_path: Path, stored_as: pa.DataType, keep: bool) -> None:
    numbers = [uuid.UUID(int=n) for n in range(20)]
    array = pa.array([number.bytes for number in numbers], stored_as)
    path = tmp_path / "f.parquet"
    naming, schema = one_column(path, array, UUIDType(), store_schema=keep)
    assert values(path, naming, schema) == numbers
    kept = sk.prune(
        path, f"new = '{numbers[3]}'", arrow_schema(schema), metadata=naming.apply(sk.read_metadata(path))
    )
    assert kept.row_groups == [0]


@pytest.mark.parametrize(("type", "unit"), [(TimestampType(), "us"), (TimestampNanoType(), "ns")])
def test_a_date_that_became_a_timestamp_is_pruned_as_one(
    tmp_path: Path, type: IcebergType, unit: str
) -> None:
    days = [dt.date(2020, 1, 1) + dt.timedelta(n) for n in range(20)]
    path = tmp_path / "f.parquet"
    naming, schema = one_column(
        path, pa.array(days), type, write_page_index=True, max_rows_per_page=2, write_batch_size=1
    )
    assert [str(value)[:10] for value in values(path, naming, schema)] == [str(day) for day in days]
    seen = naming.apply(sk.read_metadata(path))
    kept = sk.prune(path, "new >= timestamp '2020-01-18 12:00:00'", arrow_schema(schema), metadata=seen)
    assert arrow_schema(schema).field("new").type == pa.timestamp(unit)
    assert list(kept.rows) == [18, 19]
    noon = sk.prune(path, "new = timestamp '2020-01-18 12:00:00'", arrow_schema(schema), metadata=seen)
    assert noon.row_groups == []


def test_a_date_beyond_the_range_of_nanoseconds_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    naming, schema = one_column(path, pa.array([dt.date(9999, 1, 1)] * 2), TimestampNanoType())
    seen = naming.apply(sk.read_metadata(path))
    assert sk.prune(path, "new > timestamp '2020-01-01'", arrow_schema(schema), metadata=seen).row_groups == [
        0,
        1,
    ]
    with pytest.raises(SchemaError, match=r"can't convert .* to the lake's type"):
        values(path, naming, schema)


@pytest.mark.parametrize("options", [{"use_deprecated_int96_timestamps": True}, {"version": "2.6"}])
@pytest.mark.parametrize("type", [TimestampType(), TimestamptzType()])
def test_finer_timestamps_if_nothing_is_cut(
    tmp_path: Path, options: dict[str, Any], type: IcebergType
) -> None:
    path = tmp_path / "f.parquet"
    moments = [dt.datetime(2020, 1, 1, microsecond=n) for n in range(10)]
    naming, schema = one_column(path, pa.array(moments, pa.timestamp("ns")), type, **options)
    zone = dt.UTC if type == TimestamptzType() else None
    assert values(path, naming, schema) == [moment.replace(tzinfo=zone) for moment in moments]
    seen = naming.apply(sk.read_metadata(path))
    assert sk.prune(path, "new > timestamp '2020-01-01'", arrow_schema(schema), metadata=seen).row_groups == [
        0,
        1,
    ]
    naming, schema = one_column(path, pa.array([1, 2], pa.timestamp("ns")), type, **options)
    with pytest.raises(SchemaError, match=r"can't convert .* to the lake's type"):
        values(path, naming, schema)


def test_defaults_at_any_depth() -> None:
    inner = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string(), nullable=False)])
    schema = pa.schema(
        {"s": inner, "l": pa.list_(inner), "m": pa.map_(pa.string(), inner), "t": pa.int8(), "u": pa.uuid()}
    )
    table = pa.table(
        {
            "s": [{"x": 1}, None],
            "l": [[{"x": 1}, None], None],
            "m": pa.array([[("k", {"x": 2})], []], pa.map_(pa.string(), pa.struct({"x": pa.int64()}))),
        }
    )
    text, number = pa.scalar("d"), uuid.UUID(int=5)
    told = {
        ("s", "y"): text,
        ("l", "element", "y"): text,
        ("m", "value", "y"): text,
        ("t",): pa.scalar(3, pa.int8()),
        ("u",): pa.ExtensionScalar.from_storage(pa.uuid(), pa.scalar(number.bytes, pa.binary(16))),
    }
    found = conform(table, schema, path="f", evolution=Evolution(told))
    found.validate(full=True)
    filled = {"x": 1, "y": "d"}
    assert found.to_pylist() == [
        {"s": filled, "l": [filled, None], "m": [("k", {"x": 2, "y": "d"})], "t": 3, "u": number},
        {"s": None, "l": None, "m": [], "t": 3, "u": number},
    ]
    with pytest.raises(SchemaError, match=r"column s\.y: column has NULLs, but is not nullable"):
        conform(table, schema, path="f", evolution=Evolution({}))


def test_directories_still_refuse_what_only_tables_allow() -> None:
    for own, wanted in [
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.binary(16), pa.uuid()),
    ]:
        with pytest.raises(SchemaError, match="could lose values"):
            conform(pa.table({"a": pa.nulls(1, own)}), pa.schema({"a": wanted}), path="f")


@pytest.mark.parametrize("route", ["slice", "pyarrow"])
def test_a_default_inside_of_a_struct_of_which_nothing_else_is_asked_for(tmp_path: Path, route: str) -> None:
    path = tmp_path / "f.parquet"
    inner = f("in", 3, pa.struct([f("y", 4)]))
    told = [{"a": 1, "in": {"y": 2}}, {"a": 1, "in": None}]
    pq.write_table(
        pa.table([told], schema=pa.schema([f("s", 1, pa.struct([f("a", 2), inner]))])), path, row_group_size=1
    )
    within = StructType(NestedField(4, "y", LongType()), NestedField(5, "x", LongType(), initial_default=7))
    schema = Schema(
        NestedField(1, "s", StructType(NestedField(2, "a", LongType()), NestedField(3, "in", within)))
    )
    naming = FieldNaming.of(schema)
    alone = read(path, naming, schema, [("s", "in", "x")], route, RowSet.all(2))
    assert alone.column("s").to_pylist() == [{"in": {"x": 7}}, {"in": None}]
    beside = read(path, naming, schema, [("s", "a"), ("s", "in", "x")], route, RowSet.all(2))
    assert beside.column("s").to_pylist() == [{"a": 1, "in": {"x": 7}}, {"a": 1, "in": None}]
