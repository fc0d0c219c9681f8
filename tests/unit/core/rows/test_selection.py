from __future__ import annotations

import numpy as np
import pytest

from skipstone.core.rows import RowSet, from_selection, to_selection
from skipstone.errors import RowSetError

STARTS = np.array([0, 100, 200, 200, 250])
ROWS = np.array([100, 100, 0, 50, 50])
TOTAL = 300


@pytest.mark.parametrize(
    ("ranges", "groups", "expected"),
    [
        ([(0, 300)], [0, 1, 2, 3, 4], [("select", 300)]),
        ([(0, 300)], [1, 4], [("select", 150)]),
        ([], [1, 4], [("skip", 150)]),
        ([(0, 300)], [], []),
        ([(0, 300)], [2], []),
        ([], [2], []),
        ([(90, 110)], [0, 1], [("skip", 90), ("select", 20), ("skip", 90)]),
        ([(90, 110)], [0], [("skip", 90), ("select", 10)]),
        ([(90, 110)], [1], [("select", 10), ("skip", 90)]),
        ([(90, 110)], [3], [("skip", 50)]),
        ([(0, 10), (240, 260)], [0, 3, 4], [("select", 10), ("skip", 130), ("select", 20), ("skip", 40)]),
        # Rows that end one kept group and start the next are neighbours in the selection.
        ([(90, 100), (200, 210)], [0, 3], [("skip", 90), ("select", 20), ("skip", 40)]),
        # Groups come in the order given.
        ([(0, 10), (290, 300)], [4, 0], [("skip", 40), ("select", 20), ("skip", 90)]),
    ],
)
def test_both_ways(ranges: list[tuple[int, int]], groups: list[int], expected: list[tuple[str, int]]) -> None:
    rows = RowSet.from_ranges(TOTAL, ranges)
    selection = to_selection(rows, groups, STARTS, ROWS)
    assert selection == expected
    assert all(type(count) is int for _, count in selection)
    kept = RowSet.from_ranges(TOTAL, [(STARTS[g], STARTS[g] + ROWS[g]) for g in groups])
    assert from_selection(selection, groups, STARTS, ROWS, TOTAL) == rows & kept


@pytest.mark.parametrize(
    ("selection", "ranges"),
    [
        ([], []),
        ([("select", 5)], [(0, 5)]),
        ([("skip", 0), ("select", 5), ("skip", 0), ("select", 5), ("select", 0)], [(0, 10)]),
        ([("skip", 95), ("select", 10)], [(95, 100), (250, 255)]),
        ([("skip", 150)], []),
    ],
)
def test_loose_selections(selection: list[tuple[str, int]], ranges: list[tuple[int, int]]) -> None:
    rows = from_selection(selection, [0, 4], STARTS, ROWS, TOTAL)  # type: ignore[arg-type]
    assert rows.ranges() == ranges
    assert rows.total == TOTAL


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ([("skip", 151)], "selection has 151 rows, the row groups have 150"),
        ([("skip", 150), ("select", 1)], "151 rows"),
        ([("select", 2**63), ("skip", 2**63)], "the row groups have 150"),
        ([("select", -1)], "negative count: -1"),
        ([("select", 1.5)], "integers"),
        ([("pick", 1)], "unknown selector 'pick'"),
    ],
)
def test_wrong_selections(selection: list[tuple[str, int]], message: str) -> None:
    with pytest.raises(RowSetError, match=message):
        from_selection(selection, [0, 4], STARTS, ROWS, TOTAL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("groups", "starts", "rows", "message"),
    [
        ([5], STARTS, ROWS, "no row group 5: the file has 5"),
        ([-1], STARTS, ROWS, "no row group -1"),
        ([1, 1], STARTS, ROWS, "listed twice"),
        ([0], STARTS, ROWS[:2], "5 row group starts but 2 row counts"),
        ([0], np.array([250]), np.array([51]), "row group 0: 51 rows from row 250"),
        ([0], np.array([-1]), np.array([1]), "row group 0"),
    ],
)
def test_wrong_groups(groups: list[int], starts: np.ndarray, rows: np.ndarray, message: str) -> None:
    with pytest.raises(RowSetError, match=message):
        to_selection(RowSet.all(TOTAL), groups, starts, rows)
    with pytest.raises(RowSetError, match=message):
        from_selection([], groups, starts, rows, TOTAL)


def test_a_selection_over_a_trillion_rows() -> None:
    half = 5 * 10**11
    rows = RowSet.from_ranges(2 * half, [(half - 1, half + 1)])
    groups = np.array([0, half]), np.array([half, half])
    selection = to_selection(rows, [0, 1], *groups)
    assert selection == [("skip", half - 1), ("select", 2), ("skip", half - 1)]
    assert from_selection(selection, [0, 1], *groups, 2 * half) == rows
