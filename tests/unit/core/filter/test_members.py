"""Comparisons of columns with literals, for every family of types."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest

from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Compare, IsIn, Predicate, col, lit
from tests.unit.core.filter.test_rowfilter import answers

NAN, INF = math.nan, math.inf
D = decimal.Decimal
A = col("a")


def on(values: pa.Array, predicate: Predicate | str) -> list[bool | None]:
    return answers(predicate, pa.table({"a": values}))


@pytest.mark.parametrize("type", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a > 2", [False, False, True, True, None]),
        ("a >= 0", [True, True, True, True, None]),
        ("a < 5", [True, True, False, False, None]),
        ("a <= 5", [True, True, True, False, None]),
        ("a = 0", [True, True, False, False, None]),
        ("a <> 5", [True, True, False, True, None]),
        ("NOT a < 5", [False, False, True, True, None]),
        ("a = double('NaN')", [False, False, False, True, None]),
        ("a < double('NaN')", [True, True, True, False, None]),
        ("a <=> double('NaN')", [False, False, False, True, False]),
        ("a <=> NULL", [False, False, False, False, True]),
        ("isnan(a)", [False, False, False, True, False]),
        ("a BETWEEN 0 AND 5", [True, True, True, False, None]),
        ("a IN (0, 7)", [True, True, False, False, None]),
        ("a NOT IN (0, NULL)", [False, False, None, None, None]),
    ],
)
def test_floats_have_one_zero_and_the_largest_nan(type: pa.DataType, text: str, wanted: list[object]) -> None:
    values = pa.array(np.array([0.0, -0.0, 5.0, NAN, 0.0], dtype=np.float64)).cast(type)
    column = pa.array(values.to_numpy(zero_copy_only=False), type, mask=np.array([False] * 4 + [True]))
    assert on(column, text) == wanted


def test_a_float_column_meets_a_literal_as_a_double() -> None:
    column = pa.array([0.1, 0.5], pa.float32())
    assert on(column, "a = 0.1") == [False, False]
    assert on(column, "a = 0.5") == [False, True]
    assert on(column, "a > 0.1") == [True, True]
    assert on(column, IsIn(A, pa.array([D("0.1"), D("0.5")]))) == [False, True]


@pytest.mark.parametrize("type", [getattr(pa, f"{u}int{b}")() for u in ("", "u") for b in (8, 16, 32, 64)])
def test_integers_meet_literals_without_loss(type: pa.DataType) -> None:
    column = pa.array([0, 5, 6, None, 127], type)
    assert on(column, "a > 5.5") == [False, False, True, None, True]
    assert on(column, "a = 5.5") == [False, False, False, None, False]
    assert on(column, "a < 1e30") == [True, True, True, None, True]
    assert on(column, "a <> 300") == [True, True, True, None, True]
    assert on(column, "a IN (5, 300, -1, NULL)") == [None, True, None, None, None]
    assert on(column, "a BETWEEN 5 AND 6") == [False, True, True, None, False]
    assert on(column, lit(NAN) > A) == [True, True, True, None, True]
    assert on(column, A.isin([])) == [False, False, False, False, False]


def test_unsigned_values_above_the_signed_range() -> None:
    column = pa.array([2**64 - 1, 2**63, 1], pa.uint64())
    assert on(column, lit(D(2**63)) <= A) == [True, True, False]
    assert on(column, lit(D(2**64 - 1)) == A) == [True, False, False]


def test_large_integers_meet_floats_as_doubles() -> None:
    column = pa.array([2**53 + 1, 2**53, 0, None])
    assert on(column, lit(2.0**53) == A) == [True, True, False, None]
    assert on(column, IsIn(A, pa.array([INF, 2.0**53, 1e300]))) == [True, True, False, None]
    assert on(column, IsIn(lit(0), pa.array([INF, -1e9]))) == [False] * 4


def test_long_lists_use_every_look_up() -> None:
    rows = np.arange(-50, 50)
    for listed in (np.arange(0, 40, 2), np.arange(0, 40, 2) * 10**12, np.arange(-9, 9, 3) * 7):
        wanted = [int(r) in set(listed.tolist()) for r in rows]
        assert on(pa.array(rows), IsIn(A, pa.array(listed))) == wanted
        assert on(pa.array(rows), ~IsIn(A, pa.array(listed))) == [not w for w in wanted]
        floats = pa.array(rows.astype(float))
        assert on(floats, IsIn(A, pa.array(listed.astype(float)))) == wanted
    spread = IsIn(A, pa.array([0, *range(10**6, 10**9, 10**7)]))
    assert on(pa.array([0, 10**6, 10**6 + 1, None]), spread) == [True, True, False, None]
    assert on(pa.array([0.0, -0.0, NAN, 3.5]), IsIn(A, pa.array([-0.0, NAN, *np.arange(1.25, 99)]))) == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "type", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_texts_compare_by_bytes(type: pa.DataType) -> None:
    column = pa.array(["", "a", "b", "é", "\U0010ffff", None, "Z"]).cast(type)
    assert on(column, "a > 'b'") == [False, False, False, True, True, None, False]
    assert on(column, "a = 'é'") == [False, False, False, True, False, None, False]
    assert on(column, "a <=> NULL") == [False] * 5 + [True, False]
    assert on(column, "a IN ('a', 'Z', 'q')") == [False, True, False, False, False, None, True]
    assert on(column, "a NOT IN ('a', 'Z')") == [True, False, True, True, True, None, False]
    assert on(column, "a LIKE 'a%'") == [False, True, False, False, False, None, False]
    assert on(column, "a BETWEEN 'Z' AND 'b'") == [False, True, True, False, False, None, True]
    prefixes = " OR ".join(f"a LIKE '{p}%'" for p in "abcdefghijkl")
    assert on(column, prefixes) == [False, True, True, False, False, None, False]


def test_dictionaries_with_null_on_either_side() -> None:
    codes = pa.array([0, None, 1, 2], pa.int8())
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["x", None, "y"]))
    assert on(column, "a = 'x'") == [True, None, None, False]
    assert on(column, "a IS NULL") == [False, True, True, False]
    empty = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    assert on(empty, "a IS NULL") == [True, True]


@pytest.mark.parametrize("type", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)])
def test_binaries(type: pa.DataType) -> None:
    column = pa.array([b"\x00\x01", b"\xff\xff", None], type)
    assert on(column, "a > X'00FF'") == [False, True, None]
    assert on(column, "a = X'0001'") == [True, False, None]
    assert on(column, IsIn(A, pa.array([b"\xff\xff", b"\x00", None]))) == [None, True, None]
    assert on(column, A.startswith(b"\xff")) == [False, True, None]


@pytest.mark.parametrize(
    "type",
    [
        pa.decimal32(9, 2),
        pa.decimal64(18, 2),
        pa.decimal128(9, 2),
        pa.decimal128(38, 2),
        pa.decimal256(50, 2),
    ],
)
def test_decimals_are_exact(type: pa.DataType) -> None:
    column = pa.array([D("-1.50"), D("0.10"), D("999.99"), None], type)
    assert on(column, "a = 0.1") == [False, True, False, None]
    assert on(column, "a > 0.099") == [False, True, True, None]
    assert on(column, "a < -1.499") == [True, False, False, None]
    assert on(column, "a IN (999.99, -1.5)") == [True, False, True, None]
    assert on(column, "a <= 12345678901234567890") == [True, True, True, None]
    assert on(column, lit(0.1) == A) == [False, True, False, None]
    assert on(column.slice(1, 2), "a > 1") == [False, True]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_by_instant_or_by_wall_clock(unit: str, zone: str | None) -> None:
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    column = pa.array([0, 86_400 * ticks, None]).view(pa.timestamp(unit, zone))
    assert on(column, "a = '1970-01-02'") == [False, True, None]
    assert on(column, "a > '1970-01-01 00:00:00.0000005'") == [False, True, None]
    assert on(column, "a >= DATE '1970-01-02'") == [False, True, None]
    paris = parse_sql("a = '1970-01-02 01:00:00'", tz="Europe/Paris")
    assert on(column, paris) == ([False, True, None] if zone else [False, False, None])
    fine = lit(pa.scalar(1, pa.timestamp("ns", zone)))
    assert on(column, Compare("<", A, fine)) == [True, False, None]


def test_dates_times_and_durations() -> None:
    days = pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2), None])
    assert on(days, "a = '2020-01-01'") == [True, False, None]
    assert on(days.cast(pa.date64()), "a = '2020-01-01'") == [True, False, None]
    assert on(days, "a < TIMESTAMP '2020-01-01 12:00:00'") == [True, False, None]
    clock = pa.array([dt.time(1), dt.time(2, 0, 0, 1), None], pa.time64("us"))
    assert on(clock, lit(dt.time(2)) < A) == [False, True, None]
    assert on(clock.cast(pa.time32("ms"), safe=False), lit(dt.time(2)) < A) == [False, False, None]
    span = pa.array([1, 2, None]).view(pa.duration("s"))
    assert on(span, lit(pa.scalar(1_500, pa.duration("ms"))) < A) == [False, True, None]


def test_a_date_column_meets_an_instant_in_a_zone_whose_clock_steps() -> None:
    days = pa.array([dt.date(2026, 3, 28), dt.date(2026, 3, 29), dt.date(2026, 3, 30)])
    instant = pa.scalar(dt.datetime(2026, 3, 28, 23), pa.timestamp("us", "UTC"))  # midnight of the 29th
    assert on(days, Compare("=", A, lit(instant, zone="Europe/Paris"))) == [False, True, False]
    later = pa.scalar(dt.datetime(2026, 3, 29, 22), pa.timestamp("us", "UTC"))  # an hour less: summer
    assert on(days, Compare("=", A, lit(later, zone="Europe/Paris"))) == [False, False, True]


def test_booleans_nothing_and_nested_values() -> None:
    flags = pa.array([True, False, None])
    assert on(flags, "a") == [True, False, None]
    assert on(flags, "NOT a") == [False, True, None]
    assert on(flags, "a = false") == [False, True, None]
    assert on(flags, "(a IS NOT TRUE) OR a") == [True, True, True]
    nothing = pa.nulls(2)
    for text in ("a = 1", "a IN (1)", "a LIKE 'x'", "a < 2 AND a > 1"):
        assert on(nothing, text) == [None, None]
    assert on(nothing, "a IS NULL") == on(nothing, "a <=> NULL") == [True, True]
    assert on(nothing, "a <=> 1") == [False, False]
    for values in (pa.array([[1], None]), pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8()))):
        assert on(values, "a IS NULL") == [False, True]


def test_extension_types_are_their_storage() -> None:
    ids = pa.array([b"\x00" * 15 + b"\x01", None], pa.uuid())
    assert on(ids, "a = '00000000-0000-0000-0000-000000000001'") == [True, None]


def test_conditions_on_one_column_keep_their_nulls() -> None:
    column = pa.array([1, 5, None, 9])
    assert on(column, "a > 1 AND a < 9") == [False, True, None, False]
    assert on(column, "a < 2 OR a IS NULL") == [True, False, True, False]
    assert on(column, "NOT (a > 1 AND a < 9)") == [True, False, None, True]
    assert on(column, "(a > 1) IS NOT UNKNOWN") == [True, True, False, True]
    assert on(column, "TRUE OR a > NULL") == [True] * 4
    assert on(column, "a > NULL") == [None] * 4
    assert on(column, "a = 1 OR NULL") == [True, None, None, None]
