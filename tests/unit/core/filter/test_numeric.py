"""Rounding, functions of doubles, bits and more functions of strings; tests/spark compares with Spark."""

from __future__ import annotations

import math
import random
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest

from skipstone.core.filter import RowValues
from skipstone.errors import NotExpressibleError, ParseError, PredicateError
from skipstone.predicate.sql.read import SqlReader
from skipstone.predicate.sql.types import syntax


def values(text: str, **columns: Any) -> list[Any]:
    table = pa.table(columns)
    made = RowValues({"v": SqlReader("spark", "UTC").value(syntax(text, "spark"))}, table.schema)
    return list(made.compute(table)["v"].to_pylist())


def test_floats_are_rounded_as_their_text() -> None:
    rng = random.Random("rounding")
    numbers = [
        *(0.5, 1.5, 2.5, -0.5, -2.5, 1.005, 2.675, 1.115, 0.15, 0.25, 1e15 + 0.5, 4503599627370497.5, 9e15),
        *(float(f"{rng.randrange(10**6)}.{rng.randrange(1000):03}5") for _ in range(2_000)),
        *(rng.uniform(-1, 1) * 10 ** rng.randrange(-5, 18) for _ in range(2_000)),
    ]
    for name, mode in (("round", ROUND_HALF_UP), ("bround", ROUND_HALF_EVEN)):
        for places in (0, 1, 2, 3, 5, -1, -3, 25):
            got = values(f"{name}(x, {places})", x=numbers)
            for number, rounded in zip(numbers, got, strict=True):
                exact = Decimal(repr(number))
                if exact.as_tuple().exponent < -places:
                    exact = exact.quantize(Decimal(1).scaleb(-places), mode)
                assert rounded == float(exact), (name, number, places)
    assert values("round(x, 2)", x=[None, math.inf, -math.inf, 1e300]) == [None, math.inf, -math.inf, 1e300]
    assert math.isnan(values("round(x)", x=[math.nan])[0])
    assert math.copysign(1, values("round(x)", x=[-0.2])[0]) == 1


def test_integers_and_decimals_are_rounded() -> None:
    ints = [15, 25, -15, -25, 0, 5, None, 2**31 - 2]
    assert values("round(x, -1)", x=pa.array(ints[:-1], pa.int32())) == [20, 30, -20, -30, 0, 10, None]
    assert values("bround(x, -1)", x=pa.array(ints[:-1], pa.int32())) == [20, 20, -20, -20, 0, 0, None]
    assert values("round(x, -30)", x=pa.array(ints, pa.int64())) == [0, 0, 0, 0, 0, 0, None, 0]
    with pytest.raises(PredicateError, match="rounding overflows int32"):
        values("round(x, -3)", x=pa.array([2**31 - 1], pa.int32()))
    decimals = pa.array([Decimal("1.25"), Decimal("-1.25"), None], pa.decimal128(4, 2))
    assert values("round(x, 1)", x=decimals) == [Decimal("1.3"), Decimal("-1.3"), None]
    assert values("bround(x, 1)", x=decimals) == [Decimal("1.2"), Decimal("-1.2"), None]
    assert values("round(x, -2)", x=decimals) == [Decimal(0), Decimal(0), None]
    assert values("x % 0.4", x=decimals) == [Decimal("0.05"), Decimal("-0.05"), None]
    with pytest.raises(PredicateError, match="division by zero"):
        values("x % 0.0", x=decimals)


def test_logarithms_are_null_where_they_are_not_defined() -> None:
    x = [math.e, 0.0, -1.0, None, math.inf]
    assert values("ln(x)", x=x) == [1.0, None, None, None, math.inf]
    assert values("log(10, x)", x=[100.0, 0.0]) == [2.0, None]
    assert values("log10(x)", x=[1000.0]) == [pytest.approx(3)]
    assert values("log1p(x)", x=[0.0, -1.0, -2.0]) == [0.0, None, None]
    assert values("power(x, 0.5)", x=[9.0, None]) == [3.0, None]
    assert math.isnan(values("pow(x, double('inf'))", x=[1.0])[0])
    assert values("sign(x)", x=[-2, 0, 7, None]) == [-1.0, 0.0, 1.0, None]


