"""pyiceberg expressions: semantics, and pyiceberg's own results for the expressions we write."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import expressions as ice
from pyiceberg.expressions.visitors import bind, expression_evaluator
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

import skipstone as sk
from skipstone.errors import NotExpressibleError, PredicateError
from skipstone.predicate import predicate, tree
from skipstone.predicate.iceberg import from_iceberg, to_iceberg
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.sql.write import to_sql
from skipstone.predicate.tree import Compare, IsIn, IsNan, IsNull, Match, Not, col, lit

SCHEMA = Schema(
    NestedField(1, "i", IntegerType(), required=False),
    NestedField(2, "f", DoubleType(), required=False),
    NestedField(3, "s", StringType(), required=False),
    NestedField(4, "b", BooleanType(), required=False),
    NestedField(5, "d", DateType(), required=False),
    NestedField(6, "t", TimestamptzType(), required=False),
    NestedField(7, "n", DecimalType(9, 2), required=False),
    NestedField(8, "l", LongType(), required=False),
    NestedField(9, "g", FloatType(), required=False),
    NestedField(10, "z", TimestampType(), required=False),
    NestedField(11, "st", StructType(NestedField(12, "x", IntegerType(), required=False)), required=False),
)
a = col("a")

READ = [
    (ice.AlwaysTrue(), tree.Constant(True)),
    (ice.AlwaysFalse(), tree.Constant(False)),
    (ice.EqualTo("a", 1), a == 1),
    (ice.EqualTo("a.b.c", 1), col("a", "b", "c") == 1),
    (ice.LessThan("a", "x"), a < "x"),
    (ice.LessThanOrEqual("a", 1.5), a <= 1.5),
    (ice.GreaterThan("a", Decimal("1.50")), a > Decimal("1.50")),
    (ice.GreaterThanOrEqual("a", dt.date(2020, 1, 1)), a >= dt.date(2020, 1, 1)),
    (ice.EqualTo("a", dt.datetime(2020, 1, 1)), a == dt.datetime(2020, 1, 1)),
    (ice.EqualTo("a", b"x"), a == b"x"),
    (ice.NotEqualTo("a", 1), Not(Compare("<=>", a, lit(1)))),
    (ice.In("a", [3, 1, 2]), IsIn(a, pa.array([1, 2, 3]))),
    (ice.NotIn("a", [2, 1]), Not(IsIn(a, pa.array([1, 2])).is_true())),
    (ice.IsNull("a"), IsNull(a)),
    (ice.NotNull("a"), Not(IsNull(a))),
    (ice.IsNaN("a"), IsNan(a)),
    (ice.NotNaN("a"), Not(IsNan(a).is_true())),
    (ice.StartsWith("a", "x%"), Match("prefix", a, "x%")),
    (ice.NotStartsWith("a", "x"), Not(Match("prefix", a, "x").is_true())),
    (
        ice.And(ice.EqualTo("a", 1), ice.IsNull("b"), ice.IsNull("c")),
        (a == 1) & IsNull(col("b")) & IsNull(col("c")),
    ),
    (ice.Or(ice.EqualTo("a", 1), ice.IsNull("b")), (a == 1) | IsNull(col("b"))),
    (ice.Not(ice.EqualTo("a", 1)), Not(Compare("<=>", a, lit(1)))),
    (ice.Not(ice.LessThan("a", 1)), a >= 1),
]


@pytest.mark.parametrize(("expression", "expected"), READ, ids=[str(row[0])[:60] for row in READ])
def test_reading(expression: ice.BooleanExpression, expected: tree.Predicate) -> None:
    assert from_iceberg(expression) == expected
    assert predicate(expression) == expected


def test_reading_bound_expressions() -> None:
    bound = bind(
        SCHEMA, ice.And(ice.GreaterThan("t", "2020-01-01T00:00:00+00:00"), ice.In("g", [0.5, 1.5])), True
    )
    instant = lit(dt.datetime(2020, 1, 1), pa.timestamp("us", "UTC"))
    assert from_iceberg(bound) == Compare(">", col("t"), instant) & IsIn(
        col("g"), pa.array([0.5, 1.5], pa.float32())
    )


def test_a_bound_nested_field_keeps_everything() -> None:
    # It knows its last name only, and a wrong column would drop rows.
    found = from_iceberg(bind(SCHEMA, ice.And(ice.EqualTo("st.x", 1), ice.EqualTo("i", 2)), True))
    assert isinstance(found, tree.And)
    assert isinstance(found.args[0], tree.Opaque)
    assert found.args[1] == (col("i") == 2)


def test_not_an_expression() -> None:
    with pytest.raises(PredicateError, match="not a pyiceberg expression"):
        from_iceberg("a = 1")


REFUSED = [
    ("a = b", "compares a column with a constant"),
    ("upper(a) = 'X'", "plain columns"),
    ("cast(a as int) = 1", "plain columns"),
    ("a like '%x'", "prefix%"),
    ("a like 'x_'", "prefix%"),
    ("a ilike 'x%'", "prefix%"),
    ("endswith(a, 'x')", "prefixes only"),
    ("f(a)", "plain columns"),
    ("`a.b` = 1", "dot"),
]


@pytest.mark.parametrize(("sql", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_not_expressible(sql: str, message: str) -> None:
    with pytest.raises(NotExpressibleError, match=message):
        to_iceberg(parse_sql(sql))


def test_not_expressible_literals() -> None:
    nanos = Compare("=", a, lit(1, pa.timestamp("ns")))
    with pytest.raises(NotExpressibleError, match="microseconds"):
        to_iceberg(nanos)
    with pytest.raises(NotExpressibleError, match="list"):
        to_iceberg(Compare("=", a, lit([1])))
    with pytest.raises(NotExpressibleError, match="my_udf"):
        to_iceberg(tree.Opaque((a,), None, "my_udf(a)"))


WRITTEN = [
    ("a = 1", ice.EqualTo("a", 1)),
    ("a.b = 1", ice.EqualTo("a.b", 1)),
    ("a < 1", ice.LessThan("a", 1)),
    ("a > 'x'", ice.GreaterThan("a", "x")),
    ("a > 1", ice.Or(ice.GreaterThan("a", 1), ice.IsNaN("a"))),
    ("a <> 1", ice.And(ice.NotNull("a"), ice.NotEqualTo("a", 1))),
    ("a in ('x', 'y')", ice.In("a", ["x", "y"])),
    ("a not in ('x', 'y')", ice.And(ice.NotNull("a"), ice.NotIn("a", ["x", "y"]))),
    ("a not in ('x', null)", ice.AlwaysFalse()),
    ("a <=> null", ice.IsNull("a")),
    ("a like 'x%'", ice.StartsWith("a", "x")),
    (r"a like 'x\\%%'", ice.StartsWith("a", "x%")),
    ("a like 'x'", ice.EqualTo("a", "x")),
    ("a", ice.EqualTo("a", True)),
    ("true", ice.AlwaysTrue()),
    ("a = null", ice.AlwaysFalse()),
]


@pytest.mark.parametrize(("sql", "expected"), WRITTEN, ids=[row[0] for row in WRITTEN])
def test_writing(sql: str, expected: ice.BooleanExpression) -> None:
    assert to_iceberg(parse_sql(sql)) == expected


ROUNDED = [
    ("i > 5.5", "int"),
    ("l = 5.5", "long"),
    ("g > 0.1", "float"),
    ("g = 1e-1", "float"),
    ("n > 1.234", "decimal"),
    ("n = 1.234e0", "decimal"),
    ("d >= TIMESTAMP '2020-01-01 10:00:00'", "date"),
]


@pytest.mark.parametrize(("sql", "kind"), ROUNDED, ids=[row[0] for row in ROUNDED])
def test_a_literal_that_would_be_rounded_is_an_error_at_binding(sql: str, kind: str) -> None:
    with pytest.raises(NotExpressibleError, match=f"of type {kind}"):
        bind(SCHEMA, to_iceberg(parse_sql(sql)), True)


def test_zoneless_times_of_another_zone() -> None:
    expression = to_iceberg(parse_sql("t > TIMESTAMP_NTZ '2020-01-01 00:00:00'", tz="Asia/Tokyo"))
    with pytest.raises(NotExpressibleError, match="timestamptz"):
        bind(SCHEMA, expression, True)
    zoneless = to_iceberg(parse_sql("z > TIMESTAMP_NTZ '2020-01-01 00:00:00'", tz="Asia/Tokyo"))
    assert bind(SCHEMA, zoneless, True).literal.value == 1577836800000000


# -- what pyiceberg answers ---------------------------------------------------------------------

INSTANT = pa.timestamp("us", "UTC")
TABLE = pa.table(
    {
        "i": pa.array([None, -1, 0, 1, 2, 7], pa.int32()),
        "f": pa.array([None, math.nan, -0.0, 0.5, 2.5, math.inf]),
        "s": pa.array([None, "", "ab", "a%", "b", "abc"]),
        "b": pa.array([None, True, False, None, True, False]),
        "d": pa.array([None, *(dt.date(2020, 1, n) for n in range(1, 6))]),
        "t": pa.array([None, *(dt.datetime(2020, 1, 1, n) for n in range(5))], INSTANT),
        "n": pa.array([None, *(Decimal(n) / 4 for n in range(5))], pa.decimal128(9, 2)),
        "l": pa.array([None, 1, 2, 3, 4, 2**62]),
        "g": pa.array([math.nan, None, 0.5, 1.5, -1.5, 2.5], pa.float32()),
        "z": pa.array([None, *(dt.datetime(2020, 1, 1, n) for n in range(5))], pa.timestamp("us")),
    }
)
PHYSICAL = {"d": pa.int32(), "t": pa.int64(), "z": pa.int64()}


def in_evaluator(expression: ice.BooleanExpression) -> list[bool]:
    """pyiceberg's row evaluator, two-valued; it wants dates and times as numbers."""
    columns = [
        TABLE[name].cast(PHYSICAL.get(name, TABLE[name].type)).to_pylist() for name in TABLE.column_names
    ]
    keep = expression_evaluator(SCHEMA, expression, True)
    return [keep(Record(*row, None)) for row in zip(*columns, strict=True)]


