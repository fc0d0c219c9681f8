import datetime
import math
import statistics
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.aggregate.states.answers import averages, avg_type, counts, extremes, sum_type, sums, variances
from skipstone.aggregate.states.blocks import Blocks, constant_blocks, read_blocks
from skipstone.aggregate.states.exact import estimates, from_ints
from skipstone.aggregate.states.state import ALL_FACETS
from skipstone.errors import SkipstoneError, TypeMismatchError

INF, NAN = math.inf, math.nan
FLOATS = st.floats(-1e140, 1e140).filter(lambda x: x == 0 or abs(x) > 1e-120)


def blocks_of(values: list[Any], type: pa.DataType, starts: tuple[int, ...] = (0,)) -> Blocks:
    return read_blocks(type, pa.array(values, type), np.array(starts), ALL_FACETS)


def near(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return INF if value > 0 else -INF


def told(array: pa.Array) -> list[str]:
    array.validate(full=True)
    return [str(value) for value in array.to_pylist()]


@given(st.lists(FLOATS, min_size=1, max_size=12), st.integers(0, 12))
def test_floats_are_rounded_once(numbers: list[float], cut: int) -> None:
    """And a cut anywhere changes nothing."""
    starts = np.array([0, min(cut, len(numbers))])
    blocks = read_blocks(pa.float64(), pa.array(numbers), starts, ALL_FACETS).merge(np.array([0]))
    exact = [Fraction(n) for n in numbers]
    mean = sum(exact) / len(exact)
    spread = sum((n - mean) ** 2 for n in exact)
    assert sums(blocks).to_pylist() == [math.fsum(numbers)]
    assert averages(blocks).to_pylist() == [near(mean)]
    assert variances(blocks, 0, root=False).to_pylist() == [near(spread / len(exact))]
    if len(numbers) > 1:
        variance = spread / (len(exact) - 1)
        assert variances(blocks, 1, root=False).to_pylist() == [near(variance)]
        (root,) = variances(blocks, 1, root=True).to_pylist()
        low, high = math.nextafter(root, -INF), math.nextafter(root, INF)
        halves = (Fraction(low) + Fraction(root)) / 2, (Fraction(root) + Fraction(high)) / 2
        assert max(halves[0], 0) ** 2 <= variance <= halves[1] ** 2


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=9))
def test_whole_numbers(numbers: list[int]) -> None:
    blocks = blocks_of(numbers, pa.int64())
    assert sums(blocks).to_pylist() == [Decimal(sum(numbers))]
    assert averages(blocks).to_pylist() == [sum(numbers) / len(numbers)]
    exact = [Fraction(n) for n in numbers]
    assert variances(blocks, 1, root=False).to_pylist() == [near(statistics.variance(exact))]
    assert (extremes(blocks, maximum=False)[0].as_py(), extremes(blocks, maximum=True)[0].as_py()) == (
        min(numbers),
        max(numbers),
    )


def test_a_small_sum_beside_a_large_one() -> None:
    numbers = [-1, -1, -1, *[2**62] * 8, -7]
    blocks = blocks_of(numbers, pa.int64(), (0, 3, 11))
    assert averages(blocks).to_pylist() == [-1.0, 2.0**62, -7.0]
    joined = Blocks.concat([blocks_of([-3], pa.int64()), blocks])
    assert averages(joined).to_pylist() == [-3.0, -1.0, 2.0**62, -7.0]
    assert sums(joined).to_pylist() == [-3, -3, 2**65, -7]
    low = Decimal("-9" + "0" * 38)
    wide = blocks_of([low, Decimal(10) ** 75, Decimal(-5)], pa.decimal256(76, 0), (0, 1, 2))
    assert sums(wide).to_pylist() == [low, Decimal(10) ** 75, Decimal(-5)]
    too_long = replace(wide, type=pa.decimal256(39, 0))
    with pytest.raises(SkipstoneError, match="more than the 49 digits"):
        sums(too_long.take(np.array([0, 1])))


