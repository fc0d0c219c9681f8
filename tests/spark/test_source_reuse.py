"""A loaded frame gives the right rows however often and however mixed it is asked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import skipstone as sk

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("pushing", ["true", "false"])
def test_a_frame_that_is_asked_again(spark: SparkSession, tmp_path: Path, pushing: str) -> None:
    # Spark 4.3 plans every query of a frame with the filters that were pushed last.
    pq.write_table(pa.table({"a": range(100)}), tmp_path / "f.parquet")
    sk.register(spark)
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushing)
    try:
        frame = spark.read.format("skipstone").load(str(tmp_path))
        assert frame.where("a < 30").count() == 30
        assert frame.count() == 100
        assert frame.where("a < 10").union(frame.where("a >= 95")).count() == 15
        pushed = spark.read.format("skipstone").option("pushdown", "true").load(str(tmp_path))
        assert pushed.where("a < 30").count() == 30
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)
