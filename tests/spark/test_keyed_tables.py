"""Spark data frames written by key: by Spark's tasks, with the invariant of keyed tables."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import skipstone as sk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.date32(), "v": pa.string()})


def test_frames_are_appended_and_upserted(spark: SparkSession, tmp_path: Path) -> None:
    table = sk.catalog(tmp_path).create_table("db.t", SCHEMA, key="id", partition_by=["day"])
    first = spark.range(1_000).selectExpr("id", "date'2026-01-01' + cast(id % 2 as int) AS day", "'a' AS v")
    report = table.append(first, token="first")
    assert (report.inserted, report.snapshot) == (1_000, table.snapshot)
    assert table.append(first, token="first").repeated
    with pytest.raises(sk.DuplicateKeyError, match="1,000 keys are already in the table"):
        table.append(first)
    # Rows move to another partition.
    second = spark.range(990, 1_010).selectExpr("id", "date'2026-01-03' AS day", "'b' AS v")
    report = table.upsert(second)
    assert (report.inserted, report.updated, report.files) == (10, 10, 1)
    assert table.scan().count() == 1_010
    assert table.get(995) == {"id": 995, "day": dt.date(2026, 1, 3), "v": "b"}
    twice = second.union(second)
    with pytest.raises(sk.DuplicateKeyError, match="new rows have keys more than once"):
        table.upsert(twice)
    data = Path(table.uri.removeprefix("file://")) / "data"
    listed = {Path(entry.key).name for entry in table.entries}
    assert {path.name for path in data.rglob("part-*.parquet")} == listed


def test_changes_as_a_data_frame(spark: SparkSession, tmp_path: Path) -> None:
    table = sk.catalog(tmp_path).create_table("db.t", SCHEMA.remove(1), key="id")
    before = table.append(pa.table({"id": [1, 2], "v": ["a", "b"]})).snapshot
    table.upsert(pa.table({"id": [2, 3], "v": ["B", "c"]}))
    found = table.changes(before).to_spark(spark).orderBy("id").collect()
    assert [tuple(row) for row in found] == [(2, "B", "update"), (3, "c", "insert")]
