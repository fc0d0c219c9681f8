"""from_arrow preserves pyarrow's results, to_arrow Spark's; both are checked by evaluation."""

import datetime as dt
import decimal
import math
import pickle

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from pyarrow import acero

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.arrow import from_arrow, to_arrow
from tests.support.samples import sample

NAN, INF = math.nan, math.inf
f = pc.field
NOON = dt.datetime(2020, 2, 29, 12, 30, 15, 123456)
call = pc.Expression._call


def compute(expr, data):
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(data))
    plan = acero.Declaration("project", acero.ProjectNodeOptions([expr], ["m"]), [source])
    return plan.to_table(use_threads=False)["m"].to_pylist()


def isin(x, *values, **options):
    return pc.is_in(x, pa.array(values), **options)


OPERATORS = {
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}
PAIRS = [
    *((name, v) for name in "fhij" for v in (1.0, -0.0, NAN, INF, 1, 2.5)),
    *(("h", v) for v in (0.1, pa.scalar(0.1, pa.float32()))),
    ("s", "a%b"),
    ("s", pa.scalar("ab", pa.large_string())),
    ("n", b"a"),
    ("b", True),
    ("d", dt.date(2020, 2, 29)),
    ("d", dt.datetime(2020, 2, 29, 12)),
    ("ts", NOON),
    ("ms", NOON),
    ("ts", dt.date(2020, 2, 29)),
    ("tz", pa.scalar(NOON, pa.timestamp("us", "UTC"))),
    ("m", decimal.Decimal("2.5")),
    ("m", decimal.Decimal("2.501")),
    ("f", decimal.Decimal("2.5")),
    ("i", pa.scalar(None, pa.int64())),
    ("i", pa.scalar(3, pa.int8())),
    *((a, f(b)) for a, b in ("fg", "gf", "ff", "if", "fi", "ij", "su", "ss", "bc", "hf", ("d", "ts"))),
]
# The table's largest integer is beyond float32, where pyarrow refuses to compare with a small float.
COMPARISONS = [
    pytest.param(
        op(f(a).cast(pa.float64()) if a in "ij" and isinstance(b, float) else f(a), b), id=f"{a} {sign} {b}"
    )
    for sign, op in OPERATORS.items()
    for a, b in PAIRS
]
CONDITIONS = [
    pc.scalar(2) < f("f"),
    pc.scalar(NAN) < f("f"),
    (f("f") > 1) & (f("i") < 3),
    (f("f") > 1) | f("b"),
    ~(f("f") >= 1),
    f("b") & ~f("c"),
    call("and_not_kleene", [f("b"), f("c")]),
    f("f").is_null(),
    f("f").is_null(nan_is_null=True),
    f("s").is_null(nan_is_null=True),
    f("f").is_valid(),
    f("f").is_nan(),
    f("i").is_nan(),
    (f("f") > 1).is_null(),
    (f("f") > 1).is_valid(),
    (f("s") == "a").is_null(),
    pc.is_finite(f("f")),
    pc.is_inf(f("f")),
    pc.is_finite(f("i")),
    call("true_unless_null", [f("f")]),
    isin(f("i"), 1, 2),
    isin(f("i"), 1, None),
    isin(f("i"), 1, None, skip_nulls=True),
    isin(f("j"), 0, 2**31),
    ~isin(f("i"), 1, None),
    isin(f("f"), NAN, 1.0),
    isin(f("f"), 0.0),
    isin(f("f"), -0.0, None),
    isin(f("h"), 0.1),
    isin(f("h"), 0.1, None),
    isin(f("f"), 0.1),
    isin(f("s"), "a", "100%"),
    isin(f("s"), "a", None),
    isin(f("m"), decimal.Decimal("2.50")),
    isin(f("d"), NOON),
    isin(f("d"), dt.datetime(2020, 2, 29)),
    isin(f("ts"), NOON),
    isin(f("ms"), NOON),
    f("i").isin(pa.array([], pa.int64())),
    f("p", "q") == 1,
    f("p", "r", "w") > "1",
    pc.struct_field(f("p"), "q") > 1,
    pc.struct_field(f("p"), ["r", "w"]) == "2",
    f("p").is_null(),
    f("p", "q").is_null(),
    pc.starts_with(f("s"), "a"),
    pc.ends_with(f("s"), "b"),
    pc.match_substring(f("s"), "%"),
    pc.starts_with(f("n"), b"a"),
    pytest.param(pc.starts_with(f("n"), b"\xff"), id="bytes that are not text"),
    pc.match_like(f("s"), "a_b"),
    pc.match_like(f("s"), "%B"),
    pc.match_like(f("s"), "A_B"),
    f("f").cast(pa.float32()) > 0.1,
    f("t").cast(pa.int16()) == 127,
    f("i") + 1 > 2,
    f("i") * 2 - 3 == 1,
    f("f") * 2 > 1,
    call("negate_checked", [f("f")]) >= 0,
    pc.utf8_lower(f("s")) == "a\nb",
    pc.utf8_upper(f("s")) == "A%B",
    pc.utf8_length(f("s")) == 3,
    pc.utf8_slice_codeunits(f("s"), 1, 3) == "%b",
    pc.scalar(True),
    pc.scalar(pa.scalar(None, pa.bool_())),
    f("b"),
]
OPAQUE = [
    pc.match_like(f("s"), "a\\%b"),
    pc.match_like(f("s"), "a\\\\%"),
    pc.match_like(f("s"), "A%", ignore_case=True),
    pc.starts_with(f("s"), "S", ignore_case=True),
    pc.match_substring_regex(f("s"), "^a.b$"),
    pc.year(f("ts")) == 2020,
    f("ts").cast(pa.date32()) == dt.date(2020, 2, 29),
    f("ts").cast(pa.date32()) >= dt.date(2020, 2, 29),
    f("tz").cast(pa.date32()) != dt.date(2020, 2, 29),
    pc.floor_temporal(f("ts"), unit="month") == dt.datetime(2020, 2, 1),
    pc.if_else(f("b"), f("c"), True),
    pc.coalesce(f("b"), False),
    pc.xor(f("b"), f("c")),
    call("and", [f("b"), f("c")]),
    f("i") / 2 > 1,
    f("t").cast(pa.int64()) == 127,
    f("ts").cast(pa.int64()) > 0,
    (f("f") > 1) == f("b"),
    pc.add(f("i"), 1) > 2,
    f("f").cast(pa.int64(), safe=False) == 2,
    pc.struct_field(f("p"), [0]) == 1,
    pc.utf8_reverse(pc.scalar("abc")) == "cba",
    pc.year(f("ts")).isin([2020]),
    pc.starts_with(f("p", "r", "w"), "1", ignore_case=True),
]


