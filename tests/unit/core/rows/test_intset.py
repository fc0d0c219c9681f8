from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64, FrozenBitMap, FrozenBitMap64

from skipstone.core.rows import RowSet
from skipstone.core.rows.intset import MAX_ID, BitSet, IntSet, RunSet, SortedArray
from skipstone.core.rows.roaring import to_words
from skipstone.errors import UsageError

FORMS = [RunSet, SortedArray, BitSet]
NEAR = [0, 1, 63, 64, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1, 2**63, MAX_ID]
DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


@st.composite
def id_sets(draw: st.DrawFn) -> set[int]:
    """A few clusters of ids near the places where something changes."""
    ids: set[int] = set()
    for _ in range(draw(st.integers(0, 3))):
        base, step = draw(st.sampled_from(NEAR)), draw(st.sampled_from([1, 1, 2, 3, 1000]))
        count = draw(st.integers(1, 12))
        ids |= {base + step * n for n in range(-count, count)}
    return {one for one in ids if 0 <= one <= MAX_ID}


def in_form(ids: set[int], form: type) -> IntSet:
    """The set in a form that it would not have chosen."""
    members = np.array(sorted(ids), np.uint64)
    held: Any = SortedArray.narrow(members)
    if form is RunSet and ids:
        gaps = np.flatnonzero(np.diff(members) != 1) + 1
        held = RunSet(members[np.append(0, gaps)], members[np.append(gaps, 0) - 1])
    elif form is BitSet and ids and max(ids) - min(ids) < 10**7:
        held = BitSet(*to_words(BitMap64(sorted(ids))))
    assert held.size == len(ids)
    return held


def near(ids: set[int]) -> list[int]:
    return sorted({at for one in {*ids, *NEAR} for at in (one - 1, one, one + 1) if 0 <= at <= MAX_ID})


# -- making one -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [BitMap, BitMap64, FrozenBitMap, FrozenBitMap64, list, set, np.array, pa.array, iter]
)
@pytest.mark.parametrize(
    ("ids", "form"),
    [
        (range(10, 20), RunSet),
        ([*range(5), *range(100, 200), *range(300, 310), *range(400, 500), 10**6], RunSet),
        (range(0, 3000, 3), BitSet),
        (range(7, 10**6, 9_973), SortedArray),
        ([], SortedArray),
    ],
)
def test_representation_depends_on_the_members(make: Any, ids: Any, form: type) -> None:
    found = IntSet.of(make(list(ids)))
    assert isinstance(found, form)
    assert found.size == len(ids)
    assert np.flatnonzero(found.contains(np.arange(10**6 + 1))).tolist() == list(ids)


def test_rows_and_ranges_are_sets_of_ids() -> None:
    for ids in (range(3, 50), range(0, 90_000, 3), range(0), range(40, 3, -7)):
        rows = IntSet.of(RowSet.from_positions(100_000, np.array(ids)))
        assert np.flatnonzero(rows.contains(np.arange(100_000))).tolist() == sorted(ids)
        assert np.flatnonzero(IntSet.of(ids).contains(np.arange(100_000))).tolist() == sorted(ids)
    assert IntSet.of(range(2**64)).restrict(-1, 2**70).contains(np.array([0, MAX_ID], np.uint64)).all()
    huge = IntSet.of(range(10, 2**64))
    assert huge.size == 2**64 - 10
    assert huge.contains(np.array([9, 10, MAX_ID], np.uint64)).tolist() == [False, True, True]


def test_a_run_of_a_trillion_rows_is_never_unpacked() -> None:
    found = IntSet.of(RowSet.from_ranges(10**13, [(5, 10**12)]))
    assert str(found) == "999,999,999,995 ids (one run)"
    assert found.counts(np.array([0, 7], np.uint64), np.array([9, 10**12], np.uint64)).tolist() == [
        5,
        10**12 - 7,
    ]


