"""Concurrent commits: every snapshot has each key once, and no write is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import skipstone as sk
from skipstone.table.write import put

from ._keyed import SCHEMA, as_others_read, content, new_table, rows, sorted_rows
from ._writer import ACCOUNTS, KEYS

Both: TypeAlias = tuple[sk.Table, sk.Table]


@pytest.fixture
def both(tmp_path: Path) -> Both:
    """Two objects of one table, at the same snapshot, as two processes would have them."""
    table = new_table(tmp_path)
    table.append(rows(range(100)))
    table.append(rows(range(100, 120)))
    return table, sk.open("db.t", catalog=tmp_path)


def unique(table: sk.Table) -> None:
    """Every snapshot has each key once."""
    for one in table.refresh().snapshots():
        ids = table.at(one.id).scan().to_arrow()["id"].to_pylist()
        assert len(ids) == len(set(ids)), one


def compact(table: sk.Table) -> None:
    report = table.compact(table.plan_compaction(rewrite_all=True), engine="local")
    assert report.groups == 1


OTHERS: list[tuple[str, Callable[[sk.Table], Any]]] = [
    ("upsert of the same key", lambda t: t.upsert(rows([5], v=1))),
    ("insert of the same key", lambda t: t.upsert(rows([500], v=1))),
    ("delete of the same key", lambda t: t.delete(keys=[5])),
    ("compaction", compact),
    ("upsert and compaction", lambda t: (t.upsert(rows([5, 500], v=1)), compact(t))),
    ("compaction and delete", lambda t: (compact(t), t.delete(keys=[5, 6]))),
    ("another key", lambda t: t.append(rows([900]))),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("other", [other for _, other in OTHERS], ids=[name for name, _ in OTHERS])
def test_an_upsert_follows_other_commits(both: Both, other: Callable[[sk.Table], Any]) -> None:
    mine, theirs = both
    other(theirs)
    before = {row["id"]: row for row in content(theirs.refresh())}
    report = mine.upsert(rows([5, 6, 500], v=2))
    assert report.attempts == 2
    expected = {**before, **{row["id"]: row for row in rows([5, 6, 500], v=2).to_pylist()}}
    assert content(mine) == [row for _, row in sorted(expected.items())]
    known = before.keys() & {5, 6, 500}
    assert (report.inserted, report.updated) == (3 - len(known), len(known))
    unique(mine)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("other", [other for _, other in OTHERS], ids=[name for name, _ in OTHERS])
def test_conditions_are_evaluated_again(both: Both, other: Callable[[sk.Table], Any]) -> None:
    mine, theirs = both
    other(theirs)
    before = content(theirs.refresh())
    matching = [row["id"] for row in before if row["v"] <= 60 or row["v"] > 4_000]
    assert mine.update("v <= 60 or v > 4000", {"v": "-1 - v"}).updated == len(matching)
    assert mine.delete("v < 0").deleted == len(matching)
    assert content(mine) == [row for row in before if row["id"] not in matching]
    unique(mine)


def test_a_stale_object_misses_nothing(both: Both) -> None:
    """Also if its snapshot says that there is nothing to do, or that a key exists."""
    mine, theirs = both
    theirs.append(rows([500, 501]))
    theirs.delete(keys=[7])
    assert mine.delete(keys=500).deleted == 1
    theirs.append(rows([600]))
    assert mine.delete("id = 600").deleted == 1
    stale = sk.open("db.t", catalog=mine.table.catalog)
    mine.delete(keys=8)
    assert stale.append(rows([8])).inserted == 1
    theirs.refresh()
    mine.refresh().delete(keys=[9])
    assert theirs.upsert(rows([9])).inserted == 1
    unique(mine)


def test_an_append_fails_if_another_inserted_the_key(both: Both) -> None:
    mine, theirs = both
    theirs.append(rows([500]))
    compact(theirs)
    files = set(Path(mine.uri.removeprefix("file://")).rglob("*.parquet"))
    with pytest.raises(sk.DuplicateKeyError, match="id = 500"):
        mine.append(rows([499, 500]))
    assert set(Path(mine.uri.removeprefix("file://")).rglob("*.parquet")) == files


def test_what_others_wrote_is_not_written_again(both: Both) -> None:
    mine, theirs = both
    theirs.upsert(rows([5, 500], v=2))
    report = mine.upsert(rows([5, 500], v=2))
    assert (report.attempts, report.unchanged, report.snapshot) == (2, 2, None)
    # The files of the first attempt are gone.
    listed = {entry.key for entry in mine.refresh().entries}
    data = {str(path) for path in Path(mine.uri.removeprefix("file://")).rglob("*.parquet")}
    assert len({name for name in data if "deletes" not in name}) == len(listed) == 3


def test_only_new_files_are_searched_again(both: Both) -> None:
    """A rebase opens the files that were added since, and no others."""
    mine, theirs = both
    searched: list[list[str]] = []

    def rebased(now: sk.Table, before: Any, after: Any) -> None:
        searched.append(sorted(task.entry.key for task in after.plan.tasks if task.number in after.files))
        assert now.access.io().requests < 12
        assert (len(before), len(after)) == (2, 3)

    theirs.append(rows([500]))
    report = put(mine, rows([5, 110, 500], v=1), rebased=rebased)
    assert (report.attempts, report.updated, report.inserted) == (2, 3, 0)
    assert [len(paths) for paths in searched] == [3]


def test_a_rebase_can_be_refused(both: Both) -> None:
    mine, theirs = both

    def rebased(*_: Any) -> None:
        raise sk.ConflictError("key was changed", path="db.t", hint="run the transaction again")

    theirs.upsert(rows([5], v=1))
    before = mine.refresh().snapshot
    stale = theirs.at(before)
    assert stale.snapshot == before
    theirs.upsert(rows([5], v=2))
    with pytest.raises(sk.ConflictError, match="key was changed"):
        put(mine, rows([5], v=3), rebased=rebased)
    assert theirs.refresh().get(5) == {"id": 5, "v": 52, "s": "a"}


def test_no_delete_is_lost(both: Both) -> None:
    """A file is rewritten while others delete from it, and then from another file.

    A check that begins at the newest snapshot, as pyiceberg's does, sees only the second delete, and the row
    of the first comes back. That can't happen here, since each write is checked against its base.
    """
    mine, theirs = both
    plan = mine.plan_compaction(rewrite_all=True)
    assert len(plan.groups[0].files) == 2
    # Of the first file, then of the second one.
    theirs.delete(keys=[7])
    theirs.delete(keys=[110])
    wanted = [row for row in content(theirs) if row["id"] not in (7, 110)]
    assert len(wanted) == 118
    assert mine.compact(plan, engine="local").rewritten_again == 1
    assert content(mine) == wanted
    # And the same of an update, which rewrites rows of a snapshot without the two deletes.
    stale = theirs.detached()
    assert stale.snapshot != mine.snapshot
    mine.delete(keys=[8])
    mine.delete(keys=[111])
    assert stale.update("id between 6 and 9 or id > 109", {"v": -1}).updated == 10
    assert [row["id"] for row in content(stale) if row["v"] == -1] == [6, 9, *range(112, 120)]
    unique(mine)


def test_a_new_key_is_inserted_once(both: Both) -> None:
    """Two writers insert a key that neither has seen; pyiceberg's upserts would insert it twice."""
    mine, theirs = both
    assert theirs.upsert(rows([500, 501], v=1)).inserted == 2
    report = mine.upsert(rows([500, 502], v=2))
    assert (report.attempts, report.inserted, report.updated) == (2, 1, 1)
    assert [row["v"] for row in content(mine)[-3:]] == [5002, 5011, 5022]
    unique(mine)


