"""from_datafusion preserves DataFusion's results, to_datafusion Spark's; both are checked by evaluation."""

import datetime as dt
import decimal
import math
import pickle

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext, col, lit
from datafusion import functions as fn
from hypothesis import given, settings

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.datafusion import from_datafusion, to_datafusion
from tests.support.samples import sample

NAN, INF = math.nan, math.inf
D = decimal.Decimal
NOON = dt.datetime(2020, 2, 29, 12, 30, 15, 123456)
DAY = dt.date(2020, 2, 29)


def frame(data, passes=3):
    config = SessionConfig().with_target_partitions(1).set("datafusion.optimizer.max_passes", str(passes))
    context = SessionContext(config)
    context.register_record_batches("data", [data.combine_chunks().to_batches()])
    return context.table("data")


def compute(expr, data, passes=3):
    return frame(data, passes).select(expr.alias("answer")).to_arrow_table()["answer"].to_pylist()


OPERATORS = {
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}
PAIRS = [
    *((name, v) for name in "fhijt" for v in (1.0, -0.0, NAN, INF, 1, 2.5, 300)),
    *((name, v) for name in "fh" for v in (0.1, pa.scalar(0.1, pa.float32()))),
    ("i", pa.scalar(1, pa.uint64())),
    ("i", pa.scalar(None, pa.int64())),
    ("s", "a%b"),
    ("n", b"a"),
    ("b", True),
    ("d", pa.scalar(DAY)),
    ("d", pa.scalar(dt.datetime(2020, 2, 29, 12))),
    ("ts", pa.scalar(NOON)),
    ("ms", pa.scalar(NOON)),
    ("ms", pa.scalar(NOON.replace(microsecond=0))),
    ("ts", pa.scalar(DAY)),
    ("tz", pa.scalar(NOON, pa.timestamp("us", "UTC"))),
    ("m", pa.scalar(D("2.5"))),
    ("m", pa.scalar(D("2.501"))),
    ("m", 2.5),
    ("f", col("g")),
    ("h", col("f")),
    ("i", col("j")),
    ("s", col("u")),
    ("b", col("c")),
]
COMPARISONS = [
    pytest.param(
        op(col(a), b if not isinstance(b, (int, float, str, bytes, pa.Scalar)) else lit(b)),
        id=f"{a} {sign} {b}",
    )
    for sign, op in OPERATORS.items()
    for a, b in PAIRS
]
TEXTS = [
    "f > 1 and i < 3",
    "f > 1 or b",
    "not (f >= 1)",
    "2 < f",
    "b and not c",
    "b and null",
    "f is null",
    "f is not null",
    "isnan(f)",
    "isnan(i)",
    "b is true",
    "b is not true",
    "b is false",
    "b is not false",
    "b is unknown",
    "b is not unknown",
    "(f > 1) is null",
    "(f > 1) is not true",
    "f is distinct from 'NaN'::double",
    "f is not distinct from 0.0",
    "i is not distinct from null",
    "i is distinct from j",
    "(i = 1) is not distinct from true",
    "f = 'NaN'::double",
    "f > -1.5",
    "i in (1, 2)",
    "i in (1, null)",
    "i not in (1, 2)",
    "i not in (1, null)",
    "f in (0.0, 'NaN'::double)",
    "f in (1.0, 2.0, 2.5, 100.0, 'NaN'::double)",
    "h in (0.1)",
    "s in ('a', '100%')",
    "ts in (arrow_cast('2020-02-29', 'Timestamp(Microsecond, None)'))",
    "d in (date '2020-02-29')",
    "m in (2.50)",
    "i between 1 and 3",
    "i not between 1 and 3",
    "f between 0 and 'NaN'::double",
    "f between g and 5",
    "2 between 1 and i",
    "2 not between 1 and i",
    "p['q'] = 1",
    "p['r']['w'] > '1'",
    "p is null",
    "p['q'] is null",
    "s like 'a%'",
    "s like 'a\\%b'",
    "s like 'a\\\\_'",
    "s not like '%b'",
    "s like 'A_B'",
    "starts_with(s, 'a')",
    "ends_with(s, 'b')",
    "contains(s, '%')",
    "lower(s) = 'ab'",
    "upper(s) = 'AB'",
    "character_length(s) = 3",
    "substr(s, 2, 1) = '%'",
    "left(s, 1) = 'é'",
    "cast(t as smallint) = 127",
    "ts >= timestamp '2020-02-29'",
    "d > date '2020-02-29'",
    "b",
    "true",
    "null::boolean",
    "'a' = s",
]
OPAQUE = [
    "ms >= arrow_cast('2020-02-29T12:30:15.123456', 'Timestamp(Microsecond, None)')",
    "ms = timestamp '2020-02-29 12:30:15.123456'",
    "ms in (timestamp '2020-02-29 12:30:15.123456')",
    "ms not in (timestamp '2020-02-29 12:30:15.123456')",
    "ms between timestamp '2020-02-29 12:30:15.123456' and timestamp '2021-02-28 12:30:15.1'",
    "cast(ts as date) = date '2020-02-29'",
    "cast(ts as date) > date '2020-02-29'",
    "cast(ts as date) <> date '2020-02-29'",
    "cast(ts as date) between date '2020-02-28' and date '2020-12-31'",
    "date_part('year', ts) = 2020",
    "date_trunc('month', ts) = timestamp '2020-02-01'",
    "i + 1 > 2",
    "-i < 0",
    "i / 2 = 1",
    "i % 2 = 1",
    "s ilike 'S'",
    "s not ilike 'A%'",
    "s similar to 'a.*'",
    "s ~ '^a.b$'",
    "s like 'a\\b'",
    "s || 'a' = 'aa'",
    "case when f > 1 then b else c end",
    "coalesce(b, c)",
    "cast(t as bigint) = 127",
    "try_cast(s as int) = 1",
    "i in (j, 1)",
    "(f > 1) = b",
    "p['q'] + 1 = 2",
    "left(s, -1) = 'a'",
    "repeat('a', 2) = 'aa'",
]
EXPRESSIONS = [
    fn.in_list(col("i"), [lit(1)], negated=True),
    col("i").between(lit(1), lit(3), negated=True),
    (col("i") > lit(1)).alias("z"),
    col("p")["q"] > lit(1),
    col("i") == lit(pa.scalar(None)),
]


