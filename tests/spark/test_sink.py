"""``df.write.format("skipstone")``: rows are in once the job is, and once only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.spark.test_ingest import TYPES, files, same, staged
from tests.support.stores import own_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def write(frame: DataFrame, root: Path, **options: Any) -> None:
    frame.write.format("skipstone").mode("append").options(**options).save(str(root))


def test_rows_come_back_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(TYPES)
    write(frame, tmp_path, cluster_by="id", blooms="t", page_rows=50)
    assert len(files(tmp_path)) == 2
    same(spark.read.parquet(str(tmp_path)), frame)
    same(spark.read.format("skipstone").load(str(tmp_path)), frame)
    for path in files(tmp_path):
        group = pq.read_metadata(path).row_group(0)
        columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
        assert columns["t"].bloom_filter_offset is not None
        assert columns["id"].bloom_filter_offset is None
        assert all(column.has_column_index or "." in name for name, column in columns.items())
    lake = sk.open(tmp_path)
    trace = lake.scan("id = 77").plan().trace
    assert trace.index is not None
    assert (trace.index.covered, trace.rows_kept) == (2, 50)
    assert staged(tmp_path) == []


def test_partitions_and_sizes(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of partitions that come mixed make files of the target's size, not one for each run of rows."""
    frame = spark.range(0, 200_000, 1, 1).selectExpr("id", "(id * 7919) % 200003 k", "id % 4 p")
    write(frame, tmp_path / "a", partition_by="p", target_file_bytes=150_000, force="true", index="false")
    write(
        frame,
        tmp_path / "b",
        partition_by="p",
        cluster_by="k",
        target_file_bytes=150_000,
        force="true",
        index="false",
    )
    for name in ("a", "b"):
        found = files(tmp_path / name)
        assert {path.parent.name for path in found} == {f"p={n}" for n in range(4)}
        sizes = [path.stat().st_size for path in found]
        assert max(sizes) <= 1.3 * 150_000
        assert sum(sizes) / len(sizes) >= 0.4 * 150_000
        assert sk.open(tmp_path / name).scan("p = 3").count() == 50_000
        assert not (own_files(tmp_path / name) / "manifest-000000000001.json").exists()
    # The lake's partitions are known the second time.
    write(spark.range(5).selectExpr("id", "id k", "id p"), tmp_path / "a")
    assert sk.open(tmp_path / "a").scan().count() == 200_005


def test_only_appends(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(5)
    write(frame, tmp_path)
    before = files(tmp_path)
    with pytest.raises(Exception, match=r"directories can't be overwritten.*Iceberg"):
        frame.write.format("skipstone").mode("overwrite").save(str(tmp_path))
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(Exception, match=r"(?i)append"):
            frame.write.format("skipstone").mode(mode).save(str(tmp_path))
    stream = spark.readStream.format("rate").load()
    with pytest.raises(Exception, match=r"directories don't support streaming writes.*Iceberg"):
        stream.writeStream.format("skipstone").option("checkpointLocation", str(tmp_path / "_c")).start(
            str(tmp_path)
        ).awaitTermination(60)
    with pytest.raises(Exception, match="unknown layout option: cluster_bye"):
        write(frame, tmp_path, cluster_bye="id")
    with pytest.raises(Exception, match="column id"):
        write(spark.sql("select 'x' id"), tmp_path)
    with pytest.raises(Exception, match="column iv: Arrow has no equivalent of interval"):
        write(spark.sql("select 1 id, make_ym_interval(1, 2) iv"), tmp_path)
    assert files(tmp_path) == before
    assert staged(tmp_path) == []


def test_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(5).where("id > 9"), tmp_path)
    assert files(tmp_path) == staged(tmp_path) == []


# -- tasks that are tried again ----------------------------------------------------------------


