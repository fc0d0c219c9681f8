"""Facts that replace those of files, in all files or in some."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from skipstone.core.evidence import ColumnFacts, FactOverride


def facts(type: pa.DataType, low: list, high: list) -> ColumnFacts:
    units = len(low)
    yes, no = np.ones(units, dtype=bool), np.zeros(units, dtype=bool)
    if pa.types.is_string(type):
        lower, upper = (
            pa.array([value.encode() for value in side], pa.large_binary()) for side in (low, high)
        )
    else:
        lower, upper = np.array(low), np.array(high)
    return ColumnFacts(type, lower, upper, yes, yes, yes, no, no)


@pytest.mark.parametrize(
    ("type", "stated", "stored"),
    [(pa.int64(), [1, 2, 3], [10, 20, 30]), (pa.string(), ["a", "b", "c"], ["x", "y", "z"])],
)
def test_override_applies_only_where_set(type: pa.DataType, stated: list, stored: list) -> None:
    where = np.array([True, False, True])
    found = FactOverride(facts(type, stated, stated), where).fallback_to(lambda: ColumnFacts.absent(type, 3))
    assert found.may_value.tolist() == [True, False, True]
    assert found.may_null.tolist() == [False, True, False]
    mixed = FactOverride(facts(type, stated, stated), where).fallback_to(lambda: facts(type, stored, stored))
    plain = [v.decode() if isinstance(v, bytes) else v for v in _listed(mixed.lower)]
    assert plain == [stated[0], stored[1], stated[2]]


def test_full_override_reads_no_facts() -> None:
    mine = facts(pa.int64(), [1], [1])

    def never() -> ColumnFacts:
        raise AssertionError

    assert FactOverride(mine).fallback_to(never) is mine
    assert FactOverride(mine, np.array([True])).fallback_to(never) is mine


def test_take_selects_files_and_overrides() -> None:
    taken = FactOverride(facts(pa.int64(), [1, 2], [1, 2]), np.array([True, False])).take(np.array([1, 0, 0]))
    assert taken.where is not None
    assert taken.where.tolist() == [False, True, True]
    assert taken.facts.lower.tolist() == [2, 1, 1]


def _listed(bounds: object) -> list:
    return bounds.to_pylist() if isinstance(bounds, pa.Array) else bounds.tolist()  # type: ignore[attr-defined]
