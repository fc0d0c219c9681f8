"""Ingests where executors are processes of their own, over Spark Connect, and some that are killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.dataset as ds
import pytest

import skipstone as sk
from skipstone.errors import ReadError
from tests.spark.test_cluster_engine import gone, run
from tests.spark.test_ingest import files, staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COMMON = """
import json, os, signal, sys, time
from pathlib import Path
import skipstone as sk

folder = Path(sys.argv[1])
CONF = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500"}

def executor():
    # A Python worker is the child of a daemon, which is the child of the executor.
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])

def armed():
    class Queries(list):
        # Asked for after the sample was taken, and before anything is written.
        def __iter__(self):
            (folder / "armed").touch()
            return iter(["id = 3"])
    return Queries()

def seen(name, **given):
    lake = sk.open(folder / name)
    ids = sorted(lake.scan(columns=["id"]).to_arrow()["id"].to_pylist())
    trace = lake.scan("id = 1234").plan().trace
    return {
        "ids": ids == list(range(len(ids))), "rows": len(ids), "kept": 0 < trace.rows_kept <= 10_000,
        "covered": trace.index is not None and trace.index.covered == len(lake.entries), **given,
    }

def csvs(numbers):
    (folder / "in").mkdir(exist_ok=True)
    for n in numbers:
        lines = [f"{id},n{id}" for id in range(500 * n, 500 * n + 500)]
        (folder / "in" / f"{n}.csv").write_text("\\n".join(["id,name", *lines]))

def all_ways(session, found):
    frame = session.range(0, 20000, 1, 4).selectExpr("id", "(id * 7919) % 20011 k", "concat('n', id) name")
    told = []
    report = sk.ingest(
        frame, folder / "ingest", cluster_by=["k", "id"], cluster="zorder",
        target_file_bytes=12000, force=True, page_rows=500,
        progress=lambda *step: told.append(step),
    )
    found["ingest"] = seen("ingest", told=[step[1:] for step in told if step[0] == "writing"][-1],
        files=report.files, problem=report.index_problem)
    write = frame.write.format("skipstone").mode("append").option("cluster_by", "id")
    write.save(str(folder / "write"))
    found["write"] = seen("write")
    for numbers in (range(0, 4), range(4, 6)):
        csvs(numbers)
        report = sk.ingest_new(folder / "in", folder / "new", session=session, cluster_by=["id"])
        found[f"new {numbers[0]}"] = seen("new", new=report.new, already=report.already_ingested)
"""

CLUSTER = (
    COMMON
    + """
def killing(batches):
    for number, batch in enumerate(batches):
        yield batch
        if number == 3 and (folder / "armed").exists():
            try:
                (folder / "killed").open("x").write(str(executor()))
            except FileExistsError:
                continue
            os.kill(executor(), signal.SIGKILL)
            time.sleep(10)

if __name__ == "__main__":
    found = {}
    spark = sk.spark("local-cluster[2,1,1024]", conf=CONF)
    all_ways(spark, found)
    for name in ("ingest-killed", "write-killed"):
        for mark in ("armed", "killed"):
            (folder / mark).unlink(missing_ok=True)
        frame = spark.range(0, 20000, 1, 4).mapInArrow(killing, "id long")
        if name == "ingest-killed":
            sk.ingest(frame, folder / name, target_file_bytes=20000, force=True, queries=armed())
        else:
            (folder / "armed").touch()
            frame.write.format("skipstone").mode("append").option("cluster_by", "id").save(str(folder / name))
        found[name] = seen(name, killed=int((folder / "killed").read_text()))
    spark.stop()
    print(json.dumps(found))
"""
)

CONNECT = (
    COMMON
    + """
if __name__ == "__main__":
    found = {}
    conf = {"spark.connect.grpc.binding.address": "127.0.0.1"}
    session = sk.spark(remote="local[2]", conf=conf)
    found["kind"] = type(session).__module__
    all_ways(session, found)
    found["alive"] = session.range(5).count()
    session.stop()
    print(json.dumps(found))
