import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.aggregate.states import exact
from skipstone.aggregate.states.blocks import min_max
from skipstone.aggregate.states.exact import (
    LARGEST,
    exact_squares,
    exact_sums,
    fold,
    fraction,
    integer_terms,
    min_max_and_sums,
    nearest_double,
    round_sums,
)

TINY = 5e-324
NUMBERS = st.floats(-1e280, 1e280) | st.sampled_from(
    [0.0, -0.0, TINY, -TINY, 1e280, -1e280, 0.1, 1e16, math.pi]
)
ROOTS = st.floats(-1e140, 1e140) | st.sampled_from([0.0, 1e140, 0.1, 1e16, 1e-120])


def cuts(data: st.DataObject, length: int) -> list[int]:
    return [0, *sorted(data.draw(st.lists(st.integers(0, length), max_size=5)))]


def spans(starts: list[int], length: int) -> list[slice]:
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], length], strict=True)]


@given(st.lists(NUMBERS, max_size=40), st.data())
def test_sums_are_exact_however_they_are_cut(numbers: list[float], data: st.DataObject) -> None:
    starts = cuts(data, len(numbers))
    parts = exact_sums(np.array(numbers), np.array(starts))
    blocks = [numbers[span] for span in spans(starts, len(numbers))]
    assert [fraction(parts, i) for i in range(len(blocks))] == [
        sum(map(Fraction, b), Fraction(0)) for b in blocks
    ]
    assert round_sums(parts).tolist() == [math.fsum(block) for block in blocks]
    larger = cuts(data, len(blocks))
    merged = fold(parts, np.array(larger))
    again = [[n for b in blocks[span] for n in b] for span in spans(larger, len(blocks))]
    assert round_sums(merged).tolist() == [math.fsum(block) for block in again]


