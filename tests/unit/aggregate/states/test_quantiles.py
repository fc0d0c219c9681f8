import decimal
import math
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.aggregate.states.quantiles import (
    AllValues,
    approx_quantiles,
    exact_quantiles,
    quantile_bounds,
)
from skipstone.aggregate.states.sketches import KLL, BadSketch, SketchMeasure, merge_kll, sketches
from skipstone.errors import TypeMismatchError
from tests.unit.aggregate.states._cuts import NUMBERS, TYPES, at_once, in_pieces, one_group, tables

X = ("x",)
RANKS = [0.0, 0.25, 0.5, 0.9, 1.0]


def exact(values: Any, ranks: Any, type: pa.DataType, *, single: bool = False) -> Any:
    array = values if isinstance(values, pa.Array) else pa.array(values, type)
    return exact_quantiles(one_group(AllValues(X, type), array), ranks, single=single).to_pylist()


def percentile(values: list[Any], rank: float) -> float:
    """Spark's definition, with numbers in order."""
    place = (len(values) - 1) * rank
    low, high = values[math.floor(place)], values[math.ceil(place)]
    if low == high or place == math.floor(place):
        return float(low)
    return (math.ceil(place) - place) * float(low) + (place - math.floor(place)) * float(high)


# -- exact quantiles ---------------------------------------------------------------------------


@settings(max_examples=80)
@given(data=st.data(), name=st.sampled_from(NUMBERS), seed=st.integers(0, 99))
def test_exact_quantiles(data: st.DataObject, name: str, seed: int) -> None:
    table = data.draw(tables(x=name))
    measure = AllValues(X, TYPES[name])
    found = exact_quantiles(at_once(measure, table), RANKS).to_pylist()
    assert repr(exact_quantiles(in_pieces(measure, table, seed), RANKS).to_pylist()) == repr(found)
    column, groups = table.column("x").to_pylist(), table.column("group").to_pylist()
    for group, answers in zip(sorted({*groups}) or [0], found, strict=True):
        mine = [v for v, g in zip(column, groups, strict=True) if g == group and v is not None]
        mine.sort(key=lambda v: (v != v, v))
        if not mine:
            assert answers is None
            continue
        assert answers == pytest.approx([percentile(mine, rank) for rank in RANKS], rel=1e-15, nan_ok=True)


def test_one_rank_is_a_value_and_several_are_a_list() -> None:
    assert exact([4, 1, 3, None, 2], [0.5], pa.int32(), single=True) == [2.5]
    assert exact([4, 1, 3, None, 2], [0.5, 0.5, 0.0], pa.int32()) == [[2.5, 2.5, 1.0]]
    assert exact([None], [0.5], pa.int32(), single=True) == [None]
    assert exact([], [0.5, 1.0], pa.int32()) == [None]


def test_whole_numbers_that_no_double_holds() -> None:
    assert exact([2**63 - 1, 2**62 + 1, 2**62 - 1], [0.5], pa.int64(), single=True) == [float(2**62 + 1)]
    # In order though they are the same double.
    numbers = [2**60 + n for n in (3, 1, 2, 0, 4)] + [2**61] * 4
    assert exact(numbers, [0.5], pa.int64(), single=True) == [float(2**60 + 4)]
    assert exact([2**64 - 1, 2**63], [0.0, 1.0], pa.uint64()) == [[2.0**63, 2.0**64]]


def test_nan_is_the_largest_and_infinities_are_numbers() -> None:
    (found,) = exact([math.nan, 1.0, -math.inf, math.inf], [0.0, 1 / 3, 2 / 3, 0.9, 1.0], pa.float64())
    assert found[:3] == [-math.inf, 1.0, math.inf]
    assert all(map(math.isnan, found[3:]))
    assert math.copysign(1, exact([-0.0], [0.5], pa.float64(), single=True)[0]) == 1


def test_decimals_are_rounded_once() -> None:
    values = [decimal.Decimal("0.10"), decimal.Decimal("999999999999999.99")]
    assert exact(values, [0.0, 1.0], pa.decimal128(17, 2)) == [[0.1, 999999999999999.99]]


