import functools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.aggregate.states.first_last import FirstLast, finish_first_last
from skipstone.errors import TypeMismatchError
from tests.unit.aggregate.states._cuts import TYPES, at_once, in_pieces, one_group, tables

X, Y = ("x",), ("y",)


def before(one: Any, other: Any) -> int:
    """The order of values: NULL, then numbers or bytes, then NaN."""
    places = [(v is not None, v != v) for v in (one, other)]
    if places[0] != places[1] or one is None or one != one:
        return (places[0] > places[1]) - (places[0] < places[1])
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    return int(one > other) - int(one < other)


def expected(by: list[Any], values: list[Any], *, last: bool) -> Any:
    def compare(one: tuple[Any, Any], other: tuple[Any, Any]) -> int:
        return before(one[0], other[0]) or before(one[1], other[1])

    rows = [row for row in zip(by, values, strict=True) if row[0] is not None]
    rows.sort(key=functools.cmp_to_key(compare))
    return rows[-1 if last else 0][1] if rows else None


@settings(max_examples=80)
@given(
    data=st.data(),
    value=st.sampled_from(sorted(TYPES)),
    by=st.sampled_from(sorted(TYPES)),
    last=st.booleans(),
    seed=st.integers(0, 99),
)
def test_picks(data: st.DataObject, value: str, by: str, last: bool, seed: int) -> None:
    table = data.draw(tables(x=value, y=by))
    measure = FirstLast(X, TYPES[value], Y, TYPES[by], last)
    found = finish_first_last(at_once(measure, table)).to_pylist()
    assert _same(finish_first_last(in_pieces(measure, table, seed)).to_pylist(), found)
    rows = table.to_pylist()
    wanted = [
        expected(
            [r["y"] for r in rows if r["group"] == g], [r["x"] for r in rows if r["group"] == g], last=last
        )
        for g in sorted({row["group"] for row in rows}) or [0]
    ]
    assert _same(found, wanted)


def _same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(before(a, b) == 0 for a, b in zip(one, other, strict=True))


def pick(values: Any, by: Any, *, last: bool) -> Any:
    x, y = pa.array(values), pa.array(by)
    return finish_first_last(one_group(FirstLast(X, x.type, Y, y.type, last), x, y)).to_pylist()


def test_ties_are_settled_by_value() -> None:
    assert pick([3, 2, 9, None], [1, 1, 2, 2], last=False) == [2]
    assert pick([3, 2, 9, None], [1, 1, 2, 2], last=True) == [9]
    assert pick([3, None, 9], [1, 1, 2], last=False) == [None]
    assert math.isnan(pick([3, 1, math.nan], [1, 2, 2], last=True)[0])
    assert pick([3, 1, math.nan], [2, 1, 1], last=False) == [1]


def test_rows_without_by_do_not_count() -> None:
    assert pick(["a", "b", "c"], [None, 2, 1], last=False) == ["c"]
    assert pick(["a", "b", "c"], [None, 2, 1], last=True) == ["b"]
    assert pick(["a"], pa.array([None], pa.int64()), last=True) == [None]
    assert pick(pa.array([], pa.string()), pa.array([], pa.int64()), last=True) == [None]


def test_nan_is_last() -> None:
    assert pick([1, 2, 3], [math.nan, math.inf, -math.inf], last=True) == [1]
    assert pick([1, 2, 3], [math.nan, math.inf, -math.inf], last=False) == [3]
    assert pick([1, 2], [-0.0, 0.0], last=True) == [2]
    assert pick([2, 1], [-0.0, 0.0], last=False) == [1]


def test_extreme_by_is_not_missing() -> None:
    assert pick([1, 2], pa.array([2**63 - 1, None], pa.int64()), last=False) == [1]
    assert pick([1, 2], pa.array([-(2**63), None], pa.int64()), last=True) == [1]
    assert pick([1, 2], pa.array([2**64 - 1, None], pa.uint64()), last=False) == [1]
    assert pick([1, 2], pa.array([0, None], pa.uint64()), last=True) == [1]


def test_chunks_and_narrower_files() -> None:
    measure = FirstLast(X, pa.int64(), Y, pa.float64(), last=True)
    x = pa.chunked_array([pa.array([1], pa.int8()), pa.array([2, 3], pa.int8())])
    y = pa.chunked_array([pa.array([1.5], pa.float32()), pa.array([2.5, None], pa.float32())])
    narrow, wide = one_group(measure, x, y), one_group(measure, pa.array([4]), pa.array([2.0]))
    state = measure.fold(measure.join([wide, narrow]), np.array([1, 0]), np.array([0]))
    assert finish_first_last(state) == pa.array([2], pa.int64())
    assert state.by == pa.array([2.5])


def test_answers_have_the_type_of_the_column() -> None:
    for type in (pa.string_view(), pa.large_string(), pa.float16(), pa.uuid(), pa.decimal256(50, 2)):
        values = pa.array([None], pa.uuid()) if type == pa.uuid() else pa.array([None, None], type)[:1]
        assert (
            finish_first_last(
                one_group(FirstLast(X, type, Y, pa.int8(), last=True), values, pa.array([1], pa.int8()))
            ).type
            == type
        )
    coded = pa.array(["a"]).dictionary_encode()
    state = one_group(FirstLast(X, coded.type, Y, pa.int8(), last=True), coded, pa.array([1], pa.int8()))
    assert finish_first_last(state) == pa.array(["a"])


def test_types_without_an_order() -> None:
    with pytest.raises(TypeMismatchError, match="column x: first and last need an ordered column, got list"):
        FirstLast(X, pa.list_(pa.int8()), Y, pa.int8(), last=True)
    with pytest.raises(
        TypeMismatchError, match="column y: first and last need an ordered column, got struct"
    ):
        FirstLast(X, pa.int8(), Y, pa.struct({"a": pa.int8()}), last=True)
