"""Compactions on Spark: the same rows as on threads, by tasks and by shuffles."""

from __future__ import annotations

import random
import signal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import skipstone as sk
from tests.compact._tables import data_paths, numbered
from tests.compact._writers import delete_positions, file_with, files_of
from tests.spark.test_cluster_engine import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def scattered(folder: Path, files: int, rows: int) -> sk.Table:
    """A table of small files of random rows, some of them deleted."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("s", pa.string())])
    table = sk.catalog(folder / "w").create_table("db.t", schema)
    rng = random.Random(f"{files} {rows}")
    ids = rng.sample(range(files * rows), files * rows)
    for n in range(files):
        mine = ids[n * rows : n * rows + rows]
        xs = pa.array([rng.choice([None, *range(50)]) for _ in mine], pa.int32())
        texts = [f"{rng.getrandbits(64):x}" for _ in mine]
        table.table.append(pa.table([mine, xs, texts], schema=schema))
    table.refresh()
    first = files_of(table).paths[0].as_py()
    delete_positions(table.table, {first: range(rows // 2)})
    table.refresh()
    return table


def contents(table: sk.Table) -> pa.Table:
    return table.scan().to_arrow().sort_by("id")


def test_compactions_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """In order by tasks, then sorted by a shuffle; nothing else is left in the table's directory."""
    table = scattered(tmp_path, 4, 300)
    before, target = contents(table), 6_000
    paths = data_paths(tmp_path)
    plan = table.plan_compaction(rewrite_all=True, target_file_size_bytes=target, force=True)
    report = table.compact(plan, engine=spark, checksums=True)
    assert report.engine is not None
    assert (report.engine.name, report.rows, report.rows_removed) == ("spark", 1_050, 150)
    assert (contents(table), report.delete_files_removed) == (before, 1)
    assert len(data_paths(tmp_path) - paths) == report.files_added > 1
    paths = data_paths(tmp_path)
    plan = table.plan_compaction(
        rewrite_all=True, target_file_size_bytes=target, force=True, strategy="sort", sort_by="id"
    )
    report = table.compact(plan, engine=spark)
    assert (report.rows, report.groups, contents(table)) == (1_050, 1, before)
    assert len(data_paths(tmp_path) - paths) == report.files_added > 1
    # Sorted across the files: each has ids of its own.
    ranges = sorted(
        (min(ids), max(ids))
        for path in files_of(table).paths.to_pylist()
        if (ids := pa.parquet.read_table(path.removeprefix("file://"))["id"].to_pylist())
    )
    assert all(low < high < next_low for (low, high), (next_low, _) in pairwise(ranges))


def test_ctrl_c_cancels_the_jobs_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = scattered(tmp_path, 4, 300)
    before = contents(table)
    options: dict[str, Any] = {"target_file_size_bytes": 6_000, "force": True}
    plan = table.plan_compaction(rewrite_all=True, strategy="sort", sort_by="id", **options)
    with pytest.raises(KeyboardInterrupt, match="nothing was committed"):
        table.compact(plan, engine=spark, progress=lambda *_: signal.raise_signal(signal.SIGINT))
    assert [*spark.sparkContext.statusTracker().getActiveJobsIds()] == []
    assert table.remove_orphans(older_than="0s", allow_recent=True, dry_run=True).files == ()
    assert contents(sk.catalog(tmp_path / "w").open("db.t")) == before
    assert table.compact(plan, engine=spark).groups == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["binpack", "sort", "zorder", "hilbert"])
def test_strategies_on_spark(strategy: Any, spark: SparkSession, tmp_path: Path) -> None:
    """Sizes are the target's, and a second plan is empty."""
    table = scattered(tmp_path, 12, 5_000)
    before, target = contents(table), 200_000
    options: dict[str, Any] = {"strategy": strategy, "target_file_size_bytes": target, "force": True}
    if strategy != "binpack":
        options["sort_by"] = ["x"] if strategy == "sort" else ["x", "id"]
    report = table.compact(table.plan_compaction(rewrite_all=True, **options), engine=spark, memory=1 << 20)
    assert contents(table) == before
    assert all(0.75 * target <= size <= 1.8 * target for size in report.sizes), report.sizes
    assert table.plan_compaction(**options).groups == ()


@pytest.mark.slow
def test_failed_groups_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = numbered(tmp_path, 3, partition_by=["p"])
    bad = Path(file_with(table, "id = 15 AND p = 'b'").removeprefix("file://"))
    bad.unlink()
    paths = data_paths(tmp_path)
    plan = table.plan_compaction(min_input_files=2, partial_progress_enabled=True)
    report = table.compact(plan, engine=spark)
    assert (report.groups, [one.group for one in report.failures]) == (1, [1])
    assert str(bad) in report.failures[0].error
    assert len(data_paths(tmp_path) - paths) == 1
    assert table.scan("p = 'a'").count() == 15


