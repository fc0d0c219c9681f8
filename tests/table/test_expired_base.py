"""Table objects whose snapshot another process has expired: writes follow the newest one, reads say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skipstone as sk
from tests.table._keyed import content, new_table, rows

WRITES: dict[str, Callable[[sk.Table], Any]] = {
    "upsert": lambda table: table.upsert(rows([1, 50], v=3)),
    "append": lambda table: table.append(rows([50])),
    "delete by key": lambda table: table.delete(keys=[1]),
    "delete": lambda table: table.delete("v = 10"),
    "update": lambda table: table.update("id = 1", {"v": 5}),
    "merge": lambda table: table.merge(rows([1, 50], v=3)),
}
READS: dict[str, Callable[[sk.Table], Any]] = {
    "scan": lambda table: table.scan("v >= 0").to_arrow(),
    "get": lambda table: table.get(1),
    "changes": lambda table: table.changes(table.snapshots()[0].id).inserted,
    "at": lambda table: table.at(table.snapshots()[0].id).scan().to_arrow(),
    "plan_compaction": lambda table: table.plan_compaction(rewrite_all=True),
}
EXPIRED = r"snapshot \d+ of db\.t has expired, and the file was deleted \(refresh the table"


def expire(folder: Path, *, rewrite: bool = True) -> sk.Table:
    """Another process commits, maybe rewrites all files, and removes all snapshots but the last."""
    other = sk.open("db.t", catalog=folder)
    other.upsert(rows([10, 11]))
    other.update("id = 2", {"v": 7})
    if rewrite:
        other.compact(other.plan_compaction(rewrite_all=True), engine="local", threads=1)
    other.expire(older_than="0s", retain_last=1)
    return other


def old_table(folder: Path, *, is_read: bool) -> sk.Table:
    """A table object, which knows manifests and files if it was read."""
    new_table(folder).upsert(rows(range(4)))
    table = sk.open("db.t", catalog=folder)
    table.upsert(rows([3], v=1))
    fresh = sk.open("db.t", catalog=folder)
    if is_read:
        content(fresh)
    return fresh


@pytest.mark.sampled(11)
@pytest.mark.parametrize("rewrite", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("name", list(WRITES))
def test_writes_follow_the_newest_snapshot(name: str, is_read: bool, rewrite: bool, tmp_path: Path) -> None:
    expected = tmp_path / "expected"
    for folder in (tmp_path / "w", expected):
        table = old_table(folder, is_read=is_read)
        newest = expire(folder, rewrite=rewrite)
        WRITES[name](newest if folder == expected else table)
    found = content(sk.open("db.t", catalog=tmp_path / "w"))
    assert found == content(sk.open("db.t", catalog=expected))
    # The object has moved to the snapshot that it has committed.
    assert content(table if folder != expected else newest) == found


def test_a_key_that_was_inserted_meanwhile(tmp_path: Path) -> None:
    table = old_table(tmp_path, is_read=True)
    expire(tmp_path)
    with pytest.raises(sk.DuplicateKeyError, match="10"):
        table.append(rows([10]))
    assert len(content(sk.open("db.t", catalog=tmp_path))) == 6


@pytest.mark.sampled(2)
@pytest.mark.parametrize("key", [2, 0])
def test_a_transaction(key: int, tmp_path: Path) -> None:
    """It is committed if no row with one of its keys can have changed."""
    table = old_table(tmp_path, is_read=True)
    with table.transaction() as changes:
        changes.upsert(rows([key, 20], v=9))
        expire(tmp_path, rewrite=False)
        if key == 0:
            changes.commit()
        else:
            with pytest.raises(sk.ConflictError):
                changes.commit()
    found = {row["id"]: row["v"] for row in content(sk.open("db.t", catalog=tmp_path))}
    assert (found[key], 20 in found) == ((9, True) if key == 0 else (7, False))


@pytest.mark.slow
def test_a_transaction_whose_rows_can_not_be_compared(tmp_path: Path) -> None:
    table = old_table(tmp_path, is_read=False)
    changes = table.transaction()
    changes.upsert(rows([0], v=9))
    expire(tmp_path)
    with pytest.raises(sk.ConflictError, match="snapshot of the transaction has expired"):
        changes.commit()
    with table.transaction() as again:
        again.upsert(rows([0], v=9))
    assert sk.open("db.t", catalog=tmp_path).get(0)["v"] == 9


def test_a_tail_flush(tmp_path: Path) -> None:
    table = old_table(tmp_path, is_read=True)
    with table.writer(sync="off", flush_seconds=None) as writer:
        writer.upsert(rows([1, 50], v=3))
        expire(tmp_path)
        writer.flush()
    found = {row["id"]: row["v"] for row in content(sk.open("db.t", catalog=tmp_path))}
    assert found == {0: 0, 1: 13, 2: 7, 3: 31, 10: 100, 11: 110, 50: 503}


def test_a_compaction_plan(tmp_path: Path) -> None:
    table = old_table(tmp_path, is_read=True)
    plan = table.plan_compaction(rewrite_all=True)
    expire(tmp_path)
    with pytest.raises(sk.ConflictError, match=r"snapshot \d+ of the plan has expired"):
        table.compact(plan, engine="local")


def test_a_compaction_whose_snapshot_expires_while_it_runs(tmp_path: Path) -> None:
    table = old_table(tmp_path, is_read=True)
    table.refresh()

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "rewriting" and done == total and len(other) == 0:
            other.append(expire(tmp_path, rewrite=False))

    other: list[sk.Table] = []
    with pytest.raises(sk.ConflictError, match=r"snapshot \d+, on which the write was planned, has expired"):
        table.compact(table.plan_compaction(rewrite_all=True), engine="local", progress=progress)
    assert other[0].remove_orphans(older_than="0s", allow_recent=True, dry_run=True).files == ()


@pytest.mark.slow
def test_an_ingest_whose_snapshot_expires_while_it_runs(tmp_path: Path) -> None:
    schema = rows([]).schema
    table = sk.catalog(tmp_path).create_table("db.t", schema)
    for number in range(2):
        sk.ingest(rows([number]), table, engine="local", index=False)

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "writing" and done == total:
            other = sk.open("db.t", catalog=tmp_path)
            sk.ingest(rows([77 + other.scan().count()]), other, engine="local", index=False)
            other.compact(other.plan_compaction(rewrite_all=True), engine="local")
            other.expire(older_than="0s", retain_last=1)

    sk.ingest(rows([5]), table, engine="local", index=False, progress=progress)
    assert [row["id"] for row in content(sk.open("db.t", catalog=tmp_path))] == [0, 1, 5, 79]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", list(READS))
def test_reads_say_that_the_snapshot_has_expired(name: str, tmp_path: Path) -> None:
    table = old_table(tmp_path, is_read=False)
    expire(tmp_path)
    with pytest.raises(sk.MissingFileError, match=EXPIRED):
        READS[name](table)
    table.refresh()
    if name not in ("changes", "at"):
        READS[name](table)


def test_rows_of_an_expired_snapshot(tmp_path: Path) -> None:
    """The manifests are known, and a data file is missing."""
    table = old_table(tmp_path, is_read=False)
    table.scan().plan()
    expire(tmp_path)
    with pytest.raises(sk.MissingFileError, match=EXPIRED):
        table.scan("v >= 1").to_arrow()


def test_a_file_that_is_missing_otherwise(tmp_path: Path) -> None:
    """Nothing has expired, so a missing file is an error of the table."""
    old_table(tmp_path, is_read=False)
    for path in (tmp_path / "db" / "t" / "metadata").glob("snap-*.avro"):
        path.unlink()
    for call in (READS["scan"], WRITES["upsert"]):
        with pytest.raises(sk.MissingFileError, match="restore this file of the snapshot"):
            call(sk.open("db.t", catalog=tmp_path))