@pytest.mark.parametrize("expr", [*COMPARISONS, *CONDITIONS], ids=str)
def test_from_arrow_keeps_the_answer(kit, expr):
    data = kit.table()
    predicate = from_arrow(expr)
    assert kit.evaluate(predicate, data) == compute(expr, data)
    assert kit.evaluate(from_arrow(~expr), data) == compute(~expr, data)


@pytest.mark.parametrize("expr", OPAQUE, ids=str)
def test_unsupported_parts_become_opaque_leaves(kit, expr):
    data = kit.table()
    predicate = pickle.loads(pickle.dumps(from_arrow(expr)))
    assert any(isinstance(node, tree.Opaque) for node in predicate.walk())
    assert kit.evaluate(predicate, data) == compute(expr, data)
    assert kit.evaluate(from_arrow(~expr), data) == compute(~expr, data)


def test_the_opaque_leaf_is_the_smallest_condition():
    predicate = from_arrow((f("i") == 1) & ~(pc.year(f("ts")) == 2020) & (f("j") == 2))
    assert isinstance(predicate, tree.And)
    first, second, third = predicate.args
    assert first == (tree.col("i") == 1)
    assert isinstance(second, tree.Not)
    assert isinstance(second.arg, tree.Opaque)
    assert second.arg.args[0].path == ("ts",)
    assert third == (tree.col("j") == 2)


def test_a_column_by_position_can_only_keep_everything():
    predicate = from_arrow(pc.field(0) == 1)
    assert isinstance(predicate, tree.Opaque)
    assert predicate.evaluate is None


def test_a_long_chain_is_read_flat():
    expr = f("i") == 0
    for number in range(1, 1500):
        expr = expr | (f("i") == number)
    predicate = from_arrow(expr)
    assert isinstance(predicate, tree.Or)
    assert len(predicate.args) == 1500


def test_a_list_of_a_million_values_stays_an_arrow_array():
    values = pa.array(range(1, 1_000_001))
    predicate = from_arrow(f("i").isin(values))
    (node,) = [n for n in predicate.walk() if isinstance(n, tree.IsIn)]
    assert node.values.equals(values)
    assert compute(to_arrow(node), pa.table({"i": [5, 0, None]})) == [True, False, None]


@settings(max_examples=sample("round trips"), deadline=None)
@given(st.data())
def test_round_trips(kit, data):
    predicate, rows = data.draw(kit.predicates()), kit.table()
    expected = kit.evaluate(predicate, rows)
    expr = to_arrow(predicate)
    assert compute(expr, rows) == expected
    assert kit.evaluate(from_arrow(expr), rows) == expected


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (tree.col("i") + 1 > 2, [False, True]),
        (tree.Call("negative", (tree.col("i"),)) < 0, [True, True]),
        (tree.Call("lower", (tree.col("s"),)) == "ab", [True, False]),
        (tree.Call("substr", (tree.col("s"), tree.lit(2), tree.lit(5))) == "b", [True, True]),
        (tree.Call("left", (tree.col("s"), tree.lit(1))) == "A", [True, False]),
        (tree.Call("length", (tree.col("s"),)) == 2, [True, True]),
        (tree.col("i").cast(pa.float64()) > 1.5, [False, True]),
        (tree.col("i").isin(pa.array([], pa.int64())), [False, False]),
        (tree.col("h").isin([0.1, 0.5]), [False, True]),
        (tree.col("s").isin(pa.array(["Ab", None], pa.string_view())), [True, None]),
        (tree.col("d").isin([dt.datetime(2020, 1, 1, 1), dt.datetime(2020, 1, 2)]), [False, True]),
    ],
)
def test_values_computed_by_pyarrow(predicate, answer):
    days = [dt.date(2020, 1, 1), dt.date(2020, 1, 2)]
    data = pa.table({"i": [1, 2], "s": ["Ab", "éb"], "h": pa.array([0.1, 0.5], pa.float32()), "d": days})
    assert compute(to_arrow(predicate), data) == answer


@pytest.mark.parametrize(
    "predicate",
    [
        tree.udf(lambda x: x, ["x"]),
        tree.Cast(tree.col("x"), pa.int64(), lenient=True) == 1,
        tree.Cast(tree.col("x"), pa.date32()) == dt.date(2020, 1, 1),
        tree.Cast(tree.col("x"), pa.int64()) == 1,
        tree.Call("year", (tree.col("x"),)) == 2020,
        tree.Call("substr", (tree.col("x"), tree.lit(-2), tree.lit(2))) == "a",
    ],
    ids=str,
)
def test_not_expressible_names_the_part(predicate):
    with pytest.raises(NotExpressibleError, match="pyarrow has no equivalent of"):
        to_arrow((tree.col("y") == 1) & predicate)