@pytest.mark.slow
def test_another_spec_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = numbered(tmp_path, 3, partition_by=["p"])
    with table.table.update_spec() as spec:
        spec.remove_field("p")
        spec.add_field("id", "bucket[2]", "id_bucket")
    table.refresh()
    report = table.compact(table.plan_compaction(target_spec_id=1), engine=spark)
    assert (report.rows, {key.spec_id for key in files_of(table).keys}) == (30, {1})
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(30))
    assert len(table.table.refresh().scan(row_filter="id = 7").to_arrow()) == 1


COMMON = """
import json, os, signal, sys
from pathlib import Path
import pyarrow as pa
import skipstone as sk

folder = Path(sys.argv[1])

def made():
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    table = sk.catalog(folder / "w").create_table("db.t", schema)
    for n in range(6):
        ids = range(n * 500, n * 500 + 500)
        table.table.append(pa.table([ids, [f"{m * 7919:x}" for m in ids]], schema=schema))
    table.refresh()
    return table

def compacted(table, session, **options):
    plan = table.plan_compaction(rewrite_all=True, target_file_size_bytes=3_000, force=True, **options)
    report = table.compact(plan, engine=session)
    ids = sorted(table.scan().to_arrow()["id"].to_pylist())
    right = ids == list(range(3_000))
    return [right, report.rows, report.engine.name, report.files_added > 1, len(report.failures)]
"""

CONNECT = (
    COMMON
    + """
if __name__ == "__main__":
    table, session = made(), sk.spark(remote=REMOTE)
    found = {
        "kind": type(session).__module__,
        "tasks": compacted(table, session),
        "shuffle": compacted(table, session, strategy="sort", sort_by="id"),
        "curve": compacted(table, session, strategy="zorder", sort_by=["id", "s"]),
    }
    files = {path.name for path in (folder / "w").rglob("*.parquet")}
    found["orphans"] = len(table.remove_orphans(older_than="0s", allow_recent=True, dry_run=True).files)
    session.stop()
    print(json.dumps(found))
"""
)


@pytest.mark.slow
def test_compactions_over_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    """A client without a Java virtual machine: the server is in that of the other tests."""
    context = spark.sparkContext
    service = getattr(context._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    server = getattr(service, "MODULE$")
    server.start(context._jsc.sc())
    found = run(f"REMOTE = 'sc://127.0.0.1:{server.localPort()}'\n{CONNECT}", tmp_path)
    assert found["kind"].startswith("pyspark.sql.connect")
    for way in ("tasks", "shuffle", "curve"):
        assert found[way] == [True, 3_000, "spark", True, 0]
    assert found["orphans"] == 0


CLUSTER = (
    COMMON
    + """
from skipstone.compact.rewrite import SliceWriter

def executor():
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])

class Dying:
    # The engine's own, but one of its tasks kills the executor after it has written its files.
    def __init__(self, engine):
        self.engine, self.name, self.session = engine, engine.name, engine.session
        self.parallelism = engine.parallelism

    def map(self, work, tasks, *, on_done=None):
        mark, first, kill = folder / "killed", tasks[0], executor

        def dying(task):
            result = work(task)
            if task == first and not mark.exists():
                mark.write_text(str(kill()))
                os.kill(kill(), signal.SIGKILL)
            return result

        return self.engine.map(dying, tasks, on_done=on_done)

    def close(self):
        pass

if __name__ == "__main__":
    from skipstone.engine.jobs import open_engine

    conf = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    table = made()
    with open_engine("spark", master="local-cluster[2,1,1024]", conf=conf) as engine:
        found = {"tasks": compacted(table, Dying(engine)), "killed": (folder / "killed").exists()}
        found["orphans"] = len(table.remove_orphans(older_than="0s", allow_recent=True, dry_run=True).files)
        found["shuffle"] = compacted(table, engine, strategy="sort", sort_by="s")
    print(json.dumps(found))
"""
)


@pytest.mark.slow
def test_a_killed_executor(tmp_path: Path) -> None:
    """Its task runs again elsewhere; the files of the first attempt are deleted."""
    found = run(CLUSTER, tmp_path)
    assert found["killed"]
    assert found["orphans"] == 0
    for way in ("tasks", "shuffle"):
        assert found[way] == [True, 3_000, "spark", True, 0]
