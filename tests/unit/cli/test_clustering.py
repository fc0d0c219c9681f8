"""The measure of clustering that ``inspect`` shows, against look-ups of real values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.core.evidence import ColumnFacts
from skipstone.prune.clustering import Layout, clustering

UNITS, ROWS = 50, 20_000
RNG = np.random.default_rng(7)


def facts(type: pa.DataType, low: Any, high: Any) -> ColumnFacts:
    units = len(low)
    yes = np.ones(units, dtype=bool)
    return replace(ColumnFacts.unknown(type, units), lower=low, upper=high, lower_exact=yes, upper_exact=yes)


def of_values(values: Any) -> tuple[ColumnFacts, Any, Any]:
    parts = np.array_split(values, UNITS)
    low, high = (np.array([pick(part) for part in parts]) for pick in (np.min, np.max))
    return facts(pa.from_numpy_dtype(values.dtype), low, high), low, high


@pytest.mark.parametrize(
    ("values", "layout"),
    [
        (np.arange(ROWS), Layout.SORTED),
        (-np.arange(ROWS), Layout.SORTED),
        (np.sort(RNG.integers(0, 7, ROWS)), Layout.SORTED),
        (np.arange(ROWS) + RNG.integers(-600, 600, ROWS), Layout.CLUSTERED),
        (np.arange(ROWS) / 3 + RNG.normal(0, 80, ROWS), Layout.CLUSTERED),
        (np.concatenate([np.arange(ROWS // 2), RNG.integers(0, ROWS // 2, ROWS // 2)]), Layout.OVERLAPPING),
        (RNG.integers(0, 10**9, ROWS), Layout.RANDOM),
        (RNG.random(ROWS), Layout.RANDOM),
        (np.full(ROWS, 5), Layout.CONSTANT),
    ],
)
def test_predicts_what_an_equality_keeps(values: Any, layout: Layout) -> None:
    column, low, high = of_values(values)
    found = clustering(column, np.full(UNITS, ROWS // UNITS))
    looked_up = RNG.choice(values, 2_000)
    kept = np.mean([((low <= value) & (value <= high)).mean() for value in looked_up])
    assert found.layout is layout
    assert found.units == UNITS
    assert found.kept == pytest.approx(kept, abs=0.02, rel=0.15)
    assert all(0 <= share <= 1 for share in found.profile)


def test_extreme_integers_do_not_overflow() -> None:
    low = np.array([-(2**63), 0, 5], dtype=np.int64)
    high = np.array([2**63 - 1, 2**63 - 1, 5], dtype=np.int64)
    found = clustering(facts(pa.int64(), low, high))
    assert 1 <= found.depth <= 3
    # Half of the first unit's values lie in the second too; the third lies in both.
    assert found.depth == pytest.approx((1.5 + 2 + 3) / 3, abs=0.05)
    unsigned = clustering(
        facts(pa.uint64(), low.astype(np.uint64) * 0, np.full(3, 2**64 - 1, dtype=np.uint64))
    )
    assert unsigned.depth == 3


def test_extreme_floats_do_not_overflow() -> None:
    big = np.finfo(np.float64).max
    found = clustering(facts(pa.float64(), np.array([-big, 0.0]), np.array([big, big])))
    assert found.depth == pytest.approx(1.75, abs=0.05)


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.large_binary())


def test_strings() -> None:
    low = binary(b"/shop/a", b"/shop/f", b"/shop/k")
    high = binary(b"/shop/e", b"/shop/j", b"/shop/z")
    found = clustering(facts(pa.string(), low, high))
    assert (found.depth, found.layout) == (1.0, Layout.SORTED)
    # Far apart in the beginning, told apart only at the end: rank takes over.
    low = binary(b"a", b"zzzzzzzzzzzzzz1", b"zzzzzzzzzzzzzz3")
    high = binary(b"b", b"zzzzzzzzzzzzzz2", b"zzzzzzzzzzzzzz4")
    found = clustering(facts(pa.string(), low, high))
    assert (found.depth, found.layout) == (1.0, Layout.SORTED)


def test_units_without_bounds_are_always_touched() -> None:
    low, high = np.array([0, 10, 20, 30]), np.array([9, 19, 29, 39])
    known = facts(pa.int64(), low, high)
    blind = ColumnFacts.concat([known, ColumnFacts.unknown(pa.int64(), 4)])
    found = clustering(blind)
    # A value of a bounded unit touches it and the four blind ones, any other may touch all eight.
    assert found.depth == 4 + (4 * 1 + 4 * 4) / 8
    assert clustering(ColumnFacts.unknown(pa.int64(), 4)).layout is Layout.UNKNOWN
    assert clustering(ColumnFacts.unknown(pa.string(), 4)).depth == 4


def test_units_of_nulls_are_never_touched() -> None:
    low, high = np.array([0, 10]), np.array([9, 19])
    column = ColumnFacts.concat([facts(pa.int64(), low, high), ColumnFacts.absent(pa.int64(), 2)])
    found = clustering(column)
    assert (found.depth, found.kept, found.layout) == (1.0, 0.25, Layout.SORTED)
    assert clustering(ColumnFacts.absent(pa.int64(), 3)).depth == 0


def test_one_unit_and_none() -> None:
    assert clustering(facts(pa.int64(), np.array([1]), np.array([5]))).layout is Layout.SINGLE
    assert clustering(ColumnFacts.unknown(pa.int64(), 0)).kept == 0.0
