from __future__ import annotations

import dataclasses
import itertools
import pickle

import numpy as np
import pytest
from pyroaring import BitMap, BitMap64, FrozenBitMap, FrozenBitMap64

from skipstone.core.rows import RowSet, roaring, rowset, runs
from skipstone.errors import RowSetError

HUGE = 10**12


def scattered(step: int = 3, count: int = 20_000) -> np.ndarray:
    return np.arange(0, step * count, step)


# -- making one -------------------------------------------------------------------------------


def test_law_10_intersects_rows_not_pages() -> None:
    # The Tonbo appendix: A keeps page 2 (rows 200-299), B keeps page 4 (rows 100-249).
    a = RowSet.from_ranges(300, [(200, 300)])
    b = RowSet.from_ranges(300, [(100, 250)])
    assert (a & b).ranges() == [(200, 250)]
    assert len(a & b) == 50


def test_all_and_none(held: str) -> None:
    full, empty = RowSet.all(10), RowSet.none(10)
    assert full.ranges() == [(0, 10)]
    assert (len(full), full.is_full, full.is_empty) == (10, True, False)
    assert (len(empty), empty.is_full, empty.is_empty) == (0, False, True)
    assert ~full == empty
    assert ~empty == full


def test_a_file_without_rows_is_both_full_and_empty() -> None:
    rows = RowSet.all(0)
    assert rows == RowSet.none(0) == RowSet.from_mask([]) == RowSet.concat([]) == ~rows
    assert rows.is_full
    assert rows.is_empty
    assert RowSet.from_bytes(rows.to_bytes()) == rows


@pytest.mark.parametrize(
    "ranges",
    [
        [(50, 60), (0, 10), (5, 20), (20, 25), (30, 30)],
        ((50, 60), (0, 25)),
        iter([(0, 25), (50, 60), (52, 53)]),
        np.array([[0, 25], [50, 60]]),
        np.array([[50, 60], [0, 25]], np.uint64),
        (np.array([50, 0], np.int32), np.array([60, 25], np.int32)),
    ],
)
def test_from_ranges_normalises(ranges: object) -> None:
    assert RowSet.from_ranges(100, ranges).ranges() == [(0, 25), (50, 60)]  # type: ignore[arg-type]


def test_from_ranges_takes_what_runs_gives(held: str) -> None:
    rows = RowSet.from_ranges(100, [(0, 25), (50, 60)])
    assert RowSet.from_ranges(100, *rows.runs()) == rows
    assert RowSet.from_ranges(100, rows.runs()) == rows
    assert RowSet.from_ranges(100, []) == RowSet.none(100)


@pytest.mark.parametrize(
    "ranges",
    [
        [(-1, 5)],
        [(0, 101)],
        [(101, 101)],
        [(7, 5)],
        [(0.0, 5.0)],
        [(0, 1, 2)],
        [(0, 1), (2,)],
        [0, 1],
        [(2**64, 2**65)],
        np.array([[0, 2**63]], np.uint64),
        (np.array([0, 1]), np.array([2])),
    ],
)
def test_from_ranges_refuses(ranges: object) -> None:
    with pytest.raises(RowSetError):
        RowSet.from_ranges(100, ranges)  # type: ignore[arg-type]


def test_from_positions(held: str) -> None:
    rows = RowSet.from_positions(100, np.array([7, 3, 4, 3, 99], np.uint8))
    assert rows.ranges() == [(3, 5), (7, 8), (99, 100)]
    assert RowSet.from_positions(100, []) == RowSet.none(100)
    for bad in ([-1, 5], [5, 100], [1.5], [True], [2**70], ["a"]):
        with pytest.raises(RowSetError):
            RowSet.from_positions(100, bad)


def test_from_mask(held: str) -> None:
    assert RowSet.from_mask([True, True, False, True]).ranges() == [(0, 2), (3, 4)]
    assert RowSet.from_mask(np.ones(6, bool)[::2]) == RowSet.all(3)
    for bad in ([1, 0], [[True]]):
        with pytest.raises(RowSetError):
            RowSet.from_mask(bad)