@given(st.lists(st.integers(-(2**250), 2**250) | st.integers(-9, 9), min_size=1, max_size=6))
def test_estimates_are_close(numbers: list[int]) -> None:
    for number, found in zip(numbers, estimates(from_ints(numbers)), strict=True):
        assert abs(Fraction(float(found)) - number) <= Fraction(abs(number), 2**48)
        assert abs(number) >= 2**53 or found == number


def test_types() -> None:
    assert sum_type(pa.int8()) == sum_type(pa.uint64()) == pa.decimal128(38, 0)
    assert sum_type(pa.float32()) == avg_type(pa.int64()) == avg_type(pa.float16()) == pa.float64()
    assert (sum_type(pa.decimal128(12, 2)), avg_type(pa.decimal128(12, 2))) == (
        pa.decimal128(22, 2),
        pa.decimal128(16, 6),
    )
    assert (sum_type(pa.decimal128(38, 36)), avg_type(pa.decimal128(38, 36))) == (
        pa.decimal128(38, 36),
        pa.decimal128(38, 38),
    )
    assert sum_type(pa.decimal32(5, 1)) == pa.decimal128(15, 1)
    assert sum_type(pa.decimal256(50, 3)) == pa.decimal256(60, 3)
    assert sum_type(pa.dictionary(pa.int8(), pa.int64())) == pa.decimal128(38, 0)