def test_bits() -> None:
    x = pa.array([5, -1, None], pa.int64())
    assert values("x & 3", x=x) == [1, 3, None]
    assert values("x | 8", x=x) == [13, -1, None]
    assert values("x ^ 1", x=x) == [4, -2, None]
    assert values("~x", x=x) == [-6, 0, None]
    assert values("(x & 4) | 1", x=x) == [5, 5, None]
    assert values("shiftleft(x, 65)", x=x) == [10, -2, None]
    assert values("x >> 1", x=x) == [2, -1, None]
    # Spark's precedence of these differs from the parser's.
    with pytest.raises(ParseError, match="mixes operators of bits"):
        values("x | 1 & 2", x=x)
    with pytest.raises(NotExpressibleError, match="a column or the cast of one"):
        values("shiftleft(length('a'), x)", x=pa.array([1], pa.int32()))


def test_more_functions_of_strings() -> None:
    s = ["a-b", "", None, "xé-y-z"]
    assert values("lpad(s, 4, '*+')", s=s) == ["*a-b", "*+*+", None, "xé-y"]
    assert values("rpad(s, 2)", s=s) == ["a-", "  ", None, "xé"]
    assert values("lpad(s, -1)", s=s) == ["", "", None, ""]
    assert values("repeat(s, 2)", s=s) == ["a-ba-b", "", None, "xé-y-zxé-y-z"]
    assert values("split(s, '-')", s=s) == [["a", "b"], [""], None, ["xé", "y", "z"]]
    assert values("split(s, '-')[0]", s=s) == ["a", "", None, "xé"]
    assert values("split_part(s, '-', -1)", s=s) == ["b", "", None, "z"]
    assert values("split_part(s, '-', 3)", s=s) == ["", "", None, "z"]
    assert values("concat_ws('/', s, NULL, s)", s=s) == ["a-b/a-b", "/", "", "xé-y-z/xé-y-z"]
    assert values("regexp_replace(s, '([a-z])-', '$1+')", s=s) == ["a+b", "", None, "xé-y+z"]
    assert values("octet_length(s)", s=s) == [3, 0, None, 7]
    assert values("md5(s)", s=["a"]) == ["0cc175b9c0f1b6a831c399e269772661"]
    assert values("sha2(s, 224)", s=[""])[0].startswith("d14a028c2a3a2bc9")
    with pytest.raises(NotExpressibleError, match="matches an empty string"):
        values("split(s, 'x*')", s=s)
    with pytest.raises(NotExpressibleError, match="no backslash"):
        values(r"regexp_replace(s, 'a', '\\\\1')", s=s)


def test_epochs_of_any_time() -> None:
    assert values("unix_timestamp(d)", d=pa.array([1, None], pa.date32())) == [86_400, None]
    before = pa.array([-1, -1_000_000, -1_000_001, 999_999], pa.timestamp("us", "UTC"))
    assert values("unix_timestamp(t)", t=before) == [0, -1, -1, 0]
    assert values("unix_seconds(t)", t=before) == [-1, -1, -2, 0]


def test_extreme_arguments() -> None:
    assert values("round(x, 400)", x=[1.5, 1e308]) == [1.5, 1e308]
    assert values("bround(x, -400)", x=[1.5, 1e308]) == [0.0, 0.0]
    assert values("atan2(x, -5)", x=[-0.0]) == [math.pi]
    top = pa.array([2**63 - 1, 4 * 10**18], pa.int64())
    assert values("round(x, -19)", x=top[1:]) == [0]
    for text in ("round(x, -19)", "floor(cast(x as double) * 2)", "ceil(cast(x as double) * -3)"):
        with pytest.raises(PredicateError, match="overflow"):
            values(text, x=top)
    assert values("floor(x)", x=[math.nan, -1.5]) == [0, -2]
    for text in ("lpad(s, 2000000000)", "repeat(s, 2000000000)"):
        with pytest.raises(PredicateError, match="strings of a batch would have"):
            values(text, s=["ab", "c"])
    for text in ("lpad(s, 2147483648)", "repeat(s, 9223372036854775807)", "split_part(s, '-', 9999999999)"):
        with pytest.raises(NotExpressibleError):
            values(text, s=["ab"])
    for text in ("left(s, 99999999999)", "substr(s, 9223372036854775807)"):
        with pytest.raises(NotExpressibleError, match="positions must be ints"):
            values(text, s=["ab"])


def test_no_words_of_the_parser_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert values("if = 1", **{"if": [1, 2]}) == [True, False]
    assert caplog.text == ""
