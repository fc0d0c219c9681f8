"""from_polars preserves Polars' results, to_polars Spark's; both are checked by evaluation."""

import datetime as dt
import decimal
import math
import pickle

import hypothesis.strategies as st
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.polars import from_polars, to_polars
from tests.support.samples import sample

NAN, INF = math.nan, math.inf
c = pl.col
D = decimal.Decimal
NOON = dt.datetime(2020, 2, 29, 12, 30, 15, 123456)
DAY = dt.date(2020, 2, 29)


def odd(number):
    return repr(number)[-1] in "13579"


def compute(expr, data):
    return pl.from_arrow(data).with_columns(expr.alias("answer"))["answer"].to_list()


OPERATORS = {
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "eq_missing": lambda x, y: x.eq_missing(y),
    "ne_missing": lambda x, y: x.ne_missing(y),
}
PAIRS = [
    *((name, v) for name in "fhijt" for v in (1.0, -0.0, NAN, INF, 1, 2.5, 300)),
    *(
        (name, v)
        for name in "fh"
        for v in (0.1, pl.lit(0.1, dtype=pl.Float64), pl.lit(0.1, dtype=pl.Float32))
    ),
    ("i", pl.lit(1, dtype=pl.UInt64)),
    ("i", 2**70),
    ("i", pl.lit(None)),
    ("s", "a%b"),
    ("n", b"a"),
    ("b", True),
    ("d", DAY),
    ("d", dt.datetime(2020, 2, 29, 12)),
    ("ts", NOON),
    ("ms", NOON),
    ("ms", pl.lit(NOON, dtype=pl.Datetime("ns"))),
    ("ms", pl.lit(NOON, dtype=pl.Datetime("ms"))),
    ("ts", DAY),
    ("tz", NOON.replace(tzinfo=dt.UTC)),
    ("m", D("2.5")),
    ("m", D("2.501")),
    ("m", 2.5),
    ("f", c.g),
    ("h", c.f),
    ("i", c.j),
    ("s", c.u),
    ("b", c.c),
]
COMPARISONS = [
    pytest.param(op(c(a), b), id=f"{a} {sign} {b}") for sign, op in OPERATORS.items() for a, b in PAIRS
]
CONDITIONS = [
    pl.lit(2) < c.f,
    (c.f > 1) & (c.i < 3),
    (c.f > 1) | c.b,
    ~(c.f >= 1),
    c.b & ~c.c,
    c.b.not_(),
    c.b & None,
    c.b | pl.lit(None, dtype=pl.Boolean),
    c.f.is_null(),
    c.f.is_not_null(),
    c.f.is_nan(),
    c.f.is_not_nan(),
    c.i.is_nan(),
    c.f.is_finite(),
    c.f.is_infinite(),
    (c.f > 1).is_null(),
    (c.f > 1).eq_missing(True),
    (c.f > 1).eq_missing(pl.lit(None, dtype=pl.Boolean)),
    (c.f > 1).alias("z"),
    c.i.alias("z") > 1,
    c.i.is_in([1, 2]),
    c.i.is_in([1, None]),
    c.i.is_in([1, None], nulls_equal=True),
    c.i.is_in([1], nulls_equal=True),
    c.i.is_in([]),
    c.i.is_in([None]),
    ~c.i.is_in([1, None]),
    c.t.is_in([1, 300]),
    c.f.is_in([NAN, 0.0]),
    c.f.is_in([-0.0, 0.1]),
    c.h.is_in([0.1]),
    c.s.is_in(["a", "100%"]),
    c.s.is_in(pl.Series(["a", "ab"]).implode()),
    c.s.is_in(pl.lit(pl.Series(["a", None])).implode()),
    c.m.is_in([D("2.5")]),
    c.d.is_in([DAY]),
    c.ts.is_in([NOON]),
    c.ms.is_in([NOON]),
    c.i.is_between(1, 3),
    c.f.is_between(0, 2.5, closed="left"),
    c.f.is_between(-1, NAN, closed="right"),
    c.f.is_between(0.1, INF, closed="none"),
    c.i.is_between(c.j, 5),
    pl.lit(2).is_between(1, c.i),
    pl.lit(2).is_between(1, c.i, closed="none"),
    pl.lit(2).is_between(c.i, 3),
    c.p.struct.field("q") == 1,
    c.p.struct.field("r").struct.field("w") > "1",
    c.p.is_null(),
    c.p.struct.field("q").is_null(),
    c.s.str.starts_with("a"),
    c.s.str.ends_with("b"),
    c.s.str.contains("%", literal=True),
    c.s.str.contains("_", literal=True),
    c.s.str.starts_with(pl.lit(None, dtype=pl.String)),
    c.n.bin.starts_with(b"a"),
    c.n.bin.contains(b"\xff"),
    c.s.str.to_lowercase() == "a\nb",
    c.s.str.to_uppercase() == "A%B",
    c.s.str.len_chars() == 3,
    c.s.str.slice(1, 2) == "%b",
    c.s.str.head(1) == "é",
    c.ts.cast(pl.Date) == DAY,
    c.tz.cast(pl.Date) > DAY,
    pl.all_horizontal(c.b, c.i > 1),
    pl.any_horizontal(c.b, c.i > 1),
    c.b,
    pl.lit(True),
    pl.lit(None, dtype=pl.Boolean),
    c.i == pl.lit(pl.Series([2])),
]
OPAQUE = [
    c.h == 0.1,
    pl.lit(0.1) >= c.h,
    c.ms >= NOON,
    c.ts.dt.date() == DAY,
    c.ts.dt.date() > DAY,
    c.tz.dt.convert_time_zone("Asia/Tokyo").dt.date() == DAY,
    c.ts.dt.year() <= 2019,
    c.ts.dt.year() != 2019,
    c.ts.dt.truncate("1mo") == dt.datetime(2020, 2, 1),
    c.ts.dt.month() == 2,
    c.s.str.contains("^a.b$"),
    c.i + 1 > 2,
    c.t * 100 > 2,
    -c.i < 0,
    c.i / 2 > 1,
    c.i // 2 == 1,
    c.i % 2 == 1,
    c.b ^ c.c,
    c.b.fill_null(True),
    pl.when(c.f > 1).then(c.b).otherwise(c.c),
    c.t.cast(pl.Int64) == 127,
    c.f.cast(pl.Int64, strict=False) == 2,
    c.i.cast(pl.String) == "1",
    c.s.str.slice(-1) == "b",
    c.s == c.p.struct.field("r").struct.field("w").fill_null("a"),
    c.i.is_in(pl.concat_list(c.i, c.j)),
    (c.f > 1) == c.b,
    pl.lit("a").str.len_bytes() == 1,
    c.i.map_elements(odd, return_dtype=pl.Boolean),
]
WHOLE_COLUMN = [
    c.i > c.i.mean(),
    c.i == c.i.max(),
    c.i.cum_sum() > 3,
    c.i.shift(1) == 1,
    c.i == pl.lit(pl.Series([1, 2, 3])),
    c.i.map_batches(odd, return_dtype=pl.Boolean),
    pl.all() == 1,
    pl.nth(0) == 1,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("expr", [*COMPARISONS, *CONDITIONS], ids=str)
def test_from_polars_keeps_the_answer(kit, expr):
    data = kit.table()
    assert kit.evaluate(from_polars(expr), data) == compute(expr, data)
    assert kit.evaluate(from_polars(~expr), data) == compute(~expr, data)


@pytest.mark.parametrize("expr", OPAQUE, ids=str)
def test_unsupported_parts_become_opaque_leaves(kit, expr):
    data = kit.table()
    predicate = pickle.loads(pickle.dumps(from_polars(expr)))
    assert any(isinstance(node, tree.Opaque) for node in predicate.walk())
    assert kit.evaluate(predicate, data) == compute(expr, data)
    assert kit.evaluate(from_polars(~expr), data) == compute(~expr, data)


@pytest.mark.parametrize("expr", WHOLE_COLUMN, ids=str)
def test_expressions_over_other_rows_keep_everything(expr):
    predicate = from_polars(expr)
    assert isinstance(predicate, tree.Opaque)
    assert predicate.evaluate is None


def test_the_opaque_leaf_is_the_smallest_condition_and_takes_the_whole_struct():
    predicate = from_polars((c.i == 1) & ~(c.p.struct.field("q") % 2 == 1) & (c.j == 2))
    assert isinstance(predicate, tree.And)
    first, second, third = predicate.args
    assert first == (tree.col("i") == 1)
    assert isinstance(second, tree.Not)
    assert isinstance(second.arg, tree.Opaque)
    assert second.arg.args[0].path == ("p",)
    assert third == (tree.col("j") == 2)


def test_a_float_without_a_type_is_judged_for_both_widths():
    predicate = from_polars(c.h > 0.1)
    assert isinstance(predicate, tree.And)
    assert predicate.args[0] == (tree.col("h") > 0.1)
    assert from_polars(c.h > 0.5) == (tree.col("h") > 0.5)


def test_an_expression_too_deep_to_read_is_opaque_as_a_whole(kit):
    expr = c.i == 0
    for number in range(1, 700):
        expr = expr | (c.i == number)
    data = kit.table()
    assert kit.evaluate(from_polars(expr), data) == compute(expr, data)


def test_a_list_of_a_million_values_stays_an_arrow_array():
    values = pl.Series(range(1, 1_000_001))
    predicate = from_polars(c.i.is_in(values.implode()))
    assert isinstance(predicate, tree.IsIn)
    assert predicate.values.equals(values.to_arrow())
    assert compute(to_polars(predicate), pa.table({"i": [5, 0, None]})) == [True, False, None]


@settings(max_examples=sample("round trips"), deadline=None)
@given(st.data())
def test_round_trips(kit, data):
    predicate, rows = data.draw(kit.predicates()), kit.table()
    expected = kit.evaluate(predicate, rows)
    expr = to_polars(predicate)
    assert compute(expr, rows) == expected
    assert kit.evaluate(from_polars(expr), rows) == expected


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (tree.Call("lower", (tree.col("s"),)) == "ab", [True, False]),
        (tree.Call("upper", (tree.col("s"),)) == "AB", [True, False]),
        (tree.Call("substr", (tree.col("s"), tree.lit(2), tree.lit(5))) == "b", [True, True]),
        (tree.Call("left", (tree.col("s"), tree.lit(1))) == "A", [True, False]),
        (tree.Call("length", (tree.col("s"),)) == 2, [True, True]),
        (tree.col("i").cast(pa.int8()) > 1, [False, True]),
        (tree.col("u") == 2**53 + 1, [True, False]),
        (tree.col("i").isin(pa.array([], pa.int64())), [False, False]),
        (tree.Match("prefix", tree.col("n"), b"\xff"), [True, False]),
    ],
)
def test_values_computed_by_polars(predicate, answer):
    data = pa.table(
        {"i": [1, 2], "s": ["Ab", "éb"], "u": pa.array([2**53 + 1, 2**53], pa.uint64()), "n": [b"\xff", b"a"]}
    )
    assert compute(to_polars(predicate), data) == answer


@pytest.mark.parametrize(
    "predicate",
    [
        tree.udf(lambda x: x, ["x"]),
        tree.Cast(tree.col("x"), pa.int8(), lenient=True) == 1,
        tree.Cast(tree.col("x"), pa.int64()) == 1,
        tree.Cast(tree.col("x"), pa.date32(), zone="Asia/Tokyo") == DAY,
        tree.col("x") + 1 == 2,
        tree.Call("year", (tree.col("x"),)) == 2020,
        tree.col("x") == pa.scalar(1, pa.timestamp("ns")),
        tree.col("x") == pa.scalar(1, pa.time64("ns")),
        tree.col("x") == pa.scalar(1, pa.duration("ns")),
        tree.col("x") == pa.scalar(-(2**31), pa.int32()).cast(pa.date32()),
        tree.col("x") == pa.scalar(D("1.5"), pa.decimal256(50, 5)),
        tree.col("x").isin(pa.array([D("1.5")], pa.decimal256(50, 5))),
    ],
    ids=str,
)
def test_not_expressible_names_the_part(predicate):
    with pytest.raises(NotExpressibleError, match="Polars has no equivalent of"):
        to_polars((tree.col("y") == 1) & predicate)
