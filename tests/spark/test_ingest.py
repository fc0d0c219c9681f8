"""``sk.ingest``: what it writes, how it lies, and what it refuses before anything is written."""

from __future__ import annotations

import datetime as dt
import random
import re
import threading
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import JobError, ReadError, SchemaError, UnknownColumnError, UsageError, WriteError
from skipstone.index.index import LakeIndex
from tests.support.readers import READERS
from tests.support.stores import own_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TYPES = """
select id, cast(id % 100 as byte) b, cast(id as short) s, cast(id as int) i, cast(id as float) / 3 f,
  case when id % 10 = 3 then double('NaN') when id % 10 = 4 then double('-Infinity') else id / 7.0D end d,
  cast(id as decimal(9, 2)) small, cast(id as decimal(38, 10)) / 3 big,
  if(id % 7 = 0, '', concat('ü-', id)) t, cast(concat('b', id) as binary) bin, id % 2 = 0 flag,
  date_add(date'0001-01-03', cast(id * 3000 as int)) day,
  timestamp_micros(id * 250000000000000 - 62000000000000001) ts,
  cast(timestamp_micros(id * 250000000000000 - 62000000000000001) as timestamp_ntz) ntz,
  make_dt_interval(cast(id as int) - 100, 1, 2, 3.000005) took,
  if(id % 5 = 0, null, array(id, null, id + 1)) list, map('k', id, 'l', null) m,
  if(id % 4 = 0, null, named_struct('x', if(id % 3 = 0, null, id), 'y', array(named_struct('z', 'v')))) st,
  if(id % 3 = 0, null, id) some, cast(null as string) none
from range(0, 400, 1, 2)
"""


def files(root: Path) -> list[Path]:
    """What readers that know nothing of Skipstone take for data."""
    return sorted(root.rglob("*.parquet"))


def staged(root: Path) -> list[str]:
    """What an ingest that is over must not leave."""
    names = [str(p.relative_to(root.parent)) for p in own_files(root).rglob("*") if p.is_file()]
    return [name for name in names if "staged" in name or name.endswith((".lease", ".tmp"))]


def nullable(frame: DataFrame) -> str:
    """A schema in which, as in all that is read from files, anything may be NULL."""
    return re.sub(r'"(nullable|containsNull|valueContainsNull)":false', r'"\1":true', frame.schema.json())


def same(a: DataFrame, b: DataFrame) -> None:
    """Two frames with the same rows of the same types."""
    assert nullable(a) == nullable(b)
    assert sorted(map(repr, a.collect())) == sorted(map(repr, b.collect()))


def rows_kept(root: Path, where: str) -> int:
    return sk.open(root).scan(where).plan().trace.rows_kept


