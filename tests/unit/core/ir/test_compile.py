"""Input and expected output: what a predicate becomes on a schema."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.core.ir import Reason, compile_predicate
from skipstone.core.ir.nodes import Leaf
from skipstone.errors import TypeMismatchError, UnknownColumnError
from skipstone.predicate.tree import Call, Column

SCHEMA = pa.schema(
    [
        ("i8", pa.int8()),
        ("i", pa.int32()),
        ("big", pa.int64()),
        ("u", pa.uint64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("ms")),
        ("dec", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(38, 4)),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])),
        ("list", pa.list_(pa.int64())),
        ("dotted.name", pa.int32()),
        ("id", pa.uuid()),
        ("cat", pa.dictionary(pa.int8(), pa.string())),
    ]
)

# predicate | TRUE for | FALSE for | NULL for
# ruff: noqa: E501
TABLE = """
i > 5.5 | [6, +∞) | (-∞, 5] | NULL
i = 5.5 | nothing | (-∞, +∞) | NULL
i < 5.5 | (-∞, 5] | [6, +∞) | NULL
i >= -5.5 | [-5, +∞) | (-∞, -6] | NULL
5 < i | [6, +∞) | (-∞, 5] | NULL
i8 = 300 | nothing | (-∞, +∞) | NULL
i8 <= 300 | (-∞, +∞) | nothing | NULL
i <> 5 | (-∞, 4] or [6, +∞) | [5] | NULL
i <=> 5 | [5] | (-∞, 4] or [6, +∞) or NULL | nothing
i <=> NULL | NULL | (-∞, +∞) | nothing
i IS NOT DISTINCT FROM 5 | [5] | (-∞, 4] or [6, +∞) or NULL | nothing
i IS DISTINCT FROM 5 | (-∞, 4] or [6, +∞) or NULL | [5] | nothing
i IS NULL | NULL | (-∞, +∞) | nothing
NOT (i IS NULL) | (-∞, +∞) | NULL | nothing
i BETWEEN 3 AND 7 | [3, 7] | (-∞, 2] or [8, +∞) | NULL
NOT (i BETWEEN 3 AND 7) | (-∞, 2] or [8, +∞) | [3, 7] | NULL
i IN (1, 2, 5) | [1, 2] or [5] | (-∞, 0] or [3, 4] or [6, +∞) | NULL
i NOT IN (1, 5) | (-∞, 0] or [2, 4] or [6, +∞) | [1] or [5] | NULL
i IN (1, NULL) | [1] | nothing | (-∞, 0] or [2, +∞) or NULL
i NOT IN (1, NULL) | nothing | [1] | (-∞, 0] or [2, +∞) or NULL
(i > 5) IS TRUE | [6, +∞) | (-∞, 5] or NULL | nothing
(i > 5) IS NOT TRUE | (-∞, 5] or NULL | [6, +∞) | nothing
(i > 5) IS UNKNOWN | NULL | (-∞, +∞) | nothing
i > 3 AND i < 9 | [4, 8] | (-∞, 3] or [9, +∞) | NULL
i < 3 OR i > 9 OR i IS NULL | (-∞, 2] or [10, +∞) or NULL | [3, 9] | nothing
i > 3 AND i < 2 | nothing | (-∞, +∞) | NULL
big = 9007199254740993D | [9007199254740992, 9007199254740993] | (-∞, 9007199254740991] or [9007199254740994, +∞) | NULL
f = 0.1D | [0.1] | (-∞, 0.1) or (0.1, +∞) or NaN | NULL
f = 0.1 | [0.1] or [0.10000000149011612] | (-∞, +∞) or NaN | NULL
f = 0.5 | [0.5] | (-∞, 0.5) or (0.5, +∞) or NaN | NULL
f IN (0.1, 16777217) | [0.1] or [0.10000000149011612] or [16777216.0] or [16777217.0] | (-∞, +∞) or NaN | NULL
f = 'NaN' | NaN | (-∞, +∞) | NULL
d <> 'nan' | (-∞, +∞) | NaN | NULL
d IN ('nan', '1.5') | [1.5] or NaN | (-∞, 1.5) or (1.5, +∞) | NULL
f > 2 | (2.0, +∞) or NaN | (-∞, 2.0] | NULL
f >= 2 | [2.0, +∞) or NaN | (-∞, 2.0) | NULL
NOT (f > 2) | (-∞, 2.0] | (2.0, +∞) or NaN | NULL
f <> 5 | (-∞, 5.0) or (5.0, +∞) or NaN | [5.0] | NULL
f = double('NaN') | NaN | (-∞, +∞) | NULL
f < double('NaN') | (-∞, +∞) | NaN | NULL
f <= double('NaN') | (-∞, +∞) or NaN | nothing | NULL
f > double('NaN') | nothing | (-∞, +∞) or NaN | NULL
isnan(f) | NaN | (-∞, +∞) or NULL | nothing
isnan(i) | nothing | anything | nothing
b | [True, +∞) | (-∞, False] | NULL
NOT b | (-∞, False] | [True, +∞) | NULL
b = true | [True, +∞) | (-∞, False] | NULL
s = 'abc' | ['abc'] | (-∞, 'abc') or ('abc', +∞) | NULL
s LIKE 'abc' | ['abc'] | (-∞, 'abc') or ('abc', +∞) | NULL
s LIKE 'ab%' | ['ab', 'ac') | (-∞, 'ab') or ['ac', +∞) | NULL
s NOT LIKE 'ab%' | (-∞, 'ab') or ['ac', +∞) | ['ab', 'ac') | NULL
s LIKE 'a_c' | ['a', 'b') | (-∞, +∞) | NULL
s LIKE '%c' | (-∞, +∞) | (-∞, +∞) | NULL
s LIKE 'a!%b%' ESCAPE '!' | ['a%b', 'a%c') | (-∞, 'a%b') or ['a%c', +∞) | NULL
cat = 'x' | ['x'] | (-∞, 'x') or ('x', +∞) | NULL
day >= '2026-01-02' | [2026-01-02, +∞) | (-∞, 2026-01-01] | NULL
day = TIMESTAMP_NTZ '2026-01-02 12:00:00' | nothing | (-∞, +∞) | NULL
day < TIMESTAMP_NTZ '2026-01-02 12:00:00' | (-∞, 2026-01-02] | [2026-01-03, +∞) | NULL
ts >= '2026-01-01' | [2026-01-01 00:00:00.000000Z, +∞) | (-∞, 2025-12-31 23:59:59.999999Z] | NULL
ts = DATE '2026-01-01' | [2026-01-01 00:00:00.000000Z] | (-∞, 2025-12-31 23:59:59.999999Z] or [2026-01-01 00:00:00.000001Z, +∞) | NULL
wall > '2026-01-01 00:00:00.0005' | [2026-01-01 00:00:00.001, +∞) | (-∞, 2026-01-01 00:00:00.000] | NULL
wall = '2026-01-01 00:00:00.0005' | nothing | (-∞, +∞) | NULL
dec = 1.5 | [1.50] | (-∞, 1.49] or [1.51, +∞) | NULL
dec = 1.505 | nothing | (-∞, +∞) | NULL
dec > 1.505 | [1.51, +∞) | (-∞, 1.50] | NULL
wide >= 12345678901234567890.12345 | [12345678901234567890.1235, +∞) | (-∞, 12345678901234567890.1235) | NULL
st.x = 3 | [3] | (-∞, 2] or [4, +∞) | NULL
st.y.z IS NULL | NULL | (-∞, +∞) | nothing
st IS NULL | NULL | (-∞, +∞) | nothing
list IS NOT NULL | (-∞, +∞) | NULL | nothing
`dotted.name` = 1 | [1] | (-∞, 0] or [2, +∞) | NULL
cast(ts as date) = '2026-01-02' | [2026-01-02] | (-∞, 2026-01-01] or [2026-01-03, +∞) | NULL
year(ts) >= 2020 | [2020, +∞) | (-∞, 2019] | NULL
i + 1 > 10 | [11, +∞) | (-∞, 10] | NULL
10 - i > 3 | [4, +∞) | (-∞, 3] | NULL
left(s, 2) = 'ab' | ['ab'] | (-∞, 'ab') or ('ab', +∞) | NULL
cast(i as bigint) = 7 | [7] | (-∞, 6] or [8, +∞) | NULL
cast(i8 as double) < 1.5 | (-∞, 1.5) | [1.5, +∞) or NaN | NULL
"""


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_sets_of_values(line: str) -> None:
    text, *expected = (part.strip() for part in line.split(" | "))
    node = compile_predicate(sk.parse(text), SCHEMA).node
    assert isinstance(node, Leaf), node
    assert [str(node.true), str(node.false), str(node.null)] == expected


@pytest.mark.parametrize(
    ("text", "decided"),
    [
        ("i = NULL", "NULL"),
        ("1 = 1", "TRUE"),
        ("1 > 2 OR NULL", "NULL"),
        ("i > 5 AND FALSE", "FALSE"),
        ("NOT (i > 5 AND FALSE)", "TRUE"),
        ("NULL IS NULL", "TRUE"),
        ("'a' < 'b'", "TRUE"),
        ("5 IN (1, 5)", "TRUE"),
        ("5 IN (1, NULL)", "NULL"),
        ("double('NaN') > 1", "TRUE"),
    ],
)
def test_constants_fold(text: str, decided: str) -> None:
    assert str(compile_predicate(sk.parse(text), SCHEMA).node) == decided


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sin(d) > 0", Reason.FUNCTION),
        ("lower(s) = 'a'", Reason.FUNCTION),
        ("cast(d as int) = 3", Reason.CAST),
        ("cast(i as string) = '3'", Reason.CAST),
        ("s = 5", Reason.TYPES),
        ("s = i", Reason.TYPES),
        ("s LIKE '%x'", Reason.PATTERN),
        ("month(ts) = 3", Reason.FUNCTION),
    ],
)
def test_what_cannot_be_judged_is_said(text: str, reason: Reason) -> None:
    compiled = compile_predicate(sk.parse(f"i = 1 AND {text}"), SCHEMA)
    (diagnostic,) = compiled.unsupported
    assert diagnostic.reason is reason
    assert str(compiled.residual) == f"i = 1 AND {sk.parse(text)}"
    if reason is not Reason.PATTERN:  # a pattern still says that NULL never matches
        assert str(compiled.prunable) == "i = 1"


def test_an_or_with_an_unknown_branch_drops_nothing() -> None:
    compiled = compile_predicate(sk.parse("(i = 1 OR sin(d) > 0) AND big > 3"), SCHEMA)
    assert str(compiled.prunable) == "big > 3"


def test_zones() -> None:
    paris = compile_predicate(sk.parse("ts >= '2026-07-01'", tz="Europe/Paris"), SCHEMA).node
    assert isinstance(paris, Leaf)
    assert str(paris.true) == "[2026-06-30 22:00:00.000000Z, +∞)"
    steps_back = compile_predicate(sk.parse("cast(ts as date) = '2026-01-01'", tz="Europe/Paris"), SCHEMA)
    assert steps_back.unsupported[0].reason is Reason.ZONE
    fixed = compile_predicate(sk.parse("cast(ts as date) = '2026-01-01'", tz="+02:00"), SCHEMA).node
    assert isinstance(fixed, Leaf)
    aware = sk.col("wall") > dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert isinstance(compile_predicate(aware, SCHEMA).node, Leaf)


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (sk.col("I") == 1, r"column I: unknown column \(did you mean i\?\)"),
        (sk.col("st", "q") == 1, r"column st.q: unknown column \(struct st has x, y"),
        (sk.col("st.x") == 1, r"use col\('st', 'x'\)"),
        (sk.col("i", "x") == 1, r"column i.x: unknown column \(i is of type int32, which has no fields\)"),
        (sk.udf(lambda x: x, ["nope"]), "column nope: unknown column"),
    ],
)
def test_unknown_columns(predicate: sk.Predicate, message: str) -> None:
    with pytest.raises(UnknownColumnError, match=message):
        compile_predicate(predicate, SCHEMA)


@pytest.mark.parametrize(
    ("predicate", "column"),
    [
        (sk.col("i") == "abc", "i"),
        (sk.col("ts") > 5, "ts"),
        (sk.col("ts") > "yesterday", "ts"),
        (sk.col("b") == 3, "b"),
        (sk.col("day") == 2026, "day"),
        (sk.col("id") == "not a uuid", "id"),
        (sk.col("i").isin(["a"]), "i"),
    ],
)
def test_impossible_types(predicate: sk.Predicate, column: str) -> None:
    with pytest.raises(TypeMismatchError) as caught:
        compile_predicate(predicate, SCHEMA)
    assert caught.value.column == column


def test_a_condition_must_be_boolean() -> None:
    with pytest.raises(TypeMismatchError, match="is not a condition"):
        compile_predicate(sk.col("i") & (sk.col("big") == 1), SCHEMA)


def test_case_insensitive_names() -> None:
    schema = pa.schema([("Aa", pa.int8()), ("AA", pa.int8()), ("Bb", pa.int8())])
    assert compile_predicate(sk.col("bB") == 1, schema, case_sensitive=False).columns == (("Bb",),)
    assert compile_predicate(sk.col("AA") == 1, schema, case_sensitive=False).columns == (("AA",),)
    with pytest.raises(UnknownColumnError, match="ambiguous"):
        compile_predicate(sk.col("aa") == 1, schema, case_sensitive=False)


def test_passes_can_be_left_out() -> None:
    predicate = sk.parse("NOT (i < 3 OR i > 9)")
    full = compile_predicate(predicate, SCHEMA).node
    bare = compile_predicate(predicate, SCHEMA, predicate_passes=(), node_passes=()).node
    assert isinstance(full, Leaf)
    assert not isinstance(bare, Leaf)


def test_a_million_values_stay_columnar() -> None:
    values = pa.array(range(0, 2_000_000, 2))
    node = compile_predicate(sk.col("big").isin(values), SCHEMA).node
    assert isinstance(node, Leaf)
    assert len(node.true.spans) == 1_000_000
    assert not node.true.contains(3)


def test_decimal_arithmetic_on_constants() -> None:
    node = compile_predicate(sk.col("dec") > sk.lit(decimal.Decimal("1.25")) + 1, SCHEMA).node
    assert isinstance(node, Leaf)
    assert str(node.true) == "[2.26, +∞)"


def test_functions_of_columns_by_hand() -> None:
    predicate = Call("date_trunc", (sk.lit("month"), Column(("ts",)))) == dt.datetime(2026, 2, 1)
    node = compile_predicate(predicate, SCHEMA).node
    assert isinstance(node, Leaf)
    assert str(node.true) == "[2026-02-01 00:00:00.000000Z]"
