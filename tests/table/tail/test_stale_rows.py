"""k has 100, then 5: nothing matches v > 50, wherever the two versions are; and the other way round.

Two versions can be in files, in a memtable that is being flushed, in the one that is written to, and in a
transaction.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import skipstone as sk
from tests.table.tail.conftest import Gate

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
OTHERS = {1: 60, 2: 40, 3: 60, 4: 40}
"""Rows that stay as they are."""
OLD, NEW = {7: 100, 8: 5, 9: 100}, {7: 5, 8: 100}
"""The last key is deleted."""
FULL = 7
"""Versions at which a memtable is flushed; the tests write three, or three and all others."""
PAIRS = [
    *(("file", "file"), ("file", "sealed"), ("file", "mutable"), ("file", "transaction")),
    *(("sealed", "file"), ("sealed", "sealed"), ("sealed", "mutable"), ("sealed", "transaction")),
    *(("mutable", "file"), ("mutable", "sealed"), ("mutable", "mutable"), ("mutable", "transaction")),
    *(("transaction", "transaction"), ("transaction", "mutable"), ("transaction", "sealed")),
    *(("indexed", "mutable"), ("indexed", "transaction"), ("compacted", "mutable"), ("scanned", "mutable")),
    ("recovered", "mutable"),
]
"""Where the first version is when the second one is written, and where that is."""


def rows(pairs: dict[int, int]) -> pa.Table:
    return pa.table([list(pairs), list(pairs.values())], schema=SCHEMA)


def check(table: sk.Table | sk.Transaction) -> None:
    """All ways to read the new versions."""

    def content(where: str) -> dict[int, int]:
        found = table.scan(where).to_arrow()
        assert found.num_rows == table.scan(where).count() == len(set(found["id"].to_pylist()))
        return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))

    assert content("v > 50") == {1: 60, 3: 60, 8: 100}
    assert content("v <= 50") == {2: 40, 4: 40, 7: 5}
    assert content("v is null or v = 100") == {8: 100}
    assert content("id in (7, 9) and v > 50") == {}
    ordered = table.scan("v > 50", columns=["id"], limit=2, order_by="v desc").to_arrow()
    assert ordered["id"].to_pylist()[0] == 8
    assert table.scan("v > 50", columns=["id"], limit=5, order_by="id").to_arrow()["id"].to_pylist() == [
        1,
        3,
        8,
    ]
    found = table.scan("v > 50").aggregate(sk.count(), sk.max("v"), sk.sum("v")).to_pylist()
    assert found == [{"count": 3, "max(v)": 100, "sum(v)": 220}]
    assert [table.get(key, ["v"]) for key in (7, 8, 9)] == [{"v": 5}, {"v": 100}, None]
    assert table.get_many([9, 8, 7])["v"].to_pylist() == [100, 5]


class Writes:
    """Writes to the places of a table."""

    def __init__(self, table: sk.Table, gate: Gate) -> None:
        self.table, self.gate = table, gate
        self.open()

    def open(self) -> None:
        self.writer = self.table.writer(sync="off", flush_seconds=None, flush_rows=FULL)

    def write(self, place: str, pairs: dict[int, int]) -> None:
        if place == "transaction":
            self.gate.opens.set()
            with self.table.transaction() as changes:
                changes.upsert(rows(OLD))
                if pairs is NEW:
                    changes.upsert(rows(NEW))
                    changes.delete(keys=9)
                    check(changes)
            return
        direct = place in ("file", "indexed", "compacted")
        if direct:
            self.gate.opens.set()
        target = self.table if direct else self.writer
        target.upsert(rows(pairs))
        if pairs is NEW:
            target.delete(keys=9)
        if place == "sealed":
            # From now on nothing is committed, and the memtable is full.
            self.gate.opens.clear()
            self.writer.upsert(rows(OTHERS))
        elif place == "indexed":
            self.table.index.build(engine="local")
        elif place == "compacted":
            plan = self.table.plan_compaction(rewrite_all=True)
            self.table.compact(plan, engine="local", threads=1)
        elif place == "scanned":
            # The memtable is a part of its own from now on.
            assert self.table.scan().count() == 7
        elif place == "recovered":
            self.writer.close(flush=False)
            self.open()


@pytest.mark.sampled(9)
@pytest.mark.parametrize("partition", [(), ["truncate(50, v)"]])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_replaced_versions_never_show(gate: Gate, first: str, second: str, partition: list[str]) -> None:
    catalog = sk.catalog(gate)
    table = catalog.create_table("db.t", SCHEMA, key=["id"], partition_by=partition)
    table.append(rows(OTHERS))
    writes = Writes(table, gate)
    writes.write(first, OLD)
    writes.write(second, NEW)
    check(table)
    if "sealed" in (first, second) and second in ("mutable", "sealed"):
        # So they are not in files yet.
        assert not gate.opens.is_set()
        assert table.tail_status().calls > 0
    gate.opens.set()
    check(table)
    writes.writer.close()
    check(catalog.open("db.t"))
