"""Plans cut into parts: every row once, in order, about equal bytes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.scan import parts
from skipstone.scan.plan import ScanPlan


@pytest.fixture
def plan(tmp_path: Path) -> ScanPlan:
    for file, rows in enumerate((10, 4000, 0, 500)):
        table = pa.table(
            {"id": range(file * 10_000, file * 10_000 + rows), "s": [f"word {n}" for n in range(rows)]}
        )
        pq.write_table(table, tmp_path / f"{file}.parquet", row_group_size=250)
    return sk.open(tmp_path).scan("id % 3 = 1").plan()


def rows(plan: ScanPlan, found: list[parts.TaskGroup]) -> list[int]:
    return [
        id
        for part in found
        for id in sk.execute(replace(parts.shared(plan), tasks=part)).to_arrow()["id"].to_pylist()
    ]


@pytest.mark.parametrize("size", [1, 500, 5_000, 50_000, 2**40])
def test_every_row_once_and_in_order(plan: ScanPlan, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_OPEN_BYTES", 0)
    found = parts.split(plan, 4, size)
    whole = sk.execute(plan).to_arrow()["id"].to_pylist()
    assert rows(plan, found) == whole
    assert all(found)
    # A row group is the least that is read by itself.
    assert len(found) == {1: 19, 2**40: 1}.get(size, len(found))


def test_few_bytes_are_one_part(plan: ScanPlan) -> None:
    assert len(parts.split(plan, 64)) == 1
    assert parts.split(replace(plan, tasks=()), 64) == []


def test_many_small_files_are_many_parts(plan: ScanPlan) -> None:
    many = tuple(plan.tasks[0] for _ in range(1_000))
    assert len(parts.split(replace(plan, tasks=many), 8)) == 8


def test_what_parts_share_is_without_tasks(plan: ScanPlan) -> None:
    common = parts.shared(plan)
    assert common.tasks == ()
    assert common.hints.threads == 1
    assert len(pickle.dumps(common)) < 8_000
    assert len(pickle.dumps(plan.tasks[0])) < 1_000
