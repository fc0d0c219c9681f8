"""The user's session is left as it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import skipstone as sk

pytestmark = pytest.mark.spark


def test_a_session_of_the_users_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "f.parquet")
    before = spark.conf.getAll
    assert sk.spark() is spark
    scan = sk.open(tmp_path).scan("id < 7")
    for route in ("driver", "slices", "reader", "auto"):
        assert scan.to_spark(route=route).count() == 7
    assert scan.count(engine=spark) == 7
    assert spark.conf.getAll == before
    assert SparkSession.active() is spark