"""
)

DRIVER = (
    COMMON
    + """
def slow(batches):
    from pyspark import TaskContext
    for number, batch in enumerate(batches):
        yield batch
        # One task is done by then, and another one, far in, never will be.
        if number == 150 and TaskContext.get().partitionId() == 1 and (folder / "armed").exists():
            time.sleep(200)

if __name__ == "__main__":
    import threading
    def kill():
        while len(list((folder / ".skipstone" / "lake" / "staged").glob("*/*.staged"))) < 5:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    spark = sk.spark("local[2]", conf=CONF)
    print(json.dumps({"java": spark._jvm.java.lang.ProcessHandle.current().pid()}), flush=True)
    frame = spark.range(0, 400000, 1, 4).mapInArrow(slow, "id long")
    threading.Thread(target=kill, daemon=True).start()
    if WAY == "ingest":
        sk.ingest(frame, folder / "lake", queries=armed(), target_file_bytes=20000, force=True)
    else:
        (folder / "armed").touch()
        writer = frame.write.format("skipstone").mode("append").option("force", "true")
        writer = writer.option("target_file_bytes", "20000")
        writer.save(str(folder / "lake"))
"""
)

NEW = {"ids": True, "kept": True, "covered": True}


def check_all_ways(found: dict[str, dict[str, object]], tmp_path: Path) -> None:
    told = found["ingest"].pop("told")
    assert isinstance(told, list)
    assert told[0] == told[1] >= 1
    assert found["ingest"].pop("files") >= 3
    assert found["ingest"] == {**NEW, "rows": 20_000, "problem": ""}
    assert found["write"] == {**NEW, "rows": 20_000}
    assert found["new 0"] == {**NEW, "rows": 2_000, "new": 4, "already": 0}
    assert found["new 4"] == {**NEW, "rows": 3_000, "new": 2, "already": 4}
    for name in ("ingest", "write", "new"):
        assert staged(tmp_path / name) == [], name


@pytest.mark.slow
def test_executors_of_their_own_one_of_which_is_killed(tmp_path: Path) -> None:
    found = run(CLUSTER, tmp_path)
    check_all_ways(found, tmp_path)
    for name in ("ingest-killed", "write-killed"):
        assert gone(found[name].pop("killed"))
        assert found[name] == {**NEW, "rows": 20_000}, name


@pytest.mark.slow
def test_spark_connect(tmp_path: Path) -> None:
    found = run(CONNECT, tmp_path)
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["alive"] == 5
    check_all_ways(found, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ingest", "write"])
def test_a_killed_driver_leaves_nothing_that_is_seen(spark: SparkSession, tmp_path: Path, way: str) -> None:
    found = run(DRIVER.replace("WAY", repr(way)), tmp_path, ends=-9)
    assert gone(found["java"])
    root = tmp_path / "lake"
    left = staged(root)
    assert any(path.endswith(".lease") for path in left)
    # Whole files and torn ones are there, and nobody takes them for data.
    assert sum(path.endswith(".parquet.staged") for path in left) >= 5
    assert files(root) == []
    with pytest.raises(ReadError, match="directory contains no files"):
        sk.open(root)
    assert ds.dataset(root).files == []
    with pytest.raises(Exception, match=r"(?i)infer schema|unable_to_infer"):
        spark.read.parquet(str(root))
    with pytest.raises(duckdb.IOException, match="No files found"):
        duckdb.sql(f"select * from '{root}/**/*.parquet'")
    report = sk.ingest(spark.range(10), root)
    assert (report.rows, report.files, staged(root)) == (10, 1, [])
    assert len(files(root)) == 1
    assert sk.open(root).scan().count() == 10
    assert spark.read.parquet(str(root)).count() == 10
    assert ds.dataset(root).count_rows() == 10
    assert duckdb.sql(f"select count(*) from '{root}/**/*.parquet'").fetchall() == [(10,)]
