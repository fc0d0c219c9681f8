"""Transactions: what they see, what they commit, what they conflict with, and that nothing else is left.

They are part of the model of ``test_model.py``, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

import skipstone as sk
from skipstone.errors import ConflictError, DuplicateKeyError, SchemaError, UsageError
from skipstone.table.overlay import MemoryFile
from tests.table._keyed import SCHEMA, content, new_table, rows


@pytest.fixture
def table(tmp_path: Path) -> sk.Table:
    """Keys from 0 to 99, whose ``v`` is ten times the key."""
    made = new_table(tmp_path / "warehouse")
    made.append(rows(range(100)))
    return made


def files_of(root: Path) -> set[str]:
    """Every file below a directory, but those of SQLite."""
    return {str(path) for path in root.rglob("*") if path.is_file() and "catalog" not in path.name}


def seen(tx: Any) -> dict[int, int]:
    return {row["id"]: row["v"] for row in tx.scan().to_arrow().to_pylist()}


# -- what a transaction sees -------------------------------------------------------------------


def test_reads_see_its_own_writes_and_nobody_else_does(table: sk.Table) -> None:
    with table.transaction() as tx:
        assert tx.upsert(rows([1, 200], 5)).updated == 1
        assert tx.delete(keys=[2, 999]).deleted == 1
        assert tx.update("id between 3 and 4", {"v": "v + 1"}).updated == 2
        assert tx.delete("id = 5").deleted == 1
        assert tx.append(rows([201])).inserted == 1
        # Rows of the transaction itself are found and changed, too.
        assert tx.update("v = 31", {"v": 32}).updated == 1
        assert tx.delete("id = 201").deleted == 1
        wanted = {n: 10 * n for n in range(100) if n not in (2, 5)} | {1: 15, 200: 2005, 3: 32, 4: 41}
        assert seen(tx) == wanted
        assert tx.scan("v > 20 and id < 6").count() == 2
        assert tx.get(1) == {"id": 1, "v": 15, "s": "a"}
        assert (tx.get(2), tx.get(201), tx.get(200, ["v"])) == (None, None, {"v": 2005})
        assert tx.get_many([200, 2, 1])["v"].to_pylist() == [2005, 15]
        assert tx.scan().aggregate(sk.count(), sk.sum("v")).to_pylist() == [
            {"count": 99, "sum(v)": sum(wanted.values())}
        ]
        assert "transaction: 4 of 4 uncommitted rows may match" in tx.scan().explain()
        assert content(table) == content(table.refresh()) == rows(range(100)).to_pylist()
    assert {row["id"]: row["v"] for row in content(table)} == wanted
    report = tx.report
    assert report is not None
    assert (report.inserted, report.updated, report.deleted) == (1, 3, 2)
    assert (report.operation, len(table.snapshots())) == ("transaction", 2)


def test_old_values_of_a_key_are_not_found(table: sk.Table) -> None:
    # k = 9 had v = 90, and has v = 5 now: filter v > 50, in the transaction and after it.
    with table.transaction() as tx:
        tx.upsert(pa.table({"id": [9], "v": [95], "s": ["b"]}))
        tx.upsert(pa.table({"id": [9], "v": [5], "s": ["b"]}))
        assert tx.scan("v > 50 and id < 10").count() == 3
        assert tx.scan("v = 5").count() == 1
    assert table.scan("v > 50 and id < 10").count() == 3


def test_snapshot_isolation(table: sk.Table) -> None:
    tx = table.transaction()
    table.upsert(rows([1], 7))
    table.delete(keys=[2])
    assert (tx.get(1), tx.get(2)) == (rows([1]).to_pylist()[0], rows([2]).to_pylist()[0])
    before = tx.scan("id < 3")
    tx.upsert(rows([0], 9))
    # A scan keeps what it was made on.
    assert [row["v"] for row in before.to_arrow().to_pylist()] == [0, 10, 20]
    assert tx.get(0, ["v"]) == {"v": 9}
    tx.commit()
    assert [row["v"] for row in content(table)[:2]] == [9, 17]


def test_begins_at_the_current_snapshot(table: sk.Table) -> None:
    other = sk.open(table.table.name()[0] + "." + table.table.name()[1], catalog=table.table.catalog)
    other.upsert(rows([1], 7))
    with table.transaction() as tx:
        assert tx.get(1, ["v"]) == {"v": 17}
        tx.upsert(rows([1], 8))
    assert other.refresh().get(1, ["v"]) == {"v": 18}


def test_merges(table: sk.Table) -> None:
    source = pa.table(
        {"id": [1, 2, 3, 300, 301], "v": [-1, -2, -3, -4, -5], "gone": [True, False, False] * 1 + [False] * 2}
    )
    clauses: Any = [
        ("source.gone", "delete"),
        ("target.v = 20", {"v": "target.v - source.v", "s": sk.lit("b")}),
        (None, "ignore"),
    ]
    with table.transaction() as tx:
        tx.upsert(rows([300], 5))
        report = tx.merge(source, "id", when_matched=clauses)
        assert (report.inserted, report.updated, report.deleted, report.unchanged) == (1, 1, 1, 2)
        # Rows of the transaction itself are matched, too.
        assert tx.merge(source.slice(3), when_matched="update").updated == 1
        assert tx.merge(rows([400]), when_matched="delete", when_not_matched="ignore").inserted == 0
        assert tx.merge(rows([301]), when_matched="delete").deleted == 1
        wanted = {n: 10 * n for n in range(100) if n != 1} | {2: 22, 300: -4}
        assert seen(tx) == wanted
        assert tx.get(2) == {"id": 2, "v": 22, "s": "b"}
        assert content(table) == rows(range(100)).to_pylist()
    assert {row["id"]: row["v"] for row in content(table)} == wanted
    assert tx.report is not None
    assert (tx.report.inserted, tx.report.updated, tx.report.deleted) == (1, 1, 1)


def test_duplicates(table: sk.Table) -> None:
    with table.transaction() as tx:
        tx.delete(keys=[1])
        tx.append(rows([1, 300], 2))
        for keys in ([300, 301], [2], [400, 400]):
            with pytest.raises(DuplicateKeyError):
                tx.append(rows(keys))
        assert tx.scan("id >= 300").count() == 1
    assert table.get(1, ["v"]) == {"v": 12}


def test_composite_keys(tmp_path: Path) -> None:
    schema = pa.schema({"region": pa.string(), "id": pa.int64(), "v": pa.float64()})
    made = new_table(tmp_path, schema=schema, key=["region", "id"], partition_by=["region"])
    made.append(pa.table({"region": ["EU", "US"] * 5, "id": range(10), "v": [0.5] * 10}, schema))
    with made.transaction() as tx:
        tx.upsert(pa.table({"region": ["EU", "US"], "id": [0, 0], "v": [1.0, 2.0]}, schema))
        tx.delete(keys=[("US", 1)])
        assert tx.get(("US", 0)) == {"region": "US", "id": 0, "v": 2.0}
        assert tx.scan("region = 'EU' and v > 0.7").count() == 1
    assert made.scan().count() == 10
    assert made.get(("US", 1)) is None


# -- conflicts ---------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (lambda tx: tx.upsert(rows([1], 1)), lambda t: t.upsert(rows([1], 2))),
        (lambda tx: tx.upsert(rows([1], 1)), lambda t: t.delete(keys=[1])),
        (lambda tx: tx.delete(keys=[1]), lambda t: t.upsert(rows([1], 2))),
        (lambda tx: tx.delete("v = 10"), lambda t: t.delete(keys=[1])),
        (lambda tx: tx.upsert(rows([500], 1)), lambda t: t.append(rows([500, 501]))),
        (lambda tx: tx.update("id = 1", {"s": sk.lit("x")}), lambda t: t.update("id < 5", {"v": "v + 1"})),
        (lambda tx: tx.merge(rows([1], 1)), lambda t: t.merge(rows([1], 2))),
        (
            lambda tx: tx.merge(rows([1, 2]), when_matched=[("source.id = 1", "delete")]),
            lambda t: t.delete("id = 1"),
        ),
        (lambda tx: tx.merge(rows([500])), lambda t: t.append(rows([500]))),
    ],
)
def test_the_first_committer_wins(table: sk.Table, mine: Any, theirs: Any, compact: bool) -> None:
    tx = table.transaction()
    mine(tx)
    tx.upsert(rows([50, 700], 3))
    theirs(table)
    if compact:
        table.compact(table.plan_compaction(rewrite_all=True), engine="local")
    before, root = content(table), Path(table.metadata.location.removeprefix("file://"))
    files = files_of(root)
    with pytest.raises(ConflictError, match=r"1 row was changed by another commit.* id = (1|500) \("):
        tx.commit()
    assert content(table.refresh()) == before
    assert files_of(root) == files
    with pytest.raises(UsageError, match="transaction has failed"):
        tx.get(1)


@pytest.mark.parametrize(
    "theirs",
    [
        lambda t: t.upsert(rows([2, 600], 2)),
        lambda t: t.delete("id >= 60"),
        lambda t: t.compact(t.plan_compaction(rewrite_all=True), engine="local"),
        # Changed and changed back.
        lambda t: (t.delete(keys=[1]), t.append(rows([1]))),
        lambda t: (t.append(rows([500])), t.delete(keys=[500])),
    ],
)
def test_other_keys_don_t_conflict(table: sk.Table, theirs: Any) -> None:
    tx = table.transaction()
    tx.upsert(rows([1, 500], 1))
    tx.delete(keys=[3])
    theirs(table)
    others = {row["id"]: row["v"] for row in content(table) if row["id"] not in (1, 3, 500)}
    assert tx.commit().attempts == 2
    assert {row["id"]: row["v"] for row in content(table)} == others | {1: 11, 500: 5001}


def test_two_transactions(table: sk.Table) -> None:
    one, other, third = (table.transaction() for _ in range(3))
    one.upsert(rows([1, 2], 1))
    other.upsert(rows([2, 3], 2))
    third.upsert(rows([4], 3))
    one.commit()
    with pytest.raises(ConflictError, match=r"1 row was changed .*: id = 2 \("):
        other.commit()
    assert third.commit().attempts == 2
    assert [row["v"] for row in content(table)[:5]] == [0, 11, 21, 30, 43]


def test_conflicts_with_rows_of_the_tail(table: sk.Table) -> None:
    with table.writer(sync="off") as writer:
        writer.upsert(rows([1], 4))
        tx = table.transaction()
        assert tx.get(1, ["v"]) == {"v": 14}
        tx.upsert(rows([1, 2], 5))
        writer.upsert(rows([2], 6))
        with pytest.raises(ConflictError, match=r"1 row was changed .*: id = 2 \("):
            tx.commit()
        with table.transaction() as again:
            again.upsert(rows([2], 7))
        assert table.get(2, ["v"]) == {"v": 27}
    assert [row["v"] for row in content(table)[:3]] == [0, 14, 27]


# -- ends --------------------------------------------------------------------------------------


def test_an_error_rolls_back_and_leaves_nothing(table: sk.Table) -> None:
    root = Path(table.metadata.location.removeprefix("file://"))
    files, snapshot = files_of(root), table.snapshot

    def fail() -> None:
        with table.transaction() as tx:
            tx.upsert(rows(range(50), 1))
            tx.delete("id > 90")
            assert tx.scan("v > 100").count() == 81
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert files_of(root) == files
    assert (table.refresh().snapshot, content(table)) == (snapshot, rows(range(100)).to_pylist())


def test_commits_and_rollbacks_in_the_block(table: sk.Table) -> None:
    with table.transaction() as tx:
        tx.upsert(rows([1], 1))
        tx.rollback()
    assert (tx.report, table.get(1, ["v"])) == (None, {"v": 10})
    with table.transaction() as tx:
        tx.upsert(rows([1], 1))
        assert tx.commit().updated == 1
    assert table.get(1, ["v"]) == {"v": 11}
    with pytest.raises(UsageError, match="transaction was committed"):
        tx.upsert(rows([1], 1))


def test_nothing_to_commit(table: sk.Table) -> None:
    snapshots = len(table.snapshots())
    with table.transaction() as tx:
        tx.delete("id = 4000")
    with table.transaction() as same:
        same.upsert(rows([1]))
    for one in (tx, same):
        assert one.report is not None
        assert one.report.snapshot is None
    assert len(table.snapshots()) == snapshots


def test_tokens_and_properties(table: sk.Table) -> None:
    for value in (1, 2):
        with table.transaction(token="job 7", properties={"by": "me"}) as tx:
            tx.upsert(rows([1], value))
    assert tx.report is not None
    assert tx.report.repeated
    assert table.get(1, ["v"]) == {"v": 11}
    assert table.snapshots()[-1].summary["by"] == "me"


def test_tables_that_can_t_have_transactions(table: sk.Table, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was opened at snapshot"):
        table.at(table.snapshot).transaction()
    plain = sk.catalog(tmp_path / "other").create_table("db.t", SCHEMA)
    with pytest.raises(UsageError, match="table has no key"):
        plain.transaction()


def test_wrong_arguments(table: sk.Table) -> None:
    with table.transaction() as tx:
        with pytest.raises(UsageError, match="delete needs a condition or keys"):
            tx.delete()
        with pytest.raises(sk.SkipstoneError, match="key column can't be set"):
            tx.update(None, {"id": 3})
        with pytest.raises(UsageError, match="rows can't be matched by v"):
            tx.merge(rows([1]), "v")
        with pytest.raises(UsageError, match="unknown action 'replace'"):
            tx.merge(rows([1]), when_matched="replace")  # type: ignore[arg-type]
        with pytest.raises(DuplicateKeyError, match="a key more than once"):
            tx.merge(rows([1, 1]))
        with pytest.raises(sk.SkipstoneError, match="table has no such column"):
            tx.upsert(pa.table({"id": [1], "w": [2]}))
        tx.rollback()


def test_a_struct_whose_fields_were_dropped(tmp_path: Path) -> None:
    nested = pa.struct({"x": pa.int64()})
    schema = pa.schema({"id": pa.int64(), "n": nested, "deep": pa.list_(pa.struct({"n": nested}))})
    table = new_table(tmp_path, schema=schema)
    table.append([{"id": 1, "n": {"x": 1}, "deep": []}, {"id": 2}])
    with table.table.update_schema() as change:
        change.delete_column(("deep", "element", "n", "x"))
    problem = r"column deep: Parquet can't store a struct without fields \(add a field"
    with table.refresh().transaction() as changes:
        assert changes.delete(keys=2).deleted == 1
        for write in (changes.append, changes.upsert, changes.merge):
            with pytest.raises(SchemaError, match=problem):
                write([{"id": 3, "n": {"x": 3}}])
        with pytest.raises(SchemaError, match=problem):
            changes.update(None, {"n": {"x": 3}})
        assert changes.scan().to_arrow().to_pylist() == [{"id": 1, "n": {"x": 1}, "deep": []}]
    with pytest.raises(SchemaError, match=problem):
        table.refresh().upsert([{"id": 3}])
    # Rows that were written before the field was dropped.
    with pytest.raises(SchemaError, match=problem):
        MemoryFile.of(table.refresh(), pa.table({"id": [3]}))
    with table.refresh().table.update_schema() as change:
        change.add_column(("deep", "element", "n", "y"), LongType())
    assert table.refresh().upsert([{"id": 3}]).inserted == 1
