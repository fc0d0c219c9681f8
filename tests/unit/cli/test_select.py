"""Aggregates as they are written on the command line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from skipstone.aggregate.select import FORMS, read_functions, read_keys
from skipstone.errors import ParseError, UsageError


def read(text: str, **more: str) -> list[tuple[str, tuple[str, ...], Any]]:
    return [(one.function, one.columns, one.options) for one in read_functions(text, **more)]


def names(text: str, **more: str) -> list[str]:
    return [one.name for one in read_functions(text, **more)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("count(*)", ("count", (), None)),
        ("COUNT()", ("count", (), None)),
        ("count(x)", ("count", ("x",), None)),
        ("sum(s.x)", ("sum", ("s.x",), None)),
        ("min(`a, b`)", ("min", ("a, b",), None)),
        ("max(x)", ("max", ("x",), None)),
        ("mean(x)", ("avg", ("x",), None)),
        ("variance(x)", ("var", ("x",), 1)),
        ("var_pop(x)", ("var_pop", ("x",), 0)),
        ("std(x)", ("stddev", ("x",), 1)),
        ("stddev_pop(x)", ("stddev_pop", ("x",), 0)),
        ("approx_count_distinct(x)", ("approx_distinct", ("x",), None)),
        ("quantile(x, 0.5)", ("quantile", ("x",), ((0.5,), True))),
        ("percentile(x, array(0, 0.99, 1))", ("quantile", ("x",), ((0.0, 0.99, 1.0), False))),
        ("quantile(x, [0.5])", ("quantile", ("x",), ((0.5,), False))),
        ("median(x)", ("quantile", ("x",), ((0.5,), True))),
        ("approx_percentile(x, 0.5)", ("approx_quantile", ("x",), ((0.5,), True))),
        ("histogram(x, 10)", ("histogram", ("x",), 10)),
        ("histogram(x, array(-1.5, 2))", ("histogram", ("x",), (Decimal("-1.5"), 2))),
        (
            "histogram(d, array(date '2026-01-01', date '2026-02-01'))",
            ("histogram", ("d",), (dt.date(2026, 1, 1), dt.date(2026, 2, 1))),
        ),
        ("first(x, ts)", ("first", ("x", "ts"), None)),
        ("max_by(x, s.ts)", ("last", ("x", "s.ts"), None)),
    ],
)
def test_functions(text: str, found: tuple[Any, ...]) -> None:
    assert read(text) == [found]


def test_a_list_with_names() -> None:
    text = "count(*), sum(a) as total, avg(b) mean, max(c) AS `the most`, quantile(d, array(0.1, 0.2))"
    assert names(text) == ["count", "total", "mean", "the most", "quantile(d, [0.1, 0.2])"]


@pytest.mark.parametrize(
    ("text", "name", "columns"),
    [
        ("sum(x*y)", "sum(x*y)", ["(x * y)"]),
        ("avg( x  *\n(1 - y) )", "avg( x * (1 - y) )", ["(x * (1 - y))"]),
        ("min(upper(s)) as u, ", "u", ["upper(s)"]),
        ("sum(x * 2) /* a, b */", "SUM(x * 2) /* a, b */", ["(x * 2)"]),
        ("count(distinct x)", "count(distinct x)", ["x"]),
        ("COUNT(DISTINCT s.x, y)", "count(distinct s.x, y)", ["s.x", "y"]),
        ("count_if(x > 1)", "count_if(x > 1)", ["if(x > 1, 1, NULL)"]),
        ("count(*) filter (where x > 1)", "count(*) filter (where x > 1)", ["if(x > 1, 1, NULL)"]),
        ("sum(y) FILTER (WHERE x > 1) AS z", "z", ["if(x > 1, y, NULL)"]),
        ("first(x, ts) filter (where y) f", "f", ["if(y, x, NULL)", "if(y, ts, NULL)"]),
    ],
)
def test_expressions_are_named_as_written(text: str, name: str, columns: list[str]) -> None:
    (one,) = read_functions(text)
    assert (one.name, [str(column) for column in one.columns]) == (name, columns)


def test_keys() -> None:
    keys = read_keys("day, year(ts), s.x as y, substr(`a, b`, 1,  2) AS p,")
    assert {name: str(key) for name, key in keys.items()} == {
        "day": "day",
        "year(ts)": "year(ts)",
        "y": "s.x",
        "p": "substr(`a, b`, 1, 2)",
    }
    with pytest.raises(ParseError, match="two keys are named 'x'"):
        read_keys("x, y as x")


def test_dialects_and_zones() -> None:
    assert read('sum("a b")', dialect="duckdb") == [("sum", ("a b",), None)]
    text = "histogram(t, array(timestamp '2026-01-01', timestamp '2026-01-02'))"
    (edge, _) = read_functions(text, tz="Europe/Zurich")[0].options
    assert edge == dt.datetime(2025, 12, 31, 23, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no aggregate functions"),
        (",", "no aggregate functions"),
        ("x", "'x' is not a function"),
        ("1 + 1", "'1 + 1' is not a function"),
        ("foo(x)", "unknown function 'foo'"),
        ("sum()", "sum() got no arguments"),
        ("sum(x, y)", "sum() got 2 arguments"),
        ("first(x)", "first() got one argument"),
        ("sum(1 + 1)", "sum() needs a column, got 1 + 1"),
        ("sum(*)", "sum() needs a column, got *"),
        ("sum('x')", "sum() needs a column, got 'x'"),
        ("sum(distinct x)", "sum(distinct ...) is not supported"),
        ("count(distinct *)", "count() needs a column, got *"),
        ("quantile(x, 2)", "quantile() needs ranks from 0 to 1"),
        ("quantile(x, array())", "quantile() needs ranks from 0 to 1"),
        ("quantile(x, y)", "quantile() needs a value, got y"),
        ("sum(x) over ()", "OVER is not supported"),
        ("sum(x", ") is missing"),
        ("count(*)), sum(x)", "unexpected ')'"),
        ("sum('x", "can't be read"),
        ("sum(x) from t", "FROM is not allowed after the list of functions"),
        ("sum(x); select 1", "several statements"),
        ("as x", "'x' is not a function"),
    ],
)
def test_errors_name_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_functions(text)
    assert said in caught.value.message


def test_errors_list_what_there_is() -> None:
    with pytest.raises(ParseError) as caught:
        read_functions("foo(x)")
    assert caught.value.hint == f"available: {FORMS}"
    assert FORMS.startswith("count(*), sum(x), min(x)")
    with pytest.raises(ParseError, match="write histogram"):
        read_functions("histogram(x)")
    with pytest.raises(UsageError):
        read_functions("histogram(x, 'a')")
