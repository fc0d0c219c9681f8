"""``sk.ingest`` into Iceberg tables: rows, partitions, conflicts, and what an overwrite leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import TruncateTransform

import skipstone as sk
from skipstone.errors import ConflictError, JobError, SchemaError, UsageError
from skipstone.iceberg.partitions.values import internal
from skipstone.write import overwrite
from skipstone.write.overwrite import FullOverwrite, Overwrite, OverwritePlan, PredicateOverwrite
from tests.faults._kills import kind_of
from tests.faults.test_killed_commits import orphans
from tests.spark._tables import SCHEMA, data_files, frame, iceberg, read, rows, stray, warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def make(root: Path, **options: Any) -> Any:
    return warehouse(root).create_table("db.t", SCHEMA, **{"partition_by": ["day(ts)"], **options})


def test_rows_come_back_from_every_reader(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path, partition_by=["day(ts)", "bucket(3, id)"], sort_by=["id"])
    given = frame(spark, 0, 900)
    report = sk.ingest(given, table, blooms=["name"], page_rows=50, target_file_bytes=20_000, force=True)
    assert (report.rows, report.index_problem, report.lake) == (900, "", "db.t")
    assert report.snapshot == table.snapshot == iceberg(tmp_path).current_snapshot().snapshot_id
    assert f"committed as snapshot {report.snapshot}" in str(report)
    assert report.to_json()["snapshot"] == report.snapshot
    assert read(tmp_path) == rows(given)
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    assert rows(pl.scan_iceberg(iceberg(tmp_path)).collect().to_arrow().cast(SCHEMA)) == rows(given)
    assert stray(tmp_path) == []
    files = data_files(iceberg(tmp_path))
    assert len(files) == report.files == len(report.sizes)
    assert report.partitions == len({str(file.partition) for file in files})
    for file in files:
        found = pq.read_metadata(file.file_path.removeprefix("file://"))
        assert found.row_group(0).column(1).bloom_filter_offset is not None
        # The table's sort order is what rows are clustered by.
        assert [one.column_index for one in found.row_group(0).sorting_columns] == [0]
        assert (file.record_count, len(file.split_offsets)) == (found.num_rows, found.num_row_groups)
    trace = table.scan("id = 77").plan().trace
    assert 1 <= trace.rows_kept <= 50
    # Again, by the table's name and as pyiceberg has it.
    named = {"catalog": warehouse(tmp_path), "properties": {"who": "me"}, "index": False}
    sk.ingest(frame(spark, 900, 950), "db.t", **named)
    assert iceberg(tmp_path).current_snapshot().summary["who"] == "me"
    sk.ingest(frame(spark, 950, 960), iceberg(tmp_path), index=False)
    assert read(tmp_path) == rows(frame(spark, 0, 960))


TRANSFORMS = [
    ("i", "truncate(10, i)"),
    ("i", "bucket(5, i)"),
    ("t", "truncate(2, t)"),
    ("t", "bucket(7, t)"),
    ("n", "truncate(50, n)"),
    ("n", "bucket(5, n)"),
    ("d", "month(d)"),
    ("ts", "hour(ts)"),
    ("ntz", "year(ntz)"),
    ("b", "b"),
]


def test_partitions_are_pyicebergs(spark: SparkSession, tmp_path: Path) -> None:
    """Every file has one partition, and every row of it that partition by pyiceberg's own transforms."""
    schema = pa.schema(
        [
            ("i", pa.int32()),
            ("t", pa.string()),
            ("n", pa.decimal128(9, 2)),
            ("d", pa.date32()),
            ("ts", pa.timestamp("us", "UTC")),
            ("ntz", pa.timestamp("us")),
            ("b", pa.bool_()),
        ]
    )
    warehouse(tmp_path).create_table("db.t", schema, partition_by=[text for _, text in TRANSFORMS])
    given = spark.range(0, 60, 1, 2).selectExpr(
        "if(id % 11 = 0, null, cast(id - 30 as int)) i",
        "if(id % 13 = 0, null, concat('ä/', id % 4)) t",
        "cast(id - 30 as decimal(9, 2)) / 4 n",
        "date_add(date'1969-11-20', cast(id as int)) d",
        "timestamp_seconds((id - 30) * 1800) ts",
        "cast(timestamp_seconds((id - 30) * 9000000) as timestamp_ntz) ntz",
        "id % 2 = 0 b",
    )
    given = given.withColumn("n", given["n"].cast("decimal(9,2)"))
    sk.ingest(given, "db.t", catalog=warehouse(tmp_path), index=False)
    assert read(tmp_path) == rows(given)
    table = iceberg(tmp_path)
    for file in data_files(table):
        # Through a file object: a folder's name is no column here.
        with Path(file.file_path.removeprefix("file://")).open("rb") as source:
            held = pq.read_table(source)
        for place, (field, (name, _)) in enumerate(zip(table.spec().fields, TRANSFORMS, strict=True)):
            type = table.schema().find_field(name).field_type
            made = field.transform.transform(type)
            values = internal(held.column(name).combine_chunks().cast(schema.field(name).type)).to_pylist()
            assert {made(value) for value in values} == {file.partition[place]}, field


