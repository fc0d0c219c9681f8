from __future__ import annotations

import math
import pickle
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import DoubleType, StringType

from skipstone.core.evidence import ColumnFacts
from skipstone.errors import CorruptFileError
from skipstone.iceberg.deletes.match import PATH_ID, DeleteFile, DeleteIndex, DeleteMatches
from skipstone.iceberg.manifests.entries import Entries, Metrics, MetricsByField
from skipstone.iceberg.manifests.metrics import file_facts
from skipstone.iceberg.partitions.values import PartitionKey

DATA, POSITION, EQUALITY = 0, 1, 2
NOWHERE = PartitionKey(0, None)


@dataclass
class File:
    """One manifest entry of a test."""

    path: str
    sequence: int = 1
    key: PartitionKey = NOWHERE
    content: int = DATA
    format: str = "PARQUET"
    ids: tuple[int, ...] = ()
    referenced: str | None = None
    offset: int = -1
    rows: int = 10
    bounds: dict[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    counts: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Values, NULLs and NaNs."""


def entries(files: list[File]) -> Entries:
    keys = tuple(sorted({file.key for file in files}, key=PartitionKey.sort_key))
    place = {key: at for at, key in enumerate(keys)}
    columns = {}
    for number in {number for file in files for number in (*file.bounds, *file.counts)}:
        pairs = [file.bounds.get(number, (None, None)) for file in files]
        counts = np.array([file.counts.get(number, (-1, -1, -1)) for file in files]).T
        lower, upper = (pa.array([pair[at] for pair in pairs], pa.large_binary()) for at in (0, 1))
        columns[number] = Metrics(*counts, lower, upper)
    ones = np.ones(len(files), np.int64)
    return Entries(
        paths=pa.array([file.path for file in files], pa.large_string()),
        sizes=100 * ones,
        rows=np.array([file.rows for file in files], np.int64),
        contents=np.array([file.content for file in files], np.int8),
        formats=pa.array([file.format for file in files], pa.string()),
        specs=np.array([file.key.spec_id for file in files], np.int32),
        sequences=np.array([file.sequence for file in files], np.int64),
        snapshots=ones,
        partitions=np.array([place[file.key] for file in files], np.int32),
        keys=keys,
        equality_ids=tuple(file.ids for file in files),
        referenced=pa.array([file.referenced for file in files], pa.large_string()),
        content_offsets=np.array([file.offset for file in files], np.int64),
        content_sizes=np.array([file.offset for file in files], np.int64),
        first_row_ids=-ones,
        sort_orders=-ones,
        measures=MetricsByField(columns),
    )


def position(path: str, sequence: int, key: PartitionKey = NOWHERE, **more: Any) -> File:
    return File(path, sequence, key, POSITION, **more)


def equality(path: str, sequence: int, key: PartitionKey = NOWHERE, **more: Any) -> File:
    return File(path, sequence, key, EQUALITY, **{"ids": (1,), **more})


def vector(path: str, sequence: int, referenced: str | None, key: PartitionKey = NOWHERE) -> File:
    return File(path, sequence, key, POSITION, "PUFFIN", referenced=referenced, offset=4)


def matched(data: list[File], deletes: list[File], facts: Any = None) -> DeleteMatches:
    index = DeleteIndex.of(entries(deletes))
    return pickle.loads(pickle.dumps(index)).match(entries(data), facts)


def names(found: DeleteMatches, links: str = "positions") -> list[list[str]]:
    paths = found.deletes.paths.to_pylist()
    return [[paths[number] for number in getattr(found, links)[unit]] for unit in range(len(found.data))]


# -- scope and age -----------------------------------------------------------------------------


def test_position_deletes_apply_to_data_that_is_not_newer() -> None:
    data = [File("a", 1), File("b", 2), File("c", 3)]
    found = matched(data, [position("p", 2), position("q", 3)])
    assert names(found) == [["p", "q"], ["p", "q"], ["q"]]


def test_equality_deletes_apply_to_data_that_is_older() -> None:
    data = [File("a", 1), File("b", 2), File("c", 3)]
    found = matched(data, [equality("p", 2), equality("q", 3)])
    assert names(found, "equalities") == [["p", "q"], ["q"], []]


def test_partitions_are_told_apart_by_spec_type_and_value() -> None:
    values: list[Any] = [1, 1.0, True, None, math.nan, 0.0, -0.0, "1", b"1"]
    keys = [PartitionKey(spec, (value,)) for spec in (1, 2) for value in values] + [PartitionKey(3, None)]
    data = [File(f"d{at}", 1, key) for at, key in enumerate(keys)]
    again = [PartitionKey(key.spec_id, key.partition) for key in keys]
    found = matched(data, [position(f"p{at}", 1, key) for at, key in enumerate(again)])
    assert names(found) == [[f"p{at}"] for at in range(len(keys))]
    found = matched(data, [equality(f"e{at}", 2, key) for at, key in enumerate(again)])
    *partitioned, everywhere = [f"e{at}" for at in range(len(keys))]
    expected = [[name, everywhere] for name in partitioned] + [[everywhere]]
    assert names(found, "equalities") == expected


def test_unpartitioned_equality_deletes_reach_every_spec_but_position_deletes_do_not() -> None:
    bare, other = PartitionKey(0, None), PartitionKey(4, None)
    data = [File("a", 1, bare), File("b", 1, other), File("c", 1, PartitionKey(1, (5,)))]
    found = matched(data, [position("p", 9, bare), equality("e", 9, bare)])
    assert names(found) == [["p"], [], []]
    assert names(found, "equalities") == [["e"], ["e"], ["e"]]
    assert found.touched.tolist() == [True, True, True]


# -- what a position delete file can name ------------------------------------------------------


def scoped(path: str, low: str | None, high: str | None) -> File:
    pair = tuple(None if text is None else text.encode() for text in (low, high))
    return position(path, 9, bounds={PATH_ID: pair})  # type: ignore[dict-item]


def test_file_scoped_deletes_apply_to_their_file_only() -> None:
    data = [File("s3://b/a"), File("s3://b/b"), File("s3://b/bb"), File("s3://b/c")]
    deletes = [position("p", 9, referenced="s3://b/b"), scoped("q", "s3://b/c", "s3://b/c")]
    assert names(matched(data, deletes)) == [[], ["p"], [], ["q"]]


def test_bounds_of_paths_leave_files_out() -> None:
    data = [File(name) for name in ("a", "b", "b1", "c", "ä", "\U0001f600", "\uffff")]
    deletes = [
        scoped("p", "b", "c"),
        scoped("q", None, "b"),
        scoped("r", "\uffff", None),
        scoped("s", "ä", "ä"),
    ]
    # Bytes, not UTF-16 units: U+FFFF is below U+1F600.
    assert names(matched(data, deletes)) == [["q"], ["p", "q"], ["p", "q"], ["p"], ["s"], ["r"], ["r"]]


def test_a_bound_that_was_cut_short_still_holds() -> None:
    long = [File("s3://bucket/wareh" + rest) for rest in ("ouse/a", "ouse/b", "z")] + [File("s3://x")]
    # Rounded up, as Iceberg does, and merely cut, as some writers do.
    proper, cut = (
        scoped("p", "s3://bucket/wareh", "s3://bucket/warei"),
        scoped("q", *["s3://bucket/wareh"] * 2),
    )
    assert names(matched(long, [proper, cut])) == [["p", "q"]] * 3 + [[]]


def test_bounds_that_contradict_each_other_are_ignored() -> None:
    assert names(matched([File("a"), File("m")], [scoped("p", "z", "b")])) == [["p"], ["p"]]


# -- vectors -----------------------------------------------------------------------------------


def test_a_vector_takes_the_place_of_position_deletes() -> None:
    data = [File("a", 1), File("b", 1), File("c", 5)]
    deletes = [
        position("p", 9),
        vector("v", 4, "a"),
        vector("w", 4, "c"),
        equality("e", 9),
        vector("x", 1, "zz"),
    ]
    found = matched(data, deletes)
    assert names(found) == [[], ["p"], ["p"]]
    assert found.vectors.tolist() == [1, -1, -1]
    assert found.files(found.vectors[:1]) == [DeleteFile("v", 100, "PUFFIN", 10, 4, 4, 4)]
    assert found.vectors[2] == -1
    assert names(found, "equalities") == [["e"]] * 3


@pytest.mark.parametrize(
    ("deletes", "reason"),
    [
        (
            [vector("v", 1, "a"), vector("w", 2, "b"), vector("x", 2, "a")],
            "^a: data file has more than one deletion",
        ),
        ([vector("v", 1, None)], "^v: deletion vector has no data file"),
        ([File("v", 1, NOWHERE, POSITION, "PUFFIN", referenced="a")], "^v: deletion vector has no"),
        ([equality("e", 1, ids=())], "^e: equality delete file has no equality_ids"),
        ([position("p", 1), File("x", content=3)], "^x: unknown kind of delete file"),
    ],
)
def test_what_no_reader_could_apply_is_refused(deletes: list[File], reason: str) -> None:
    with pytest.raises(CorruptFileError, match=reason):
        DeleteIndex.of(entries(deletes))


def test_nothing_matches_nothing() -> None:
    empty = Entries.empty()
    some = entries([File("a")])
    for data, deletes in [
        (empty, empty),
        (some, empty),
        (empty, entries([position("p", 9), equality("e", 9)])),
    ]:
        found = DeleteIndex.of(deletes).match(
            data, lambda files, number: ColumnFacts.unknown(pa.int64(), len(files))
        )
        assert not found.touched.any()
        assert len(found.touched) == len(data)
        assert found.position_needs() == []
        assert found.equality_sets() == ([], [()] * len(data))


# -- what to read ------------------------------------------------------------------------------


def test_each_delete_file_is_to_be_read_once() -> None:
    here, there = PartitionKey(1, (1,)), PartitionKey(1, (2,))
    data = [File("a", 1, here), File("b", 2, here), File("c", 1, there), File("d", 1, there)]
    found = matched(data, [position("p", 1, here), position("q", 2, here), position("r", 1, there)])
    needs = {file.path: paths for file, paths in found.position_needs()}
    assert needs == {"p": ("a",), "q": ("a", "b"), "r": ("c", "d")}
    some = found.position_needs(np.array([3, 1]))
    assert {file.path: paths for file, paths in some} == {"q": ("b",), "r": ("d",)}
    assert pickle.loads(pickle.dumps(some)) == some


def test_equality_deletes_are_shared_by_data_files_of_all_ages() -> None:
    here, there = PartitionKey(1, (1,)), PartitionKey(1, (2,))
    data = [File("a", 1, here), File("b", 3, here), File("c", 1, there), File("d", 9, here)]
    deletes = [
        equality("new", 4, here),
        equality("old", 2, here),
        equality("other", 4, here, ids=(1, 2)),
        equality("global", 5),
        equality("there", 5, there),
    ]
    sets, used = matched(data, deletes).equality_sets()
    paths = [(ids, [file.path for file in files]) for ids, files in sets]
    assert paths == [
        ((1,), ["old", "new"]),
        ((1, 2), ["other"]),
        ((1,), ["global"]),
        ((1,), ["there"]),
    ]
    assert used == [(0, 1, 2), (0, 1, 2), (2, 3), ()]
    sets, used = matched(data, deletes).equality_sets(np.array([1]))
    assert [[file.path for file in files] for _, files in sets] == [["new"], ["other"], ["global"]]
    assert used == [(0, 1, 2)]


# -- against loops -----------------------------------------------------------------------------

KEYS = [
    NOWHERE,
    PartitionKey(1, None),
    PartitionKey(1, (1,)),
    PartitionKey(1, (None,)),
    PartitionKey(2, (1,)),
]
PATHS = ["a", "ab", "abc", "b", "ba", "ä"]
KEYED = st.sampled_from(KEYS)
AGE = st.integers(0, 4)


@st.composite
def position_files(draw: st.DrawFn) -> tuple[File, set[str]]:
    """A position delete file, and the paths it names."""
    named = draw(st.sets(st.sampled_from(PATHS), min_size=1))
    ordered = sorted(path.encode() for path in named)
    file = position("p", draw(AGE), draw(KEYED))
    kind = draw(st.sampled_from(["referenced", "bounds", "cut", "lower", "none"]))
    if kind == "referenced":
        named = {min(named)}
        file.referenced = min(named)
    elif kind != "none":
        upper = ordered[-1][:1] if kind == "cut" and ordered[-1][0] < 0x80 else ordered[-1]
        lower = ordered[0][:1] if kind == "cut" else ordered[0]
        file.bounds[PATH_ID] = (lower, None if kind == "lower" else upper)
    return file, named


@given(st.lists(st.tuples(AGE, KEYED), max_size=len(PATHS)), st.lists(position_files(), max_size=6))
def test_position_deletes_against_a_loop(
    ages: list[tuple[int, PartitionKey]], deletes: list[tuple[File, set[str]]]
) -> None:
    data = [File(path, *age) for path, age in zip(PATHS, ages, strict=False)]
    found = matched(data, [file for file, _ in deletes])
    for unit, one in enumerate(data):
        lawful = {
            at
            for at, (file, _) in enumerate(deletes)
            if one.key == file.key and one.sequence <= file.sequence
        }
        needed = {at for at in lawful if one.path in deletes[at][1]}
        kept = found.positions[unit].tolist()
        assert kept == sorted(set(kept))
        assert needed <= set(kept) <= lawful
        for at in set(kept) - needed:
            assert deletes[at][0].referenced is None


VALUE = st.sampled_from([None, math.nan, -1.5, 0.0, 2.0, 7.0])
TEXT = st.sampled_from([None, "", "a", "b", "zz"])
IDS = st.sampled_from([(1,), (2,), (1, 2)])
ROWS = st.lists(st.tuples(VALUE, TEXT), min_size=1, max_size=3)


@st.composite
def measured(draw: st.DrawFn, content: int) -> tuple[File, list[Any]]:
    """A file, and the rows that its metrics, as far as there are any, tell the truth about."""
    rows = draw(ROWS)
    file = File("x", draw(AGE), draw(KEYED), content, ids=draw(IDS), rows=len(rows))
    for number, column in ((1, [row[0] for row in rows]), (2, [row[1] for row in rows])):
        nans = sum(isinstance(value, float) and math.isnan(value) for value in column)
        nulls = column.count(None)
        if draw(st.booleans()):
            file.counts[number] = (len(column), nulls, nans)
        values = [v for v in column if v is not None and not (isinstance(v, float) and math.isnan(v))]
        if values and draw(st.booleans()):
            packed = [
                np.float64(v).tobytes() if number == 1 else v.encode() for v in (min(values), max(values))
            ]
            file.bounds[number] = (packed[0], packed[1])
    return file, rows


def facts(files: Entries, number: int) -> ColumnFacts:
    if number == 1:
        return file_facts(files, number, pa.float64(), DoubleType(), False)
    return file_facts(files, number, pa.string(), StringType(), False)


def _tagged(row: tuple[Any, Any], ids: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in (row[n - 1] for n in ids))


@given(
    st.lists(measured(DATA), max_size=5),
    st.lists(measured(EQUALITY), max_size=5),
    st.sampled_from([1, 1 << 22]),
)
def test_equality_deletes_against_a_loop(
    data: list[tuple[File, list[Any]]], deletes: list[tuple[File, list[Any]]], block: int
) -> None:
    files, some = [file for file, _ in data], [file for file, _ in deletes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skipstone.iceberg.deletes.match._BLOCK", block)
        all_of_them, pruned = matched(files, some), matched(files, some, facts)
    for unit, (one, rows) in enumerate(data):
        lawful = {
            at
            for at, (file, _) in enumerate(deletes)
            if one.sequence < file.sequence and (file.key.partition is None or file.key == one.key)
        }
        assert all_of_them.equalities[unit].tolist() == sorted(lawful)
        needed = {
            at
            for at in lawful
            if {_tagged(row, deletes[at][0].ids) for row in rows}
            & {_tagged(row, deletes[at][0].ids) for row in deletes[at][1]}
        }
        assert needed <= set(pruned.equalities[unit].tolist()) <= lawful


def test_metrics_leave_out_what_cannot_meet() -> None:
    def file(kind: Any, name: str, sequence: int, low: float | None, high: float | None, nulls: int) -> File:
        counts = {1: (10, nulls, 0)}
        bounds = {} if low is None else {1: (np.float64(low).tobytes(), np.float64(high or 0).tobytes())}
        return kind(name, sequence, counts=counts, bounds=bounds)  # type: ignore[no-any-return]

    data = [
        file(File, "low", 1, 0, 5, 0),
        file(File, "null", 1, None, None, 10),
        file(File, "wide", 1, 0, 99, 3),
    ]
    deletes = [
        file(equality, "e", 2, 6, 9, 0),
        file(equality, "n", 2, None, None, 10),
        file(equality, "m", 2, 5, 5, 1),
    ]
    found = names(matched(data, deletes, facts), "equalities")
    assert found == [["m"], ["n", "m"], ["e", "n", "m"]]


# -- time --------------------------------------------------------------------------------------


def _many(count: int, deletes: int, partitions: int, bounds: bool = True) -> tuple[Entries, Entries]:
    keys = [PartitionKey(1, (number,)) for number in range(partitions)]

    def name(at: int) -> str:
        part = at % partitions
        return f"s3://bucket/warehouse/db/events/data/day={part:03d}/{at * 7919 % 10**6:06d}-abcdef.parquet"

    def span(part: int) -> dict[int, tuple[bytes, bytes]]:
        base = f"s3://bucket/warehouse/db/events/data/day={part:03d}/"
        return {PATH_ID: (f"{base}000000".encode(), f"{base}999999".encode())} if bounds else {}

    data = [File(name(at), 1 + at % 7, keys[at % partitions]) for at in range(count)]
    some = [
        position(f"p{at}", 8, keys[at % partitions], bounds=span(at % partitions)) for at in range(deletes)
    ]
    return entries(data), entries(some)


def test_association_of_partition_scoped_deletes_is_fast() -> None:
    data, deletes = _many(2_000, 100, 10)
    began = time.process_time()
    found = DeleteIndex.of(deletes).match(data)
    # Its own time, not the machine's; pair by pair it would take several seconds.
    assert time.process_time() - began < 1
    assert len(found.positions.numbers) == 2_000 * 10


@pytest.mark.slow
def test_association_stays_sane_with_many_files() -> None:
    data, deletes = _many(50_000, 5_000, 50)
    began = time.process_time()
    found = DeleteIndex.of(deletes).match(data)
    assert time.process_time() - began < 3
    assert len(found.positions.numbers) == 50_000 * 100
