"""Partitions, and schemas that have changed from file to file, as Spark's own reader merges them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import skipstone as sk
from tests.spark._questions import DAY, NULLS, REAL, TEXT, WHOLE, Kind, Questions
from tests.spark._reads import FORCED, ROUTES, SOURCES, World, world

pytestmark = pytest.mark.spark

PLACES = Kind(("'a b'", "'x=y'", "'50%'", "'it''s'", "'é/漢'", "'q?#&[1]{2}'", "'A'"), TEXT.conditions)
# As Spark writes them, the value and the name of its directory.
TEXTS = {
    "a b": "a b",
    "x=y": "x%3Dy",
    "50%": "50%25",
    "it's": "it%27s",
    "é/漢": "é%2F漢",
    "q?#&[1]{2}": "q%3F%23&%5B1%5D%7B2}",
    "A": "A",
    None: "__HIVE_DEFAULT_PARTITION__",
}


def put(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=10, write_page_index=True)


def rows(start: int, count: int = 20) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "rid": pa.array(numbers, pa.int64()),
            "v": pa.array([None if n % 7 == 0 else n % 5 for n in numbers], pa.int32()),
            "f": pa.array([float("nan") if n % 6 == 0 else n / 2 for n in numbers]),
        }
    )


def partitioned(root: Path) -> dict[str, Kind]:
    days = ["2020-01-01", "2020-01-03", "__HIVE_DEFAULT_PARTITION__"]
    for number, name in enumerate(TEXTS.values()):
        folder = root / f"day={days[number % 3]}" / f"p={number % 4}" / f"place={name}"
        put(folder / "rows of it.parquet", rows(100 * number))
    return {"rid": WHOLE, "v": WHOLE, "f": REAL, "day": DAY, "p": WHOLE, "place": PLACES}


def evolved(root: Path) -> dict[str, Kind]:
    """Columns missing, widened, in another order, and fields that are new in a struct."""
    inner = [{"x": n, "y": None} if n % 3 else None for n in range(20)]
    first = rows(0).append_column("st", pa.array(inner, pa.struct([("x", pa.int32()), ("y", pa.string())])))
    put(root / "1.parquet", first)
    second = rows(100).select(["f", "rid"])
    second = second.set_column(0, "f", second["f"].cast(pa.float32()))
    put(root / "2.parquet", second)
    wide = rows(200).set_column(1, "v", pa.array([2**40 + n for n in range(20)], pa.int64()))
    inner = [{"y": "ab", "z": n / 4} if n % 4 else None for n in range(20)]
    wide = wide.append_column("st", pa.array(inner, pa.struct([("y", pa.string()), ("z", pa.float64())])))
    put(root / "3.parquet", wide.append_column("new", pa.array([dt.date(2020, 1, 1 + n) for n in range(20)])))
    put(root / "4.parquet", first.slice(0, 0))
    return {
        "rid": WHOLE,
        "v": WHOLE,
        "f": REAL,
        "st.x": WHOLE,
        "st.y": TEXT,
        "st.z": REAL,
        "st": NULLS,
        "new": DAY,
    }


LAKES = {"partitioned": partitioned, "evolved": evolved}
# Spark merges no types that differ, but reads all of them as the widest.
WIDEST = "rid bigint, v bigint, f double, st struct<x: int, y: string, z: double>, new date"
SETTINGS = {"partitioned": {"mergeSchema": "true"}, "evolved": {"schema": WIDEST}}


def asked(spark: SparkSession, root: Path, name: str, count: int) -> tuple[World, list[str]]:
    texts = Questions(f"{name} {count}", LAKES[name](root)).some(count)
    return world(spark, root, texts, **SETTINGS[name]), texts


@pytest.mark.parametrize("name", ["evolved", pytest.param("partitioned", marks=pytest.mark.slow)])
def test_some_questions(spark: SparkSession, tmp_path: Path, name: str) -> None:
    made, texts = asked(spark, tmp_path, name, 5)
    made.check([None, *texts], FORCED)
    made.check(texts[:1], FORCED, ["f", "v"])
    made.check(texts[4:], SOURCES)
    assert made.taken["reader"] >= 4


@pytest.mark.parametrize("columns", [["f", "v"], ["day", "v"], ["v", "place", "rid"]])
def test_columns_are_those_requested(spark: SparkSession, tmp_path: Path, columns: list[str]) -> None:
    partitioned(tmp_path)
    scan = sk.open(tmp_path).scan("v = 3 or f < 10", columns=columns)
    frames = [scan.to_spark(spark, route=route) for route in FORCED]
    assert [frame.columns for frame in frames] == [columns] * 3
    expected = sorted(map(str, frames[0].collect()))
    assert len(expected) > 20
    assert [sorted(map(str, frame.collect())) for frame in frames[1:]] == [expected] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", LAKES)
def test_many_questions(spark: SparkSession, tmp_path: Path, name: str) -> None:
    made, texts = asked(spark, tmp_path, name, 100)
    made.check(texts, ROUTES)
    for start in range(0, 60, 12):
        made.check(texts[start : start + 12], ROUTES, made.oracle.names[start % 5 :])
    made.check(texts[:24], SOURCES)


def test_columns_that_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    inner = pa.array([{"x": n} for n in range(20)])
    put(tmp_path / "1.parquet", rows(0).append_column("st", inner))
    put(tmp_path / "2.parquet", rows(100).select(["f", "rid"]))
    inner = pa.array([{"y": "ab", "x": n} for n in range(20)])
    put(
        tmp_path / "3.parquet",
        rows(200).append_column("new", pa.array(["a"] * 20)).append_column("st", inner),
    )
    texts = [
        "v = 3",
        "new is null",
        "st.y = 'ab' or rid < 5",
        "st.x = 4",
        "st is null",
        "v is null and f > 2",
    ]
    made = world(spark, tmp_path, texts, mergeSchema="true")
    made.check([None, *texts], FORCED)
    made.check(texts[:1], SOURCES[:1])


def test_a_partition_that_is_in_the_files_too(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "p=1" / "a.parquet", rows(0).append_column("p", pa.array([7] * 20, pa.int32())))
    put(tmp_path / "p=2" / "a.parquet", rows(100).append_column("p", pa.array([7] * 20, pa.int32())))
    texts = ["p = 1", "p = 7", "p > 1 and v = 3"]
    made = world(spark, tmp_path, texts)
    made.check([None, *texts], ROUTES)


def test_all_partitions_null(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "p=__HIVE_DEFAULT_PARTITION__" / "a.parquet", rows(0))
    texts = ["p is null", "v = 3", "p is not null"]
    world(spark, tmp_path, texts).check([None, *texts], ROUTES)