def flaky(folder: Path) -> Any:
    """Rows whose second partition fails when it is read for the first time, some rows being through."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 3 and context.partitionId() == 1 and not (folder / "failed").exists():
                # What a killed worker has begun nobody can delete.
                while not (folder / "read").exists():
                    time.sleep(0.1)
                time.sleep(1)
                (folder / "failed").touch()
                raise OSError("this once")
            yield batch
        if context.partitionId() == 0:
            (folder / "read").touch()

    return rows


RETRIES = """
import json, sys, time
from pathlib import Path
import pyarrow as pa
from pyspark import TaskContext
import skipstone as sk

folder = Path(sys.argv[1])

def once(name, act):
    def rows(batches):
        mark = folder / f"{name} {folder_now()}"
        for number, batch in enumerate(batches):
            yield batch
            if number == 3 and TaskContext.get().partitionId() == 1:
                try:
                    mark.open("x").close()
                except FileExistsError:
                    continue
                act()
    return rows

def folder_now():
    # What is counted and sampled goes well: only what writes is hindered.
    return (folder / "now").read_text() if (folder / "now").exists() else "nothing"

def fail():
    if folder_now() != "nothing":
        raise OSError("this once")

def sleep():
    if folder_now() != "nothing":
        time.sleep(60)

def armed(name):
    class Queries(list):
        def __iter__(self):
            (folder / "now").write_text(name)
            return iter(["id = 3"])
    return Queries()

if __name__ == "__main__":
    found = {}
    conf = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.speculation": "true", "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.2",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "500"}
    spark = sk.spark("local[4,4]", conf=conf)
    for name, act in (("fail", fail), ("sleep", sleep)):
        frame = spark.range(0, 40000, 1, 8).mapInArrow(once(name, act), "id long")
        (folder / "now").unlink(missing_ok=True)
        start = time.monotonic()
        lake, queries = folder / f"ingest-{name}", armed(f"i{name}")
        report = sk.ingest(frame, lake, target_file_bytes=20000, force=True, queries=queries)
        rows = sk.open(folder / f"ingest-{name}").scan().to_arrow()["id"].to_pylist()
        found[f"ingest-{name}"] = [report.rows, sorted(rows) == list(range(40000)), time.monotonic() - start]
        (folder / "now").write_text(f"w{name}")
        start = time.monotonic()
        frame.write.format("skipstone").mode("append").save(str(folder / f"write-{name}"))
        rows = sk.open(folder / f"write-{name}").scan().to_arrow()["id"].to_pylist()
        found[f"write-{name}"] = [len(rows), sorted(rows) == list(range(40000)), time.monotonic() - start]
    found["marks"] = sorted(path.name for path in folder.glob("* *") if path.is_file())
    spark.stop()
    print(json.dumps(found))
"""


@pytest.mark.slow
def test_tasks_that_fail_or_lag_give_their_rows_once(tmp_path: Path) -> None:
    from tests.spark.test_cluster_engine import run

    found = run(RETRIES, tmp_path)
    for name in ("ingest-fail", "ingest-sleep", "write-fail", "write-sleep"):
        assert found[name][:2] == [40_000, True], name
        left = staged(tmp_path / name)
        # An attempt that has lost may have written on for a moment; the next job removes that.
        assert all("staged" in path for path in left), left
    # The task that sleeps was overtaken by another attempt.
    assert found["ingest-sleep"][2] < 59
    assert found["write-sleep"][2] < 59
    marks = [mark for mark in found["marks"] if "nothing" not in mark]
    assert marks == ["fail ifail", "fail wfail", "sleep isleep", "sleep wsleep"]


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(10), tmp_path / "lake")
    frame = spark.range(0, 80_000, 1, 2).mapInArrow(flaky(tmp_path), "id long")
    # Local Spark doesn't try again.
    with pytest.raises(Exception, match="this once"):
        write(frame, tmp_path / "lake")
    assert (tmp_path / "failed").exists()
    until = time.monotonic() + 120
    while staged(tmp_path / "lake") and time.monotonic() < until:
        time.sleep(0.1)
    assert staged(tmp_path / "lake") == []
    assert len(files(tmp_path / "lake")) <= os.cpu_count() * 2
    assert sk.open(tmp_path / "lake").scan().count() == 10
    write(frame, tmp_path / "lake")
    assert sk.open(tmp_path / "lake").scan().count() == 80_010
