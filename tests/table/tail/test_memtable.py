"""Memtables hold the last version of each key."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from skipstone.table.keys import Keys
from skipstone.table.tail.memtable import Memtable, Versions, merge, of_frame
from skipstone.table.tail.wal import Kind

SCHEMA = pa.schema(
    [
        pa.field("k", pa.string(), nullable=False),
        pa.field("n", pa.int32(), nullable=False),
        ("v", pa.float64()),
    ]
)
ONE = Keys("db.t", pa.schema([pa.field("n", pa.int32(), nullable=False)]))
TWO = Keys("db.t", SCHEMA.remove(2))


def put(keys: Keys, *rows: tuple[str, int, float | None]) -> Versions:
    batch = pa.RecordBatch.from_pylist([dict(zip("knv", row, strict=True)) for row in rows], SCHEMA)
    return of_frame(keys, SCHEMA, Kind.ROWS, batch)


def delete(keys: Keys, *rows: tuple[str, int]) -> Versions:
    batch = pa.RecordBatch.from_pylist([{"k": k, "n": n} for k, n in rows], TWO.schema)
    return of_frame(keys, SCHEMA, Kind.KEYS, batch.select(keys.names))


def rows_of(versions: Versions) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in versions.upserts().to_pylist()]


def test_the_last_version_wins() -> None:
    table = Memtable(TWO, SCHEMA, 10)
    assert (len(table), table.last) == (0, 9)
    table.put(10, put(TWO, ("a", 1, 0.5), ("b", 1, None)))
    table.put(11, delete(TWO, ("a", 1), ("z", 3)))
    table.put(12, put(TWO, ("a", 2, 2.0), ("z", 3, 3.0)))
    table.put(13, put(TWO, ("b", 1, 4.0)))
    versions = table.versions()
    assert (table.first, table.last, len(table), len(versions)) == (10, 13, 4, 4)
    assert rows_of(versions) == [("a", 2, 2.0), ("z", 3, 3.0), ("b", 1, 4.0)]
    assert versions.deletes(["k", "n"]).to_pylist() == [{"k": "a", "n": 1}]
    wanted = pa.table({"k": ["z", "z", "a"], "n": pa.array([3, 4, 1], pa.int32())}, TWO.schema)
    found = versions.find(TWO.encode(wanted)).tolist()
    assert found[1] == -1
    assert versions.live[[found[0], found[2]]].tolist() == [True, False]


def test_reading_changes_nothing() -> None:
    table = Memtable(ONE, SCHEMA, 1)
    table.put(1, put(ONE, ("a", 1, 0.5)))
    before = table.versions()
    table.put(2, put(ONE, ("b", 1, 1.5)))
    assert rows_of(before) == [("a", 1, 0.5)]
    assert rows_of(table.versions()) == [("b", 1, 1.5)]


def test_memtables_are_merged_oldest_first() -> None:
    older, newer = (
        put(ONE, ("a", 1, 1.0), ("a", 2, 2.0)),
        merge([put(ONE, ("b", 2, 3.0)), delete(ONE, ("", 1))]),
    )
    merged = merge([older, newer])
    assert rows_of(merged) == [("b", 2, 3.0)]
    assert merged.deletes(["n"]).to_pylist() == [{"n": 1}]


def test_old_versions_take_bounded_memory() -> None:
    table = Memtable(ONE, SCHEMA, 1)
    most = 0
    for frame in range(1, 201):
        table.put(frame, put(ONE, *(("x", n, float(frame)) for n in range(100))))
        most = max(most, table.nbytes)
    one = put(ONE, *(("x", n, 0.0) for n in range(100))).nbytes
    assert one < table.nbytes <= most < 50 * one
    assert len(table.versions()) == 100
    assert abs(table.nbytes - one) < one // 2
    assert set(table.versions().upserts()["v"].to_pylist()) == {200.0}


@pytest.mark.parametrize("keys", [ONE, TWO], ids=["one", "two"])
def test_versions_against_a_dict(keys: Keys) -> None:
    chance = random.Random(5)
    table = Memtable(keys, SCHEMA, 1)
    model: dict[tuple[object, ...], tuple[object, ...] | None] = {}

    def key(k: str, n: int) -> tuple[object, ...]:
        return (k, n) if keys is TWO else (n,)

    for frame in range(1, 300):
        chosen = [(chance.choice("ab"), n) for n in chance.sample(range(20), chance.randint(1, 4))]
        if chance.random() < 0.3:
            table.put(frame, delete(keys, *chosen))
            model.update((key(*one), None) for one in chosen)
        else:
            rows = [(*one, chance.random()) for one in chosen]
            table.put(frame, put(keys, *rows))
            model.update((key(*row[:2]), row) for row in rows)
        if not frame % 7:
            versions = table.versions()
            assert sorted(rows_of(versions)) == sorted(row for row in model.values() if row is not None)
            deleted = {tuple(row.values()) for row in versions.deletes(keys.names).to_pylist()}
            assert deleted == {one for one, row in model.items() if row is None}