def test_a_rollback_is_a_conflict(both: Both) -> None:
    mine, theirs = both
    theirs.rollback(theirs.snapshots()[0])
    with pytest.raises(sk.ConflictError, match="is no longer in the history of the branch"):
        mine.upsert(rows([5], v=1))


def test_a_change_of_the_schema_is_a_conflict(both: Both) -> None:
    from pyiceberg.types import LongType

    mine, theirs = both
    with theirs.table.update_schema() as update:
        update.add_column("w", LongType())
    theirs.refresh().append(rows([700]))
    with pytest.raises(sk.ConflictError, match="schema was changed"):
        mine.upsert(rows([5], v=1))
    assert mine.refresh().upsert(rows([5], v=1)).updated == 1


def test_a_schema_that_was_changed_without_a_commit_of_rows_is_a_conflict(both: Both) -> None:
    """Also for transactions; the rows would lose the values of a dropped column."""
    mine, theirs = both
    other, changes = mine.detached(), mine.detached().transaction()
    changes.upsert(rows([5], v=1))
    with theirs.table.update_schema() as update:
        update.delete_column("v")
    writes = (
        lambda: mine.upsert(rows([5], v=1)),
        lambda: other.update("id = 5", {"v": 7}),
        changes.commit,
    )
    for write in writes:
        with pytest.raises(sk.ConflictError, match="schema was changed by another commit"):
            write()
    assert "v" not in mine.refresh().scan("id = 5").to_arrow().column_names
    assert mine.upsert(rows([5], s="b").drop_columns("v")).updated == 1


