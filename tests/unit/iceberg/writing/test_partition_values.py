""""""

from __future__ import annotations

import decimal
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
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
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from skipstone.errors import SchemaError, UsageError
from skipstone.iceberg.partitions.values import internal, partition_values, source_span
from skipstone.iceberg.writing.commit import append
from skipstone.iceberg.writing.producer import live_entries
from skipstone.iceberg.writing.target import Target
from tests.iceberg._maker import Maker
from tests.unit.iceberg.writing._tables import MICROS, data_files, make, write

VALUES: list[tuple[PrimitiveType, pa.DataType, st.SearchStrategy[Any]]] = [
    (IntegerType(), pa.int32(), st.integers(-(2**31) + 100, 2**31 - 1)),
    (LongType(), pa.int64(), st.integers(-(2**63) + 100, 2**63 - 1)),
    (BooleanType(), pa.bool_(), st.booleans()),
    (DoubleType(), pa.float64(), st.floats()),
    (DateType(), pa.date32(), st.dates()),
    (TimeType(), pa.time64("us"), st.times()),
    (TimestampType(), pa.timestamp("us"), MICROS),
    (TimestamptzType(), pa.timestamp("us", "UTC"), MICROS),
    (TimestampNanoType(), pa.timestamp("ns"), st.integers(-(2**63) + 1, 2**63 - 1)),
    (StringType(), pa.string(), st.text(max_size=8)),
    (BinaryType(), pa.binary(), st.binary(max_size=8)),
    (FixedType(4), pa.binary(4), st.binary(min_size=4, max_size=4)),
    (UUIDType(), pa.uuid(), st.uuids().map(lambda one: one.bytes)),
    (DecimalType(9, 2), pa.decimal128(9, 2), st.decimals(-9_999_990, 9_999_990, places=2)),
    (DecimalType(38, 5), pa.decimal128(38, 5), st.decimals(-(10**30), 10**30, places=5)),
]
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    VoidTransform(),
    BucketTransform(16),
    BucketTransform(1_000_003),
    TruncateTransform(3),
    TruncateTransform(10),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
]


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: str(kind[0]))
def test_transforms_are_pyicebergs(kind: tuple[PrimitiveType, pa.DataType, st.SearchStrategy[Any]]) -> None:
    type, arrow, values = kind

    @settings(max_examples=30)
    @given(st.lists(st.none() | values, max_size=20))
    def check(some: list[Any]) -> None:
        storage = pa.binary(16) if isinstance(type, UUIDType) else arrow
        column = pa.array(some, storage).cast(arrow)
        plain = internal(column).to_pylist()
        for transform in TRANSFORMS:
            if transform.can_transform(type):
                made = transform.transform(type)
                found = partition_values(transform, type, column).to_pylist()
                assert repr(found) == repr([made(value) for value in plain]), transform

    check()


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: str(kind[0]))
def test_spans_of_sources_hold_what_partitions_are_made_of(
    kind: tuple[PrimitiveType, pa.DataType, st.SearchStrategy[Any]],
) -> None:
    type, arrow, values = kind

    @settings(max_examples=20)
    @given(st.lists(values, min_size=1, max_size=8))
    def check(some: list[Any]) -> None:
        storage = pa.binary(16) if isinstance(type, UUIDType) else arrow
        column = pa.array(some, storage).cast(arrow)
        for transform in TRANSFORMS:
            if not transform.can_transform(type) or isinstance(transform, VoidTransform):
                continue
            made = partition_values(transform, type, column).to_pylist()
            span = source_span(transform, arrow, made)
            if isinstance(transform, IdentityTransform) and not isinstance(type, DoubleType | UUIDType):
                assert span is not None
            if span is not None:
                ends = internal(pa.concat_arrays([pa.repeat(one, 1) for one in span])).to_pylist()
                assert all(ends[0] <= value <= ends[1] for value in internal(column).to_pylist()), transform

    check()


def test_values_without_a_partition() -> None:
    with pytest.raises(
        SchemaError, match=r"column k: value is out of range of the partition transform truncate\[10\]"
    ):
        partition_values(TruncateTransform(10), LongType(), pa.array([-(2**63)]), "k")
    with pytest.raises(SchemaError, match=r"out of range of the partition transform truncate\[10\]"):
        partition_values(TruncateTransform(10), IntegerType(), pa.array([-(2**31)], pa.int32()))
    with pytest.raises(UsageError, match="unsupported partition transform"):
        partition_values(DayTransform(), StringType(), pa.array(["x"]))


def test_null_and_the_text_null_are_two_partitions(catalog: SqlCatalog) -> None:
    """In one folder, in files of their own."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = make(catalog, partition_spec=spec)
    target = Target.of(table)
    files = write(target, pa.table({"id": [1, 2, 3], "name": ["null", None, "null"]}))
    assert {file.metrics.key.partition for file in files} == {("null",), (None,)}
    assert len({Path(file.path).parent for file in files}) == 1
    append(table, target, files)
    table = catalog.load_table("db.t")
    assert table.scan(row_filter="name is null").to_arrow()["id"].to_pylist() == [2]
    assert sorted(table.scan(row_filter="name = 'null'").to_arrow()["id"].to_pylist()) == [1, 3]


def test_decimals_are_partition_values(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "n", DecimalType(9, 2)), NestedField(2, "u", UUIDType()))
    spec = PartitionSpec(
        PartitionField(1, 1000, TruncateTransform(50), "nt"),
        PartitionField(2, 1001, IdentityTransform(), "u"),
    )
    table = make(catalog, schema=schema, partition_spec=spec)
    target = Target.of(table)
    one = uuid.uuid4()
    numbers = [decimal.Decimal("1.20"), decimal.Decimal("-0.01"), None]
    given_rows = pa.table(
        {
            "n": pa.array(numbers, pa.decimal128(9, 2)),
            "u": pa.array([one.bytes, one.bytes, None], pa.binary(16)),
        }
    )
    append(table, target, write(target, given_rows))
    table = catalog.load_table("db.t")
    assert table.scan().to_arrow().num_rows == 3
    assert table.scan(row_filter="n = 1.20").to_arrow().num_rows == 1
    assert {file.partition[0] for file in data_files(table)} == {
        decimal.Decimal("1.00"),
        decimal.Decimal("-0.50"),
        None,
    }


def test_doubles_of_partitions_stay_as_they_are_written(tmp_path: Path) -> None:
    """pyiceberg reads them as floats; an overwrite that wrote those back would lose the rows to `k = 0.1`."""
    m = Maker(tmp_path / "t", [("k", "double"), ("v", "int")], [("k", "identity")])
    values = [0.1, 0.2, 1.5, float("nan"), None]
    m.append([{"k": value, "v": 1} for value in values])
    table = StaticTable.from_metadata(m.metadata_location)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = [
        entry.data_file.partition[0]
        for manifest in snapshot.manifests(table.io)
        for entry in live_entries(table, manifest)
    ]
    assert sorted(map(str, found)) == sorted(map(str, values))