def test_a_bitmap_that_changes_later_does_not_change_the_set() -> None:
    for start in (BitMap([1, 2, 3]), BitMap(range(0, 9000, 2)), BitMap64(range(0, 10**7, 9999))):
        found = IntSet.of(start)
        before = found.contains(np.arange(10_000))
        start.add_range(0, 10_000)
        assert np.array_equal(found.contains(np.arange(10_000)), before)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.array([True, False]), "ids must be a flat array of integers, got bool values"),
        ([True, False], "ids must be a flat array of integers, got bool values"),
        (np.array([1.0]), "ids must be .*, got float64 values"),
        ([1, 2.5], "ids must be .*, got float64 values"),
        (["a"], "ids must be a flat array"),
        ("12", "str is not a set of ids"),
        (7, "int is not a set of ids"),
        (None, "NoneType is not a set of ids"),
        (np.zeros((2, 2), int), r"got an array of shape \(2, 2\)"),
        ([[1], [2, 3]], "integers from 0"),
        ([2**64], "integers from 0"),
        ([3, -4], "ids must not be negative, got -4"),
        ([2**63, -4], "ids must not be negative, got -4"),
        (range(-4, 3), "ids must not be negative, got -4"),
        (pa.array([1, None]), "ids contain NULL"),
    ],
)
def test_invalid_ids(wrong: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        IntSet.of(wrong)


def test_numbers_on_both_sides_of_the_sign_bit() -> None:
    ids = [3, 2**63 + 1, MAX_ID]
    for given_ids in (
        ids,
        iter(ids),
        np.array(ids, np.uint64),
        BitMap64(ids),
        pa.chunked_array([pa.array(ids, pa.uint64())]),
    ):
        assert (
            IntSet.of(given_ids).contains(np.array([*ids, 4, 2**63], np.uint64)).tolist()
            == [True] * 3 + [False] * 2
        )


# -- asking -----------------------------------------------------------------------------------


@given(id_sets(), st.sampled_from([None, *FORMS]))
def test_windows_count_as_python_counts(ids: set[int], form: type | None) -> None:
    found = IntSet.of(BitMap64(sorted(ids))) if form is None else in_form(ids, form)
    points = near(ids)
    pairs = [(low, high) for low in points[::3] for high in points if low <= high]
    lower, upper = (np.array(side, np.uint64) for side in zip(*pairs, strict=True))
    expected = [sum(low <= one <= high for one in ids) for low, high in pairs]
    assert found.counts(lower, upper).tolist() == expected
    some, every = found.covers(lower, upper)
    assert some.tolist() == [count > 0 for count in expected]
    assert every.tolist() == [
        count == high - low + 1 for count, (low, high) in zip(expected, pairs, strict=True)
    ]


@given(id_sets(), st.sampled_from(FORMS), st.sampled_from(DTYPES), st.data())
def test_keys_are_looked_up_like_in_python(
    ids: set[int], form: type, dtype: str, data: st.DataObject
) -> None:
    info = np.iinfo(dtype)
    pool = [one for one in {*near(ids), -1, -2, info.min, info.max} if info.min <= one <= info.max]
    drawn = data.draw(st.lists(st.sampled_from(sorted(pool)), max_size=40))
    for chosen in (drawn, sorted(drawn), list(range(5, 60))):
        expected = [one in ids for one in chosen]
        found = in_form(ids, form)
        assert found.contains(np.array(chosen, dtype)).tolist() == expected
        assert pickle.loads(pickle.dumps(found)).contains(np.array(chosen, dtype)).tolist() == expected


@given(id_sets(), st.sampled_from(FORMS), st.sampled_from(NEAR), st.integers(-100, 200))
def test_a_restricted_set_is_the_same_between_its_bounds(
    ids: set[int], form: type, low: int, more: int
) -> None:
    found = in_form(ids, form).restrict(low, low + more)
    inside = list(range(low, min(low + more, MAX_ID) + 1))
    assert found.contains(np.array(inside, np.uint64)).tolist() == [one in ids for one in inside]
    assert found.size <= sum(low - 64 <= one <= low + more + 64 for one in ids)
    if more > 0 and low < 2**62:
        expected = [one - low for one in sorted(ids) if low <= one < low + more]
        assert in_form(ids, form).rows(low, more).positions().tolist() == expected


@pytest.mark.parametrize("bitmap", [BitMap, BitMap64])
@pytest.mark.parametrize(("share", "form"), [(0.6, BitSet), (0.06, BitSet), (0.0005, SortedArray)])
def test_large_sets_with_every_look_up(share: float, form: type, bitmap: Any) -> None:
    rng, total = np.random.default_rng(7), 400_000
    member = rng.random(total) < share
    member[150_000 : 150_000 + int(120_000 * share)] = True  # dense, sparse and run containers
    source = bitmap(np.flatnonzero(member).tolist())
    source.run_optimize()
    found = IntSet.of(source)
    assert isinstance(found, form)
    keys = np.arange(total)
    for asked in (keys, rng.permutation(keys), np.sort(rng.choice(keys, total)), keys[::7], keys[::40] - 5):
        assert np.array_equal(found.contains(asked), (asked >= 0) & member[asked])
    lower = np.sort(rng.choice(keys, 500))
    windows = lower.astype(np.uint64), lower.astype(np.uint64) + np.uint64(999)
    assert found.counts(*windows).tolist() == [int(member[at : at + 1000].sum()) for at in lower]


@given(id_sets(), st.sampled_from(FORMS), st.sampled_from(["i8", "u8", "i4"]), st.integers(0, 2**32))
def test_keys_in_no_order(ids: set[int], form: type, dtype: str, seed: int) -> None:
    """Flags of the whole set are made where it is narrow, and kept; the set still answers the same."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    pool = [one for one in {*near(ids), -1, -2, info.min, info.max} if info.min <= one <= info.max]
    found = in_form(ids, form)
    for size in (3, 5_000, 3):
        keys = rng.choice(np.array(sorted(pool), dtype), size)
        assert found.contains(keys).tolist() == [one in ids for one in keys.tolist()]


@pytest.mark.parametrize("base", [0, 2**40, 2**62 - 2**17, 2**63 - 2**16, 2**64 - 2**17])
def test_a_set_has_its_flags_once(base: int) -> None:
    ids = set(range(base, base + 2**17, 3))
    found, rng = IntSet.of(ids), np.random.default_rng(3)
    around = np.arange(-(2**17), 2**18).astype(np.uint64) + np.uint64(base)
    for keys in (
        around,
        around.view(np.int64),
        np.array([MAX_ID, 0, 2**63, 2**62], np.uint64).view(np.int64),
    ):
        shuffled = rng.permutation(keys)
        assert found.contains(shuffled).tolist() == [one in ids for one in shuffled.tolist()]
        assert ("_all_flags" in vars(found)) == (base + 2**17 <= 2**62)
        assert np.array_equal(found.contains(np.sort(keys)), [one in ids for one in np.sort(keys).tolist()])
    assert "_all_flags" not in vars(pickle.loads(pickle.dumps(found)))


def test_more_keys_than_are_looked_up_at_once() -> None:
    ids = [1, 5, 6, 7, 40, 65_534, 65_535, 65_536, 131_071, 131_072, 150_000, 10**6]
    keys = np.arange(-20, 200_000)
    for asked in (keys, keys[::-1], np.random.default_rng(5).permutation(keys), keys * 7):
        assert np.array_equal(IntSet.of(ids).contains(asked), np.isin(asked, ids))