@pytest.mark.slow
def test_a_spec_that_evolved(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path)
    sk.ingest(frame(spark, 0, 100), table, index=False)
    with iceberg(tmp_path).update_spec() as update:
        update.remove_field("ts_day")
        update.add_field("name", TruncateTransform(1), "first")
    sk.ingest(frame(spark, 100, 150), table, index=False)
    assert {file.spec_id for file in data_files(iceberg(tmp_path))} == {0, 1}
    assert read(tmp_path) == rows(frame(spark, 0, 150))
    # Rows of a partition are replaced wherever they lie, also in files of the spec before.
    new = frame(spark, 497, 510).where("name is null")
    assert new.count() == 2
    report = sk.ingest(new, table, mode="overwrite", overwrite="partitions", index=False)
    assert report.replaced > 1
    kept = frame(spark, 0, 150).where("name is not null").unionAll(new)
    assert read(tmp_path) == rows(kept)
    assert stray(tmp_path) == []


# -- overwriting -------------------------------------------------------------------------------


def test_overwriting_by_predicate_keeps_what_is_not_true(spark: SparkSession, tmp_path: Path) -> None:
    """NULL is not TRUE: such rows stay."""
    table = make(tmp_path)
    old = frame(spark, 0, 300)
    sk.ingest(old, table, target_file_bytes=3_000, force=True, page_rows=20, index=False)
    before = {file.file_path for file in data_files(iceberg(tmp_path))}
    new = frame(spark, 1000, 1005)
    report = sk.ingest(new, table, mode="overwrite", where="x > 50 and name <> 'n1'", index=False)
    assert read(tmp_path) == rows(old.where("not coalesce(x > 50 and name <> 'n1', false)").unionAll(new))
    snapshot = iceberg(tmp_path).current_snapshot()
    assert snapshot.summary.operation.value == "overwrite"
    after = {file.file_path for file in data_files(iceberg(tmp_path))}
    # Files without a match are left alone.
    assert len(before - after) == report.replaced
    assert before & after
    # Rows that are proven to match are dropped with their files; nothing is written where nothing is new.
    none = frame(spark, 0, 0)
    report = sk.ingest(none, table, mode="overwrite", where="id < 2000", index=False)
    assert (report.rows, report.files, read(tmp_path)) == (0, 0, [])
    assert report.replaced == len(after)
    assert "dropped" in str(report)
    # An overwrite that finds nothing makes no snapshot.
    report = sk.ingest(none, table, mode="overwrite", where="id < 2000", index=False)
    assert (report.snapshot, report.replaced) == (None, 0)
    assert stray(tmp_path) == []


@pytest.mark.slow
def test_overwriting_partitions_and_all(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path)
    old = frame(spark, 0, 200)
    sk.ingest(old, table, index=False)
    new = spark.sql("select 7L id, 'new' name, timestamp'2023-11-16 01:00:00' ts, 1.5D x")
    report = sk.ingest(new, table, mode="overwrite", overwrite="partitions", index=False)
    assert report.replaced == 1
    assert read(tmp_path) == rows(old.where("cast(ts as date) <> date'2023-11-16'").unionAll(new))
    report = sk.ingest(new.where("false"), table, mode="overwrite", overwrite="partitions", index=False)
    assert (report.snapshot, report.replaced) == (None, 0)
    sk.ingest(new, table, mode="overwrite", index=False)
    assert read(tmp_path) == rows(new)
    assert stray(tmp_path) == []


def interrupted(kind: type[Overwrite], monkeypatch: pytest.MonkeyPatch, act: Any, times: int = 1) -> None:
    """Somebody acts after each of the first plans."""
    real, left = kind.plan, [times]

    def plan(self: Any, *given: Any) -> OverwritePlan:
        found: OverwritePlan = real(self, *given)
        if left[0]:
            left[0] -= 1
            act()
        return found

    monkeypatch.setattr(kind, "plan", plan)


