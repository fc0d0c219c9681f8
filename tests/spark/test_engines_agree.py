"""Local threads and Spark write the same rows in the same layout, and Spark reads a small frame twice."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import skipstone as sk

pytestmark = pytest.mark.spark

ROWS = 3_000
RANDOM = np.random.default_rng(11)


def column(values: list[Any], type: pa.DataType) -> pa.Array:
    return pa.array([values[n] for n in RANDOM.integers(0, len(values), ROWS)], type)


TABLE = pa.table(
    {
        "id": pa.array(RANDOM.permutation(ROWS), pa.int64()),
        "small": column([1, -2, None], pa.int8()),
        "unsigned": column([0, 2**32 - 1, None], pa.uint32()),
        "wide": column([0, 2**64 - 1, None], pa.uint64()),
        "real": column([0.5, float("nan"), float("-inf"), None], pa.float32()),
        "text": column(["a", "é", "", None], pa.large_string()),
        "raw": column([b"ab", None], pa.binary(2)),
        "day": column([dt.date(2020, 1, 1), dt.date(1960, 5, 5), None], pa.date64()),
        "ts": column([0, 86_400_000_000_000, -1_000, None], pa.timestamp("ns", "Europe/Paris")),
        "clock": column([0, 7, None], pa.timestamp("s")),
        "took": column([1, -5, None], pa.duration("ms")),
        "price": column([Decimal("1.25"), None], pa.decimal256(12, 2)),
        "few": column(["x", "y"], pa.string()).dictionary_encode(),
        "none": pa.nulls(ROWS),
        "list": column([[1, None], [], None], pa.large_list(pa.int16())),
        "fixed": column([[1, 2], None], pa.list_(pa.uint8(), 2)),
        "map": column([[("k", 1)], [], None], pa.map_(pa.string(), pa.uint16())),
        "record": column(
            [{"x": 1, "y": ["z"]}, {"x": None, "y": None}, None],
            pa.struct({"x": pa.uint8(), "y": pa.list_(pa.large_string())}),
        ),
    }
)


def described(root: Path) -> list[tuple[str, int, str, str]]:
    """Partition, rows, schema and Spark's metadata of each file, in their order."""
    found = []
    for path in sorted(root.rglob("*.parquet"), key=lambda path: (str(path.parent), path.name)):
        about = pq.read_metadata(path)
        metadata = {key.decode(): value.decode() for key, value in about.metadata.items()}
        own = json.loads(metadata["org.apache.spark.sql.parquet.row.metadata"])
        found.append(
            (
                str(path.parent.relative_to(root)),
                str(about.schema).partition("\n")[2],
                own,
                metadata.get("skipstone.cluster"),
            )
        )
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cluster_by": ["real", "id"], "target_file_bytes": 30_000, "force": True},
        {"cluster_by": ["text", "day"], "cluster": "hilbert", "partition_by": ["few"]},
    ],
)
def test_both_write_the_same(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    reports = {
        name: sk.ingest(TABLE, tmp_path / name, engine=name, page_rows=100, index=False, **options)
        for name in ("spark", "local")
    }
    assert {name: report.engine and report.engine.name for name, report in reports.items()} == {
        "spark": "spark",
        "local": "local",
    }
    assert abs(reports["spark"].files - reports["local"].files) <= 1
    spark_files, local_files = (described(tmp_path / name) for name in ("spark", "local"))
    assert {file for file, *_ in spark_files} == {file for file, *_ in local_files}
    assert spark_files[0][1:] == local_files[0][1:]
    frames = [spark.read.parquet(str(tmp_path / name)) for name in ("spark", "local")]
    assert frames[0].schema == frames[1].schema
    rows = [sorted(map(repr, frame.collect())) for frame in frames]
    assert rows[0] == rows[1]
    if not options:
        assert frames[1].toArrow()["id"].to_pylist() == TABLE["id"].to_pylist()
    orders = [sk.open(tmp_path / name).scan(columns=["id"]).to_arrow()["id"].to_pylist() for name in reports]
    if options.get("cluster_by") == ["real", "id"]:
        assert orders[0] == orders[1]


@pytest.mark.parametrize(("target", "passes"), [(None, 2), (60_000, 3)])
def test_a_small_frame_is_read_twice(
    spark: SparkSession, tmp_path: Path, target: int | None, passes: int
) -> None:
    """Once to survey and once to write it; Spark itself samples the keys of several files."""
    read = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read.add(batch.num_rows)
            yield batch

    frame = (
        spark.range(0, 30_000, 1, 2)
        .selectExpr("id", "(id * 7919) % 30011 k")
        .mapInArrow(count, "id long, k long")
    )
    report = sk.ingest(frame, tmp_path / "lake", cluster_by=["k"], target_file_bytes=target, force=True)
    assert report.rows == 30_000
    assert (report.files == 1) == (target is None)
    assert read.value == passes * 30_000


def test_unknown_engines(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(sk.UsageError, match=r"Spark data frame can't be ingested on local threads"):
        sk.ingest(spark.range(3), tmp_path / "lake", engine="local")
    with pytest.raises(sk.UsageError, match=r"session= and engine= can't be combined"):
        sk.ingest(pa.table({"id": [1]}), tmp_path / "lake", engine="local", session=spark)
