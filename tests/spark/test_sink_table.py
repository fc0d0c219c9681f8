"""``df.write`` into Iceberg tables: one snapshot, or nothing, whatever becomes of tasks and commits."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

import skipstone as sk
from skipstone.errors import ConflictError, UsageError, WriteError
from skipstone.iceberg.writing import commit as commits
from tests.spark._tables import SCHEMA, data_files, frame, iceberg, read, rows, stray, warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def make(root: Path, **options: Any) -> Any:
    return warehouse(root).create_table("db.t", SCHEMA, **{"partition_by": ["day(ts)"], **options})


def write(frame: Any, root: Path, mode: str = "append", **options: Any) -> None:
    told = {"catalog": f"{root}/ware/", "index": "false", **options}
    frame.write.format("skipstone").mode(mode).options(**told).save("db.t")


def test_append_and_every_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    old = frame(spark, 0, 200)
    write(old, tmp_path, cluster_by="id", blooms="name", index="true")
    assert read(tmp_path) == rows(old)
    assert len(iceberg(tmp_path).snapshots()) == 1
    assert "skipstone.job" in iceberg(tmp_path).current_snapshot().summary.additional_properties
    new = spark.sql("select 7L id, 'new' name, timestamp'2023-11-16 01:00:00' ts, 1.5D x")
    write(new, tmp_path, "overwrite", **{"overwrite-mode": "dynamic"})
    kept = old.where("cast(ts as date) <> date'2023-11-16'").unionAll(new)
    assert read(tmp_path) == rows(kept)
    write(new, tmp_path, "overwrite", where="name = 'n1'")
    kept = kept.where("not coalesce(name = 'n1', false)").unionAll(new)
    assert read(tmp_path) == rows(kept)
    write(new, tmp_path, "overwrite")
    assert read(tmp_path) == rows(new)
    assert stray(tmp_path) == []
    assert len(iceberg(tmp_path).snapshots()) == 4


@pytest.mark.slow
def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    some = frame(spark, 0, 3)
    refused = [
        (some, "append", {"where": "id = 1"}, "overwrite= and where= don't apply to appends"),
        (some, "overwrite", {"overwrite-mode": "odd"}, "unknown overwrite-mode 'odd'"),
        (some, "append", {"cluster_bye": "id"}, "unknown layout option: cluster_bye"),
        (some.drop("id"), "append", {}, "column id: required column is missing"),
    ]
    for given, mode, options, problem in refused:
        with pytest.raises(Exception, match=problem):
            write(given, tmp_path, mode, **options)
    with pytest.raises(Exception, match=r"db\.none.*no such table"):
        some.write.format("skipstone").mode("append").option("catalog", f"{tmp_path}/ware/").save("db.none")
    assert read(tmp_path) == []
    assert stray(tmp_path) == []


@pytest.mark.slow
def test_a_task_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 1:  # type: ignore[union-attr]
            # The other task is done by now: what a killed worker has begun nobody can delete.
            time.sleep(4)
            raise OSError("this task fails")

    given = frame(spark, 0, 2_000)
    with pytest.raises(Exception, match="this task fails"):
        write(given.mapInArrow(failing, given.schema), tmp_path)
    until = time.monotonic() + 120
    while stray(tmp_path) and time.monotonic() < until:
        time.sleep(0.2)
    assert read(tmp_path) == []
    assert stray(tmp_path) == []


# -- the driver's part, without Spark ----------------------------------------------------------


def writer(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A writer, and the message of a task that has written."""
    from pyspark.sql.types import LongType, StructField, StructType

    from skipstone.spark import table_sink

    monkeypatch.setattr(table_sink, "task_name", lambda: "0-0")
    monkeypatch.setattr(commits.time, "sleep", lambda _: None)
    given = {"catalog": f"{root}/ware/", "path": "db.t", "index": "false"}
    made = table_sink.TableWriter(given, StructType([StructField("id", LongType())]), False)
    return made, made.write(iter([pa.record_batch({"id": [1, 2, 3]})]))


@pytest.mark.parametrize("lost", [True, False])
def test_an_abort_after_a_commit_whose_outcome_is_unknown_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Spark aborts what can't be committed; if it may be in, its files must stay."""
    make(tmp_path)
    made, message = writer(tmp_path, monkeypatch)

    def commit_table(*_: Any, **__: Any) -> Any:
        raise CommitStateUnknownException("gone") if lost else CommitFailedException("slow")

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    with pytest.raises(WriteError if lost else ConflictError):
        made.commit([message])
    made.abort([message])
    assert len(stray(tmp_path)) == (1 if lost else 0)


def test_only_files_of_tasks_that_won_are_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path)
    made, message = writer(tmp_path, monkeypatch)
    monkeypatch.setattr(importlib.import_module("skipstone.spark.table_sink"), "task_name", lambda: "0-1")
    made.write(iter([pa.record_batch({"id": [1, 2, 3]})]))
    made.commit([message])
    assert len(data_files(iceberg(tmp_path))) == 1
    assert read(tmp_path) == rows(_only_ids([1, 2, 3]))
    assert stray(tmp_path) == []
    made, message = writer(tmp_path, monkeypatch)
    made.abort([message, None])
    assert stray(tmp_path) == []
    from skipstone.spark.table_sink import TableOptions

    nameless = TableOptions.of({"catalog": f"{tmp_path}/ware/"})
    with pytest.raises(UsageError, match="table name is missing"):
        nameless.load()


def _only_ids(ids: list[int]) -> pa.Table:
    empty = {name: pa.nulls(len(ids), SCHEMA.field(name).type) for name in ("name", "ts", "x")}
    return pa.table({"id": ids, **empty})


def test_a_table_on_s3(spark: SparkSession, s3: dict[str, str], tmp_path: Path) -> None:
    """Tasks have the credentials that the catalog, or the options, know."""
    known = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": "s3://bucket/warehouse",
        "s3.endpoint": s3["aws_endpoint"],
        "s3.access-key-id": s3["aws_access_key_id"],
        "s3.secret-access-key": s3["aws_secret_access_key"],
        "s3.region": s3["aws_region"],
    }
    table = sk.catalog(known).create_table("db.on_s3", pa.schema({"id": pa.int64()}))
    options = {"catalog": "default", **{f"catalog.{name}": value for name, value in known.items()}}
    spark.range(0, 1_000, 1, 2).write.format("skipstone").options(**options).mode("append").save("db.on_s3")
    loaded = spark.read.format("skipstone").options(**options, where="id < 700").load("db.on_s3")
    assert loaded.count() == 700
    table.refresh()
    assert table.scan("id >= 300").to_spark(spark, route="slices").count() == 700
    report = sk.ingest(spark.range(1_000, 1_100), "db.on_s3", catalog=sk.catalog(known))
    assert (report.rows, report.index_problem) == (100, "")
    table.refresh()
    assert table.scan().count() == 1_100
