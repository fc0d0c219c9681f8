"""Monotone functions against plain Python, value by value, and their limits."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone as sk
from skipstone.core.evidence import ColumnFacts
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import Leaf
from skipstone.core.ir.transforms import Transform
from skipstone.predicate.tree import Call, Expr

EPOCH = dt.datetime(1970, 1, 1)
micros = st.integers(-(10**16), 10**16)
TS = pa.schema([("ts", pa.timestamp("us"))])


def steps(expr: Expr, schema: pa.Schema) -> tuple[Transform, ...]:
    node = compile_predicate(expr.is_null(), schema).node
    assert isinstance(node, Leaf)
    return node.ref.via


def apply(expr: Expr, schema: pa.Schema, key: object) -> tuple[object, bool]:
    keys: object = [key] if isinstance(key, bytes) else np.array([key])
    ok = np.array([True])
    for step in steps(expr, schema):
        keys, good = step.forward(keys)  # type: ignore[arg-type]
        ok = ok & good
    return keys[0], bool(ok[0])  # type: ignore[index]


def moment(us: int) -> dt.datetime | None:
    try:
        return EPOCH + dt.timedelta(microseconds=us)
    except OverflowError:
        return None


@given(micros)
def test_cast_to_date(us: int) -> None:
    when = moment(us)
    if when is not None:
        key, ok = apply(sk.col("ts").cast(pa.date32()), TS, us)
        assert ok
        assert key == (when.date() - EPOCH.date()).days


@pytest.mark.parametrize("unit", ["year", "quarter", "month", "week", "day", "hour", "minute", "second"])
@given(us=micros)
def test_date_trunc(unit: str, us: int) -> None:
    when = moment(us)
    if when is None:
        return
    floor = when.replace(microsecond=0)
    names = ["second", "minute", "hour"]
    for name in names[: {"second": 0, "minute": 1, "hour": 2}.get(unit, 3)]:
        floor = floor.replace(**{name: 0})
    if unit == "week":
        if floor.toordinal() < 8:
            return
        floor -= dt.timedelta(days=floor.weekday())
    elif unit in ("year", "quarter", "month"):
        month = {"year": 1, "quarter": (floor.month - 1) // 3 * 3 + 1, "month": floor.month}[unit]
        floor = floor.replace(month=month, day=1)
    key, ok = apply(Call("date_trunc", (sk.lit(unit), sk.col("ts"))), TS, us)
    assert ok
    assert moment(int(key)) == floor  # type: ignore[call-overload]


@given(micros)
def test_year(us: int) -> None:
    when = moment(us)
    if when is not None:
        assert apply(Call("year", (sk.col("ts"),)), TS, us) == (when.year, True)


@given(st.text(max_size=8), st.integers(0, 5))
def test_left(text: str, length: int) -> None:
    schema = pa.schema([("s", pa.string())])
    expr = Call("left", (sk.col("s"), sk.lit(length)))
    try:
        key = text.encode()
    except UnicodeEncodeError:
        return
    assert apply(expr, schema, key) == (text[:length].encode(), True)


def test_left_of_a_cut_character_is_unknown() -> None:
    schema = pa.schema([("s", pa.string())])
    assert not apply(Call("left", (sk.col("s"), sk.lit(2))), schema, "é".encode()[:1])[1]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**40), 2**40), st.booleans())
def test_shifts_never_wrap(key: int, plus: int, flipped: bool) -> None:
    schema = pa.schema([("i", pa.int64())])
    expr = plus - sk.col("i") if flipped else sk.col("i") + plus
    wanted = plus - key if flipped else key + plus
    got, ok = apply(expr, schema, key)
    assert not ok or got == wanted
    assert ok or not -(2**62) <= wanted < 2**62


@given(st.floats(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False))
def test_float_shifts(key: float, plus: float) -> None:
    got, ok = apply(sk.col("f") + plus, pa.schema([("f", pa.float64())]), key)
    assert ok
    assert got == key + plus


@given(st.integers(-(10**17), 10**17))
def test_decimal_to_double_rounds_as_python_does(unscaled: int) -> None:
    schema = pa.schema([("d", pa.decimal128(18, 3))])
    got, ok = apply(sk.col("d").cast(pa.float64()), schema, unscaled)
    assert ok
    assert got == unscaled / 1000


def test_a_decreasing_function_swaps_the_bounds() -> None:
    yes = np.ones(1, dtype=bool)
    column = ColumnFacts(pa.int64(), np.array([3]), np.array([7]), yes, yes, yes, ~yes, ~yes)
    (step,) = steps(10 - sk.col("i"), pa.schema([("i", pa.int64())]))
    moved = column.through(step)
    assert (moved.lower[0], moved.upper[0]) == (3, 7)
    assert (moved.lower_exact[0], moved.upper_exact[0]) == (True, True)


def test_what_leaves_the_type_is_unknown() -> None:
    yes = np.ones(1, dtype=bool)
    top = 2**63 - 1
    column = ColumnFacts(pa.int64(), np.array([5]), np.array([top]), yes, yes, yes, ~yes, ~yes)
    (step,) = steps(sk.col("i") + 1, pa.schema([("i", pa.int64())]))
    moved = column.through(step)
    assert (moved.lower[0], moved.upper[0]) == (-(2**63), top)
    assert not moved.lower_exact[0]
    assert not moved.upper_exact[0]