@pytest.mark.parametrize("bitmap_class", [BitMap, BitMap64, FrozenBitMap, FrozenBitMap64])
@pytest.mark.parametrize("total", [100, 2**32, 2**32 + 1])
def test_from_bitmap_of_any_width(held: str, bitmap_class: type, total: int) -> None:
    bitmap = bitmap_class([1, 2, 3, 50])
    assert RowSet.from_bitmap(total, bitmap).ranges() == [(1, 4), (50, 51)]
    with pytest.raises(RowSetError, match="row 50 is outside a file of 50 rows"):
        RowSet.from_bitmap(50, bitmap)
    with pytest.raises(RowSetError, match="not a pyroaring bitmap"):
        RowSet.from_bitmap(100, {1, 2})


def test_input_is_copied(held: str) -> None:
    bitmap, starts, stops = BitMap([1, 2]), np.array([1]), np.array([3])
    made = [RowSet.from_bitmap(10, bitmap), RowSet.from_ranges(10, starts, stops)]
    made[0].to_bitmap().add(7)
    bitmap.add(9)
    starts[0] = 0
    assert [list(rows) for rows in made] == [[1, 2], [1, 2]]
    with pytest.raises(ValueError, match="read-only"):
        made[1].runs()[0][0] = 0


@pytest.mark.parametrize("total", [-1, 2**63])
def test_impossible_totals(total: int) -> None:
    for make in (RowSet.all, RowSet.none):
        with pytest.raises(RowSetError, match="out of range"):
            make(total)


# -- what is in it ----------------------------------------------------------------------------


def test_looking_inside(held: str) -> None:
    rows = RowSet.from_ranges(100, [(3, 6), (10, 11)])
    assert list(itertools.islice(rows, 2)) == [3, 4]
    assert rows.positions().tolist() == [3, 4, 5, 10]
    assert rows.positions().dtype == np.int64
    assert [row for row in range(-2, 102) if row in rows] == [3, 4, 5, 10]
    assert np.int32(5) in rows
    assert "5" not in rows
    assert (rows.first, rows.last, [rows.nth(k) for k in range(4)]) == (3, 10, [3, 4, 5, 10])
    for k in (-1, 4):
        with pytest.raises(RowSetError, match="is outside a set of"):
            rows.nth(k)
    for end in ("first", "last"):
        with pytest.raises(RowSetError, match="is outside a set of"):
            getattr(RowSet.none(5), end)


def test_counting(held: str) -> None:
    rows = RowSet.from_ranges(100, [(3, 6), (10, 11)])
    assert rows.count(0, 100) == 4
    assert rows.count(4, 4) == 0
    assert rows.count(100, 100) == 0
    assert rows.counts([0, 4, 6, 5, 0], [100, 5, 10, 11, 0]).tolist() == [4, 1, 0, 2, 0]
    assert rows.counts([], []).tolist() == []
    for start, stop in ((-1, 5), (5, 4), (0, 101)):
        with pytest.raises(RowSetError, match="not a range"):
            rows.count(start, stop)
        with pytest.raises(RowSetError, match="not a range"):
            rows.slice(start, stop)
    with pytest.raises(RowSetError, match="shape"):
        rows.counts([1, 2], [3])


def test_counts_of_few_and_of_many_windows_agree() -> None:
    rows = RowSet.from_positions(60_000, scattered())
    assert rows._bitmap is not None
    assert rows.counts([0, 30], [3, 60_000]).tolist() == [1, 19_990]
    starts = np.arange(60_000)
    assert rows.counts(starts, starts + 1).tolist() == [1, 0, 0] * 20_000


def test_slices_and_concat_are_inverse(held: str) -> None:
    rows = RowSet.from_ranges(100, [(3, 26), (49, 51), (99, 100)])
    parts = [rows.slice(start, start + 25) for start in range(0, 100, 25)]
    assert [part.total for part in parts] == [25] * 4
    assert [part.ranges() for part in parts] == [[(3, 25)], [(0, 1), (24, 25)], [(0, 1)], [(24, 25)]]
    assert RowSet.concat(parts) == rows
    assert parts[1].shift(25, total=100) == rows & RowSet.from_ranges(100, [(25, 50)])
    assert RowSet.none(5).shift(-100, total=3) == RowSet.none(3)
    for offset, total in ((-1, 100), (76, 100), (0, 20)):
        with pytest.raises(RowSetError, match="outside"):
            parts[1].shift(offset, total=total)


