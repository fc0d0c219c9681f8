from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.core.domain.keys import Kind, key_space
from skipstone.core.evidence import ColumnFacts, hull, unbounded

KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.sampled_from([-(2**63), -3, 0, 1, 2, 2**63 - 1]),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]),
    pa.bool_(): st.integers(0, 1),
    pa.float64(): st.sampled_from([-np.inf, -1.5, 0.5, 2.0, np.inf]),
    pa.decimal128(5, 2): st.integers(-99999, 99999),
    pa.string(): st.sampled_from([b"", b"a", b"ab", b"b", b"\xff"]) | st.none(),
    pa.decimal128(30, 2): st.binary(min_size=16, max_size=16) | st.none(),
    pa.struct([("x", pa.int32())]): st.just(0),
}


@st.composite
def facts_and_starts(draw: st.DrawFn) -> tuple[ColumnFacts, np.ndarray[Any, Any]]:
    type = draw(st.sampled_from(list(KEYS)))
    space = key_space(type)
    units = draw(st.integers(0, 12))

    def flags() -> np.ndarray[Any, Any]:
        return np.array(draw(st.lists(st.booleans(), min_size=units, max_size=units)), dtype=bool)

    bounds: list[Any] = []
    for _ in range(2):
        keys = draw(st.lists(KEYS[type], min_size=units, max_size=units))
        as_bytes = space.kind is Kind.BYTES
        bounds.append(pa.array(keys, pa.large_binary()) if as_bytes else np.array(keys, space.dtype))
    facts = ColumnFacts(type, bounds[0], bounds[1], flags(), flags(), flags(), flags(), flags())
    starts = sorted(draw(st.lists(st.integers(0, units), max_size=6)))
    return facts, np.array(starts, dtype=np.int64)


def listed(bounds: Any) -> list[Any]:
    return list(bounds.to_pylist() if isinstance(bounds, pa.Array) else bounds.tolist())


def outermost(facts: ColumnFacts, units: list[int], upper: bool) -> tuple[Any, bool]:
    bounds = listed(facts.upper if upper else facts.lower)
    exact = facts.upper_exact if upper else facts.lower_exact
    space = key_space(facts.type)
    unknown = None if space.kind is Kind.BYTES else space.limits[upper]
    if not units or any(bounds[u] is None for u in units):
        return unknown, False
    end = (max if upper else min)(bounds[u] for u in units)
    return end, any(exact[u] and bounds[u] == end for u in units)


@given(facts_and_starts())
def test_hulls_match_a_loop_over_units(case: tuple[ColumnFacts, np.ndarray[Any, Any]]) -> None:
    facts, starts = case
    found = hull(facts, starts)
    assert len(found) == len(starts)
    assert found.type == facts.type
    for block, start in enumerate(starts.tolist()):
        stop = starts[block + 1] if block + 1 < len(starts) else len(facts)
        units = list(range(start, stop))
        counting = [u for u in units if facts.may_value[u]]
        assert found.may_value[block] == bool(counting)
        assert found.may_null[block] == any(facts.may_null[u] for u in units)
        assert found.may_nan[block] == any(facts.may_nan[u] for u in units)
        low, low_exact = outermost(facts, counting, upper=False)
        high, high_exact = outermost(facts, counting, upper=True)
        assert (listed(found.lower)[block], found.lower_exact[block]) == (low, low_exact)
        assert (listed(found.upper)[block], found.upper_exact[block]) == (high, high_exact)


@pytest.mark.parametrize("type", list(KEYS), ids=str)
def test_hulls_have_the_layout_of_facts(type: pa.DataType) -> None:
    units = ColumnFacts.concat([ColumnFacts.unknown(type, 3), ColumnFacts.absent(type, 2)])
    found = hull(units, np.array([0, 3]))
    lower, upper = unbounded(type, 2)
    if isinstance(lower, pa.Array):
        assert (found.lower.equals(lower), found.upper.equals(upper)) == (True, True)
    else:
        assert found.lower.dtype == lower.dtype
        assert (found.lower.tolist(), found.upper.tolist()) == (lower.tolist(), upper.tolist())
    assert (found.may_value.tolist(), found.may_null.tolist()) == ([True, False], [True, True])
    assert {found.may_value.dtype, found.lower_exact.dtype} == {np.dtype(bool)}
    # The facts of blocks are facts of units again.
    assert len(hull(found, np.array([0]))) == 1