@given(st.integers(0, 2**32), st.sampled_from(["any", "above", "below", "odd"]), st.data())
def test_one_pass_matches_several(seed: int, kind: str, data: st.DataObject) -> None:
    rng, count = np.random.default_rng(seed), data.draw(st.integers(0, 300))
    low, spread = data.draw(st.integers(-1074, 950)), data.draw(st.sampled_from([1, 20, 60, 2100]))
    mantissas = rng.choice([1.0, 1.5, 2.0 - 2.0**-52, 1.0 + 2.0**-52, math.pi / 2], count)
    values = np.ldexp(mantissas, rng.integers(low, min(low + spread, 959), count, endpoint=True))
    if kind != "above":
        values *= -1.0 if kind == "below" else rng.choice([-1.0, 1.0, 0.0], count)
    if kind == "odd":
        values[rng.random(count) < 0.01] = data.draw(st.sampled_from([math.nan, math.inf, -math.inf, 1e300]))
    starts = np.array(cuts(data, count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_PIECE", data.draw(st.sampled_from([128, 256, 1 << 15])))
        lower, upper, parts = min_max_and_sums(values, starts)
    for found, plain in zip((lower, upper), min_max(values, starts), strict=True):
        assert found.dtype == plain.dtype
        assert np.array_equal(found, plain, equal_nan=True)
    if not (np.abs(values) < LARGEST).all():
        assert parts is None
        return
    assert parts is not None
    blocks = [values[span].tolist() for span in spans(starts.tolist(), count)]
    for i, block in enumerate(blocks):
        assert fraction(parts, i) == sum(map(Fraction, block), Fraction(0))
    assert round_sums(parts).tolist() == [math.fsum(block) for block in blocks]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_bit_is_lost_for_any_range_of_exponents(sign: float) -> None:
    # Of 29 values and one more, what the first split leaves may be as large as 31 of their last places.
    for count, places, apart in itertools.product((1, 2, 29), (1, 31), range(120)):
        large = math.ldexp(1.0 + places * 2.0**-52, apart)
        values = sign * np.array([large] * count + [1.0 + 2.0**-52])
        parts = min_max_and_sums(values, np.array([0]))[2]
        assert parts is not None
        assert fraction(parts, 0) == sum(map(Fraction, values.tolist()), Fraction(0))


@given(st.lists(ROOTS, max_size=20), st.data())
def test_squares_are_exact(numbers: list[float], data: st.DataObject) -> None:
    numbers = [n for n in numbers if not 0 < abs(n) < 1e-120]
    starts = cuts(data, len(numbers))
    parts = exact_squares([np.array(numbers)], np.array(starts))
    blocks = [numbers[span] for span in spans(starts, len(numbers))]
    wanted = [sum((Fraction(n) ** 2 for n in block), Fraction(0)) for block in blocks]
    assert [fraction(parts, i) for i in range(len(blocks))] == wanted


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
def test_squares_of_whole_numbers(dtype: type[np.generic]) -> None:
    info = np.iinfo(dtype)
    numbers = [info.min, info.max, info.max - 1, 3, info.min // 2 + 1]
    keys = np.array(numbers, dtype=dtype)
    parts = exact_squares(integer_terms(keys), np.array([0, 2]))
    assert [fraction(parts, i) for i in (0, 1)] == [sum(n * n for n in numbers[s]) for s in spans([0, 2], 5)]


@pytest.mark.parametrize("piece", [256, 999])
def test_pieces(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(piece)
    numbers = rng.normal(size=7_000) * 10.0 ** rng.integers(-200, 200, size=7_000)
    starts = np.array([0, 0, 3, 255, 256, 512, 3_000, 3_000, 3_001, 6_500, 7_000])
    whole = exact_sums(numbers, starts)
    monkeypatch.setattr(exact, "_PIECE", piece)
    cut = exact_sums(numbers, starts)
    assert [fraction(cut, i) for i in range(len(starts))] == [fraction(whole, i) for i in range(len(starts))]
    assert round_sums(cut).tolist() == [math.fsum(numbers[s]) for s in spans(starts.tolist(), 7_000)]


def test_many_numbers_in_any_order() -> None:
    rng = np.random.default_rng(7)
    numbers = rng.normal(size=100_000) * 10.0 ** rng.integers(-250, 250, size=100_000)
    numbers = np.concatenate((numbers, -numbers[:-1]))
    rng.shuffle(numbers)
    assert round_sums(exact_sums(numbers, np.array([0]))).tolist() == [math.fsum(numbers)]
    plain = rng.random(200_000)
    single = plain.astype(np.float32)
    lower, _, parts = min_max_and_sums(single, np.array([0]))
    assert parts is not None
    assert (lower.dtype, round_sums(parts).tolist()) == (np.float32, [math.fsum(single.tolist())])
    assert round_sums(exact_sums(single, np.array([0, 200_000]))).tolist() == [
        math.fsum(single.tolist()),
        0.0,
    ]
    assert len(exact_sums(plain, np.array([0]))) <= 3


def test_a_sum_that_needs_three_parts_is_rounded_once() -> None:
    parts = np.array([[1.0, 1.0], [2.0**-53, 2.0**-53], [2.0**-110, 0.0]])
    assert round_sums(parts).tolist() == [1.0 + 2.0**-52, 1.0]
    assert round_sums(np.zeros((0, 2))).tolist() == [0.0, 0.0]


def test_an_infinite_part_stays_infinite() -> None:
    parts = np.array([[1.0, 2.0, 3.0], [0.0, math.inf, 0.0]])
    assert round_sums(fold(parts, np.array([0, 2]))).tolist() == [math.inf, 3.0]
    assert fold(np.zeros((0, 3)), np.array([0, 2])).shape == (0, 2)


def test_the_nearest_double() -> None:
    assert [nearest_double(Fraction(10) ** 400), nearest_double(-(Fraction(10) ** 400))] == [
        math.inf,
        -math.inf,
    ]
    assert nearest_double(Fraction(1, 3)) == 1 / 3
