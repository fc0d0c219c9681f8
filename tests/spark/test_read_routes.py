"""Which way is taken, what is said about it, and what is refused."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import skipstone as sk
from skipstone.errors import SchemaError, SkipstoneError, UsageError
from skipstone.scan import parts
from skipstone.spark import routes
from skipstone.spark.routes import SessionTraits, choose
from tests.spark._reads import CANT, FORCED, ROUTES, rows_of

pytestmark = pytest.mark.spark

NAN = float("nan")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for file in range(4):
        numbers = range(file * 1000, file * 1000 + 1000)
        table = pa.table({"id": numbers, "text": [f"text {n * 7919 % 4000}" for n in numbers]})
        pq.write_table(table, tmp_path / f"{file}.parquet", row_group_size=250)
    return tmp_path


def use(scan: sk.Scan, spark: SparkSession, route: str = "auto") -> dict[str, object]:
    found: dict[str, object] = json.loads(scan.explain(format="json", session=spark, route=route))["spark"]
    return found


def test_few_bytes_are_read_by_the_driver(spark: SparkSession, lake: Path) -> None:
    opened = sk.open(lake)
    found = use(opened.scan("id = 7"), spark)
    assert (found["route"], found["tasks"]) == ("driver", 0)
    assert "faster than starting a job" in str(found["why"])
    assert use(opened.scan("id < 0"), spark)["why"] == "nothing is left to read"


def test_many_bytes_go_by_what_is_kept(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_DRIVER_BYTES", 0)
    opened = sk.open(lake)
    few = use(opened.scan("id = 7"), spark)
    assert few["route"] == "slices"
    assert "in pages that may match" in str(few["why"])
    most = use(opened.scan("id >= 500"), spark)
    assert (most["route"], most["tasks"]) == ("reader", 4)
    assert "would be read anyway" in str(most["why"])
    # Opaque to Spark, so it can't test the rows.
    odd = use(opened.scan(sk.udf(lambda ids: pa.array([True] * len(ids)), ["id"])), spark)
    assert odd["route"] == "slices"
    assert CANT in str(odd["why"])


def test_explain_tells_it(spark: SparkSession, lake: Path) -> None:
    scan = sk.open(lake).scan("id = 7")
    text, page = scan.explain(session=spark), scan.explain(format="html", session=spark)
    for words in ("driver", "is faster than starting a job"):
        assert words in text
        assert words in page
    assert use(scan, spark, "slices")["why"] == "requested"
    assert json.loads(scan.explain(format="json")).get("spark") is None


def test_what_is_refused(spark: SparkSession, lake: Path) -> None:
    scan = sk.open(lake).scan("id = 7")
    with pytest.raises(UsageError, match=r"unknown route 'fast'"):
        scan.to_spark(spark, route="fast")
    for odd in ("id + 1 = 8", "length(text) = 6"):
        with pytest.raises(UsageError, match=CANT):
            sk.open(lake).scan(odd).to_spark(spark, route="reader")


@pytest.mark.parametrize("route", ROUTES)
def test_a_changed_file(spark: SparkSession, lake: Path, route: str) -> None:
    opened = sk.open(lake)
    scan = opened.scan("id < 2500")
    scan.plan()
    pq.write_table(pa.table({"id": range(3), "text": ["a"] * 3}), lake / "1.parquet")
    with pytest.raises((SkipstoneError, PySparkException), match="file has changed since"):
        scan.to_spark(spark, route=route).collect()


@pytest.mark.parametrize("route", ROUTES)
def test_a_deleted_file(spark: SparkSession, lake: Path, route: str) -> None:
    scan = sk.open(lake).scan("id < 2500")
    scan.plan()
    (lake / "1.parquet").unlink()
    with pytest.raises((SkipstoneError, PySparkException), match=r"1\.parquet"):
        scan.to_spark(spark, route=route).collect()


def test_a_file_that_changes_after_the_frame_is_made(spark: SparkSession, lake: Path) -> None:
    frame = sk.open(lake).scan("id < 2500").to_spark(spark, route="slices")
    pq.write_table(pa.table({"id": range(3), "text": ["a"] * 3}), lake / "1.parquet")
    with pytest.raises(PySparkException, match="file has changed since"):
        frame.collect()


def test_nan_survives_every_way(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"f": [1.0, NAN]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"f": [5.0, -0.0]}), tmp_path / "b.parquet")
    opened = sk.open(tmp_path)
    for text, count in (("f > 2", 2), ("f = 0", 1), ("not f < 2", 2)):
        for route in ROUTES[:3]:
            assert opened.scan(text).to_spark(spark, route=route).count() == count, (text, route)


REFUSED = {
    "ns": (pa.array([1], pa.timestamp("ns")), "nanoseconds"),
    "uuid": (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))), "UUIDs"),
    "half": (pa.array([1.0], pa.float16()), "half-precision floats"),
    "clock": (pa.array([1], pa.time64("us")), "times of day"),
    "wide": (pa.array([1], pa.decimal256(50, 2)), "decimals with more than 38 digits"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REFUSED)
def test_types_that_spark_has_not(spark: SparkSession, tmp_path: Path, name: str) -> None:
    array, words = REFUSED[name]
    inner = (
        pa.StructArray.from_arrays([array, pa.array([1])], names=["odd", "x"]) if name != "uuid" else array
    )
    table = pa.table({"a": [1], name: array, "st": inner})
    pq.write_table(table, tmp_path / "f.parquet")
    opened = sk.open(tmp_path)
    for route in ROUTES:
        with pytest.raises(SchemaError, match=f"column {name}: Spark does not support {words}"):
            opened.scan().to_spark(spark, route=route)
        assert rows_of(opened.scan("a = 1", columns=["a"]).to_spark(spark, route=route).toArrow()) == [(1,)]
        if name != "uuid":
            with pytest.raises(SchemaError, match=f"column st.odd: Spark does not support {words}"):
                opened.scan(columns=["st"]).to_spark(spark, route=route)
            beside = opened.scan("st.x = 1", columns=["st.x"]).to_spark(spark, route=route).toArrow()
            assert beside.to_pylist() == [{"st.x": 1}]
    # As part of a condition it is Skipstone's to read.
    scan = opened.scan(f"`{name}` is not null", columns=["a"])
    assert scan.to_spark(spark, route="slices").count() == 1
    with pytest.raises(UsageError, match=CANT):
        scan.to_spark(spark, route="reader")
    with pytest.raises(PySparkException, match=f"Spark does not support {words}"):
        spark.read.format("skipstone").load(str(tmp_path))
    assert spark.read.format("skipstone").option("columns", "a").load(str(tmp_path)).count() == 1


def test_intervals_and_what_only_spark_knows(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "lake")
    text = "select 1 a, interval 3 days d, interval 2 months m, parse_json('[1]') v, array(interval 1 day) l"
    spark.sql(text).write.parquet(path)
    native, opened = spark.read.parquet(path), sk.open(path)
    for where in ("a = 1", "a = 2"):
        for route in ROUTES[:3]:
            frame = opened.scan(where, columns=["a", "d", "l"]).to_spark(spark, route=route)
            assert frame.schema == native.select("a", "d", "l").schema
            assert frame.collect() == native.where(where or "true").select("a", "d", "l").collect()
    for name, words in (("m", "year-month intervals"), ("v", "variants")):
        with pytest.raises(SchemaError, match=f"column {name}: Arrow does not support {words}"):
            opened.scan(columns=[name]).to_spark(spark)


# -- size --------------------------------------------------------------------------------------


def test_payloads_are_small(spark: SparkSession, lake: Path) -> None:
    plan = sk.open(lake).scan("id between 5 and 3600").plan()
    (part,) = parts.split(plan, 1)
    assert len(part) == 4
    assert 4 * 50 < len(pickle.dumps(part)) < 4 * 1024
    assert len(pickle.dumps(parts.shared(plan))) < 8 * 1024


@pytest.mark.slow
def test_a_hundred_thousand_tasks(spark: SparkSession, lake: Path) -> None:
    plan = sk.open(lake).scan("id between 5 and 3600").plan()
    many = tuple(plan.tasks[n % len(plan.tasks)] for n in range(100_000))
    many = tuple(replace(task, path=f"{task.path}{n}") for n, task in enumerate(many))
    plan = replace(plan, tasks=many)
    tracemalloc.start()
    way = choose(plan, "slices", parallelism=8, traits=SessionTraits())
    assert 50 < len(way.parts) < 500
    assert [task.path for part in way.parts for task in part] == [task.path for task in many]
    sizes = [len(pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL)) for part in way.parts]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(sizes) < 400 * len(many)
    assert max(sizes) < 3 * sum(sizes) / len(sizes)
    assert peak < 64 * 1024 * 1024


def test_a_semi_join_takes_every_route_that_can_have_its_keys(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = sk.open(lake)
    texts = opened.scan(columns=["text"]).to_arrow()["text"].slice(0, 2_000)
    wanted = sorted(opened.scan(semi_join=("text", texts)).to_arrow()["id"].to_pylist())
    assert len(wanted) == 2_000
    for route in FORCED:
        frame = opened.scan(semi_join=("text", texts)).to_spark(spark, route=route)
        assert sorted(row.id for row in frame.select("id").collect()) == wanted
    # So many keys would be a condition of megabytes; tasks get them once, in a binary form.
    monkeypatch.setattr(routes, "_DRIVER_BYTES", 0)
    many = opened.scan(semi_join=("id", np.arange(1_000, 12_000)))
    found = use(many, spark)
    assert found["route"] == "slices"
    assert "11,000 values are too many for a condition in SQL" in str(found["why"])
    assert sorted(row.id for row in many.to_spark(spark).select("id").collect()) == [*range(1_000, 4_000)]
    assert many.count(engine=spark) == 3_000
    assert many.aggregate(sk.sum("id"), engine=spark).to_pylist() == [{"sum(id)": 7_498_500}]
    with pytest.raises(UsageError, match="too many"):
        many.to_spark(spark, route="reader")
