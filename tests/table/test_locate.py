"""Locating keys: the right rows, and little else is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.table.keys import Keys
from skipstone.table.locate import locate

from ._keyed import EVERY_TYPE, KEYS, new_table, rows


@pytest.fixture(scope="module")
def any_key(tmp_path_factory: pytest.TempPathFactory) -> sk.Table:
    """A table in which every column can be a key, in two files with pages of 50 rows."""
    required = pa.schema([field.with_nullable(False) for field in EVERY_TYPE.schema])
    table = new_table(tmp_path_factory.mktemp("types"), schema=required, key=["small"])
    shuffled = EVERY_TYPE.take(pa.array(np.random.default_rng(0).permutation(len(EVERY_TYPE))))
    for part in (shuffled.slice(0, 250), shuffled.slice(250)):
        sk.ingest(part, table, engine="local", page_rows=50, index=False)
    return table


@pytest.mark.parametrize("key", KEYS, ids=",".join)
def test_keys_of_every_type_are_found(any_key: sk.Table, key: list[str]) -> None:
    with any_key.table.update_schema() as update:
        update.set_identifier_fields(*key)
    table = any_key.refresh()
    key = Keys.of(table).names
    wanted = Keys.of(table).select(EVERY_TYPE.slice(90, 40))
    located = locate(table, wanted)
    assert sorted(located.keys.tolist()) == list(range(40))
    assert located.read(key).to_pylist() == wanted.take(pa.array(located.keys)).to_pylist()
    # In the order of the listing, with positions that are absolute in the file.
    assert (np.lexsort((located.positions, located.files)) == np.arange(40)).all()
    paths = [entry.key for entry in table.entries]
    sets = located.row_sets()
    assert {path: rows.positions().tolist() for path, rows in sets.items()} == {
        paths[number]: located.positions[located.files == number].tolist()
        for number in np.unique(located.files).tolist()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with a table of four files of 1,000 rows in pages of 100, sorted by the key."""
    folder = tmp_path_factory.mktemp("files")
    table = new_table(folder)
    for number in range(4):
        ids = range(1000 * number, 1000 * (number + 1))
        sk.ingest(rows(ids), table, engine="local", page_rows=100, index=False)
    return folder


@pytest.fixture
def table(folder: Path) -> sk.Table:
    return sk.open("db.t", catalog=folder)


def test_only_pages_with_keys_are_read(table: sk.Table) -> None:
    before = table.io
    located = locate(table, Keys.of(table).parse([5, 3_333, 77_777]))
    assert dict(zip(located.keys.tolist(), located.positions.tolist(), strict=True)) == {0: 5, 1: 333}
    assert [len(task.rows) for task in located.plan.tasks] == [100, 100]
    assert 4 <= (table.io - before).requests < 12
    # Nothing more is opened for keys that no file can hold.
    before = table.io
    assert len(locate(table, Keys.of(table).parse([77_777]))) == 0
    assert (table.io - before).requests == 0


def test_many_keys_are_judged_at_once(table: sk.Table) -> None:
    ids = np.concatenate([np.arange(0, 3_000, 3), np.arange(10**6, 10**6 + 40_000)])
    located = locate(table, pa.table({"id": ids}))
    assert (np.sort(located.keys) == np.arange(1000)).all()
    assert (ids[located.keys] == located.read(["id"])["id"].to_numpy()).all()
    assert sum(len(task.rows) for task in located.plan.tasks) == 3_000


def test_many_strings_are_covered_by_ranges(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=["s"])
    data = pa.table({"id": range(500), "v": range(500), "s": [f"k{n:05d}" for n in range(500)]})
    sk.ingest(data, table, engine="local", page_rows=50, index=False)
    keys = pa.table({"s": [f"k{n:05d}" for n in range(480, 30_000)]})
    located = locate(table, keys)
    assert located.keys.tolist() == list(range(20))
    assert sum(len(task.rows) for task in located.plan.tasks) == 50


def test_some_files_only(table: sk.Table) -> None:
    paths = [entry.key for entry in table.entries]
    keys = Keys.of(table).parse([5, 1_005, 2_005])
    every = locate(table, keys)
    (chosen,) = (paths[number] for number in every.files[every.keys == 1].tolist())
    before = table.io
    located = locate(table, keys, only=[chosen, "not-there.parquet"])
    assert located.keys.tolist() == [1]
    assert [task.entry.key for task in located.plan.tasks] == [chosen]
    assert 0 < (table.io - before).requests < 4
    assert len(locate(table, keys, only=[])) == 0


def test_an_index_locates_without_footers(table: sk.Table, folder: Path) -> None:
    table.index.build(engine="local")
    fresh = sk.open("db.t", catalog=folder)
    located = locate(fresh, Keys.of(fresh).parse([5, 3_333]))
    assert sorted(located.positions.tolist()) == [5, 333]
    assert fresh.access.io().requests <= 2