def test_take(held: str) -> None:
    rows = RowSet.from_ranges(100, [(3, 6), (10, 11)])
    assert [list(rows.take(n)) for n in (0, 2, 4, 9)] == [[], [3, 4], [3, 4, 5, 10], [3, 4, 5, 10]]
    assert rows.take(2).total == 100
    with pytest.raises(RowSetError, match="limit"):
        rows.take(-1)


# -- algebra ----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["__and__", "__or__", "__sub__", "__xor__", "isdisjoint", "issubset"])
def test_other_files_say_both_totals(op: str) -> None:
    with pytest.raises(RowSetError, match="1,000 rows and 2,000 rows"):
        getattr(RowSet.all(1000), op)(RowSet.all(2000))


def test_only_row_sets_combine() -> None:
    with pytest.raises(TypeError):
        RowSet.all(3) & {1}  # type: ignore[operator]
    assert RowSet.all(3) != {0, 1, 2}


def test_touching_runs_become_one() -> None:
    left, right = RowSet.from_ranges(20, [(0, 5), (10, 15)]), RowSet.from_ranges(20, [(5, 10), (15, 20)])
    assert (left | right).ranges() == (left ^ right).ranges() == [(0, 20)]
    assert left.isdisjoint(right)
    assert ~left == right


# -- representation ---------------------------------------------------------------------------


def test_scattered_rows_are_a_bitmap_and_still_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    total, positions = 60_000, scattered()
    bitmap = RowSet.from_positions(total, positions)
    others = [
        RowSet.from_ranges(total, positions, positions + 1),
        RowSet.from_mask(np.arange(total) % 3 == 0),
        RowSet.from_bitmap(total, BitMap(positions.tolist())),
        RowSet.from_bytes(bitmap.to_bytes()),
        ~~bitmap,
    ]
    assert all(rows._bitmap is not None for rows in [bitmap, ~bitmap, *others])
    monkeypatch.setattr(rowset, "SCATTERED_RUNS", 2**62)
    plain = RowSet.from_positions(total, positions)
    assert plain._bitmap is None
    assert {bitmap, plain, *others} == {plain}
    assert plain == bitmap
    assert bitmap == plain
    assert plain != RowSet.from_positions(total, positions + 1)
    assert bitmap != RowSet.from_positions(total, positions + 1)
    assert plain & bitmap == bitmap | plain == plain
    assert (plain - bitmap).is_empty


def test_ten_million_scattered_rows_cost_far_less_than_their_runs() -> None:
    total = 40_000_000
    rows = RowSet.from_positions(total, np.arange(0, total, 4))
    size = rows._bitmap.get_statistics()  # type: ignore[union-attr]
    held = sum(size[f"n_bytes_{kind}_containers"] for kind in ("array", "run", "bitset"))
    assert len(rows) == 10_000_000
    assert 1_000_000 < held < 6_000_000


