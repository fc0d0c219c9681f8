"""Aggregates of tables: deletes subtract from what metadata knows, and one that can't be read fails them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap

import skipstone as sk
from skipstone.errors import FileError
from skipstone.iceberg.manifests.reading import clear_cache
from tests.iceberg._maker import Maker
from tests.iceberg._manifests import DATA

FUNCTIONS = (sk.count(), sk.sum("id"), sk.min("id"), sk.max("id"), sk.avg("id"), sk.count("s"))


def make(root: Path, version: int) -> tuple[Maker, list[tuple[int, set[int]]]]:
    """A table with an index of sums, deletes after it, and the ids at each snapshot."""
    columns = [("id", "long"), ("s", "string"), ("p", "string")]
    maker = Maker(root, columns, [("p", "identity")], format_version=version, seed=version)
    told = []

    def remember(ids: set[int]) -> None:
        told.append((maker.refs["main"][0], ids))

    every = set(range(60))
    rows = [{"id": n, "s": f"s{n}" if n % 3 else None, "p": "ab"[n % 2]} for n in sorted(every)]
    maker.append(rows[:40], merge=False)
    maker.append(rows[40:], merge=False)
    remember(every)
    sk.open(maker.metadata_location).index.build(sums=True, engine="local")
    path = maker.places()[0][0]
    ids = [row["id"] for row in maker.rows()][:3]
    if version == 3:
        maker.delete_vector({path: [0, 2]})
        every = every - {ids[0], ids[2]}
    else:
        maker.delete_positions([(path, 0), (path, 1)], merge=False)
        every = every - {*ids[:2]}
        remember(every)
        keys = [(0, ("a",)), (0, ("b",))]
        maker.delete_equal([maker.field("id").id], [(50,), (51,)], partitions=keys)
        every = every - {50, 51}
    remember(every)
    return maker, told


def wanted(ids: set[int]) -> list[Any]:
    present = sum(n % 3 > 0 for n in ids)
    return [len(ids), sum(ids), min(ids), max(ids), sum(ids) / len(ids), present]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("cached", [True, False])
def test_deletes_subtract(tmp_path: Path, version: int, cached: bool) -> None:
    maker, told = make(tmp_path, version)
    lake = sk.open(maker.metadata_location)
    for snapshot, ids in told:
        scan = lake.scan(snapshot=snapshot)
        answer = scan.aggregate(*FUNCTIONS, use_cached=cached)
        assert [*answer.to_pylist()[0].values()] == wanted(ids)
        some = BitMap([*range(30), 50, 51, 57])
        answer = scan.aggregate(*FUNCTIONS, within=some, id_column="id", use_cached=cached)
        assert [*answer.to_pylist()[0].values()] == wanted(ids & {*some})
        by = lake.scan("id >= 7", snapshot=snapshot).aggregate(*FUNCTIONS, group_by=["p"], use_cached=cached)
        parts = [wanted({n for n in ids if n >= 7 and n % 2 == odd}) for odd in (0, 1)]
        assert [[*row.values()] for row in by.to_pylist()] == [["a", *parts[0]], ["b", *parts[1]]]


def test_files_without_deletes_are_answered_from_metadata(tmp_path: Path) -> None:
    maker, told = make(tmp_path, 2)
    lake = sk.open(maker.metadata_location)
    first, last = (lake.scan(snapshot=told[n][0]).aggregate(sk.sum("id")).trace.columns[0] for n in (0, -1))
    assert (first.rows_answered, first.read) == (60, 0)
    # Positions that are deleted are known; rows that equal something must be looked at.
    assert 0 < last.rows_answered < 60
    assert 0 < last.read < 60


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_can_t_be_read_fail_the_aggregate(tmp_path: Path, version: int) -> None:
    maker, told = make(tmp_path, version)
    head = maker.head()
    assert head is not None
    for entry in (e for e in head.files if e.file.content != DATA):
        path = Path(entry.file.path.removeprefix("file://"))
        body = path.read_bytes()
        path.write_bytes(b"\xff" * len(body))
        clear_cache()
        with pytest.raises(FileError) as caught:
            sk.open(maker.metadata_location).scan().aggregate(*FUNCTIONS).to_arrow()
        assert caught.value.path == str(path)
        # Before there were deletes, nobody needs them.
        answer = sk.open(maker.metadata_location).scan(snapshot=told[0][0]).aggregate(sk.count())
        assert answer["count"] == 60
        path.write_bytes(body)
