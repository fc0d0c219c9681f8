"""Expiry, removal and rewriting while others commit, and when the process is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import skipstone as sk
from skipstone.errors import ConflictError, UsageError
from tests.compact._racing import ids_of, make, racing, rows
from tests.compact._reach import all_rows, metadata_files, on_disk, reachable, their_rows
from tests.support.samples import sample

EXPIRE_AND_DIE = """
import os, signal, sys
import skipstone as sk
from sqlalchemy import event
from sqlalchemy.orm import Session

root, when = sys.argv[1:]
table = sk.catalog(root).open("db.t")
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if when.isdigit():
    left = [int(when)]
    def hook(name, _):
        if name == "os.remove":
            left[0] -= 1
            if left[0] < 0:
                die()
    sys.addaudithook(hook)
else:
    event.listen(Session, when, die)
table.expire(older_than="0s")
"""


def fresh(root: Path) -> sk.Table:
    return sk.catalog(root / "warehouse").open("db.t")


def evolved(root: Path) -> sk.Table:
    """A table whose old snapshots have data files, manifests and lists of their own."""
    table = make(root, appends=3)
    table.table.delete("p = 'a' and id < 20")
    table.refresh().rewrite_manifests(rewrite_all=True)
    table.table.append(rows(100, 110))
    return table.refresh()


# -- a killed process ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "when",
    [
        "3",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("before_commit", "after_commit", "0", "9")),
    ],
)
def test_a_kill_leaves_a_table_and_orphans(tmp_path: Path, when: str) -> None:
    table = evolved(tmp_path)
    rows_before, disk = all_rows(table), on_disk(table)
    plan = table.expire(older_than="0s", dry_run=True)
    assert len(plan.files) > 10
    done = subprocess.run(
        [sys.executable, "-c", EXPIRE_AND_DIE, str(tmp_path / "warehouse"), when], timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL
    table = fresh(tmp_path)
    doomed = {path.removeprefix("file://") for path in plan.files}
    if when == "before_commit":
        assert all_rows(table) == rows_before
        expected = on_disk(table) - disk
        assert len(expected) == 1, "metadata that was never committed"
    else:
        assert len(table.snapshots()) == 1
        expected = doomed & on_disk(table)
        assert len(expected) == len(doomed) - (int(when) if when.isdigit() else 0)
    assert rows_before[table.snapshot or 0] == all_rows(table)[table.snapshot or 0]
    assert len(their_rows(table)[table.snapshot or 0]) == len(rows_before[table.snapshot or 0])
    report = table.remove_orphans(older_than="0s", allow_recent=True)
    assert {path.removeprefix("file://") for path in report.files} == expected
    assert on_disk(table) == reachable(table) | metadata_files(table)
    assert ids_of(table) == [*range(1, 20, 2), *range(20, 30), *range(100, 110)]


# -- other commits ---------------------------------------------------------------------------------


def test_an_append_in_between_keeps_its_files(tmp_path: Path) -> None:
    evolved(tmp_path)
    catalog, other = racing(tmp_path), fresh(tmp_path)
    catalog.others = [lambda: other.table.append(rows(200, 210))]
    table = sk.catalog(catalog).open("db.t")
    before = {one.id for one in table.snapshots()}
    report = table.expire(older_than="0s")
    assert catalog.commits == 2
    # What was the current snapshot is an old one by now.
    assert set(report.snapshots) == before
    assert ids_of(table)[-10:] == list(range(200, 210))
    assert on_disk(table) - reachable(table) >= metadata_files(table)
    assert reachable(table) <= on_disk(table)
    assert len(table.table.scan().to_arrow()) == len(ids_of(table)) == 40


def test_a_file_that_is_added_again_stays(tmp_path: Path) -> None:
    table = make(tmp_path, appends=2)
    dropped = next(one.path for one in table.files if one.partition == {"p": "a"})
    table.table.delete("p = 'a'")
    other = fresh(tmp_path)
    assert dropped in table.refresh().expire(older_than="0s", dry_run=True).files
    catalog = racing(tmp_path)
    # As files are restored by hand after a wrong delete.
    catalog.others = [lambda: other.table.refresh().add_files([dropped])]
    opened = sk.catalog(catalog).open("db.t")
    report = opened.expire(older_than="0s")
    assert dropped not in report.files
    assert opened.scan().count() == opened.table.scan().to_arrow().num_rows == 15


def test_a_branch_or_tag_in_between_keeps_its_snapshot(tmp_path: Path) -> None:
    table = evolved(tmp_path)
    first, second = (one.id for one in table.snapshots()[:2])
    catalog, other = racing(tmp_path), fresh(tmp_path)
    catalog.others = [
        lambda: other.table.manage_snapshots().create_tag(first, "v1").commit(),
        lambda: other.table.refresh().manage_snapshots().create_branch(second, "b").commit(),
    ]
    before = all_rows(table)
    opened = sk.catalog(catalog).open("db.t")
    report = opened.expire(older_than="0s")
    assert catalog.commits == 3
    assert not {first, second} & set(report.snapshots)
    left = all_rows(opened)
    assert left == {number: before[number] for number in left}
    assert set(left) == {first, second, opened.snapshot}


def test_a_rollback_in_between_keeps_its_snapshot(tmp_path: Path) -> None:
    table = evolved(tmp_path)
    first = table.snapshots()[0].id
    catalog, other = racing(tmp_path), fresh(tmp_path)
    catalog.others = [lambda: other.table.manage_snapshots().set_current_snapshot(first).commit()]
    opened = sk.catalog(catalog).open("db.t")
    opened.expire(older_than="0s")
    assert opened.snapshot == first
    assert ids_of(opened) == list(range(10))


def test_named_snapshots_are_checked_against_new_references(tmp_path: Path) -> None:
    table = evolved(tmp_path)
    first = table.snapshots()[0].id
    catalog, other = racing(tmp_path), fresh(tmp_path)
    catalog.others = [lambda: other.table.manage_snapshots().create_tag(first, "v1").commit()]
    with pytest.raises(UsageError, match=f"snapshot {first} is referenced by v1"):
        sk.catalog(catalog).open("db.t").expire(snapshot_ids=[first])
    assert len(all_rows(fresh(tmp_path))) == len(table.snapshots())


def test_the_same_expiry_twice_at_once(tmp_path: Path) -> None:
    table = evolved(tmp_path)
    catalog, other = racing(tmp_path), fresh(tmp_path)
    catalog.others = [lambda: other.expire(older_than="0s")]
    report = sk.catalog(catalog).open("db.t").expire(older_than="0s")
    assert (report.remaining, report.failures) == (1, ())
    assert len(table.refresh().snapshots()) == 1
    assert on_disk(table) - reachable(table) <= metadata_files(table)


def test_an_expiry_of_some_of_the_same_snapshots(tmp_path: Path) -> None:
    table = evolved(tmp_path)
    first = table.snapshots()[0].id
    catalog, other = racing(tmp_path), fresh(tmp_path)
    catalog.others = [lambda: other.expire(snapshot_ids=[first])]
    report = sk.catalog(catalog).open("db.t").expire(older_than="0s")
    assert catalog.commits == 2
    assert first not in report.snapshots
    assert (len(report.snapshots), report.remaining, report.failures) == (len(table.snapshots()) - 2, 1, ())
    assert on_disk(table.refresh()) - reachable(table) <= metadata_files(table)


def test_too_many_commits(tmp_path: Path) -> None:
    table = make(tmp_path, properties={"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"})
    catalog, other = racing(tmp_path), fresh(tmp_path)
    disk = on_disk(table)

    def append() -> None:
        other.table.refresh().append(rows(0, 1))

    catalog.others = [append, append]
    with pytest.raises(ConflictError, match="commit failed in every attempt"):
        sk.catalog(catalog).open("db.t").expire(older_than="0s")
    assert disk < on_disk(table)
    assert len(all_rows(table.refresh())) == 6


# -- other processes -------------------------------------------------------------------------------

WRITER = """
import json, sys
import skipstone as sk
from pyiceberg.exceptions import CommitFailedException, ValidationException
from tests.compact._racing import rows

