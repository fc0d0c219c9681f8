"""RowSet against Python's set, with every operation in both representations."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from skipstone.core.rows import RowSet, from_selection, rowset, to_selection
from skipstone.errors import RowSetError
from tests.support.samples import sample

# Small sets find the off-by-ones; bases near roaring's container and width borders find the rest.
BASES = (0, 65_536 - 20, 2**32 - 20, 2**32 + 65_536 - 20)
REPRESENTATIONS = ("runs", "bitmap")
OPERATORS = (operator.and_, operator.or_, operator.sub, operator.xor)

# Files beyond 2**32 rows forced into bitmaps are slow by nature, and the machine may be busy.
untimed = settings(deadline=None, max_examples=sample("row sets"))
representation = st.sampled_from(REPRESENTATIONS)


@contextmanager
def held_as(kind: str) -> Iterator[None]:
    limit = 1 if kind == "bitmap" else 2**62
    with (
        patch.object(rowset, "SCATTERED_RUNS", limit),
        patch.object(rowset, "SCATTERED_RUNS_PER_CONTAINER", 0),
    ):
        yield


def make(total: int, model: set[int], kind: str) -> RowSet:
    with held_as(kind):
        rows = RowSet.from_positions(total, np.array(sorted(model), np.int64))
    assert (rows._bitmap is not None) == (kind == "bitmap" and bool(model))
    return rows


def check(rows: RowSet, total: int, model: set[int]) -> None:
    """The rows are the model's, and the runs are in their one normal form."""
    assert rows.total == total
    assert list(rows) == sorted(model)
    assert len(rows) == len(model)
    starts, stops = rows.runs()
    assert (starts < stops).all()
    assert (stops[:-1] < starts[1:]).all()
    assert rows == make(total, model, "runs") == make(total, model, "bitmap")
    assert hash(rows) == hash(make(total, model, "runs")) == hash(make(total, model, "bitmap"))


@st.composite
def windows_of_a_file(draw: st.DrawFn) -> tuple[int, int, int]:
    """A file's total and the small window [low, high) in which a test puts its rows."""
    low = draw(st.sampled_from(BASES))
    high = low + draw(st.integers(1, 60))
    return high + draw(st.sampled_from((0, 1, 70_000))), low, high


@st.composite
def files(draw: st.DrawFn, sets: int = 1) -> tuple[int, int, int, list[set[int]]]:
    total, low, high = draw(windows_of_a_file())
    return total, low, high, [draw(st.sets(st.integers(low, high - 1))) for _ in range(sets)]


@untimed
@given(files(2), representation, representation, representation)
def test_binary_operations(
    file: tuple[int, int, int, list[set[int]]], left: str, right: str, result: str
) -> None:
    total, _, _, (a, b) = file
    x, y = make(total, a, left), make(total, b, right)
    with held_as(result):
        results = [(op(x, y), op(a, b)) for op in OPERATORS]
        assert x.isdisjoint(y) == a.isdisjoint(b)
        assert x.issubset(y) == a.issubset(b)
        assert (x == y) == (a == b)
        assert ~(x | y) == ~x & ~y
        assert len(~x) == total - len(a)
        assert ~~x == x
        assert x - y == x & ~y
    for rows, model in results:
        check(rows, total, model)


@untimed
@given(st.integers(1, 60), st.data(), representation)
def test_complement(total: int, data: st.DataObject, kind: str) -> None:
    model = data.draw(st.sets(st.integers(0, total - 1)))
    with held_as(kind):
        check(~make(total, model, kind), total, set(range(total)) - model)


@untimed
@given(files(), representation, st.data())
def test_looking_inside(file: tuple[int, int, int, list[set[int]]], kind: str, data: st.DataObject) -> None:
    total, low, high, (model,) = file
    rows, ordered = make(total, model, kind), sorted(model)
    assert rows.positions().tolist() == ordered
    assert [rows.nth(k) for k in range(len(rows))] == ordered
    assert rows.is_empty == (not model)
    assert rows.is_full == (len(model) == total)
    assert [row in rows for row in range(low - 2, high + 2)] == [
        row in model for row in range(low - 2, high + 2)
    ]
    if model:
        assert (rows.first, rows.last) == (ordered[0], ordered[-1])
    border = st.integers(low, high) | st.sampled_from((0, total))
    windows = data.draw(st.lists(st.tuples(border, border).map(sorted), max_size=8))
    expected = [sum(start <= row < stop for row in model) for start, stop in windows]
    assert [rows.count(start, stop) for start, stop in windows] == expected
    starts, stops = [w[0] for w in windows], [w[1] for w in windows]
    assert rows.counts(starts, stops).tolist() == expected
    with patch.object(rowset, "_RUNS_PER_RANK", 0):
        assert rows.counts(starts, stops).tolist() == expected