def test_a_commit_that_was_rolled_back_leaves_a_gap(both: Both) -> None:
    """The sequence number of the write was used meanwhile: it takes another one."""
    mine, theirs = both
    base = theirs.snapshots()[-1]
    theirs.upsert(rows([5], v=1))
    theirs.rollback(base)
    report = mine.upsert(rows([5], v=2))
    assert (report.attempts, report.updated) == (1, 1)
    assert [row["v"] for row in content(mine) if row["id"] == 5] == [52]
    unique(mine)


def started(warehouse: Path, kind: str, number: int = 0, rounds: int = 0) -> subprocess.Popen[str]:
    """Start a process of ``_writer.py``."""
    command = [sys.executable, str(Path(__file__).with_name("_writer.py")), str(warehouse), "db.t"]
    pipe = subprocess.PIPE
    arguments = [*command, kind, str(number), str(rounds)]
    return subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    """End the input of a process; return what it printed."""
    printed, problem = process.communicate(timeout=1_200)
    assert process.returncode == 0, problem
    return printed


FEW = [("upsert", 1), ("upsert", 2), ("compact", 0)]
MANY = [*FEW, ("upsert", 3), ("tail", 0), ("transfer", 0)]


@pytest.mark.parametrize(
    ("kinds", "rounds"), [(FEW, 3), pytest.param(MANY, 30, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_processes_that_write_and_compact(kinds: list[tuple[str, int]], rounds: int, tmp_path: Path) -> None:
    """Each key once in every snapshot, and each commit whole; whatever others read was committed."""
    properties = {"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "500"}
    table = new_table(tmp_path, properties=properties)
    table.append(rows_of_all := rows([*range(KEYS), *ACCOUNTS]))
    first = table.snapshot
    readers = [started(tmp_path, kind) for kind in ("read", "read with pyiceberg")]
    for process in readers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in [started(tmp_path, *kind, rounds) for kind in kinds]:
        ended(process)
    # What each reader found, by snapshot; the end of their input ends them.
    found = [json.loads(ended(process)) for process in readers]
    table.refresh()
    unique(table)
    for results in found:
        assert {str(first), str(table.snapshot)} <= results.keys()
        for snapshot, (result, *others) in results.items():
            committed = table.at(int(snapshot)).scan().to_arrow().select(SCHEMA.names).to_pydict()
            assert not others
            assert result == sorted(map(list, zip(*committed.values(), strict=True)))
            assert len({key for key, _, _ in result}) == len(result)
    tokens = [one.summary.get("skipstone.token") for one in table.snapshots()]
    upserts = [number for kind, number in kinds if kind == "upsert"]
    assert {f"{number}-{turn}" for number in upserts for turn in range(rounds)} <= set(tokens)
    assert len([token for token in tokens if token]) == len({token for token in tokens if token})
    total = sum(row["v"] for row in rows_of_all.to_pylist() if row["id"] in ACCOUNTS)
    for one in table.snapshots():
        then = table.at(one.id)
        assert then.scan(f"id in {ACCOUNTS}").aggregate(sk.sum("v")).to_pylist() == [{"sum(v)": total}]
        # Each upsert is in its snapshot with all of its rows.
        token = str(one.summary.get("skipstone.token", ""))
        if token.partition("-")[0].isdecimal() and not token.endswith("delete"):
            number, turn = map(int, token.split("-"))
            assert then.scan(f"v = {1_000 * number + turn}").count() == 16
    # pyiceberg and Polars read the same rows at each snapshot.
    for one in table.snapshots()[-3 if kinds is FEW else 0 :]:
        expected = sorted_rows(table.at(one.id).scan().to_arrow(), table.schema)
        for other in as_others_read(table, snapshot=one.id):
            assert sorted_rows(other, table.schema).equals(expected)