root, rounds = sys.argv[1], int(sys.argv[2])
table = sk.catalog(root).open("db.t").table
alive = []
print("ready", flush=True)
for number in range(rounds):
    first = 1000 * (number + 1)
    for change in ("append", "delete"):
        while True:
            try:
                table.refresh()
                if change == "append":
                    table.append(rows(first, first + 4))
                elif number % 2:
                    table.delete(f"id >= {first} and id < {first + 2}")
                break
            except (CommitFailedException, ValidationException, FileNotFoundError):
                # The snapshot that it builds on has expired.
                pass
    alive += range(first + 2 * (number % 2), first + 4)
print(json.dumps(alive))
"""


def test_nothing_is_lost_beside_a_writer(tmp_path: Path) -> None:
    table = make(tmp_path, appends=2)
    rounds = sample("upkeep races")
    command = [sys.executable, "-c", WRITER, str(tmp_path / "warehouse"), str(rounds)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    runs = 0
    while writer.poll() is None or runs < 2:
        table.rewrite_manifests(rewrite_all=runs % 3 == 0)
        table.expire(older_than="0s", retain_last=3)
        # Only dry: an uncommitted file of the writer is an orphan for a moment.
        table.remove_orphans()
        runs += 1
    alive = json.loads(writer.stdout.read())
    assert (writer.returncode, writer.stdout.close()) == (0, None)
    table.refresh()
    assert ids_of(table) == [*range(20), *alive]
    assert table.table.scan().to_arrow().num_rows == len(ids_of(table))
    assert len(all_rows(table)) == len(table.snapshots())
    table.expire(older_than="0s")
    table.remove_orphans(older_than="0s", allow_recent=True)
    assert on_disk(table) == reachable(table) | metadata_files(table)
    assert ids_of(table) == [*range(20), *alive]