@pytest.mark.slow
def test_an_overwrite_sees_what_came_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path)
    sk.ingest(frame(spark, 0, 60), table, index=False)
    late = frame(spark, 60, 90).toArrow().cast(SCHEMA)
    interrupted(PredicateOverwrite, monkeypatch, lambda: iceberg(tmp_path).append(late))
    new = frame(spark, 1000, 1003)
    sk.ingest(new, table, mode="overwrite", where="id % 2 = 0 and id < 900", index=False)
    # As if the append had come first.
    assert read(tmp_path) == rows(frame(spark, 0, 90).where("id % 2 = 1").unionAll(new))
    assert stray(tmp_path) == []
    # An append that doesn't match stays, and is no reason to plan anew.
    plans: list[int] = []
    far = frame(spark, 5000, 5010).toArrow().cast(SCHEMA)

    def act() -> None:
        plans.append(1)
        iceberg(tmp_path).append(far)

    interrupted(PredicateOverwrite, monkeypatch, act, times=9)
    sk.ingest(frame(spark, 0, 0), table, mode="overwrite", where="id = 31", index=False)
    assert len(plans) == 1
    assert len(read(tmp_path)) == 45 + 3 - 1 + 10


@pytest.mark.slow
def test_an_overwrite_that_never_gets_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path)
    late = frame(spark, 0, 3).toArrow().cast(SCHEMA)
    monkeypatch.setattr(overwrite, "_TRIES", 2)
    interrupted(FullOverwrite, monkeypatch, lambda: iceberg(tmp_path).append(late), times=9)
    with pytest.raises(
        ConflictError, match=r"db\.t: rows that this overwrite replaces were added concurrently"
    ):
        sk.ingest(frame(spark, 9, 12), table, mode="overwrite", index=False)
    assert len(read(tmp_path)) == 6
    assert stray(tmp_path) == []


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_writers_at_once(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    problems: list[BaseException] = []

    def run(start: int) -> None:
        try:
            sk.ingest(frame(spark, start, start + 100), "db.t", catalog=warehouse(tmp_path), index=False)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(100 * n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert read(tmp_path) == rows(frame(spark, 0, 300))
    assert stray(tmp_path) == []


@pytest.mark.slow
def test_a_task_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path)
    sk.ingest(frame(spark, 0, 10), table, index=False)

    def late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if (tmp_path / "late").exists():
            raise OSError("too late")

    class Queries(list[str]):
        """Asked for after the sample was taken, and before anything is written."""

        def __iter__(self) -> Iterator[str]:
            (tmp_path / "late").touch()
            return super().__iter__()

    given = frame(spark, 10, 1_000)
    given = given.mapInArrow(late, given.schema)
    with pytest.raises(JobError, match="too late"):
        sk.ingest(given, table, queries=Queries(["id = 3"]), target_file_bytes=5_000, force=True)
    assert read(tmp_path) == rows(frame(spark, 0, 10))
    assert stray(tmp_path) == []
    with pytest.raises((SchemaError, JobError), match="column id: column has NULLs"):
        sk.ingest(spark.sql("select if(id = 3, null, id) id from range(5)"), table)
    assert stray(tmp_path) == []


KILLED = """
import json, os, signal, sys, time
from pathlib import Path
import pyarrow as pa
from pyspark import TaskContext
import skipstone as sk

folder = Path(sys.argv[1])

def once(name, act):
    def rows(batches):
        for number, batch in enumerate(batches):
            yield batch
            if number == 3 and TaskContext.get().partitionId() == 1 and (folder / "armed").exists():
                try:
                    (folder / f"{name} done").open("x").close()
                except FileExistsError:
                    continue
                act()
    return rows

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def lag():
    time.sleep(40)

class Queries(list):
    def __iter__(self):
        (folder / "armed").touch()
        return iter(["id = 3"])

if __name__ == "__main__":
    conf = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.speculation": "true", "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.2",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "500"}
    spark = sk.spark("local[4,4]", conf=conf)
    catalog = sk.catalog(f"{folder}/ware/")
    found = {}
    for name, act in (("die", die), ("lag", lag)):
        # Without partitions or an order rows aren't shuffled: they are made and written by one task.
        table = catalog.create_table(f"db.{name}", pa.schema([("id", pa.int64())]))
        (folder / "armed").unlink(missing_ok=True)
        frame = spark.range(0, 40000, 1, 8).mapInArrow(once(name, act), "id long")
        report = sk.ingest(frame, table, queries=Queries(), target_file_bytes=20000, force=True, index=False)
        rows = table.scan().to_arrow()["id"].to_pylist()
        found[name] = [report.rows, sorted(rows) == list(range(40000)), (folder / f"{name} done").exists()]
    spark.stop()
    print(json.dumps(found))
"""


@pytest.mark.slow
def test_tasks_that_are_killed_or_lag_give_their_rows_once(tmp_path: Path) -> None:
    from tests.spark.test_cluster_engine import run

    found = run(KILLED, tmp_path)
    for name in ("die", "lag"):
        assert found[name] == [40_000, True, True]
        # The files of a worker that was killed are deleted by the driver.
        assert stray(tmp_path, f"db.{name}") == []


DRIVER = """
import sys
from pathlib import Path
import pyarrow as pa
import skipstone as sk
from tests.faults._kills import SteppedIO, arm

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    conf = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = sk.spark("local[2]", conf=conf)
    stepped = {"py-io-impl": f"{SteppedIO.__module__}.SteppedIO"}
    table = sk.catalog(folder / "ware", **stepped).open("db.t")
    arm(folder / "log", sys.argv[2])
    sk.ingest(spark.range(100), table, index=False)
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_in_its_commit(tmp_path: Path) -> None:
    """A sample of what tests/faults/test_killed_commits.py does at every step without Spark."""
    table = sk.catalog(tmp_path / "ware").create_table("db.t", pa.schema([("id", pa.int64())]))
    table.table.append(pa.table({"id": pa.array([1_000], pa.int64())}))
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, str(script), str(tmp_path), "catalog before"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    table.refresh()
    assert table.scan().to_arrow()["id"].to_pylist() == [1_000]
    left = {kind_of(path) for path in orphans(table.table, tmp_path / "ware")}
    assert left == {"data", "manifest", "list", "metadata"}


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path)
    given = frame(spark, 0, 5)
    stream = spark.readStream.format("rate").load().selectExpr("value id")
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (given.drop("id"), {}, SchemaError, "column id: required column is missing"),
        (given.selectExpr("*", "1 more"), {}, SchemaError, "column more: table has no such column"),
        (given.selectExpr("id", "cast(x as string) x"), {}, SchemaError, "column x: column is string"),
        (
            given.selectExpr("id", "make_dt_interval(1) x"),
            {},
            SchemaError,
            "column x: Iceberg does not support intervals",
        ),
        (given, {"partition_by": ["name"]}, UsageError, "tables define their own partition spec"),
        (given, {"cluster_bye": ["id"]}, TypeError, "unexpected keyword argument 'cluster_bye'"),
        (given, {"mode": "upsert"}, UsageError, "unknown mode 'upsert'"),
        (given, {"where": "id = 3"}, UsageError, "overwrite= and where= don't apply to appends"),
        (given, {"mode": "overwrite", "overwrite": "some"}, UsageError, "unknown overwrite mode 'some'"),
        (given, {"mode": "overwrite", "where": "nope = 3"}, Exception, "nope"),
        (given, {"branch": "other"}, UsageError, "unknown branch other"),
        (stream, {}, UsageError, "streaming data frames can't be ingested"),
    ]
    for some, options, kind, problem in refused:
        with pytest.raises(kind, match=problem):
            sk.ingest(some, table, **options)
    alone = sk.open(iceberg(tmp_path).metadata_location)
    with pytest.raises(UsageError, match="table opened from a metadata file is read-only"):
        sk.ingest(given, alone)
    assert table.snapshots() == ()
    assert stray(tmp_path) == []


@pytest.mark.slow
def test_a_table_says_how_its_files_are(spark: SparkSession, tmp_path: Path) -> None:
    told = {
        "write.parquet.compression-codec": "snappy",
        "write.parquet.page-row-limit": "30",
        "write.parquet.bloom-filter-enabled.column.name": "true",
        "write.target-file-size-bytes": "3000",
    }
    table = make(tmp_path, partition_by=[], properties=told)
    sk.ingest(frame(spark, 0, 2_000), table, cluster_by=["id", "x"], cluster="hilbert", index=False)
    files = data_files(iceberg(tmp_path))
    assert len(files) > 2
    found = pq.read_metadata(files[0].file_path.removeprefix("file://")).row_group(0).column(1)
    assert (found.compression, found.bloom_filter_offset is not None) == ("SNAPPY", True)
    assert read(tmp_path) == rows(frame(spark, 0, 2_000))


def test_files_claim_the_order_that_spark_has_sorted(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "s": pa.string(), "x": pa.float64()})
    table = sk.catalog(tmp_path).create_table("db.t", schema, sort_by=["s", "x"])
    some = spark.range(3_000).selectExpr(
        "id",
        "case when id % 7 > 0 then chr(int(97 + id * 31 % 26)) end AS s",
        "case id % 5 when 0 then double('nan') when 1 then null else id * 7919 % 1013 end AS x",
    )
    for cluster_by in ([], ["id"]):
        sk.ingest(some.repartition(3), table, engine=spark, cluster_by=cluster_by, index=False)
    orders = table.refresh().inventory.everything[0].sort_orders.tolist()
    assert sorted(order > 0 for order in orders) == [False, True]
