import math
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.aggregate.states.distinct import Distinct
from skipstone.aggregate.states.distinct import distinct_counts as exact_counts
from skipstone.aggregate.states.sketches import (
    CPC,
    LG_ROWS,
    BadSketch,
    SketchMeasure,
    coupons,
    distinct_bounds,
    distinct_counts,
    sketches,
)
from skipstone.errors import TypeMismatchError
from tests.unit.aggregate.states._cuts import TYPES, at_once, in_pieces, one_group, tables

X = ("x",)


def distinct(type: pa.DataType, *arrays: pa.Array) -> Any:
    measure = SketchMeasure(CPC, X, type)
    state = measure.join([one_group(measure, array) for array in arrays])
    return measure.fold(state, np.arange(len(arrays))[::-1], np.zeros(1, dtype=np.int64))


@settings(max_examples=60)
@given(data=st.data(), name=st.sampled_from(sorted(TYPES)), seed=st.integers(0, 99))
def test_neither_cuts_nor_order_matter(data: st.DataObject, name: str, seed: int) -> None:
    table = data.draw(tables(x=name))
    measure = SketchMeasure(CPC, X, TYPES[name])
    whole, parts = at_once(measure, table), in_pieces(measure, table, seed)
    assert distinct_counts(whole) == distinct_counts(parts)
    assert distinct_bounds(whole) == distinct_bounds(parts)
    column, groups = table.column("x").to_pylist(), table.column("group").to_pylist()
    for group, found in zip(sorted({*groups}), distinct_counts(whole).to_pylist(), strict=False):
        mine = [v for v, g in zip(column, groups, strict=True) if g == group and v is not None]
        # Of so few values no two leave the same mark.
        assert found == len({"NaN" if v != v else v for v in mine})


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        (pa.int8(), pa.int64(), [-3, 0, 7]),
        (pa.uint16(), pa.uint64(), [0, 65535]),
        (pa.uint32(), pa.int64(), [0, 2**32 - 1]),
        (pa.float32(), pa.float64(), [0.5, -0.0, math.nan, math.inf]),
        (pa.float16(), pa.float64(), np.array([0.5, -0.0, math.nan], dtype=np.float16)),
        (pa.string(), pa.large_string(), ["", "a", "é"]),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", "b"]),
        (pa.timestamp("ms"), pa.timestamp("us"), [0, -1, 5]),
        (pa.decimal128(5, 1), pa.decimal128(12, 3), [1, 2]),
    ],
)
def test_equal_values_of_other_types_are_one(narrow: pa.DataType, wide: pa.DataType, values: Any) -> None:
    small = pa.array(values, narrow)
    state = distinct(wide, small, small.cast(wide))
    assert distinct_counts(state).to_pylist() == [len(values)]


def test_zeros_and_nans_are_one_each() -> None:
    other_nan = np.array([0xFFF8000000000001], dtype=np.uint64).view(np.float64)
    arrays = pa.array([0.0, math.nan]), pa.array([-0.0]), pa.array(other_nan, from_pandas=False)
    assert distinct_counts(distinct(pa.float64(), *arrays)).to_pylist() == [2]


def test_values_that_differ_in_the_last_bit_only() -> None:
    numbers = [2**62 + n for n in range(20)] + [-(2**62) - n for n in range(20)] + [2**63 - 1, -(2**63)]
    assert distinct_counts(distinct(pa.int64(), pa.array(numbers))).to_pylist() == [42]


def test_many_values_are_estimated_within_the_bounds() -> None:
    rng = np.random.default_rng(3)
    parts = [pa.array(rng.permutation(np.arange(low, low + 60_000))) for low in (0, 40_000, 80_000)]
    state = distinct(pa.int64(), *parts)
    ((lower,), (upper,)), found = distinct_bounds(state), distinct_counts(state)[0].as_py()
    assert lower < found < upper
    assert lower < 140_000 < upper
    assert 140_000 * 0.03 < upper - lower < 140_000 * 0.06
    assert len(state[0]) < 3_500


def test_nothing_and_nulls() -> None:
    state = distinct(pa.int64(), pa.array([], pa.int64()), pa.array([None, None], pa.int64()))
    assert distinct_counts(state).to_pylist() == [0]
    assert distinct_bounds(state) == ([0], [0])


def test_stored_sketches_replace_rows() -> None:
    measure = SketchMeasure(CPC, X, pa.int64())
    values = pa.array([1, 2, None, 2])
    blob = sketches(pa.int64(), values)[CPC]
    assert measure.sketch == CPC
    assert measure.from_sketches([blob]) == one_group(measure, values)
    with pytest.raises(BadSketch):
        measure.from_sketches([blob, blob[:-1]])


def test_types_without_distinct_values() -> None:
    with pytest.raises(TypeMismatchError, match=r"column x\.y: distinct values of type list"):
        SketchMeasure(CPC, ("x", "y"), pa.list_(pa.int8()))


def test_coupons_are_those_of_the_library() -> None:
    """Values that leave no new mark are never shown to the library: it would have passed over them."""
    words = np.random.default_rng(7).integers(0, 2**64, 20_000, dtype=np.uint64, endpoint=False)
    words[:3] = 0, 1, 2**64 - 1
    found = coupons(words)
    _, firsts = np.unique(found, return_index=True)
    sketch = datasketches.cpc_sketch(LG_ROWS)
    for word in words[firsts].tolist():
        before = sketch.get_estimate()
        sketch.update(word)
        assert sketch.get_estimate() > before
    seen = sketch.get_estimate()
    for word in words.tolist():
        sketch.update(word)
    assert sketch.get_estimate() == seen


# -- exact ---------------------------------------------------------------------------------------


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


@settings(max_examples=60)
@given(
    data=st.data(),
    name=st.sampled_from(sorted(TYPES)),
    other=st.sampled_from(sorted(TYPES)),
    seed=st.integers(0, 99),
)
def test_exact_counts_of_combinations(data: st.DataObject, name: str, other: str, seed: int) -> None:
    table = data.draw(tables(x=name, y=other))
    for names in (["x"], ["x", "y"]):
        types = tuple(table.schema.field(column).type for column in names)
        measure = Distinct(tuple((column,) for column in names), types, "count", 10**6)
        found: dict[int, set[Any]] = {group: set() for group in table["group"].to_pylist() or [0]}
        for row in table.to_pylist():
            values = tuple(_canonical(row[column]) for column in names)
            if None not in values:
                found[row["group"]].add(values)
        wanted = [len(found[group]) for group in sorted(found)]
        for state in (at_once(measure, table), in_pieces(measure, table, seed)):
            assert exact_counts(state).to_pylist() == wanted