@pytest.mark.parametrize(
    "type", [pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us"), pa.list_(pa.int8())]
)
def test_what_has_no_sum(type: pa.DataType) -> None:
    none = blocks_of([], type)
    for ask in (sums, averages, lambda b, name: variances(b, 1, root=False, name=name)):
        with pytest.raises(TypeMismatchError, match=r"column c: .*\(use a numeric column\)"):
            ask(none, "c")


def test_nothing_is_null() -> None:
    for type in (pa.int32(), pa.float64(), pa.decimal128(20, 2), pa.decimal128(9, 2)):
        blocks = blocks_of([None, None], type, (0, 2))
        assert counts(blocks).to_pylist() == [0, 0]
        for found in (
            sums(blocks),
            averages(blocks),
            extremes(blocks, maximum=True),
            extremes(blocks, maximum=False),
        ):
            assert told(found) == ["None", "None"]
    assert variances(blocks_of([5, 5, 5], pa.int8(), (0, 1)), 1, root=False).to_pylist() == [None, 0.0]
    assert variances(blocks_of([5], pa.int8()), 0, root=True).to_pylist() == [0.0]


def test_nan_and_infinity() -> None:
    values = [NAN, 1.0, INF, 1.0, INF, -INF, NAN, None, -0.0, 1e308, 1e308, 1e308, -INF]
    blocks = blocks_of(values, pa.float64(), (0, 2, 4, 6, 8, 9, 12))
    assert told(sums(blocks)) == ["nan", "inf", "nan", "nan", "0.0", "inf", "-inf"]
    assert told(averages(blocks)) == ["nan", "inf", "nan", "nan", "0.0", "1e+308", "-inf"]
    assert told(extremes(blocks, maximum=False)) == ["1.0", "1.0", "-inf", "nan", "0.0", "1e+308", "-inf"]
    assert told(extremes(blocks, maximum=True)) == ["nan", "inf", "inf", "nan", "0.0", "1e+308", "-inf"]
    assert told(variances(blocks, 0, root=False)) == ["nan", "nan", "nan", "nan", "0.0", "inf", "nan"]


def test_the_smallest_doubles_have_no_spread_below_zero() -> None:
    tiny = blocks_of([3e-310, 3e-310, 3e-310], pa.float64())
    assert variances(tiny, 0, root=True).to_pylist() == [0.0]
    assert variances(blocks_of([0.0, 1e-200], pa.float64()), 1, root=False).to_pylist() == [0.0]


def test_decimals() -> None:
    values = [Decimal("1.25"), Decimal("-3.10"), Decimal("0.01"), None]
    for type in (pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(12, 2), pa.decimal128(25, 2)):
        blocks = blocks_of(values, type)
        assert told(sums(blocks)) == ["-1.84"]
        assert told(averages(blocks)) == ["-0.613333"]
        assert told(extremes(blocks, maximum=True)) == ["1.25"]
        assert extremes(blocks, maximum=False).type == type
        exact = [Fraction(v) for v in values if v is not None]
        assert variances(blocks, 1, root=False).to_pylist() == [near(statistics.variance(exact))]
    assert told(averages(blocks_of([Decimal("0.00001"), Decimal("0.00002")], pa.decimal128(38, 5)))) == [
        "0.000015000"
    ]
    whole = [Decimal("0." + "0" * 37 + "1"), Decimal(0), Decimal("-0." + "0" * 37 + "1"), Decimal(0)]
    small = blocks_of(whole, pa.decimal128(38, 38), (0, 2))
    # Half of the last digit is rounded away from zero.
    assert averages(small).to_pylist() == [whole[0], whole[2]]


def test_sums_that_do_not_fit() -> None:
    most = Decimal("9" * 38)
    fits = blocks_of([most, most.copy_negate(), most], pa.decimal128(38, 0))
    assert sums(fits).to_pylist() == [most]
    with pytest.raises(SkipstoneError, match=r"column c: sum has more than the 38 digits") as failure:
        sums(blocks_of([most, most], pa.decimal128(38, 0)), "c")
    assert failure.value.hint
    with pytest.raises(SkipstoneError, match=r"average has more than"):
        averages(blocks_of([most], pa.decimal128(38, 0)), "c")
    long = constant_blocks(pa.int64(), pa.scalar(-(2**63)), np.array([2**31]), ALL_FACETS)
    assert sums(long).to_pylist() == [Decimal(-(2**94))]


STAMP = datetime.datetime(2026, 1, 2, 3, 4, 5)
VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), False, True),
    (pa.uint8(), 3, 200),
    (pa.uint64(), 3, 2**64 - 1),
    (pa.float16(), -1.5, 2.5),
    (pa.date32(), datetime.date(1960, 1, 1), datetime.date(2026, 1, 1)),
    (pa.date64(), datetime.date(1960, 1, 1), datetime.date(2026, 1, 1)),
    (pa.time32("ms"), datetime.time(1), datetime.time(2)),
    (pa.time64("us"), datetime.time(1), datetime.time(2)),
    (pa.timestamp("ms"), STAMP, STAMP + datetime.timedelta(1)),
    (pa.duration("s"), datetime.timedelta(-1), datetime.timedelta(1)),
    (pa.string(), "", "z" * 100),
    (pa.large_string(), "a", "ä"),
    (pa.string_view(), "a", "b"),
    (pa.binary(), b"", b"\xff" * 70),
    (pa.binary(2), b"aa", b"\xff\xff"),
    (pa.binary_view(), b"a", b"b"),
    (pa.decimal256(60, 1), Decimal("-7.5"), Decimal(10) ** 50),
]


@pytest.mark.parametrize(("type", "low", "high"), VALUES)
def test_ends_have_the_type_of_the_column(type: pa.DataType, low: Any, high: Any) -> None:
    blocks = blocks_of([high, None, low, None], type, (0, 3))
    least, greatest = extremes(blocks, maximum=False), extremes(blocks, maximum=True)
    assert (least.type, greatest.type) == (type, type)
    assert (least.to_pylist(), greatest.to_pylist()) == ([low, None], [high, None])
    least.validate(full=True)


def test_ends_of_wrapped_types() -> None:
    coded = pa.array(["b", "a", None]).dictionary_encode()
    assert extremes(read_blocks(coded.type, coded, np.array([0]), ALL_FACETS), maximum=True).to_pylist() == [
        "b"
    ]
    ids = pa.array([b"0" * 16, b"1" * 16], pa.uuid())
    found = extremes(read_blocks(ids.type, ids, np.array([0]), ALL_FACETS), maximum=False)
    assert (found.type, found[0]) == (pa.uuid(), ids[0])