def in_arrow(expression: ice.BooleanExpression) -> list[bool]:
    """pyiceberg's Arrow filter, three-valued; it drops what is NULL."""
    numbered = TABLE.append_column("row", pa.array(range(len(TABLE))))
    kept = numbered.filter(expression_to_pyarrow(bind(SCHEMA, expression, True), SCHEMA))["row"].to_pylist()
    return [n in kept for n in range(len(TABLE))]


@pytest.fixture(scope="module")
def rows() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute("SET threads = 1")
        db.register("rows", TABLE)
        yield db


def is_true(rows: duckdb.DuckDBPyConnection, node: tree.Predicate) -> list[bool]:
    """Which rows Spark would keep, by DuckDB, whose answers test_sql_random checks."""
    sql = f"SELECT ({to_sql(node, 'duckdb')}) IS TRUE FROM rows"
    return [value for (value,) in rows.execute(sql).fetchall()]


VALUES = [
    ("i", "1"),
    ("i", "null"),
    ("f", "0.5"),
    ("f", "0"),
    ("f", "cast('nan' as double)"),
    ("s", "'ab'"),
    ("l", "2"),
    ("n", "0.25"),
    ("d", "DATE '2020-01-03'"),
    ("t", "TIMESTAMP '2020-01-01 02:00:00'"),
    ("z", "TIMESTAMP_NTZ '2020-01-01 02:00:00'"),
    ("g", "1.5"),
    ("b", "true"),
]
OTHERS = [
    "i in (1, 7)",
    "i in (1, null)",
    "f in (0.5, 2.5)",
    "f in (5e-1, cast('nan' as double))",
    "s in ('', 'b')",
    "i between 0 and 2",
    "f between 0 and 2",
    "f between 0 and cast('nan' as double)",
    "f is null",
    "isnan(f)",
    "s like 'a%'",
    r"s like 'a\%'",
    "startswith(s, '')",
    "startswith(s, 'ab')",
    "b",
    "true",
    "null",
]
COMPARED = [f"{name} {op} {value}" for name, value in VALUES for op in tree.COMPARE_OPS]
LEAVES = st.sampled_from(COMPARED + OTHERS).map(parse_sql)