def test_every_reader_gets_the_same_rows_and_types(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(TYPES)
    root = tmp_path / "lake"
    report = sk.ingest(
        frame, root, cluster_by=["id"], target_file_bytes=30_000, force=True, blooms=["t"], page_rows=50
    )
    assert (report.rows, report.partitions, report.index_problem) == (400, 1, "")
    assert report.files == len(files(root)) >= 2
    assert list(report.sizes) == [path.stat().st_size for path in files(root)]
    assert staged(root) == []
    same(spark.read.parquet(str(root)), frame)
    same(spark.read.format("skipstone").load(str(root)), frame)
    # Of the frame itself toArrow() can't give a struct that is NULL and has a field that may not be.
    expected = spark.read.parquet(str(root)).toArrow().sort_by("id")
    # Spark's intervals are microseconds in the file, as Spark itself writes them.
    numbers = expected["took"].cast(pa.int64())
    expected = expected.set_column(expected.schema.names.index("took"), "took", numbers)
    for found in (
        sk.open(root).scan().to_arrow(),
        ds.dataset(root).to_table(),
        pl.read_parquet(f"{root}/*.parquet").to_arrow(),
    ):
        found = found.sort_by("id")
        assert found.schema.names == expected.schema.names
        assert repr(found.to_pylist()) == repr(expected.to_pylist())
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        found = connection.sql(f"select * from '{root}/*.parquet' order by id").to_arrow_table()
    for name in expected.schema.names:
        assert repr(found[name].to_pylist()) == repr(expected[name].to_pylist()), name


def test_what_was_asked_for_is_in_the_files(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 60_000, 1, 3).selectExpr(
        "id", "(id * 7919) % 60013 k", "concat('n', id % 300) few", "uuid() u", "id % 3 p"
    )
    frame = spark.createDataFrame(frame.toArrow())
    report = sk.ingest(
        frame,
        tmp_path,
        partition_by=["p"],
        cluster_by=["k"],
        target_file_bytes=200_000,
        force=True,
        blooms=["u"],
        page_rows=1_000,
        row_group_rows=5_000,
        compression="snappy",
    )
    assert report.partitions == 3
    assert {path.parent.name for path in files(tmp_path)} == {"p=0", "p=1", "p=2"}
    # A partition's rows may lie in two tasks' ranges, so there may be a small file more.
    assert report.bytes / 200_000 <= report.files <= report.bytes / 200_000 + 5
    assert 150_000 <= max(report.sizes) <= 1.6 * 200_000
    ranges: dict[str, list[tuple[int, int]]] = {}
    for path in files(tmp_path):
        found = pq.read_metadata(path)
        assert found.schema.names == ["id", "k", "few", "u"]
        for number in range(found.num_row_groups):
            group = found.row_group(number)
            assert 0 < group.num_rows <= 5_000
            assert [column.column_index for column in group.sorting_columns] == [1]
            for at in range(4):
                column = group.column(at)
                assert column.has_offset_index
                assert column.has_column_index
                assert column.compression == "SNAPPY"
                # Where it only costs there is none.
                assert column.has_dictionary_page == (column.path_in_schema == "few")
                assert (column.bloom_filter_offset is not None) == (column.path_in_schema == "u")
            k = group.column(1).statistics
            ranges.setdefault(path.parent.name, []).append((k.min, k.max))
    for spans in ranges.values():
        # Sorted over all files of a partition: no two row groups overlap.
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(spans)))
    lake = sk.open(tmp_path)
    assert lake.scan().count() == 60_000
    trace = lake.scan("k = 30000").plan().trace
    assert trace.index is not None
    assert trace.index.covered == report.files
    # One page in each partition, at most.
    assert 1 <= trace.rows_kept <= 3_000
    one = frame.where("id = 777").collect()[0]["u"]
    found = lake.scan(f"u = '{one}'")
    assert found.count() == 1
    assert found.plan().trace.rows_kept <= 6_000


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["zorder", "hilbert"])
def test_curves_skip_on_each_column(spark: SparkSession, tmp_path: Path, cluster: str) -> None:
    frame = spark.range(0, 100_000, 1, 2).selectExpr(
        "id", "(id * 7919) % 100003 a", "(id * 104729) % 99991 b"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("sort", cluster):
            sk.ingest(
                frame,
                tmp_path / name,
                cluster_by=["a", "b"],
                cluster=name,
                page_rows=500,
                target_file_bytes=200_000,
                force=True,
            )
    kept = {
        name: [rows_kept(tmp_path / name, f"{column} between 50000 and 51000") for column in ("a", "b")]
        for name in ("sort", cluster)
    }
    # A thousand of a hundred thousand rows are asked for.
    assert 1_000 <= kept["sort"][0] <= 3_000
    assert kept["sort"][1] == 100_000
    assert all(1_000 <= rows <= 30_000 for rows in kept[cluster])
    assert len(files(tmp_path / cluster)) >= 3
    assert sk.open(tmp_path / cluster).scan("b between 50000 and 51000").count() == len(
        frame.where("b between 50000 and 51000").collect()
    )


def test_a_lake_grows(spark: SparkSession, tmp_path: Path) -> None:
    """By rows with a column more, without one that has filters, and by rows that don't fit."""
    first = spark.range(1000).selectExpr("id", "concat('n', id) name", "id % 2 day")
    sk.ingest(first, tmp_path, partition_by=["day"], cluster_by=["id"], blooms=["name"])
    lake = sk.open(tmp_path)
    assert lake.scan().count() == 1000
    second = spark.range(1000, 1500).selectExpr("id", "id % 3 day", "id * 1.5D more")
    with pytest.raises(SchemaError, match=r"column more: not in the lake \(add .*evolve=True"):
        sk.ingest(second, tmp_path)
    report = sk.ingest(second, tmp_path, evolve=True)
    assert (report.rows, report.partitions, report.index_problem) == (500, 3, "")
    assert (report.cluster_by, report.clustered_as_before) == (("id",), True)
    assert lake.scan().count() == 1000
    lake.refresh()
    assert lake.scan().count() == 1500
    assert lake.scan("more > 1500").count() == len(second.where("more > 1500").collect())
    assert lake.scan("name = 'n7'").count() == 1
    trace = lake.scan("name = 'n7'").plan().trace
    assert trace.index is not None
    assert trace.index.covered == len(lake.entries) == 5
    before = files(tmp_path)
    odd: list[tuple[DataFrame, dict[str, Any], type[Exception], str]] = [
        (second.drop("day"), {}, SchemaError, "column day: partition column is missing from the rows"),
        (second.selectExpr("'x' id", "day"), {}, SchemaError, "column id"),
        (second.selectExpr("id ID", "day"), {}, SchemaError, "column ID: the lake's column is named id"),
        (second.withColumnRenamed("more", "mroe"), {}, SchemaError, r"column mroe: .*did you mean more\?"),
        (second, {"partition_by": ["more"]}, UsageError, "partitioned by day, not by more"),
        (second, {"blooms": ["name"]}, UnknownColumnError, "column name"),
    ]
    for frame, options, kind, problem in odd:
        with pytest.raises(kind, match=problem):
            sk.ingest(frame, tmp_path, **options)
    assert files(tmp_path) == before
    assert staged(tmp_path) == []


def test_what_can_t_be_written_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    sk.ingest(spark.range(3), tmp_path / "lake", index=False)
    stream = spark.readStream.format("rate").load()
    refused: list[tuple[DataFrame, str, dict[str, Any], type[Exception], str]] = [
        (
            spark.sql("select 1 a, make_ym_interval(1, 2) iv"),
            "new",
            {},
            SchemaError,
            "iv: Arrow has no equivalent",
        ),
        (
            spark.sql("select 1 a, array(make_dt_interval(1)) iv"),
            "new",
            {},
            SchemaError,
            "column iv: Parquet",
        ),
        (spark.sql("select 1 a, array() v"), "new", {}, SchemaError, "column v"),
        (
            spark.sql("select 1 a, 2 A"),
            "new",
            {},
            SchemaError,
            "column A: name differs from a only in case",
        ),
        (spark.sql("select 1 a, 2 a"), "new", {}, SchemaError, "column a: duplicate name"),
        (spark.range(3).select(), "new", {}, UsageError, "no columns"),
        (spark.range(3), "new", {"partition_by": ["day"]}, UnknownColumnError, "column day"),
        (spark.range(3), "new", {"partition_by": ["id"]}, UsageError, "all columns are partition columns"),
        (spark.range(3), "new", {"cluster_by": ["ID"]}, UnknownColumnError, "column ID"),
        (spark.range(3), "new", {"mode": "overwrite"}, UsageError, "Iceberg"),
        (spark.range(3), "new", {"clusterby": ["id"]}, TypeError, "unexpected keyword argument 'clusterby'"),
        (spark.range(3), "file", {}, UsageError, "not a directory"),
        (spark.range(3), "lake/sub", {}, UsageError, "directory is inside another lake"),
        (stream, "new", {}, UsageError, "directories don't support streaming writes .*Iceberg"),
    ]
    for frame, name, options, kind, problem in refused:
        with pytest.raises(kind, match=problem):
            sk.ingest(frame, tmp_path / name, **options)
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "lake" / "sub").exists()