@untimed
@given(files(), representation, representation, st.data())
def test_cutting_and_moving(
    file: tuple[int, int, int, list[set[int]]], kind: str, result: str, data: st.DataObject
) -> None:
    total, low, high, (model,) = file
    rows = make(total, model, kind)
    start, stop = sorted(data.draw(st.tuples(st.integers(low, high), st.integers(low, high))))
    limit = data.draw(st.integers(0, 70))
    with held_as(result):
        cut, taken = rows.slice(start, stop), rows.take(limit)
        back = cut.shift(start, total=total)
        whole = RowSet.concat([rows.slice(0, start), cut, rows.slice(stop, total)])
    inside = {row for row in model if start <= row < stop}
    check(cut, stop - start, {row - start for row in inside})
    check(back, total, inside)
    check(whole, total, model)
    check(taken, total, set(sorted(model)[:limit]))


@untimed
@given(windows_of_a_file(), st.data(), representation)
def test_making(file: tuple[int, int, int], data: st.DataObject, kind: str) -> None:
    total, low, high = file
    border = st.integers(low, high)
    ranges = data.draw(st.lists(st.tuples(border, border).map(lambda pair: (min(pair), max(pair)))))
    positions = data.draw(st.lists(st.integers(low, high - 1)))
    mask = data.draw(st.lists(st.booleans()))
    bitmap_class = BitMap if high <= 2**32 and data.draw(st.booleans()) else BitMap64
    with held_as(kind):
        covered = {row for start, stop in ranges for row in range(start, stop)}
        check(RowSet.from_ranges(total, ranges), total, covered)
        check(RowSet.from_positions(total, positions), total, set(positions))
        check(RowSet.from_bitmap(total, bitmap_class(positions)), total, set(positions))
        check(RowSet.from_mask(mask), len(mask), {row for row, bit in enumerate(mask) if bit})
        assert set(RowSet.from_positions(total, positions).to_bitmap()) == set(positions)


@untimed
@given(files(), representation, representation, st.data())
def test_bytes(
    file: tuple[int, int, int, list[set[int]]], kind: str, result: str, data: st.DataObject
) -> None:
    total, _, _, (model,) = file
    rows = make(total, model, kind)
    written = rows.to_bytes()
    with held_as(result):
        check(RowSet.from_bytes(written), total, model)
        assert pickle.loads(pickle.dumps(rows)) == rows
    damaged = bytearray(written)
    for bit in data.draw(st.sets(st.integers(0, 8 * len(written) - 1), min_size=1, max_size=20)):
        damaged[bit // 8] ^= 1 << bit % 8
    for broken in (bytes(damaged), written[: data.draw(st.integers(0, len(written) - 1))]):
        with pytest.raises(RowSetError):
            RowSet.from_bytes(broken)


@untimed
@given(st.binary(max_size=200))
def test_junk_is_never_rows(junk: bytes) -> None:
    with pytest.raises(RowSetError):
        RowSet.from_bytes(junk)


@untimed
@given(st.lists(st.integers(0, 12), max_size=8), st.data(), representation)
def test_selections(sizes: list[int], data: st.DataObject, kind: str) -> None:
    group_rows = np.array(sizes, np.int64)
    group_starts = np.cumsum(group_rows) - group_rows
    total = sum(sizes)
    model = data.draw(st.sets(st.integers(0, total - 1))) if total else set()
    everything = list(range(len(sizes)))
    groups = data.draw(st.permutations(everything))[: data.draw(st.integers(0, len(sizes)))]
    rows = make(total, model, kind)
    selection = to_selection(rows, groups, group_starts, group_rows)
    kept = [row for g in groups for row in range(group_starts[g], group_starts[g] + sizes[g])]
    read = [what == "select" for what, count in selection for _ in range(count)]
    assert read == [row in model for row in kept]
    assert all(count > 0 for _, count in selection)
    assert all(a[0] != b[0] for a, b in pairwise(selection))
    with held_as(kind):
        back = from_selection(selection, groups, group_starts, group_rows, total)
    check(back, total, model & set(kept))
    if selection and selection[-1][0] == "skip":
        assert from_selection(selection[:-1], groups, group_starts, group_rows, total) == back
    with pytest.raises(RowSetError):
        from_selection([*selection, ("skip", 1)], groups, group_starts, group_rows, total)
