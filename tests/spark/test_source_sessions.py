"""Sessions: the user's is left as it is, one that is started suits, and the format is found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import skipstone as sk
from tests.spark.test_cluster_engine import run

pytestmark = pytest.mark.spark

FRESH = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
from pathlib import Path

folder = Path(sys.argv[1])
(folder / "lake").mkdir()
pq.write_table(pa.table({"id": range(100), "s": [str(n) for n in range(100)]}), folder / "lake" / "f.parquet")

if __name__ == "__main__":
    import skipstone as sk
    found = {"early": "pyspark" in sys.modules}
    session = sk.spark("local[1]", conf={"spark.sql.warehouse.dir": str(folder / "warehouse")})
    names = ("arrow.pyspark.enabled", "arrow.maxRecordsPerBatch")
    found["arrow"] = [session.conf.get(f"spark.sql.execution.{name}") for name in names]
    found["pushing"] = session.conf.get("spark.sql.python.filterPushdown.enabled")
    found["zone"] = session.conf.get("spark.sql.session.timeZone")
    found["memory"] = session.conf.get("spark.driver.memory")
    runtime = session.sparkContext._jvm.java.lang.Runtime.getRuntime()
    found["heap"] = runtime.maxMemory()
    found["same"] = sk.spark() is session
    try:
        sk.spark("local[7]")
    except Exception as error:
        found["other"] = str(error)
    # Nobody has registered it: the package pyspark_skipstone is found by its name.
    frame = session.read.format("skipstone").option("where", "id >= 90").load(str(folder / "lake"))
    found["rows"] = frame.where("s <> '95'").count()
    frame = session.read.format("skipstone").option("pushdown", "true").load(str(folder / "lake"))
    found["pushed"] = "Filter " not in frame.where("id = 95")._jdf.queryExecution().executedPlan().toString()
    session.stop()
    print(json.dumps(found))
"""


def test_a_session_of_our_own(tmp_path: Path) -> None:
    found = run(FRESH, tmp_path)
    assert not found["early"]
    assert found["arrow"] == ["true", "32768"]
    assert found["pushing"] == "true"
    assert found["zone"] == "UTC"
    assert found["memory"].endswith("g")
    assert found["heap"] > 0.8 * int(found["memory"][:-1]) * 2**30
    assert found["same"]
    assert "with another spark.master" in found["other"]
    assert found["rows"] == 9
    assert found["pushed"]


def test_a_session_of_the_users_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": range(100)}), tmp_path / "f.parquet")
    before = spark.conf.getAll
    assert sk.spark() is spark
    scan = sk.open(tmp_path).scan("id < 7")
    for route in ("driver", "slices", "reader", "auto"):
        assert scan.to_spark(route=route).count() == 7
    assert scan.count(engine=spark) == 7
    assert spark.conf.getAll == before
    assert SparkSession.active() is spark