def test_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    none = spark.range(5).selectExpr("id", "id b").where("id > 9")
    for cluster in ("sort", "zorder"):
        report = sk.ingest(none, tmp_path / "lake", cluster_by=["id", "b"], cluster=cluster)
        assert (report.rows, report.files, report.skips, report.index_problem) == (0, 0, (), "")
        assert "no rows" in str(report)
    assert [p for p in (tmp_path / "lake").rglob("*") if p.is_file()] == []
    with pytest.raises(ReadError, match="no such file or directory"):
        sk.open(tmp_path / "lake")


@pytest.mark.slow
def test_rows_that_differ_each_time_are_not_published(spark: SparkSession, tmp_path: Path) -> None:
    def some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, random.SystemRandom().randint(1, batch.num_rows))

    frame = spark.range(0, 200_000, 1, 2).mapInArrow(some, "id long")
    with pytest.raises(ReadError, match=r"rows were counted, but [\d,]+ were written \(.*persist"):
        sk.ingest(frame, tmp_path, cluster_by=["id"])
    assert files(tmp_path) == staged(tmp_path) == []


def test_a_frame_that_fails(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sk.ingest(spark.range(10), tmp_path)
    # Whoever counts doesn't divide, so it fails in the sample; and one that fails only as it is written.
    with pytest.raises(JobError, match=r"^Spark job failed: Division by zero \(use `try_divide`"):
        sk.ingest(spark.range(10).selectExpr("id div (id - 5) id"), tmp_path)
    assert "Traceback" not in (err := capfd.readouterr().err), err
    assert "java." not in err

    def late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if (tmp_path / "_late").exists():
            raise OSError("too late")

    frame = spark.range(0, 50_000, 1, 2).mapInArrow(late, "id long")
    before = files(tmp_path)

    class Queries(list[str]):
        """Asked for after the sample was taken, and before anything is written."""

        def __iter__(self) -> Iterator[str]:
            (tmp_path / "_late").touch()
            return super().__iter__()

    with pytest.raises(JobError, match="too late"):
        sk.ingest(frame, tmp_path, queries=Queries(["id = 3"]))
    assert files(tmp_path) == before
    assert staged(tmp_path) == []
    assert sk.open(tmp_path).scan().count() == 10


def test_tables_of_others(spark: SparkSession, tmp_path: Path) -> None:
    at = [dt.datetime(2020, 1, 1, 0, 0, 0, 123456), dt.datetime(1960, 5, 5), None]
    table = pa.table(
        {
            "a": pa.array([3, 1, None], pa.int32()),
            "ntz": pa.array(at, pa.timestamp("us")),
            "ts": pa.array(at, pa.timestamp("us", "Europe/Paris")),
            "few": pa.array(["x", "y", "x"]).dictionary_encode(),
            "list": pa.array([[1], None, []], pa.large_list(pa.int64())),
            "took": pa.array([1, -5, None], pa.duration("ms")),
            "u": pa.array([1, 2**32 - 1, 0], pa.uint32()),
        }
    )
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        report = sk.ingest(table, tmp_path / "arrow", session=spark)
        frame = spark.read.parquet(str(tmp_path / "arrow"))
        types = frame.schema.simpleString()
        took = [row["took"] for row in frame.orderBy("u").collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert report.rows == 3
    assert types == (
        "struct<a:int,ntz:timestamp_ntz,ts:timestamp,few:string,list:array<bigint>,"
        "took:interval day to second,u:bigint>"
    )
    assert took == [None, dt.timedelta(milliseconds=1), dt.timedelta(milliseconds=-5)]
    found = sk.open(tmp_path / "arrow").scan().to_arrow()
    for name in ("a", "ntz", "few", "list", "u"):
        assert found[name].to_pylist() == table[name].to_pylist(), name
    assert found["ts"].cast(pa.int64()) == table["ts"].cast(pa.int64())
    frame = pd.DataFrame({"a": [3, 1, 2], "t": pd.to_datetime(["2020-01-01", "2021-05-05", "2022-02-02"])})
    sk.ingest(frame.set_index("t"), tmp_path / "pandas", session=spark)
    with pytest.raises(SchemaError, match=r"column __index_level_0__: .*reset_index\(drop=True\)"):
        sk.ingest(frame[frame.a == 2], tmp_path / "pandas", session=spark)
    sk.ingest(frame[frame.a == 2].reset_index(drop=True), tmp_path / "pandas", session=spark)
    assert sk.open(tmp_path / "pandas").scan("a > 1", order_by="a").to_arrow().to_pylist() == [
        {"a": 2, "t": dt.datetime(2022, 2, 2)},
        {"a": 2, "t": dt.datetime(2022, 2, 2)},
        {"a": 3, "t": dt.datetime(2020, 1, 1)},
    ]
    frame = pl.DataFrame({"s": ["x", None, "z"], "d": [dt.date(2020, 1, 1)] * 3, "l": [[1], None, [2, 3]]})
    sk.ingest(frame, tmp_path / "polars", session=spark)
    assert sk.open(tmp_path / "polars").scan().to_arrow().to_pylist() == frame.to_arrow().to_pylist()
    with pytest.raises(UsageError, match="belongs to another Spark session"):
        sk.ingest(spark.range(3), tmp_path / "x", session=spark.newSession())


def test_progress_and_settings(spark: SparkSession, tmp_path: Path) -> None:
    before = dict(spark.conf.getAll)
    told: list[tuple[str, int, int]] = []
    frame = spark.range(0, 40_000, 1, 4).selectExpr("id", "(id * 7919) % 40009 k")
    report = sk.ingest(
        frame,
        tmp_path,
        cluster_by=["k"],
        target_file_bytes=60_000,
        force=True,
        progress=lambda *step: told.append(step),
    )
    assert dict(spark.conf.getAll) == before
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    assert [phase for phase, _, _ in told] == sorted((phase for phase, _, _ in told), reverse=True)
    for phase in ("writing", "indexing"):
        steps = [step[1:] for step in told if step[0] == phase]
        assert steps == sorted(set(steps))
        assert all(done <= total for done, total in steps)
        assert steps[-1][0] == steps[-1][1] >= (report.files if phase == "writing" else 1)


def test_an_interrupt_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def stop(phase: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    frame = spark.range(0, 100_000, 1, 8).selectExpr("id", "(id * 7919) % 100003 k")
    with pytest.raises(KeyboardInterrupt):
        sk.ingest(frame, tmp_path, cluster_by=["k"], target_file_bytes=50_000, force=True, progress=stop)
    assert files(tmp_path) == []
    sk.ingest(spark.range(5), tmp_path)
    assert staged(tmp_path) == []
    assert sk.open(tmp_path).scan().count() == 5


def test_rows_stay_in_when_the_index_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would make the caller write them once more."""

    def fail(*_: Any, **__: Any) -> None:
        raise WriteError("disk full", path="index")

    with monkeypatch.context() as patched:
        patched.setattr(LakeIndex, "build", fail)
        report = sk.ingest(spark.range(10), tmp_path)
    assert (report.rows, report.files, report.index_bytes) == (10, 1, 0)
    assert "disk full" in report.index_problem
    assert "rows were ingested, but the index is not up to date: index: disk full" in str(report)
    report = sk.ingest(spark.range(10, 20), tmp_path)
    assert report.index_problem == ""
    lake = sk.open(tmp_path)
    trace = lake.scan("id = 3").plan().trace
    assert trace.index is not None
    assert (trace.index.covered, lake.scan().count()) == (2, 20)


def test_two_at_once(spark: SparkSession, tmp_path: Path) -> None:
    problems: list[BaseException] = []
    reports: list[sk.IngestReport] = []

    def run(start: int) -> None:
        try:
            reports.append(sk.ingest(spark.range(start, start + 1000), tmp_path, cluster_by=["id"]))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(1000 * n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [report.rows for report in reports] == [1000] * 3
    lake = sk.open(tmp_path)
    assert sorted(lake.scan().to_arrow()["id"].to_pylist()) == list(range(3000))
    lake.index.refresh(engine="local")
    trace = lake.scan("id = 1500").plan().trace
    assert trace.index is not None
    assert (trace.index.covered, len(lake.entries), trace.index.problems) == (3, 3, ())
    assert staged(tmp_path) == []


def test_another_job_begins_the_lake_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    def other() -> Iterator[str]:
        sk.ingest(spark.range(5).selectExpr("id", "id % 2 day"), tmp_path, partition_by=["day"])
        yield "id = 3"

    with pytest.raises(sk.SkipstoneError, match="lake was partitioned by day by a concurrent job"):
        sk.ingest(spark.range(5), tmp_path, queries=list_later(other))
    assert sk.open(tmp_path).scan().count() == 5


def list_later(make: Any) -> Any:
    class Later(list[str]):
        """Queries that are known when they are asked for."""

        def __iter__(self) -> Iterator[str]:
            if not len(self):
                self.extend(make())
            return super().__iter__()

    return Later()


@pytest.mark.slow
def test_filters_where_queries_would_profit(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 60_000, 1, 2).selectExpr("id", "sha1(cast(id as string)) h", "id % 5 few")
    frame = frame.localCheckpoint()
    one = frame.where("id = 40001").collect()[0]["h"]
    report = sk.ingest(
        frame,
        tmp_path,
        cluster_by=["id"],
        queries=[f"h = '{one}'", "id = 5"],
        target_file_bytes=700_000,
        force=True,
        page_rows=2_000,
    )
    assert {skip.column for skip in report.skips} == {"id", "h"}
    assert all(0 < skip.rows < 0.5 for skip in report.skips)
    for path in files(tmp_path):
        group = pq.read_metadata(path).row_group(0)
        assert [group.column(at).bloom_filter_offset is not None for at in range(3)] == [False, True, False]
    scan = sk.open(tmp_path).scan(f"h = '{one}'")
    assert scan.count() == 1
    assert scan.plan().trace.rows_kept <= 6_000


@pytest.mark.slow
def test_advice_comes_true(spark: SparkSession, tmp_path: Path) -> None:
    rows, wheres = 60_000, ["k = 777", "k between 20000 and 21000"]
    sizes = {"target_file_bytes": 100_000, "force": True, "page_rows": 500}
    frame = spark.range(0, rows, 1, 2).selectExpr("id", "(id * 7919) % 60013 k")
    sk.ingest(frame, tmp_path / "before", **sizes)
    advice = sk.open(tmp_path / "before").index.advise(wheres)
    best = advice.layouts[0]
    assert best.columns == ("k",)
    sk.ingest(frame, tmp_path / "after", cluster_by=best.columns, cluster=best.kind, **sizes)
    for name, expected in (("before", advice.skips), ("after", best.after)):
        plans = [sk.open(tmp_path / name).scan(where).plan() for where in wheres]
        read = sum(plan.trace.rows_kept for plan in plans) / len(plans) / rows
        assert read == pytest.approx(1 - expected, rel=0.3)


def test_on_s3(spark: SparkSession, s3: dict[str, str]) -> None:
    frame = spark.range(0, 20_000, 1, 2).selectExpr("id", "concat('n', (id * 7919) % 20011) name", "id % 2 p")
    uri = "s3://bucket/deep/lake"
    for start in (0, 1):
        report = sk.ingest(
            frame.where(f"id % 2 = {start}"),
            uri,
            partition_by=["p"],
            cluster_by=["id"],
            target_file_bytes=60_000,
            force=True,
            storage_options=s3,
        )
        assert (report.rows, report.index_problem) == (10_000, "")
    lake = sk.open(uri, storage_options=s3)
    assert lake.scan().to_arrow().sort_by("id")["id"].to_pylist() == list(range(20_000))
    trace = lake.scan("id = 777").plan().trace
    assert trace.index is not None
    assert trace.index.covered == len(lake.entries) == 2
    assert trace.rows_kept <= 5_000
    (spark.range(20_000, 20_010).selectExpr("id", "'x' name", "id % 2 p")).write.format("skipstone").mode(
        "append"
    ).options(**{f"storage.{key}": value for key, value in s3.items()}).save(uri)
    lake.refresh()
    assert lake.scan().count() == 20_010
    # Whatever runs on executors has the credentials, which a plan's own pickle has not.
    stored = {f"storage.{key}": value for key, value in s3.items()}
    assert spark.read.format("skipstone").options(**stored, where="id < 9").load(uri).count() == 9
    plan = lake.scan("id between 500 and 19000", columns=["id"])
    assert plan.to_spark(spark, route="slices").count() == 18_501
    assert plan.count(engine=spark) == 18_501
    assert plan.aggregate(sk.sum("id"), engine=spark, use_cached=False).to_arrow().num_rows == 1
    keys = [entry.key for entry in lake.access.store.list_prefix("_skipstone")]
    assert not [key for key in keys if "staged" in key or key.endswith(".lease")]
    with pytest.raises(UsageError, match="directory is inside another lake"):
        sk.ingest(frame, f"{uri}/p=1", storage_options=s3)


@pytest.mark.slow
def test_files_have_the_size_that_was_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    target = 2 << 20
    frame = spark.range(0, 1_000_000, 1, 8).selectExpr(
        "id",
        "(id * 7919) % 1000003 k",
        "cast(rand(3) * 1e6 as int) v",
        "concat('name-', cast(rand(5) * 50000 as int)) name",
        "case when rand(9) < 0.9 then 'big' else concat('p', id % 9) end p",
        "rand(11) d",
    )
    frame = frame.localCheckpoint()
    ways: dict[str, dict[str, Any]] = {
        "sort": {"cluster_by": ["k"]},
        "zorder": {"cluster_by": ["k", "v"], "cluster": "zorder"},
        "hilbert": {"cluster_by": ["k", "v"], "cluster": "hilbert"},
        "blooms": {"cluster_by": ["v"], "blooms": ["name"]},
        "skewed": {"cluster_by": ["p"]},
        "none": {},
    }
    for name, way in ways.items():
        report = sk.ingest(frame, tmp_path / name, target_file_bytes=target, force=True, index=False, **way)
        assert 7 <= report.files <= 14, name
        assert max(report.sizes) <= 1.6 * target, name
        fit = [size for size in report.sizes if 0.7 * target <= size <= 1.3 * target]
        assert len(fit) >= 0.75 * report.files, (name, report.sizes)
    # Nine rows of ten are of one partition.
    report = sk.ingest(
        frame, tmp_path / "parts", target_file_bytes=target, force=True, partition_by=["p"], cluster_by=["k"]
    )
    assert report.partitions == 10
    big = [path.stat().st_size for path in files(tmp_path / "parts") if path.parent.name == "p=big"]
    assert 6 <= len(big) <= 12
    assert max(big) <= 1.6 * target
    assert len([size for size in big if 0.7 * target <= size <= 1.3 * target]) >= 0.7 * len(big)
    small = [path for path in files(tmp_path / "parts") if path.parent.name != "p=big"]
    assert 9 <= len(small) <= 18


# -- other readers -----------------------------------------------------------------------------


def test_every_reader_reads_an_ingested_lake(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing but data is below the lake: its index, records and journal lie beside it."""
    root = tmp_path / "lake"
    frame = spark.range(1000).selectExpr("id", "id % 3 p")
    for _ in range(2):
        sk.ingest(frame, str(root), partition_by=["p"], blooms=["id"])
    assert sk.open(root).scan("id = 7").trace().index.covered == len(files(root))
    assert {path.suffix for path in root.rglob("*") if path.is_file()} == {".parquet"}
    for name, count in READERS.items():
        assert count(root) == 2000, name
    assert spark.read.parquet(str(root)).count() == 2000
    assert spark.read.option("recursiveFileLookup", "true").parquet(str(tmp_path)).count() == 2000


def test_odd_names_and_encoded_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Names that Spark would parse, Polars' categories and lazy frames give the same rows on both engines."""
    frame = pl.LazyFrame(
        {
            "a.b": [3, 1, 2],
            "c`d": pl.Series(["x", None, "y"], dtype=pl.Categorical),
            "e f": pl.Series(["u", "v", "u"], dtype=pl.Enum(["u", "v"])),
            "ü;(=": [["p"], [], None],
            "select": [{"x.y": 1}, None, {"x.y": 2}],
        },
        schema_overrides={"ü;(=": pl.List(pl.Categorical)},
    )
    expected = frame.collect().cast({"c`d": pl.String, "e f": pl.String, "ü;(=": pl.List(pl.String)})
    for options in ({"session": spark}, {"engine": "local"}):
        lake = tmp_path / next(iter(options))
        report = sk.ingest(frame, lake, cluster_by=["a.b"], partition_by=["e f"], blooms=["c`d"], **options)
        assert (report.rows, report.files) == (3, 2)
        found = sk.open(lake).scan().to_polars().select(expected.columns).sort("a.b")
        assert found.to_dicts() == expected.sort("a.b").to_dicts()
        assert sk.open(lake).scan("`c``d` = 'x' and `a.b` = 3").count() == 1
