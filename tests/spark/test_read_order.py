"""Order, limit, and answers without rows or without columns."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession, functions

import skipstone as sk
from skipstone.engine.spark_types import spark_schema
from skipstone.errors import UsageError
from tests.spark._reads import FORCED, SOURCES, canon, rows_of, types_of, world

pytestmark = pytest.mark.spark

NAN = float("nan")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("order")
    for file in range(3):
        numbers = range(file * 100, file * 100 + 60)
        table = pa.table(
            {
                "rid": numbers,
                "k": pa.array([None if n % 11 == 0 else n * 7919 % 23 for n in numbers], pa.int32()),
                "f": [
                    None if n % 13 == 0 else NAN if n % 7 == 0 else -0.0 if n % 5 == 0 else n / 3
                    for n in numbers
                ],
                "s": [None if n % 17 == 0 else ("Z" if n % 2 else "a") + "é" * (n % 4) for n in numbers],
                "st": [None if n % 9 == 0 else {"x": n % 10, "y": str(n)} for n in numbers],
                "ns": pa.array([n % 30 for n in numbers], pa.timestamp("ns")),
            }
        )
        pq.write_table(table, root / f"{file}.parquet", row_group_size=20)
    pq.write_table(table.slice(0, 0), root / "none.parquet")
    return root


COLUMNS = ["rid", "k", "f", "s", "st"]
ORDERS = (
    ["k"],
    ["k desc", "rid"],
    ["f", "rid desc"],
    ["f desc nulls last"],
    ["s", "k nulls last"],
    ["st.x", "rid"],
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("route", ["driver", "slices", "reader"])
def test_order(spark: SparkSession, lake: Path, route: str) -> None:
    opened = sk.open(lake)
    whole_lake = spark.createDataFrame(
        [], spark_schema(opened.scan(columns=COLUMNS).schema, opened.query_schema)
    )
    shapes = itertools.cycle(itertools.product((None, 7), (COLUMNS, ["rid", "st.y"])))
    for order in ORDERS:
        for limit, columns in itertools.islice(shapes, 1):
            scan = opened.scan("k > 3 or k is null", columns=columns, order_by=order, limit=limit)
            expected, found = scan.to_arrow(), scan.to_spark(spark, route=route)
            table = found.toArrow()
            stored = whole_lake.select(*[functions.col(name).alias(name) for name in columns]).schema
            assert types_of(found.schema) == types_of(stored)
            # Ties are nobody's business: the keys must come in order, and be the same ones.
            whole = opened.scan("k > 3 or k is null", columns=COLUMNS).to_arrow()
            by_rid = dict(zip(whole["rid"].to_pylist(), whole.to_pylist(), strict=True))
            keys = [[_key(by_rid[rid], order) for rid in t["rid"].to_pylist()] for t in (table, expected)]
            assert keys[0] == keys[1], (order, limit, columns)
            wanted = {rid: canon(by_rid[rid]["st"] and by_rid[rid]["st"]["y"]) for rid in by_rid}
            if "st.y" in columns:
                got = {r["rid"]: canon(r["st.y"]) for r in table.to_pylist()}
                assert all(wanted[rid] == y for rid, y in got.items())
                assert len(got) == table.num_rows


def _key(row: dict[str, object], order: list[str]) -> object:
    found = []
    for term in order:
        value: object = row
        for part in term.split(" ")[0].split("."):
            value = value[part] if isinstance(value, dict) else None
        found.append(canon(0.0 if value == 0 else value))
    return found


def test_limit(spark: SparkSession, lake: Path) -> None:
    opened = sk.open(lake)
    whole = set(rows_of(opened.scan("k > 3", columns=COLUMNS).to_arrow()))
    for limit in (0, 50, 10_000):
        for route in FORCED:
            scan = opened.scan("k > 3", columns=COLUMNS, limit=limit)
            found = rows_of(scan.to_spark(spark, route=route).toArrow())
            assert len(found) == len(set(found)) == min(limit, len(whole))
            assert set(found) <= whole


def test_an_order_by_what_spark_has_no_type_for(spark: SparkSession, lake: Path) -> None:
    scan = sk.open(lake).scan("k = 5", columns=["rid"], order_by=["ns desc", "rid"])
    for route in ("driver", "auto"):
        assert scan.to_spark(spark, route=route).toArrow() == scan.to_arrow()
    for route in ("slices", "reader"):
        with pytest.raises(UsageError, match="sort the rows: column ns: Spark does not support nanoseconds"):
            scan.to_spark(spark, route=route)


def test_nothing(spark: SparkSession, lake: Path) -> None:
    opened = sk.open(lake)
    for text in ("k = 999", "k = 5 and rid < 0", "false"):
        schemas = []
        for route in FORCED:
            frame = opened.scan(text, columns=COLUMNS).to_spark(spark, route=route)
            assert frame.toArrow().num_rows == 0
            schemas.append(types_of(frame.schema))
        assert schemas == [types_of(opened.scan(columns=COLUMNS).to_spark(spark).schema)] * len(FORCED)


def test_no_columns(spark: SparkSession, lake: Path) -> None:
    opened = sk.open(lake)
    for more in ({}, {"order_by": ["k"]}, {"limit": 5}):
        for route in FORCED:
            frame = opened.scan("k > 3", columns=[], **more).to_spark(spark, route=route)
            assert frame.columns == []
            assert frame.count() == opened.scan("k > 3", **more).count()


def test_an_empty_file_and_only_empty_files(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"a": pa.array([], pa.int32()), "s": pa.array([], pa.string())}), tmp_path / "f.parquet"
    )
    made = world(spark, tmp_path, ["a = 1"])
    made.check([None, "a = 1"], FORCED)
    made.check(["a = 1"], SOURCES[-1:])


def test_counting_on_spark(spark: SparkSession, lake: Path) -> None:
    opened = sk.open(lake)
    for text in (None, "k > 3", "f > 2", "k = 999", "st.x = 4", "rid % 3 = 1"):
        assert opened.scan(text).count(engine=spark) == opened.scan(text).count()
    assert opened.scan("k > 3", limit=4).count(engine=spark) == 4
