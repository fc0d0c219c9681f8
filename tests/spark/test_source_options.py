"""``spark.read.format("skipstone")``: options, filters that are pushed, and what is refused."""

from __future__ import annotations

import functools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import skipstone as sk
from skipstone.errors import UsageError
from tests.spark._reads import PUSHING, conf, rows_of

pytestmark = pytest.mark.spark

ON = {PUSHING.replace(".", "__"): "true"}
OFF = {PUSHING.replace(".", "__"): "false"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    for file in range(3):
        numbers = range(file * 100, file * 100 + 100)
        table = pa.table(
            {
                "id": numbers,
                "f": [float("nan") if n % 9 == 0 else n / 4 for n in numbers],
                "s": [None if n % 8 == 0 else f"name {n % 12}" for n in numbers],
                "st": [{"x": n % 5, "y": str(n)} for n in numbers],
                "t": pa.array([n * 3_600_000_000 for n in numbers], pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, root / f"{file}.parquet", row_group_size=25)
    return root


def load(spark: SparkSession, lake: Path, **options: str) -> DataFrame:
    return spark.read.format("skipstone").options(**options).load(str(lake))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


PUSHED = (
    *("id = 7", "id <=> 7", "id in (3, 5, 250)", "not id = 7", "id > 280", "s is null", "s is not null"),
    *("s like 'name 1%'", "s like '%1'", "contains(s, 'e 1')", "st.x = 3", "f > 60", "isnan(f)", "f = 0.25"),
    *("t >= '1970-01-05'", "cast(t as date) = '1970-01-03'", "id = 7 or s = 'name 3'", "id % 7 = 3"),
)


@pytest.mark.parametrize(
    ("settings", "texts"),
    [(ON, PUSHED[::2]), *(pytest.param(way, PUSHED, marks=pytest.mark.slow) for way in (ON, OFF))],
    ids=["on, some", "on", "off"],
)
def test_filters(spark: SparkSession, lake: Path, settings: dict[str, str], texts: tuple[str, ...]) -> None:
    opened = sk.open(lake)
    with conf(spark, **settings):
        frames = {t: load(spark, lake, pushdown="true").where(t).select("id") for t in texts}
        numbered = [frame.selectExpr(f"{n} n", "id") for n, frame in enumerate(frames.values())]
        rows = functools.reduce(DataFrame.unionAll, numbered).toArrow()  # one job for all of them
    for n, text in enumerate(frames):
        ids = [row["id"] for row in rows.to_pylist() if row["n"] == n]
        assert sorted(ids) == opened.scan(text, columns=["id"]).to_arrow()["id"].to_pylist(), text


def test_what_is_understood_is_not_tested_twice(spark: SparkSession, lake: Path) -> None:
    with conf(spark, **ON):
        pushing = load(spark, lake, pushdown="true")
        assert "Filter " not in plan_of(pushing.where("id = 7 and s is not null"))
        assert "Filter " in plan_of(load(spark, lake, pushdown="true").where("id % 7 = 3"))
        assert "Filter " in plan_of(load(spark, lake).where("id = 7"))
    with conf(spark, **OFF):
        assert "Filter " in plan_of(load(spark, lake, pushdown="true").where("id = 7"))


def test_one_frame_for_several_questions(spark: SparkSession, lake: Path) -> None:
    # Spark plans a frame once and keeps the filters that were pushed: so none are unless it is asked for.
    with conf(spark, **ON):
        frame = load(spark, lake)
        assert frame.where("id = 7").count() == 1
        assert frame.where("id = 8 or id = 9").count() == 2
        assert frame.where("id = 7").unionAll(frame.where("id > 290")).count() == 10
        assert frame.count() == 300


def test_columns_and_where(spark: SparkSession, lake: Path) -> None:
    frame = load(spark, lake, columns="s, id,st.x", where="id = 7 or s = 'name 3'")
    assert frame.columns == ["s", "id", "st.x"]
    assert frame.schema["st.x"].dataType == spark.read.parquet(str(lake)).select("st.x").schema[0].dataType
    wanted = sk.open(lake).scan("id = 7 or s = 'name 3'", columns=["s", "id", "st.x"]).to_arrow()
    assert sorted(rows_of(frame.toArrow()), key=str) == sorted(rows_of(wanted), key=str)
    assert load(spark, lake, where="t = '1970-01-01 05:30:00'", tz="Asia/Kolkata").count() == 1
    assert load(spark, lake, where="id < 0").count() == 0
    assert load(spark, lake, index="false").count() == 300


def test_expressions_as_columns(spark: SparkSession, lake: Path) -> None:
    columns = ["coalesce(st.x, 0) * id AS v", "upper(s)", "st.x AS x"]
    where = "id < 40 and t <= current_timestamp() and st['x'] > 2"
    wanted = sorted(rows_of(sk.open(lake).scan(where, columns=columns).to_arrow()), key=str)
    spark_own = spark.read.parquet(str(lake)).where(where).selectExpr(*columns)
    assert sorted(rows_of(spark_own.toArrow()), key=str) == wanted
    frame = load(spark, lake, columns=", ".join(columns), where=where)
    assert frame.columns == ["v", "upper(s)", "x"]
    assert sorted(rows_of(frame.toArrow()), key=str) == wanted
    ordered = sk.open(lake).scan(where, columns=columns, order_by=["st.x desc", "id"], limit=5)
    for route in ("driver", "slices"):
        assert rows_of(ordered.to_spark(spark, route=route).toArrow()) == rows_of(ordered.to_arrow())
    fields = sk.open(lake).scan("id < 40", columns=["st.x", "id AS key"], order_by=["id desc"], limit=5)
    for route in ("driver", "slices", "reader"):
        assert rows_of(fields.to_spark(spark, route=route).toArrow()) == rows_of(fields.to_arrow())
    with pytest.raises(UsageError, match="columns are computed by Skipstone"):
        ordered.to_spark(spark, route="reader")


def test_sql_can_ask_it(spark: SparkSession, lake: Path) -> None:
    load(spark, lake).createOrReplaceTempView("asked")
    found = spark.sql("select count(*) n, max(id) top from asked where st.x = 3 and id < 150").collect()
    assert [tuple(row) for row in found] == [(30, 148)]
    spark.catalog.dropTempView("asked")


def test_a_schema_of_the_users(spark: SparkSession, lake: Path) -> None:
    asked = spark.read.format("skipstone").schema("id bigint, nothing string").load(str(lake))
    assert asked.where("id = 7").collect() == [(7, None)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"wehre": "id = 1"}, "unknown option wehre"),
        ({"where": "nope = 1"}, "nope"),
        ({"where": "id ="}, r"skipstone\.errors\.\w+Error"),
        ({"columns": "id,nope"}, "nope"),
    ],
)
def test_what_is_refused(spark: SparkSession, lake: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException, match=words):
        load(spark, lake, **options)


def test_no_such_place(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="nowhere"):
        load(spark, tmp_path / "nowhere")
    with pytest.raises(PySparkException, match="path is missing"):
        spark.read.format("skipstone").load()


def test_a_file_that_changes_before_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"a": range(number * 9, number * 9 + 9)}), tmp_path / f"{number}.parquet")
    frame = load(spark, tmp_path)
    rows = frame.toArrow()
    assert rows.num_rows == 18
    # A frame that is used again is planned again: it may see new files, never half of one.
    pq.write_table(pa.table({"a": range(3)}), tmp_path / "1.parquet")
    assert load(spark, tmp_path).count() == 12
