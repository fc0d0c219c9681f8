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
        "unflushed": 0,
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


# -- with an open tail -------------------------------------------------------------------------


def test_changes_include_the_tail(tmp_path: Path) -> None:
    """They are those of the next flush, from each snapshot and from none."""
    table = new_table(tmp_path)
    starts: list[int | None] = [None]
    for write in (
        lambda: table.append(rows(range(50))),
        lambda: table.upsert(rows([3, 4, 60], v=1)),
        lambda: table.delete("id between 10 and 12"),
        lambda: table.compact(table.plan_compaction(rewrite_all=True), engine="local"),
    ):
        write()
        starts.append(table.snapshot)
    last = table.snapshot
    with table.writer(sync="off", flush_seconds=None) as writer:
        # A row of every history: changed back, inserted again, deleted before, new, and new to be deleted.
        writer.upsert(rows([3, 10, 5, 70, 71]))
        writer.delete(keys=[60, 6, 11, 71, 999])
        found = [table.changes(start) for start in starts]
        assert table.changes(last, last).unflushed == len(table.changes(last, last)) == 0
        assert [changes.end for changes in found] == [last] * len(starts)
        # Keys 3, 5, 10 and 70, and the deletes of 6 and 60.
        assert [changes.unflushed for changes in found] == [6] * len(starts)
        assert f"to {last} and 6 unflushed rows" in str(found[0])
        assert found[0].to_json()["unflushed"] == 6
        writer.flush()
        for start, before in zip(starts, found, strict=True):
            after = table.changes(start)
            assert (after.unflushed, len(after)) == (0, len(before))
            for name in ("inserted", "updated", "before", "deleted"):
                one, other = (getattr(changes, name).sort_by("id") for changes in (before, after))
                assert one.to_pylist() == other.to_pylist(), (start, name)
    assert len(found[-1]) == 5
    assert ids(found[-1].inserted) == [10, 70]
    assert ids(found[-1].deleted) == [6, 60]


def test_reads_include_the_tail_and_say_so(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(range(100)))
    said = "tail: 3 of 3 uncommitted rows may match; 3 rows of the snapshot hidden"
    with table.writer(sync="off", flush_seconds=None) as writer:
        writer.upsert(rows([1, 2, 200], v=5))
        writer.delete(keys=[7])
        answer = table.scan().aggregate(sk.count(), sk.sum("v"), within=[1, 2, 7, 8, 200], id_column="id")
        assert answer.to_pylist() == [{"count": 4, "sum(v)": 15 + 25 + 80 + 2005}]
        assert said in answer.explain()
        others = table.scan().aggregate(sk.count(), without=[1, 7, 200], id_column="id")
        assert others.to_pylist() == [{"count": 98}]
        for analyze in (False, True):
            assert said in table.scan("v >= 0").explain(analyze=analyze)
        assert table.scan().explain("json").count('"hidden": 3') == 1
