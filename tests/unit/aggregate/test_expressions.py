"""Aggregates of expressions, groups by expressions and exact distinct counts, compared with DuckDB."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import (
    NotExpressibleError,
    ParseError,
    PredicateError,
    SkipstoneError,
    TypeMismatchError,
    UnknownColumnError,
    UsageError,
)

ROWS, GROUP = 8_000, 500
START = int(dt.datetime(2024, 12, 1, tzinfo=dt.UTC).timestamp())


def line_items() -> pa.Table:
    """Line items in order of time: a row group spans about four days."""
    rng = np.random.default_rng(18)
    cents = lambda low, high: [Decimal(int(x)) / 100 for x in rng.integers(low, high, ROWS)]  # noqa: E731
    seconds = START + np.sort(rng.integers(0, 60 * 86_400, ROWS))
    return pa.table(
        {
            "id": np.arange(ROWS),
            "ts": pa.array(seconds * 1_000_000, pa.timestamp("us")),
            "flag": pa.array(rng.choice(["A", "N", "R"], ROWS)),
            "status": pa.array(rng.choice(["open", "Paid", None], ROWS)),
            "quantity": pa.array(rng.integers(1, 51, ROWS), pa.int32()),
            "price": pa.array(cents(100, 10_000_000), pa.decimal128(15, 2)),
            "discount": pa.array(cents(0, 11), pa.decimal128(15, 2)),
            "tax": pa.array(cents(0, 9), pa.decimal128(15, 2)),
            "weight": pa.array(rng.normal(0, 10, ROWS).round(2), mask=rng.random(ROWS) < 0.1),
            "region": pa.array(np.repeat(["north", "south"], ROWS // 2)),
            "geo": pa.array([{"city": name} for name in rng.choice(["Bern", "Basel"], ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def items() -> pa.Table:
    return line_items()


@pytest.fixture(scope="module")
def lake(items: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    folder = tmp_path_factory.mktemp("expressions") / "items"
    folder.mkdir()
    for number in range(2):
        part = items.slice(number * ROWS // 2, ROWS // 2)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=GROUP, write_page_index=True)
    opened = sk.open(folder)
    opened.index.build(sums=["price"], engine="local")
    return opened


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dt.datetime):
        return value.isoformat()[:19]
    return value.normalize() + 0 if isinstance(value, Decimal) else value


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(map(comparable, row.values())) for row in table.to_pylist()]


def ask_duckdb(
    items: pa.Table, select: str, keys: tuple[str, ...], where: str | None
) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.register("items", items)
    text = f"select {', '.join([*keys, select])} from items where {where or 'true'}"
    if keys:
        text += f" group by {', '.join(keys)} order by {', '.join(f'{key} nulls first' for key in keys)}"
    return [tuple(map(comparable, row)) for row in connection.execute(text).fetchall()]


Q1 = (
    "sum(quantity), sum(price) AS base, sum(price * (1 - discount)) AS net, "
    "sum(price * (1 - discount) * (1 + tax)) AS charge, count(*)"
)
QUESTIONS = [
    (Q1, ("flag", "status"), "ts <= timestamp '2025-01-20 00:00:00'"),
    ("sum(price * discount) AS revenue", (), "discount between 0.05 and 0.07 and quantity < 24"),
    ("count(distinct flag), count(distinct status), count(distinct weight), count(distinct id)", (), None),
    ("count(distinct status)", ("flag", "region"), "id % 3 = 1"),
    ("count(*), max(ts), min(price)", ("year(ts)",), None),
    ("count(*), sum(price), count(distinct flag)", ("cast(ts as date)",), "id > 1234"),
    ("sum(weight), avg(quantity)", ("date_trunc('month', ts)",), None),
    ("count(*)", ("substr(status, 1, 1)", "id % 4"), None),
    ("min(upper(status)), max(length(status)), max(year(ts)), min(cast(ts as date))", (), None),
    ("count(*) filter (where quantity > 40), sum(price) filter (where flag = 'A')", ("region",), None),
    ("sum(case when status = 'open' then 1 else 0 end), count(nullif(flag, 'A'))", ("quantity % 5",), None),
    ("sum(quantity * quantity), avg(weight * 2), stddev(quantity + 1), median(quantity - 1)", (), None),
    ("count(distinct geo.city), min(upper(geo['city']))", ("lower(region)",), None),
    ("count_if(1 = 1), count(*) filter (where NULL), count(*) filter (where false)", ("region",), "id > 9"),
    ("count_if(ts < now()), min(ts + interval 1 day)", ("geo['city']",), None),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(("select", "keys", "where"), QUESTIONS)
def test_as_duckdb(
    lake: sk.Lake, items: pa.Table, select: str, keys: tuple[str, ...], where: str | None, cached: bool
) -> None:
    answer = lake.scan(where).aggregate(select, group_by=keys, use_cached=cached)
    assert rows_of(answer.to_arrow()) == ask_duckdb(items, select, keys, where)
    assert answer.to_arrow().column_names[: len(keys)] == list(keys)


# -- where answers come from -------------------------------------------------------------------


def reads(answer: Any) -> dict[str, int]:
    return {use.column: use.read for use in answer.trace.columns}


def test_row_groups_within_one_year_are_not_read(lake: sk.Lake) -> None:
    answer = lake.scan().aggregate(sk.count(), sk.sum("price"), group_by="year(ts)")
    # The turn of the year is within one row group.
    assert reads(answer) == {"": GROUP, "price": GROUP}
    assert "rows belong to several groups in 1 row group" in answer.explain()
    assert answer["year(ts)"] == [2024, 2025]


def test_monotone_functions_of_bounds(lake: sk.Lake, items: pa.Table) -> None:
    answer = lake.scan().aggregate(
        "min(cast(ts as date)), max(year(ts)), count(id + 1), max(id + 1), count(distinct upper(region))"
    )
    assert set(reads(answer).values()) == {0}
    assert [*answer.to_pylist()[0].values()] == [dt.date(2024, 12, 1), 2025, ROWS, ROWS, 2]


def test_constant_columns_give_constant_expressions(lake: sk.Lake) -> None:
    answer = lake.scan().aggregate("sum(length(region)), count(*)", group_by=["upper(region) AS r"])
    assert answer.to_pylist() == [
        {"r": region, "sum(length(region))": ROWS // 2 * 5, "count": ROWS // 2}
        for region in ("NORTH", "SOUTH")
    ]
    assert set(reads(answer).values()) == {0}


def test_conditions_that_bounds_decide_are_not_read(lake: sk.Lake, items: pa.Table) -> None:
    answer = lake.scan().aggregate(
        "count(*) filter (where id < 4000) AS a, sum(price) filter (where id < 4200) AS b",
        "sum(case when ts < '2025-01-01' then 0 when ts >= '2025-01-01' then 1 end) AS c",
        "count(distinct if(id < 4000, region, 'other')) AS d",
    )
    # Only the row group in which a condition changes.
    assert sorted(reads(answer).values()) == [0, 0, GROUP, GROUP]
    late = sum(ts >= dt.datetime(2025, 1, 1) for ts in items["ts"].to_pylist())
    total = sum(items["price"].to_pylist()[:4200])
    assert answer.to_pylist() == [{"a": 4000, "b": total, "c": late, "d": 2}]


def test_explain_says_why_an_expression_is_read(lake: sk.Lake) -> None:
    answer = lake.scan().aggregate("sum(price * 2), min(upper(status))", group_by="id % 3")
    text = answer.explain()
    assert "% is not monotone here, so bounds don't tell the groups of id % 3" in text
    text = lake.scan().aggregate("sum(price * 2), min(upper(status))").explain()
    assert "metadata has no sums of price * 2 in 16 row groups" in text
    assert "metadata has no exact counts and bounds of upper(status) in 16 row groups" in text


# -- types -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("sum(quantity * 2)", pa.decimal128(38, 0)),
        ("sum(price * 2)", pa.decimal128(27, 2)),
        ("sum(price * (1 - discount))", pa.decimal128(38, 4)),
        ("sum(price * (1 - discount) * (1 + tax))", pa.decimal128(38, 6)),
        ("avg(price * (1 - discount))", pa.decimal128(36, 8)),
        ("sum(quantity / 2)", pa.float64()),
        ("sum(weight * quantity)", pa.float64()),
        ("min(upper(status))", pa.string()),
        ("max(cast(ts as date))", pa.date32()),
        ("count(distinct price)", pa.int64()),
    ],
)
def test_types_are_those_of_spark(lake: sk.Lake, text: str, type: pa.DataType) -> None:
    assert lake.scan("id < 0").aggregate(text).to_arrow().schema.types == [type]
    assert lake.scan("id < 9").aggregate(text).to_arrow().schema.types == [type]


# -- distinct values -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    """Values whose equality is not obvious, two rows to a row group."""
    nan, folder = math.nan, tmp_path_factory.mktemp("odd") / "lake"
    folder.mkdir()
    table = pa.table(
        {
            "f": pa.array([0.0, -0.0, nan, None, nan, math.inf, None, None]),
            "s": pa.array(["a", "a", "b", None, "é", "é", None, "a"]).dictionary_encode(),
            "n": pa.nulls(8),
            "l": pa.array([[1]] * 8),
            "k": pa.array([1, 1, 1, 1, None, None, 2, 2], pa.int8()),
        }
    )
    pq.write_table(table, folder / "a.parquet", row_group_size=2)
    return sk.open(folder)


def test_distinct_values_of_spark(odd: sk.Lake) -> None:
    answer = odd.scan().aggregate(
        sk.count_distinct("f"), sk.count_distinct("s"), sk.count_distinct("n"), sk.count_distinct("f", "s")
    )
    assert [*answer.to_pylist()[0].values()] == [3, 3, 0, 4]
    grouped = odd.scan().aggregate("count(distinct f), count(distinct f, s) AS both", group_by="k")
    assert [[*row.values()] for row in grouped.to_pylist()] == [[None, 2, 2], [1, 2, 2], [2, 0, 0]]
    assert odd.scan("k > 5").aggregate("count(distinct s)")["count(distinct s)"] == 0


def test_one_value_in_a_row_group_is_taken_from_its_bounds(odd: sk.Lake) -> None:
    answer = odd.scan().aggregate(sk.count_distinct("k"))
    assert (answer["count(distinct k)"], reads(answer)) == (2, {"k": 0})


def test_too_many_distinct_values_are_an_error(lake: sk.Lake) -> None:
    few = lake.scan().aggregate(sk.count_distinct("flag", memory=1_000))
    assert few["count(distinct flag)"] == 3
    with pytest.raises(SkipstoneError, match=r"more distinct values than fit in 1\.0 kB"):
        lake.scan().aggregate(sk.count_distinct("id", memory=1_000)).to_arrow()


# -- how it is written ---------------------------------------------------------------------------


def test_python_and_sql_agree(lake: sk.Lake) -> None:
    scan, col = lake.scan("id < 1000"), sk.col
    python = scan.aggregate(
        sk.sum("price * quantity").alias("x"), sk.count(), group_by={"y": "year(ts)", "flag": "flag"}
    )
    exprs = scan.aggregate(
        sk.sum(col("price") * col("quantity")).alias("x"), "count(*)", group_by=["year(ts) as y", col("flag")]
    )
    sql = scan.aggregate("sum(price * quantity) AS x, count(*)", group_by=["year(ts) AS y", "flag"])
    assert python.to_pylist() == exprs.to_pylist() == sql.to_pylist()
    assert sk.sum(col("price") * col("quantity")).name == "sum(price * quantity)"
    assert repr(sql).split()[:4] == ["y", "flag", "x", "count"]
    engine = scan.aggregate(
        "sum(price * quantity) AS x, count(*)", group_by={"y": "year(ts)", "flag": "flag"}, engine="local"
    )
    assert engine.to_pylist() == sql.to_pylist()


def test_a_column_named_like_an_expression_wins(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "a * 2": [7, 7], "a as b": [0, 1]}), tmp_path / "a.parquet")
    scan = sk.open(tmp_path).scan()
    assert scan.aggregate(sk.sum("a * 2"), sk.sum("a*2"), sk.sum(sk.col("a") * 2).alias("x")).to_pylist() == [
        {"sum(a * 2)": 14, "sum(a*2)": 6, "x": 6}
    ]
    assert scan.aggregate(sk.count(), group_by="a * 2").to_pylist() == [{"a * 2": 7, "count": 2}]


@pytest.mark.parametrize("group_size", [1, 4])
def test_expressions_see_old_timestamps_as_instants(tmp_path: Path, group_size: int) -> None:
    hours = [dt.datetime(2026, 1, 1, hour) for hour in (1, 13, 20, 23)]
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"ts": hours}), path, use_deprecated_int96_timestamps=True, row_group_size=group_size
    )
    day = sk.col("ts").cast(pa.date32(), zone="Asia/Tokyo")
    answer = sk.open(tmp_path).scan().aggregate(sk.count(), sk.max("ts"), group_by={"day": day})
    assert answer.to_pylist() == [
        {"day": dt.date(2026, 1, 1), "count": 2, "max(ts)": hours[1]},
        {"day": dt.date(2026, 1, 2), "count": 2, "max(ts)": hours[3]},
    ]


@pytest.mark.parametrize(
    ("aggregates", "group_by", "error", "message"),
    [
        ([sk.sum("nope * 2")], None, UnknownColumnError, "column nope: unknown column"),
        ([sk.sum("nope")], None, UnknownColumnError, "column nope: unknown column"),
        ([sk.sum("price *")], None, ParseError, "operand is missing"),
        (
            [sk.sum("upper(flag)")],
            None,
            TypeMismatchError,
            "upper.flag.: values of type string can't be summed",
        ),
        ([sk.sum("nofunc(id)")], None, NotExpressibleError, "nofunc.id. can't be evaluated"),
        ([sk.sum("1 + 1")], None, UsageError, "expression 1 . 1 has no column"),
        ([sk.count_distinct("geo")], None, TypeMismatchError, "can't be counted"),
        (["count(*)"], "year(ts), year(ts)", ParseError, "two keys are named"),
        (["count(*)"], [1], UsageError, "is not a list of names"),
        (["count(*)"], 1, UsageError, "is not a list of names"),
        (
            ["count(*)"],
            "count(*)",
            ParseError,
            "the aggregate count is not allowed in an expression of columns",
        ),
        (["sum(sum(id))"], None, ParseError, "the aggregate sum is not allowed in an expression of columns"),
        (["max(id) - min(id)"], None, ParseError, "is not a function .ask for each function"),
        (["select count(*)"], None, ParseError, "SELECT is not allowed before the list of functions"),
        (["count(*)", "sum(price) as flag"], "flag", UsageError, "two result columns"),
        (["sum(price) over ()"], None, ParseError, "OVER is not supported"),
    ],
)
def test_mistakes_are_named(
    lake: sk.Lake, aggregates: list[Any], group_by: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lake.scan().aggregate(*aggregates, group_by=group_by)


def test_errors_of_rows_name_the_expression(lake: sk.Lake) -> None:
    with pytest.raises(PredicateError, match="division by zero"):
        lake.scan().aggregate("sum(id / (id - 5))").to_arrow()
    assert lake.scan("id > 5").aggregate("count(id / (id - 5)) AS n")["n"] == ROWS - 6
    with pytest.raises(PredicateError, match="overflow"):
        lake.scan().aggregate("sum(id * 9223372036854775807)").to_arrow()
