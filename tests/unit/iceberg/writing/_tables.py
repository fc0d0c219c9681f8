"""A table that is written to, and what lies in it."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
)
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.parquet.write.files import write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import profile

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "x", DoubleType()),
    NestedField(
        5,
        "s",
        StructType(NestedField(6, "a", IntegerType()), NestedField(7, "b", ListType(8, StringType(), False))),
    ),
    identifier_field_ids=[1],
)
BY_DAY = PartitionSpec(
    PartitionField(3, 1000, DayTransform(), "at_day"),
    PartitionField(1, 1001, BucketTransform(4), "id_bucket"),
)
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def head_of(table: Table) -> int | None:
    head = table.metadata.snapshot_by_name("main")
    return None if head is None else int(head.snapshot_id)


def make(catalog: SqlCatalog, name: str = "db.t", **given: Any) -> Table:
    arguments = {"schema": SCHEMA, "partition_spec": BY_DAY, **given}
    return catalog.create_table(name, **arguments)


def rows(start: int, stop: int) -> pa.Table:
    numbers = list(range(start, stop))
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [None if n % 7 == 0 else f"{'long and longer ' * 3}{n}" for n in numbers],
            "at": pa.array([DAY + dt.timedelta(hours=7 * n) for n in numbers], pa.timestamp("us", "UTC")),
            "x": [math.nan if n % 5 == 0 else None if n % 3 == 0 else n / 2 for n in numbers],
            "s": pa.array([None if n % 4 == 0 else {"a": n, "b": ["p", None]} for n in numbers], STRUCT),
        }
    )


def write(
    target: Target, table: pa.Table, job: str = "ab", layout: PageLayout | None = None
) -> list[NewFile]:
    layout = layout or PageLayout()
    seen = profile(table, layout)
    found = write_files(table.to_batches(), target.store, job, "0", layout, seen, shape=target)
    return [target.new_file(one) for one in found]


def data_files(table: Table) -> list[Any]:
    found = table.current_snapshot()
    manifests = found.manifests(table.io) if found is not None else []
    return [entry.data_file for one in manifests for entry in one.fetch_manifest_entry(table.io)]


def paths(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "ware").rglob("*.parquet"))


def same(table: Table, *parts: pa.Table) -> None:
    found = table.scan().to_arrow().select(["id", "name", "at", "x", "s"]).sort_by("id")
    wanted = pa.concat_tables(parts).sort_by("id")
    assert repr(found.to_pylist()) == repr(wanted.to_pylist())


# -- partition values --------------------------------------------------------------------------

MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