def test_files_with_narrower_numbers() -> None:
    measure = AllValues(X, pa.uint64())
    parts = [
        one_group(measure, pa.array(v, t))
        for v, t in (([], pa.uint8()), ([2**64 - 1], pa.uint64()), ([7], pa.uint8()))
    ]
    state = measure.fold(measure.join(parts), np.array([2, 0, 1]), np.array([0]))
    assert state.keys.tolist() == [7, 2**64 - 1]
    assert one_group(AllValues(X, pa.int8()), pa.array([1], pa.int8())).keys.nbytes == 1


# -- sketches ----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(data=st.data(), name=st.sampled_from(NUMBERS), seed=st.integers(0, 99))
def test_sketches_of_few_values_keep_them_all(data: st.DataObject, name: str, seed: int) -> None:
    table = data.draw(tables(x=name))
    measure = SketchMeasure(KLL, X, TYPES[name])
    whole, parts = at_once(measure, table), in_pieces(measure, table, seed)
    found = approx_quantiles(whole, RANKS).to_pylist()
    assert repr(approx_quantiles(parts, RANKS).to_pylist()) == repr(found)
    assert [merge_kll([sketch]).error for sketch in whole] == [0.0] * len(whole)
    ends = exact_quantiles(at_once(AllValues(X, TYPES[name]), table), [0.0, 1.0]).to_pylist()
    for one, both in zip(found, ends, strict=True):
        assert (one is None) == (both is None)
        if one is not None:
            assert [one[0], one[-1]] == pytest.approx(both, rel=1e-15, nan_ok=True)


def test_sketches_of_many_values_state_their_error() -> None:
    rng = np.random.default_rng(4)
    numbers = rng.normal(size=120_000)
    measure = SketchMeasure(KLL, X, pa.float64())
    state = measure.join([one_group(measure, pa.array(part)) for part in np.array_split(numbers, 5)])
    state = measure.fold(state, np.arange(5), np.array([0, 2]))
    assert len(state) == 2
    state = measure.fold(state, np.arange(2), np.array([0]))
    (sketch,) = state
    error = merge_kll([sketch]).error
    assert 0.01 < error < 0.02
    (found,), ((lower,), (upper,)) = approx_quantiles(state, RANKS).to_pylist(), quantile_bounds(state, RANKS)
    ordered = np.sort(numbers)
    for rank, low, value, high in zip(RANKS, lower, found, upper, strict=True):
        assert low <= value <= high
        assert abs(np.searchsorted(ordered, value) / len(ordered) - rank) < 3 * error
    assert (found[0], found[-1]) == (ordered[0], ordered[-1])
    single = quantile_bounds(state, [0.5], single=True)
    assert single == ([lower[2]], [upper[2]])


def test_stored_sketches_replace_rows() -> None:
    measure = SketchMeasure(KLL, X, pa.int64())
    blob = sketches(pa.int64(), pa.array([1, 2, None, 6]))[KLL]
    assert measure.sketch == KLL
    assert approx_quantiles(measure.from_sketches([blob]), [0.5], single=True).to_pylist() == [2.0]
    with pytest.raises(BadSketch):
        measure.from_sketches([blob[1:]])
    empty = measure.from_sketches([sketches(pa.int64(), pa.array([None], pa.int64()))[KLL]])
    assert approx_quantiles(empty, [0.5], single=True).to_pylist() == [None]
    assert quantile_bounds(empty, [0.5, 1.0]) == ([None], [None])


@pytest.mark.parametrize(
    "type", [pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.list_(pa.int8())]
)
@pytest.mark.parametrize("measure", [partial(SketchMeasure, KLL), AllValues])
def test_only_numbers_have_quantiles(measure: Any, type: pa.DataType) -> None:
    with pytest.raises(TypeMismatchError, match=r"column x: quantiles of type .* can't be computed"):
        measure(X, type)