def _combined(inner: st.SearchStrategy[tree.Predicate]) -> st.SearchStrategy[tree.Predicate]:
    several = st.lists(inner, min_size=2, max_size=3)
    answers = st.sampled_from([True, False, None])
    return st.one_of(
        several.map(tree.conjunction),
        several.map(tree.disjunction),
        st.builds(Not, inner),
        st.builds(tree.Truth, inner, answers),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(LEAVES, _combined, max_leaves=4))
def test_pyiceberg_keeps_the_same_rows_both_ways(
    rows: duckdb.DuckDBPyConnection, node: tree.Predicate
) -> None:
    expression: Any = to_iceberg(node)
    expected = is_true(rows, node)
    assert in_evaluator(expression) == expected, str(expression)
    assert in_arrow(expression) == expected, str(expression)
    assert is_true(rows, from_iceberg(expression)) == expected, str(expression)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_doubles_are_rounded_for_columns_of_floats(kind: pa.DataType, tmp_path: Path) -> None:
    """As pyiceberg converts a literal to the type of its column."""
    near = [0.1, 2.2, -2.2, 1e-50, 5.0, 2.200000047683716]
    values = pa.array([*near, 0.0, -0.0, math.nan, math.inf, None], kind)
    for number, value in enumerate(values):
        pq.write_table(pa.table({"x": pa.repeat(value, 2)}), tmp_path / f"{number}.parquet")
    lake, schema = sk.open(tmp_path), Schema(NestedField(1, "x", DoubleType(), required=False))
    tests: list[Any] = [ice.EqualTo, ice.NotEqualTo, ice.LessThan, ice.LessThanOrEqual]
    tests += [ice.GreaterThan, ice.GreaterThanOrEqual]
    cases: list[tuple[Any, Any]] = [(test, literal) for test in tests for literal in near]
    cases += [(ice.In, {0.1, 2.2}), (ice.NotIn, {2.2, 1e-50, 7.5}), (ice.In, {-2.2, 2.2})]
    for test, literal in cases:
        exact = pa.array([*literal] if isinstance(literal, set) else [literal]).cast(kind).to_pylist()
        rounded = test("x", {*exact} if isinstance(literal, set) else exact[0])
        keeps = expression_evaluator(schema, rounded, case_sensitive=True)
        # NaN is greater than all others; pyiceberg compares it as IEEE does.
        nan = test in (ice.GreaterThan, ice.GreaterThanOrEqual)
        expected = [v for v in values.to_pylist() if keeps(Record(v)) or (nan and repr(v) == "nan")]
        rows = lake.scan(test("x", literal)).to_arrow()["x"].to_pylist()
        assert Counter(map(repr, rows)) == Counter([*map(repr, expected)] * 2), (test, literal)
