"""A file and its entry are the same only if key, size and version are."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skipstone.index.marks import marks_of, match
from skipstone.store.objects import ObjectVersion
from skipstone.store.store import ListedFile

_DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
VERSIONS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
    st.builds(ObjectVersion, st.integers(0, 2), st.sampled_from([None, '"a"', '"b"']), st.just(_DAY)),
)
ENTRIES = st.builds(
    ListedFile, st.sampled_from(["a", "b", "a/b", "é", "\udcff", "a\0"]), st.integers(0, 2), VERSIONS
)


@given(st.lists(ENTRIES, max_size=9, unique=True), st.lists(ENTRIES, max_size=9))
def test_a_match_is_the_same_entry(known: list[ListedFile], wanted: list[ListedFile]) -> None:
    places = match(marks_of(known), marks_of(wanted))
    assert places.dtype == np.int64
    assert [known[p] if p >= 0 else None for p in places.tolist()] == [
        entry if entry in known else None for entry in wanted
    ]


@given(st.lists(ENTRIES, max_size=9))
def test_of_equal_marks_the_last(entries: list[ListedFile]) -> None:
    places = match(marks_of(entries), marks_of(entries))
    if len({*entries}) < len(entries):
        others = match(marks_of(entries), marks_of([*entries, ListedFile("z", 0, None)]))
        last = [len(entries) - 1 - entries[::-1].index(entry) for entry in entries]
        assert others.tolist() == [*last, -1]
    else:
        assert places.tolist() == list(range(len(entries)))


def test_marks_with_one_half_in_common() -> None:
    """What would be a match by the first half alone is none."""
    known = np.array([[1, 1], [2, 5], [3, 1]], dtype=np.uint64)
    wanted = np.array([[2, 5], [2, 6], [1, 0], [0, 1], [9, 9], [3, 1]], dtype=np.uint64)
    assert match(known, wanted).tolist() == [1, -1, -1, -1, -1, 2]


def test_nothing() -> None:
    none = marks_of([])
    assert none.shape == (0, 2)
    assert match(none, none).tolist() == []
    assert match(none, marks_of([ListedFile("a", 1, None)])).tolist() == [-1]
    assert match(marks_of([ListedFile("a", 1, None)]), none).tolist() == []


def test_marks_are_the_same_tomorrow() -> None:
    """They are stored: another digest of the same entry would make every index stale."""
    version = ObjectVersion(7, '"abc"', _DAY)
    found = marks_of(
        [ListedFile("day=1/f.parquet", 7, (7, 1_700_000_000_000_000_000, 42)), ListedFile("k", 7, version)]
    )
    assert len({*map(tuple, found.tolist())}) == 2
    assert np.array_equal(
        found,
        marks_of(
            [
                ListedFile("day=1/f.parquet", 7, (7, 1_700_000_000_000_000_000, 42)),
                ListedFile("k", 7, ObjectVersion(7, '"abc"', _DAY)),
            ]
        ),
    )