def sql(text, data):
    return frame(data).parse_sql_expr(text)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("expr", [*COMPARISONS, *EXPRESSIONS], ids=str)
def test_from_datafusion_keeps_the_answer(kit, expr):
    data = kit.table()
    assert kit.evaluate(from_datafusion(expr), data) == compute(expr, data)
    assert kit.evaluate(from_datafusion(~expr), data) == compute(~expr, data)


@pytest.mark.parametrize("text", TEXTS)
def test_from_datafusion_keeps_the_answer_of_sql_text(kit, text):
    data = kit.table()
    expr = sql(text, data)
    assert (
        not any(isinstance(node, tree.Opaque) for node in from_datafusion(expr).walk())
        or "arrow_cast" in text
    )
    assert kit.evaluate(from_datafusion(expr), data) == compute(expr, data)
    assert kit.evaluate(from_datafusion(~expr), data) == compute(~expr, data)


@pytest.mark.parametrize("text", OPAQUE)
def test_unsupported_parts_become_opaque_leaves(kit, text):
    data = kit.table()
    expr = sql(text, data)
    predicate = pickle.loads(pickle.dumps(from_datafusion(expr)))
    assert any(isinstance(node, tree.Opaque) for node in predicate.walk())
    assert kit.evaluate(predicate, data) == compute(expr, data)
    assert kit.evaluate(from_datafusion(~expr), data) == compute(~expr, data)


@pytest.mark.parametrize("text", ["sum(i) > 1", "i in (select 1)", "row_number() over () = 1"])
def test_expressions_over_other_rows_keep_everything(kit, text):
    predicate = from_datafusion(sql(text, kit.table()))
    assert isinstance(predicate, tree.Opaque)
    assert predicate.evaluate is None


def test_the_opaque_leaf_is_the_smallest_condition_and_takes_the_whole_struct(kit):
    predicate = from_datafusion(sql("i = 1 and not (p['q'] % 2 = 1) and j = 2", kit.table()))
    assert isinstance(predicate, tree.And)
    first, second, third = predicate.args
    assert first == (tree.col("i") == 1)
    assert isinstance(second, tree.Not)
    assert isinstance(second.arg, tree.Opaque)
    assert second.arg.args[0].path == ("p",)
    assert third == (tree.col("j") == 2)


def test_a_long_chain_is_read_flat():
    expr = col("i") == lit(0)
    for number in range(1, 1100):
        expr = expr | (col("i") == lit(number))
    predicate = from_datafusion(expr)
    assert isinstance(predicate, tree.Or)
    assert len(predicate.args) == 1100


def test_a_long_list_stays_an_arrow_array():
    values = pa.array(range(1, 100_001))
    expr = to_datafusion(tree.IsIn(tree.col("i"), values))
    predicate = from_datafusion(expr)
    assert isinstance(predicate, tree.IsIn)
    assert predicate.values.equals(values)
    assert compute(expr, pa.table({"i": [5, 0, None]})) == [True, False, None]


