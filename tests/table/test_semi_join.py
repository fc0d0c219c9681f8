"""Semi joins with tables: deleted rows, rows of a tail and of a transaction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import skipstone as sk
from tests.table._keyed import new_table, rows


def ids(scan: sk.Scan) -> list[int]:
    return sorted(scan.to_arrow()["id"].to_pylist())


def test_deleted_and_new_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(range(3_000)))
    table.append(rows(range(3_000, 6_000)))
    table.delete(keys=[10, 20])
    table.upsert(rows([30], v=5))
    wanted = np.arange(0, 6_000, 10)
    join = table.scan(semi_join=("id", wanted))
    assert ids(join) == [n for n in wanted.tolist() if n not in (10, 20)]
    assert join.count() == 598
    assert ids(table.scan(semi_join=("v", [300, 305]))) == [30]
    assert join.verify().ok
    few = table.scan(semi_join=("id", [5, 10])).plan()
    assert [len(few.tasks), ids(table.scan(semi_join=("id", [5, 10])))] == [1, [5]]
    before = table.snapshots()[0].id
    assert ids(table.scan(snapshot=before, semi_join=("id", [10, 4_000]))) == [10]


def test_rows_of_a_transaction_and_of_a_tail(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(range(2_000)))
    many = np.arange(1_000, 9_000)
    with table.transaction() as tx:
        tx.upsert(rows([5, 7_000], v=1))
        tx.delete(keys=[1_500])
        assert ids(tx.scan(semi_join=("id", many))) == [*range(1_000, 1_500), *range(1_501, 2_000), 7_000]
        assert ids(tx.scan(semi_join=("v", pa.array([50, 51, 70_001])))) == [5, 7_000]
        tx.rollback()
    with table.writer(sync="off") as writer:
        writer.upsert(rows([5, 8_000], v=2))
        writer.delete(keys=[1_600])
        join = table.scan(semi_join=("id", many))
        assert ids(join) == [*range(1_000, 1_600), *range(1_601, 2_000), 8_000]
        assert join.count() == 1_000
        assert ids(table.scan(semi_join=("v", [50, 52]))) == [5]
    assert ids(table.scan(semi_join=("v", [50, 52]))) == [5]
