"""Predicates handed to Spark keep the rows that Spark's own SQL keeps, NaN and all."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skipstone.errors import NotExpressibleError, PredicateError
from skipstone.predicate import tree
from skipstone.predicate.spark import from_spark, to_spark
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.sql.write import to_sql
from skipstone.predicate.tree import Like, Match, col

pytestmark = pytest.mark.spark

TABLE = pa.table(
    {
        "row": range(9),
        "i": pa.array([None, -1, 0, 1, 2, 7, 2**31 - 1, -(2**31), 100], pa.int32()),
        "f": pa.array([None, math.nan, -0.0, 0.0, 0.1, math.inf, -math.inf, 2.5, -2.5]),
        "g": pa.array([math.nan, None, -0.0, 0.5, 0.1, math.inf, 16777216.0, 2.5, -2.5], pa.float32()),
        "s": pa.array([None, "", "a%b", "a_b", "a\\b", "it's", "aXb", "A%B", "b\na"]),
        "b": pa.array([None, True, False, None, True, False, True, False, None]),
        "d": pa.array([None, *(dt.date(2020, 1, n) for n in range(1, 9))]),
        "t": pa.array([None, *(dt.datetime(2020, 1, 1, n) for n in range(8))], pa.timestamp("us", "UTC")),
        "n": pa.array([None, *(Decimal(n) / 4 for n in range(8))], pa.decimal128(9, 2)),
        "x.y": pa.array([None, *range(8)], pa.int32()),
        "st": pa.array([None, *({"v": n} for n in range(8))], pa.struct([("v", pa.int32())])),
    }
)

# Spark reads our text and its own SQL parser reads the question: the rows must be the same.
QUESTIONS = [
    "i = 1",
    "i = 0 or i > 100",
    "i <> 1",
    "i <=> null",
    "not (i <=> 1)",
    "i in (1, 2, null)",
    "i not in (1, 2)",
    "i between 0 and 2",
    "f > 2",
    "f <> 0",
    "f = 0",
    "f <=> -0.0D",
    "f <= -0.0D",
    "f in (0, 2.5)",
    "f not in (0, 2.5)",
    "f between 0 and 0.1",
    "not (f = 0)",
    "not f < 2",
    "not isnan(f)",
    "isnan(f) or f is null",
    "f = cast('NaN' as double)",
    "f in (0.1, cast('NaN' as double))",
    "f not in (0.1, 2.5)",
    "not (f between 0 and 2.5)",
    "g = 0.1",
    "g = 0.1F",
    "g >= 0.1D",
    "s like 'a%b'",
    r"s like 'a\\%b'",
    r"s like 'a\\_b'",
    r"s like 'a\\\\b'",
    "s ilike 'a!%B' escape '!'",
    "s not like 'a%'",
    "startswith(s, 'a%') or endswith(s, '\\'s') or contains(s, '\\n')",
    r"s = 'a\\b' or s = 'it''s' or s = 'b\na'",
    "b",
    "not b",
    "b is not true",
    "(i > 1 and b) is unknown",
    "d >= DATE '2020-01-03'",
    "t >= TIMESTAMP '2020-01-01 03:00:00'",
    "t < TIMESTAMP '2020-01-01 03:00:00+01:00'",
    "cast(t as date) = DATE '2020-01-01'",
    "hour(t) > 3 and year(d) = 2020",
    "date_trunc('hour', t) = TIMESTAMP '2020-01-01 03:00:00'",
    "n > 0.333",
    "n = 1.50 or n = 1",
    "`x.y` > 3",
    "st.v > 3",
    "i / 2 + 1 > 2 and i % 2 = 1 and -f < 0",
    "case when b then i else 7 end = 7",
    "substr(s, 1, 1) = 'a' and length(s) = 3",
    "try_cast(s as int) is null",
    "cast(f as float) > 1",
]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    # NaN shares a row group with a number: the bounds leave it out, and a reader that trusts them drops it.
    path = tmp_path_factory.mktemp("lake") / "rows.parquet"
    pq.write_table(TABLE, path, row_group_size=3)
    return spark.read.parquet(str(path))


@pytest.fixture(scope="module")
def local(spark: SparkSession, lake: DataFrame) -> DataFrame:
    """The same rows in memory, where nothing prunes them (cache() would, and loses NaN too)."""
    return spark.createDataFrame(lake.collect(), lake.schema)


def rows(frame: DataFrame) -> list[int]:
    return sorted(row["row"] for row in frame.select("row").collect())


@pytest.fixture(scope="module")
def kept(local: DataFrame) -> dict[str, list[list[int]]]:
    """The rows that each question keeps as Spark reads it, as our text of it, and as our column."""
    nodes = [parse_sql(question) for question in QUESTIONS]
    asked = [*map(F.expr, QUESTIONS), *(F.expr(to_sql(node)) for node in nodes), *map(to_spark, nodes)]
    table = local.select("row", *(one.alias(f"?{n}") for n, one in enumerate(asked))).toArrow()
    found = [table.filter(table[f"?{n}"])["row"].to_pylist() for n in range(len(asked))]
    return {question: found[n :: len(QUESTIONS)] for n, question in enumerate(QUESTIONS)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "question",
    [pytest.param(one, marks=[pytest.mark.slow] if n % 3 else []) for n, one in enumerate(QUESTIONS)],
)
def test_spark_keeps_the_same_rows(kept: dict[str, list[list[int]]], lake: DataFrame, question: str) -> None:
    expected, text, column = map(sorted, kept[question])
    assert text == expected
    assert column == expected
    assert rows(lake.where(to_spark(parse_sql(question)))) == expected


def test_the_reader_does_lose_nan_and_negative_zero(lake: DataFrame) -> None:
    # If this fails, Spark has been mended and to_spark may say less.
    assert rows(lake.where("f > 3")) == [5]
    assert rows(lake.where(to_spark(parse_sql("f > 3")))) == [1, 5]
    assert rows(lake.where("f = 0")) == [3]
    assert rows(lake.where(to_spark(parse_sql("f = 0")))) == [2, 3]


def test_nodes_no_text_makes(lake: DataFrame) -> None:
    assert rows(lake.where(to_spark(tree.IsNan(col("f"))))) == [1]
    assert rows(lake.where(to_spark(~tree.IsNan(col("f"))))) == [2, 3, 4, 5, 6, 7, 8]
    assert rows(lake.where(to_spark(Like(col("s"), "a\\b", None)))) == [4]
    assert rows(lake.where(to_spark(Match("contains", col("s"), "\\")))) == [4]
    assert rows(lake.where(to_spark(col("i").between(0, 2, "neither")))) == [3]
    assert rows(lake.where(to_spark(col("i").isin([])))) == []
    assert rows(lake.where(to_spark(tree.Constant(None)))) == []


def test_literals_do_not_depend_on_the_session_zone(spark: SparkSession, lake: DataFrame) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert rows(lake.where(to_spark(parse_sql("t >= TIMESTAMP '2020-01-01 05:00:00'")))) == [6, 7, 8]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_long_list(lake: DataFrame) -> None:
    assert rows(lake.where(to_spark(col("i").isin(pa.array(range(1, 20_000)))))) == [3, 4, 5, 8]


def test_opaque_is_not_expressible() -> None:
    with pytest.raises(NotExpressibleError, match="my_udf"):
        to_spark(tree.Opaque((col("i"),), None, "my_udf(i)"))


def test_a_column_is_no_predicate(lake: DataFrame) -> None:
    with pytest.raises(PredicateError, match="SQL"):
        from_spark(lake.i == 1)
    with pytest.raises(PredicateError, match="SQL"):
        from_spark([lake.i == 1])