def test_a_list_may_hold_dates_beyond_those_of_python():
    days = pa.array([-(2**31), 0], pa.int32()).cast(pa.date32())
    expr = fn.in_list(col("d"), [lit(day) for day in days])
    assert from_datafusion(expr) == tree.IsIn(tree.col("d"), days)


def test_names_are_taken_as_they_are():
    data = pa.table({'Q"x.y': [1, 2]})
    predicate = tree.col('Q"x.y') == 1
    assert compute(to_datafusion(predicate), data) == [True, False]
    assert from_datafusion(to_datafusion(predicate)) == predicate


@settings(max_examples=sample("round trips"), deadline=None)
@given(st.data())
def test_round_trips(kit, data):
    predicate, rows = data.draw(kit.predicates()), kit.table()
    expected = kit.evaluate(predicate, rows)
    expr = to_datafusion(predicate)
    # Its optimizer makes FALSE of "x IN (1) AND x NOT IN (1)", also where x is NULL.
    assert compute(expr, rows, passes=0) == expected
    assert kit.evaluate(from_datafusion(expr), rows) == expected


@pytest.mark.parametrize("passes", [0, 3])
@pytest.mark.parametrize("count", [1, 3, 4, 100, 101])
def test_lists_of_any_length_before_and_after_the_optimizer(kit, count, passes):
    numbers, rows = list(range(count)), kit.table()
    for values in (numbers, [*map(float, numbers)], [-0.0, *map(float, numbers[1:])], [*numbers, None]):
        predicate = tree.col("f").isin(values)
        for asked in (predicate, ~predicate):
            assert compute(to_datafusion(asked), rows, passes) == kit.evaluate(asked, rows), str(asked)


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (tree.col("i") + 1 > 2, [False, True]),
        (tree.Call("lower", (tree.col("s"),)) == "ab", [True, False]),
        (tree.Call("upper", (tree.col("s"),)) == "AB", [True, False]),
        (tree.Call("substr", (tree.col("s"), tree.lit(2), tree.lit(5))) == "b", [True, True]),
        (tree.Call("left", (tree.col("s"), tree.lit(1))) == "A", [True, False]),
        (tree.Call("length", (tree.col("s"),)) == 2, [True, True]),
        (tree.col("i").cast(pa.int8()) > 1, [False, True]),
        (tree.col("u") == 2**53 + 1, [True, False]),
        (tree.col("i").isin(pa.array([], pa.int64())), [False, False]),
        (tree.col("old") < dt.datetime(1960, 1, 1, 0, 0, 0, 500), [True, False]),
        (tree.col("old") <= dt.datetime(1960, 1, 1, 0, 0, 0, 500), [True, False]),
        (tree.col("old") == dt.datetime(1960, 1, 1, 0, 0, 0, 500), [False, False]),
        (tree.col("old").isin([dt.datetime(1960, 1, 1, 0, 0, 0, 500)]), [False, False]),
        (tree.col("old").isin([dt.datetime(1960, 1, 1, 0, 0, 0, 500), None]), [None, None]),
        (tree.col("zero").isin([0.0, 0.5]), [True, True]),
        (tree.col("zero").isin([float(n) for n in range(200)]), [True, True]),
        (tree.col("i").isin([*range(2, 202), None]), [None, True]),
    ],
)
def test_values_computed_by_datafusion(predicate, answer):
    times = [dt.datetime(1960, 1, 1), dt.datetime(1960, 1, 1, 0, 0, 0, 1000)]
    old, wide = pa.array(times, pa.timestamp("ms")), pa.array([2**53 + 1, 2**53], pa.uint64())
    data = pa.table({"i": [1, 2], "s": ["Ab", "éb"], "u": wide, "old": old, "zero": [0.0, -0.0]})
    assert compute(to_datafusion(predicate), data) == answer


@pytest.mark.parametrize(
    "predicate",
    [
        tree.udf(lambda x: x, ["x"]),
        tree.Cast(tree.col("x"), pa.int8(), lenient=True) == 1,
        tree.Cast(tree.col("x"), pa.int64()) == 1,
        tree.Cast(tree.col("x"), pa.date32()) == DAY,
        tree.Call("year", (tree.col("x"),)) == 2020,
        tree.Match("prefix", tree.col("x"), b"a"),
    ],
    ids=str,
)
def test_not_expressible_names_the_part(predicate):
    with pytest.raises(NotExpressibleError, match="DataFusion has no equivalent of"):
        to_datafusion((tree.col("y") == 1) & predicate)
