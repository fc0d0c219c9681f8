"""Changes between snapshots, tags, branches and rollbacks."""

from __future__ import annotations

from pathlib import Path

import pytest

import skipstone as sk

from ._keyed import content, new_table, rows


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[sk.Table, list[int]]:
    """A table, and its snapshots: append, upsert, delete, compaction, upsert."""
    table = new_table(tmp_path_factory.mktemp("warehouse"))
    snapshots = []
    for write in (
        lambda: table.append(rows(range(50))),
        lambda: table.upsert(rows([3, 4, 60], v=1)),
        lambda: table.delete("id between 10 and 12"),
        lambda: table.compact(table.plan_compaction(rewrite_all=True), engine="local"),
        lambda: table.upsert(rows([4, 11], v=2)),
    ):
        write()
        assert table.snapshot is not None
        snapshots.append(table.snapshot)
    return table, snapshots


def ids(table: object) -> list[int]:
    return sorted(table["id"].to_pylist())  # type: ignore[index]


@pytest.mark.parametrize("start", [None, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("end", [0, 1, 2, 3, 4])
def test_changes_lead_from_one_snapshot_to_the_other(
    history: tuple[sk.Table, list[int]], start: int | None, end: int
) -> None:
    """Between any two snapshots, also backwards."""
    table, snapshots = history
    changes = table.changes(None if start is None else snapshots[start], snapshots[end])
    old = {} if start is None else {row["id"]: row for row in content(table.at(snapshots[start]))}
    new = {row["id"]: row for row in content(table.at(snapshots[end]))}
    assert ids(changes.inserted) == sorted(new.keys() - old.keys())
    assert ids(changes.deleted) == sorted(old.keys() - new.keys())
    assert ids(changes.updated) == sorted(key for key in old.keys() & new.keys() if old[key] != new[key])
    assert changes.before.to_pylist() == [old[key] for key in changes.updated["id"].to_pylist()]
    assert changes.updated.to_pylist() == [new[key] for key in changes.updated["id"].to_pylist()]
    assert changes.to_arrow()["_change"].to_pylist() == (
        ["insert"] * len(changes.inserted)
        + ["update"] * len(changes.updated)
        + ["delete"] * len(changes.deleted)
    )
    assert len(changes) == len(changes.to_arrow())


def test_only_files_that_differ_are_read(history: tuple[sk.Table, list[int]]) -> None:
    table, snapshots = history
    fresh = sk.open(table.name, catalog=table.table.catalog)
    changes = fresh.changes(snapshots[3])
    assert (ids(changes.updated), ids(changes.inserted)) == ([4], [11])
    assert str(changes).startswith("rows: 1 inserted, 1 updated")
    assert changes.to_json() == {
        "table": "db.t",
        "start": snapshots[3],
        "end": snapshots[4],
        "inserted": 1,
        "updated": 1,
        "deleted": 0,
    }
    assert str(fresh.changes(snapshots[2], snapshots[3])).startswith("no row differs")


def test_tags_branches_and_rollback(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(range(5)))
    table.create_tag("clean")
    table.create_branch("audit")
    assert table.upsert(rows([1], v=9)).updated == 1
    assert table.at("clean").get(1) == {"id": 1, "v": 10, "s": "a"}
    assert table.at("audit").snapshot == table.at("clean").snapshot
    with pytest.raises(sk.UsageError, match="already exists"):
        table.create_tag("clean")
    with pytest.raises(sk.UsageError, match="is not a number"):
        table.create_tag("42")
    with pytest.raises(sk.UsageError, match="unknown tag or branch 'other'") as error:
        table.drop_ref("other")
    assert error.value.hint == "available: audit, clean"
    with pytest.raises(sk.UsageError, match="main can't be dropped"):
        table.drop_ref("main")
    newest = table.snapshot
    assert newest is not None
    table.rollback("clean")
    assert table.get(1) == {"id": 1, "v": 10, "s": "a"}
    with pytest.raises(sk.UsageError, match="not an ancestor"):
        table.rollback(newest)
    # Keys are known to be unique there, and writes go on.
    assert table.upsert(rows([1], v=3)).updated == 1
    table.drop_ref("audit")
    assert set(table.metadata.refs) == {"main", "clean"}
