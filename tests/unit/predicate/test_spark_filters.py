"""Filters that Spark pushes into a Python data source; no Java needed to read them."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import datasource as ds
from pyspark.sql.types import VariantVal

from skipstone.errors import PredicateError
from skipstone.predicate import tree
from skipstone.predicate.spark import _guard, from_spark
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Compare, IsIn, IsNull, Match, Not, col, lit

a, b = col("a"), col("b")

FILTERS = [
    (ds.EqualTo(("a",), 1), a == 1),
    (ds.EqualTo(("a", "b", "c.d"), "x"), col("a", "b", "c.d") == "x"),
    (ds.EqualTo(("a",), True), a == True),  # noqa: E712
    (ds.EqualNullSafe(("a",), None), Compare("<=>", a, lit(None))),
    (ds.GreaterThan(("a",), 1.5), a > 1.5),
    (ds.GreaterThanOrEqual(("a",), Decimal("1.50")), a >= Decimal("1.50")),
    (ds.LessThan(("a",), dt.date(2020, 1, 1)), a < dt.date(2020, 1, 1)),
    (
        ds.LessThanOrEqual(("a",), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        a <= dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    ),
    (ds.EqualTo(("a",), dt.datetime(2020, 1, 1)), a == dt.datetime(2020, 1, 1)),
    (ds.EqualTo(("a",), b"x"), a == b"x"),
    (ds.EqualTo(("a",), math.nan), a == math.nan),
    (ds.In(("a",), (1, None, 3)), IsIn(a, pa.array([1, None, 3]))),
    (ds.IsNull(("a",)), IsNull(a)),
    (ds.IsNotNull(("a",)), Not(IsNull(a))),
    (ds.Not(ds.EqualTo(("a",), 1)), Not(a == 1)),
    (ds.Not(ds.In(("a",), (1,))), Not(IsIn(a, pa.array([1])))),
    (ds.StringStartsWith(("a",), "5%"), Match("prefix", a, "5%")),
    (ds.StringEndsWith(("a",), "x"), Match("suffix", a, "x")),
    (ds.StringContains(("a",), "x"), Match("contains", a, "x")),
]


@pytest.mark.parametrize(("pushed", "expected"), FILTERS, ids=[str(row[0]) for row in FILTERS])
def test_each_filter(pushed: ds.Filter, expected: tree.Predicate) -> None:
    assert from_spark(pushed) == expected


def test_several_are_joined_by_and() -> None:
    assert from_spark([ds.EqualTo(("a",), 1), ds.IsNotNull(("b",))]) == (a == 1) & Not(IsNull(b))
    assert from_spark(f for f in [ds.EqualTo(("a",), 1)]) == (a == 1)
    assert from_spark([]) == tree.Constant(True)


class Later(ds.Filter):
    """A filter class of a Spark that does not exist yet."""


@pytest.mark.parametrize(
    "pushed",
    [Later(), ds.EqualTo(("a",), [1, 2]), ds.In(("a",), (VariantVal(b"\x0c\x01", b"\x01\x00\x00"),))],
)
def test_what_is_not_understood_is_opaque(pushed: ds.Filter) -> None:
    assert from_spark(pushed) == tree.Opaque((), None, repr(pushed))
    negated = from_spark(ds.Not(pushed))
    assert isinstance(negated, Not)
    assert isinstance(negated.arg, tree.Opaque)


def test_other_things_are_errors() -> None:
    with pytest.raises(PredicateError, match="data-source filters"):
        from_spark("a = 1")  # type: ignore[arg-type]
    with pytest.raises(PredicateError, match="data-source filters"):
        from_spark(5)  # type: ignore[arg-type]


# -- NaN, which Spark's Parquet reader forgets ----------------------------------------------------

GUARDED = [
    ("f > 2", "f > 2 OR isnan(f)"),
    ("2 < f", "2 < f OR isnan(f)"),
    ("f <> 2", "f <> 2 OR isnan(f)"),
    ("f < 2", "f < 2"),
    ("f = 2", "f = 2"),
    ("not f < 2", "NOT (f < 2 AND NOT isnan(f))"),
    ("not f in (1, 2)", "NOT (f IN (1, 2) AND NOT isnan(f))"),
    ("not f in (1, null)", "NOT f IN (1, NULL)"),
    ("f in (1e0, cast('nan' as double))", "f IN (1e0, cast('nan' as double)) OR isnan(f)"),
    ("f = cast('nan' as double)", "f = cast('nan' as double) OR isnan(f)"),
    ("f < cast('nan' as double)", "f < cast('nan' as double)"),
    ("f between 1 and 2", "(f >= 1 OR isnan(f)) AND f <= 2"),
    ("f > null", "f > null"),
    ("s > 'x' and f > 2", "s > 'x' AND (f > 2 OR isnan(f))"),
    ("(f < 2) is not true", "NOT (f < 2 AND NOT isnan(f)) IS TRUE"),
    ("f > g", "f > g"),
    ("f = 0", "abs(cast(f as double)) = 0"),
    ("f <=> -0.0D", "abs(cast(f as double)) <=> 0e0"),
    ("f <= -0.0D", "f <= 0e0"),
    ("f in (0, 1, null)", "abs(cast(f as double)) = 0e0 OR f IN (1, null)"),
    ("f in (0)", "abs(cast(f as double)) = 0e0"),
]


@pytest.mark.parametrize(("given", "expected"), GUARDED, ids=[row[0] for row in GUARDED])
def test_nan_is_tested_explicitly(given: str, expected: str) -> None:
    assert _guard(parse_sql(given), None, False) == parse_sql(expected)


def test_schema_exempts_columns_other_than_floats() -> None:
    schema = pa.schema([("i", pa.int64()), ("s", pa.struct([("f", pa.float32()), ("i", pa.int32())]))])
    found = _guard(parse_sql("i > 1 and s.i > 1 and s.f > 1"), schema, False)
    assert found == parse_sql("i > 1 and s.i > 1 and (s.f > 1 or isnan(s.f))")
