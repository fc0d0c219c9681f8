"""Uncommitted rows through Spark: every route reads them, and none reads the rows that they hide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import skipstone as sk
from skipstone.table.overlay import OverlayTable, overlay

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> OverlayTable:
    """A table of 2,000 rows of which 500 are replaced by others, and 500 more are added."""
    root: Path = tmp_path_factory.mktemp("overlay")
    rows = pa.table({"k": range(2_000), "v": [float(k) for k in range(2_000)]})
    catalog = sk.catalog(root / "warehouse")
    catalog.create_table("db.t", rows.schema)
    sk.ingest(rows, "db.t", catalog=catalog, page_rows=100, engine="local")
    table = catalog.open("db.t")
    added = pa.table({"k": range(1_500, 2_500), "v": [-1.0] * 1_000})
    hidden = sk.RowSet.from_ranges(2_000, [(1_500, 2_000)])
    return overlay(table, {table.entries[0].key: hidden}, added)


@pytest.mark.parametrize("route", ["driver", "slices", "auto"])
def test_every_route_reads_them(spark: SparkSession, changed: OverlayTable, route: Any) -> None:
    frame = changed.scan("v < 3 or v > 1600", columns=["k"]).to_spark(spark, route=route)
    assert sorted(row.k for row in frame.collect()) == [0, 1, 2, *range(1_500, 2_500)]


def test_frames_include_the_tail(spark: SparkSession, tmp_path: Path) -> None:
    table = sk.catalog(tmp_path).create_table(
        "db.t", pa.schema({"k": pa.int64(), "v": pa.float64()}), key="k"
    )
    table.append(pa.table({"k": range(100), "v": [1.0] * 100}))
    first = table.snapshot
    with table.writer(sync="off", flush_seconds=None) as writer:
        writer.upsert(pa.table({"k": [1, 200], "v": [9.0, 9.0]}))
        writer.delete(keys=[2])
        for route in ("driver", "slices"):
            frame = table.scan("v > 5 or k < 4").to_spark(spark, route=route)  # type: ignore[arg-type]
            assert sorted(map(tuple, frame.collect())) == [(0, 1.0), (1, 9.0), (3, 1.0), (200, 9.0)]
        changed = table.changes(first).to_spark(spark).select("k", "_change")
        assert sorted(map(tuple, changed.collect())) == [(1, "update"), (2, "delete"), (200, "insert")]


def test_counts_and_aggregates_on_spark(spark: SparkSession, changed: OverlayTable) -> None:
    scan = changed.scan("v < 3")
    assert scan.count(engine=spark) == 1_003
    assert scan.aggregate(sk.sum("v"), engine=spark).to_pylist() == [{"sum(v)": -997.0}]