def test_rows_far_apart_stay_runs() -> None:
    # One row per roaring container would cost more than the runs do.
    assert RowSet.from_positions(HUGE, np.arange(0, HUGE, HUGE // 10_000))._bitmap is None


def test_a_result_gives_the_bitmap_up_when_few_runs_are_left() -> None:
    rows = RowSet.from_positions(60_000, scattered())
    for small in (
        rows & RowSet.from_ranges(60_000, [(0, 30)]),
        rows.take(10),
        rows.slice(0, 30),
        rows ^ rows,
    ):
        assert small._bitmap is None


# -- huge files -------------------------------------------------------------------------------


def test_a_trillion_rows() -> None:
    rows = RowSet.all(HUGE) - RowSet.from_ranges(HUGE, [(5, 7), (HUGE - 3, HUGE - 1)])
    assert len(rows) == HUGE - 4
    assert rows.ranges() == [(0, 5), (7, HUGE - 3), (HUGE - 1, HUGE)]
    assert rows.count(6, HUGE) == HUGE - 9
    assert rows.nth(5) == 7
    assert rows.last == HUGE - 1
    assert rows.slice(2**40 - 2**37, HUGE - 3).is_full
    assert list(rows.take(6)) == [0, 1, 2, 3, 4, 7]
    assert len(rows.to_bytes()) < 60
    assert RowSet.from_bytes(rows.to_bytes()) == rows
    assert RowSet.concat([rows, rows]).count(HUGE, 2 * HUGE) == len(rows)


def test_the_largest_file() -> None:
    rows = RowSet.all(2**63 - 1)
    assert len(rows) == 2**63 - 1
    assert (rows & ~RowSet.from_ranges(2**63 - 1, [(0, 1)])).ranges() == [(1, 2**63 - 1)]
    assert pickle.loads(pickle.dumps(rows)) == rows
    with pytest.raises(RowSetError, match="out of range"):
        RowSet.concat([rows, RowSet.all(1)])


@pytest.mark.parametrize("total", [2**32 - 1, 2**32, 2**32 + 1, 2**34])
def test_bitmaps_around_the_32_bit_border(held: str, total: int) -> None:
    rows = RowSet.from_ranges(total, [(0, 1), (65_535, 65_537), (total - 70_000, total)])
    bitmap = rows.to_bitmap()
    assert type(bitmap) is (BitMap if total <= 2**32 else BitMap64)
    assert len(bitmap) == 70_003
    assert bitmap.max() == total - 1
    assert RowSet.from_bitmap(total, bitmap) == rows
    assert (~rows).ranges() == [(1, 65_535), (65_537, total - 70_000)]
    assert rows.slice(total - 5, total).shift(total - 5, total=total) == rows - RowSet.all(total - 5).shift(
        0, total=total
    )
    assert RowSet.from_bytes(rows.to_bytes()) == rows


def test_a_scattered_file_beyond_32_bits() -> None:
    total, count = 2**32 + 60_000, 600_000
    positions = np.concatenate((np.arange(0, 2 * count, 2), np.arange(2**32, total, 3)))
    rows = RowSet.from_positions(total, positions)
    assert type(rows._bitmap) is BitMap64
    assert rows == RowSet.from_ranges(total, positions, positions + 1)
    assert rows.count(2**32, total) == 20_000
    assert np.array_equal(rows.positions(), positions)
    assert rows.slice(2**32, total) == RowSet.from_positions(60_000, scattered())
    assert RowSet.from_bytes(rows.to_bytes()) == rows


def test_full_bitmaps_are_not_expanded() -> None:
    assert RowSet.from_bitmap(2**32, RowSet.all(2**32).to_bitmap()) == RowSet.all(2**32)


# -- identity -------------------------------------------------------------------------------


def test_frozen_and_slotted() -> None:
    rows = RowSet.all(3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        rows.total = 4  # type: ignore[misc]
    assert not hasattr(rows, "__dict__")


def test_repr(held: str) -> None:
    ranges = [(0, 400), (500, 900), (10_000, 10_400)]
    assert repr(RowSet.from_ranges(10**6, ranges)) == (
        "RowSet(1,200 of 1,000,000 rows in 3 runs: 0–399, 500–899, 10000–10399)"
    )
    assert repr(RowSet.from_ranges(10**6, [*ranges, (20_000, 20_001)])).endswith("10000–10399, ...)")
    assert repr(RowSet.from_positions(10, [4])) == "RowSet(1 of 10 rows in 1 run: 4)"
    assert repr(RowSet.none(10)) == "RowSet(0 of 10 rows)"


def test_runs_laid_out_as_roaring_equal_roarings_own() -> None:
    rng = np.random.default_rng(7)
    for width in (1, 50, 100_000):
        starts = np.sort(rng.integers(0, 2**22, 500))
        made = runs.normalise(starts, starts + rng.integers(1, width + 1, 500))
        assert roaring.from_runs(made, 2**23) == BitMap(runs.positions(made).tolist())
        assert roaring.from_runs(made, 2**33) == BitMap64(runs.positions(made).tolist())
