"""SQL of random trees: round trips return the same tree, and DuckDB returns Spark's results."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.errors import PredicateError
from skipstone.predicate import tree
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.sql.types import DIALECTS
from skipstone.predicate.sql.write import to_sql
from skipstone.predicate.tree import (
    BooleanValue,
    Call,
    Cast,
    Compare,
    IsIn,
    IsNan,
    IsNull,
    Like,
    Match,
    Not,
    Truth,
    col,
    lit,
)
from tests.support.samples import sample

INSTANT = pa.timestamp("us", "UTC")
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
KINDS = st.sampled_from(["prefix", "suffix", "contains"])
OPS = st.sampled_from(tree.COMPARE_OPS)
ANSWERS = st.sampled_from([True, False, None])
Predicates = st.SearchStrategy[tree.Predicate]


def nested(leaves: Predicates) -> Predicates:
    return st.recursive(leaves, _combined, max_leaves=6)


def _combined(inner: Predicates) -> Predicates:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        several.map(tree.conjunction),
        several.map(tree.disjunction),
        st.builds(Not, inner),
        st.builds(Truth, inner.filter(_has_own_text), ANSWERS),
    )


def _has_own_text(node: tree.Predicate) -> bool:
    """``b IS NULL`` is IsNull for a bare column, not Truth."""
    return not isinstance(node, (BooleanValue, tree.Constant))


# -- reading back ------------------------------------------------------------------------------


def _call(name: str, *args: tree.Expr) -> tree.Expr:
    return Call(name, args)


def _typed(values: st.SearchStrategy[Any], kind: pa.DataType | None = None) -> st.SearchStrategy[pa.Scalar]:
    return st.builds(pa.scalar, values, st.just(kind))


NAMES = st.sampled_from(["a", "A", "a.b", "select", 'we`i"rd', "ünï", "with space", "1a"])
COLUMNS = st.lists(NAMES, min_size=1, max_size=5).map(tuple).map(tree.Column)
NASTY = [
    "%",
    "_",
    "\\",
    "'",
    "\\'",
    "''",
    "\\n",
    "\n12",
    "\x001",
    "\x1a",
    "a%_\\'",
    '"',
    "`",
    "--",
    "/* x",
    "\\0",
    "?",
]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(NASTY)
DOTTED = st.sampled_from(["", "x", "it's", "\\\\", "a\\%", "_"])
PATTERNS = st.tuples(DOTTED, DOTTED).map("%".join)
FLOATS64 = st.floats(allow_nan=False) | st.just(math.nan)  # one NaN: trees compare bits
SCALARS = st.one_of(
    _typed(st.integers(LONG_MIN, LONG_MAX)),
    _typed(st.integers(-128, 127), pa.int8()),
    _typed(st.integers(-(2**31), 2**31 - 1), pa.int32()),
    _typed(FLOATS64),
    _typed(st.floats(width=32, allow_nan=False) | st.just(math.nan), pa.float32()),
    _typed(st.decimals(-(10**12), 10**12, places=3)),
    _typed(st.integers(-(10**6), 10**6).map(Decimal), pa.decimal128(10, 2)),
    _typed(TEXTS),
    _typed(st.binary(max_size=5)),
    _typed(st.dates()),
    _typed(st.datetimes(), pa.timestamp("us")),
    _typed(st.datetimes(), INSTANT),
    _typed(st.booleans()),
    st.just(pa.scalar(None)),
)
LITERALS = st.builds(tree.Literal, SCALARS)
TYPES = st.sampled_from(
    [
        pa.int8(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.date32(),
        INSTANT,
        pa.decimal128(9, 3),
    ]
)
FUNCTIONS = st.sampled_from(["year", "lower", "abs", "length"])


def _values(inner: st.SearchStrategy[tree.Expr]) -> st.SearchStrategy[tree.Expr]:
    return st.one_of(
        st.builds(Cast, COLUMNS, TYPES, st.just("UTC"), st.booleans()),
        st.builds(_call, st.sampled_from(["+", "-", "*", "/", "%"]), COLUMNS, inner),
        st.builds(_call, FUNCTIONS, inner),
        st.builds(_call, st.just("negative"), COLUMNS),
        st.builds(_call, st.just("coalesce"), inner, inner),
    )


VALUES = st.recursive(COLUMNS | LITERALS, _values, max_leaves=4)
INTEGERS = st.lists(st.integers(LONG_MIN, LONG_MAX), min_size=1, max_size=4)
LISTS = st.one_of(
    st.builds(pa.array, INTEGERS, st.just(pa.int64())),
    st.builds(pa.array, st.lists(TEXTS, min_size=1, max_size=4)),
    st.builds(pa.array, st.lists(FLOATS64, min_size=1, max_size=4)),
    st.builds(
        pa.array,
        st.lists(st.decimals(-99, 99, places=2), min_size=1, max_size=4),
        st.just(pa.decimal128(9, 2)),
    ),
    st.just(pa.array([1, None, 3])),
)
LEAVES = st.one_of(
    st.builds(Compare, OPS, COLUMNS, VALUES),
    st.builds(tree.Between, COLUMNS, LITERALS, LITERALS),
    st.builds(IsIn, COLUMNS, LISTS),
    st.builds(IsNull, COLUMNS),
    st.builds(BooleanValue, COLUMNS),
    st.builds(Match, KINDS, COLUMNS, TEXTS),
    st.builds(Like, COLUMNS, PATTERNS, st.sampled_from(["\\", "!"]), st.booleans()),
    st.builds(tree.Constant, ANSWERS),
)


@settings(max_examples=sample("SQL"), deadline=None)
@given(nested(LEAVES), st.sampled_from(["spark", "duckdb"]))
def test_random_trees_read_back(node: tree.Predicate, dialect: str) -> None:
    written = to_sql(node, dialect)
    found = parse_sql(written, dialect)
    assert found == node, f"{written}\n{found}"


WORDS = ["a", "(", ")", "=", "'x'", "not", "in", "1", "and", "is", "null", "like", ",", "f(", "case", "."]
SOUP = st.text(max_size=40) | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@settings(max_examples=sample("SQL"), deadline=None)
@given(SOUP, st.sampled_from(DIALECTS))
def test_any_text_is_a_predicate_or_a_predicate_error(sql: str, dialect: str) -> None:
    with contextlib.suppress(PredicateError):
        assert isinstance(parse_sql(sql, dialect), tree.Predicate)


# -- what DuckDB makes of it -------------------------------------------------------------------

TABLE = pa.table(
    {
        "i": pa.array([None, -1, 0, 1, 2, 7, LONG_MAX, LONG_MIN, 100]),
        "f": pa.array([None, math.nan, -0.0, 0.0, 0.1, math.inf, -math.inf, 2.5, -2.5]),
        "g": pa.array([math.nan, None, -0.0, 0.5, 0.1, math.inf, 16777216.0, 2.5, -2.5], pa.float32()),
        "s": pa.array([None, "", "a%b", "a_b", "a\\b", "it's", "aXb", "A%B", "b\na"]),
        "b": pa.array([None, True, False, None, True, False, True, False, None]),
        "d": pa.array([None, *(dt.date(2020, 1, n) for n in range(1, 9))]),
        "t": pa.array([None, *(dt.datetime(2020, 1, 1, n) for n in range(8))], INSTANT),
        "n": pa.array([None, *(Decimal(n) / 4 for n in range(8))], pa.decimal128(9, 2)),
    }
)
Row = dict[str, Any]


def three_valued(node: tree.Expr, row: Row) -> Any:
    """An evaluator of its own, by the rules of Spark SQL; None is NULL."""
    if isinstance(node, (Compare, IsNull, Truth, Match, Like, IsNan)):
        return RULES[type(node)](node, row)
    match node:
        case tree.Column(path=(name,)):
            return row[name]
        case tree.Literal(scalar=scalar):
            return scalar.as_py()
        case tree.Constant(value=value):
            return value
        case BooleanValue(arg=arg):
            return three_valued(arg, row)
        case Not(arg=arg):
            value = three_valued(arg, row)
            return None if value is None else not value
        case tree.And(args=args):
            values = [three_valued(arg, row) for arg in args]
            return False if False in values else None if None in values else True
        case tree.Or(args=args):
            return three_valued(Not(tree.And(tuple(Not(arg) for arg in args))), row)
        case tree.Between(arg=arg, low=low, high=high):
            return three_valued(tree.And((Compare(">=", arg, low), Compare("<=", arg, high))), row)
        case IsIn(arg=arg, values=values):
            return three_valued(tree.Or(tuple(Compare("=", arg, lit(value)) for value in values)), row)
    raise AssertionError(node)


def _compare(node: Compare, row: Row) -> bool | None:
    left, right = three_valued(node.left, row), three_valued(node.right, row)
    if left is None or right is None:
        return left is right if node.op == "<=>" else None
    # NaN equals itself and is the largest; -0.0 is 0.0.
    x, y = ((value != value, 0 if value != value else value) for value in (left, right))
    answers = {"=": x == y, "<=>": x == y, "<>": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}
    return answers[node.op]


def _match(node: Match, row: Row) -> bool | None:
    value = three_valued(node.arg, row)
    if value is None:
        return None
    tests = {"prefix": value.startswith, "suffix": value.endswith, "contains": value.__contains__}
    return tests[node.kind](node.text)


def _like(node: Like, row: Row) -> bool | None:
    value = three_valued(node.arg, row)
    if value is None:
        return None
    pattern, marks = "", iter(node.pattern)
    for mark in marks:
        wild = {"%": ".*", "_": "."}.get(mark, re.escape(mark))
        pattern += re.escape(next(marks)) if mark == node.escape else wild
    return re.fullmatch(pattern, value, re.DOTALL | re.IGNORECASE * node.ignore_case) is not None


def _is_nan(node: IsNan, row: Row) -> bool | None:
    value = three_valued(node.arg, row)
    return None if value is None else value != value


RULES: dict[type, Callable[[Any, Row], bool | None]] = {
    Compare: _compare,
    IsNan: _is_nan,
    IsNull: lambda node, row: three_valued(node.arg, row) is None,
    Like: _like,
    Match: _match,
    Truth: lambda node, row: three_valued(node.arg, row) is node.value,
}

NUMBERS = st.sampled_from([-1, 0, 1, 2, 7, LONG_MAX, LONG_MIN])
FLOATS = st.sampled_from([math.nan, -0.0, 0.0, 0.1, math.inf, -math.inf, 2.5])
STRINGS = st.sampled_from(["", "a", "a%b", "a_b", "a\\b", "it's", "b\na", "%", "_", "\\", "A%B"])
LIKES = st.sampled_from([r"a\%b", r"a\_b", r"a\\b", "a_b", "a%", "%", "", "%'%", "a!%b", "A%"])
TYPED: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("i", NUMBERS),
    ("i", st.sampled_from([Decimal("1.5"), Decimal("-0.25")])),
    ("f", FLOATS),
    ("f", st.sampled_from([0, 1, 2, 7])),
    ("g", _typed(FLOATS, pa.float32())),
    ("g", FLOATS),
    ("s", STRINGS),
    ("d", st.sampled_from([dt.date(2020, 1, n) for n in (1, 4, 8)])),
    ("t", _typed(st.sampled_from([dt.datetime(2020, 1, 1, n) for n in (0, 4, 7)]), INSTANT)),
    ("n", st.sampled_from([Decimal("0.25"), Decimal("1.50"), Decimal("0.333")])),
    ("b", st.booleans()),
]


def _on(name: str, values: st.SearchStrategy[Any]) -> Predicates:
    column, literals = st.just(col(name)), st.builds(lit, values)
    return st.one_of(
        st.builds(Compare, OPS, column, st.builds(lit, values | st.none())),
        st.builds(tree.Between, column, literals, literals),
        st.builds(IsIn, column, st.lists(literals, min_size=1, max_size=3).map(tree.value_array)),
    )


EVALUATED = st.one_of(
    *(_on(name, values) for name, values in TYPED),
    st.builds(IsIn, st.just(col("i")), st.sampled_from([pa.array([], pa.int64()), pa.array([1, None])])),
    st.builds(Match, KINDS, st.just(col("s")), STRINGS),
    st.builds(Like, st.just(col("s")), LIKES, st.sampled_from(["\\", None]), st.booleans()),
    st.just(Like(col("s"), "a!%b", "!")),
    st.sampled_from([IsNan(col("f")), IsNan(col("g")), IsNull(col("s")), BooleanValue(col("b"))]),
    st.sampled_from([Compare("<", col("g"), col("f")), Compare("<=>", col("g"), col("f"))]),
    st.builds(tree.Constant, ANSWERS),
)


@pytest.fixture(scope="module")
def rows() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'Asia/Tokyo'")  # literals must not depend on the session
        db.execute("SET threads = 1")
        db.register("rows", TABLE)
        yield db


@settings(max_examples=sample("SQL"), deadline=None)
@given(nested(EVALUATED))
def test_duckdb_answers_as_spark_would(rows: duckdb.DuckDBPyConnection, node: tree.Predicate) -> None:
    sql = to_sql(node, "duckdb")
    found = [value for (value,) in rows.execute(f"SELECT {sql} FROM rows").fetchall()]
    assert found == [three_valued(node, row) for row in TABLE.to_pylist()], sql
