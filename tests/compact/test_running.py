"""Compactions that go wrong: what fails is named, the rest is committed, nothing is lost or left behind."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

import skipstone as sk
from skipstone.errors import CorruptFileError, MissingFileError, UsageError
from tests.compact._tables import append_ids, data_paths, ids_of, numbered, registered
from tests.compact._writers import delete_positions, file_with, files_of
from tests.iceberg._maker import Maker


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def spoil(path: str) -> None:
    """Damage the values of a file, without changing its size."""
    data = bytearray(local(path).read_bytes())
    data[10:60] = bytes(50)
    local(path).write_bytes(bytes(data))


class Engine:
    """An engine that does something to the results of tasks, or to tasks."""

    def __init__(
        self, change: Callable[[Any], Any] = lambda result: result, parallelism: int = 1, name: str = "here"
    ) -> None:
        self.change, self.parallelism, self.name = change, parallelism, name
        self.groups: list[set[int]] = []

    def map(self, work: Any, tasks: Sequence[Any], *, on_done: Any = None) -> list[Any]:
        self.groups.append({task.group for task in tasks})
        results = [self.change(work(task)) for task in tasks]
        if on_done is not None:
            on_done(len(tasks))
        return results

    def close(self) -> None: ...


# -- files that can't be read ----------------------------------------------------------------------


def test_a_corrupt_file_fails_and_nothing_is_lost(tmp_path: Path) -> None:
    table = numbered(tmp_path, 4, partition_by=["p"])
    bad = file_with(table, "id = 15 AND p = 'b'")
    spoil(bad)
    files, snapshots = data_paths(tmp_path), len(table.snapshots())
    for engine in ("local", Engine()):
        with pytest.raises(CorruptFileError, match="row group 0") as failed:
            table.compact(table.plan_compaction(min_input_files=2), engine=engine)
        assert failed.value.path == str(local(bad))
        # Also the group that went well is left out, and its files are deleted.
        assert data_paths(tmp_path) == files
        table.refresh()
        assert len(table.snapshots()) == snapshots


def test_with_partial_progress_other_groups_are_committed(tmp_path: Path) -> None:
    table = numbered(tmp_path, 4, partition_by=["p"])
    bad = file_with(table, "id = 15 AND p = 'b'")
    good = table.scan("p = 'a'").to_arrow()
    spoil(bad)
    files = data_paths(tmp_path)
    plan = table.plan_compaction(min_input_files=2, partial_progress_enabled=True)
    report = table.compact(plan, engine="local")
    ((group, count, error),) = [dataclasses.astuple(one) for one in report.failures]
    assert (group, count, report.groups, len(report.snapshots)) == (1, 4, 1, 1)
    assert str(local(bad)) in error
    assert "row group 0" in error
    assert table.scan("p = 'a'").to_arrow().sort_by("id") == good.sort_by("id")
    assert len(data_paths(tmp_path) - files) == 1
    # Its file is still there, for whoever can repair it.
    assert bad in files_of(table).paths.to_pylist()


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    table = numbered(tmp_path, 3, partition_by=["p"])
    gone = file_with(table, "id = 15 AND p = 'b'")
    local(gone).unlink()
    with pytest.raises(MissingFileError) as failed:
        table.compact(table.plan_compaction(min_input_files=2), engine="local")
    assert failed.value.path == str(local(gone))
    plan = table.plan_compaction(min_input_files=2, partial_progress_enabled=True)
    assert table.compact(plan, engine="local").groups == 1


def test_the_unexpected_fails_its_own_group_only(tmp_path: Path) -> None:
    """An error that is not one of ours: no room on the disk, or a bug."""
    table = numbered(tmp_path, 3, partition_by=["p"])
    before, files = ids_of(table), data_paths(tmp_path)
    plan = table.plan_compaction(min_input_files=2, partial_progress_enabled=True)
    blocked = tmp_path / "w" / "db" / "t" / "data" / "p=b"
    blocked.chmod(0o500)
    engine = Engine()
    real = engine.map

    def map(work: Any, tasks: Any, **more: Any) -> Any:
        def fails(task: Any) -> Any:
            if task.group == 1:
                task = dataclasses.replace(task, tasks=(5,))
            return work(task)

        return real(fails, tasks, **more)

    engine.map = map  # type: ignore[method-assign]
    report = table.compact(plan, engine=engine)
    blocked.chmod(0o700)
    assert report.groups == 1
    assert [(one.group, "rewrite failed" in one.error) for one in report.failures] == [(1, True)]
    assert ids_of(table) == before
    assert len(data_paths(tmp_path) - files) == 1


# -- engines that lie ------------------------------------------------------------------------------


def test_lost_rows_are_noticed(tmp_path: Path) -> None:
    """Files that a task forgets, and files with fewer rows than were read."""
    table = numbered(tmp_path, 4)
    files = data_paths(tmp_path)

    def forget(result: Any) -> Any:
        return dataclasses.replace(result, files=result.files[:-1])

    def shorten(result: Any) -> Any:
        return dataclasses.replace(result, rows=result.rows - 1)

    for change, words in (
        (forget, "0 rows were written and 40 read, but 40 are live"),
        (shorten, "40 rows were written and 39 read, but 40 are live"),
    ):
        with pytest.raises(CorruptFileError, match=words) as failed:
            table.compact(table.plan_compaction(min_input_files=2), engine=Engine(change))
        assert (str(failed.value.path)[-5:], failed.value.unit) == ("/db/t", "group 0")
        assert data_paths(tmp_path) == files
        assert ids_of(table) == list(range(40))


def test_manifests_that_lie_about_rows_are_noticed(tmp_path: Path) -> None:
    for records in (3, 7):
        maker = Maker(tmp_path / f"t{records}", [("id", "long")], seed=9)
        maker.append([{"id": n} for n in range(5)])
        (made,) = maker.files_of([{"id": n} for n in range(5, 10)])
        lying = dataclasses.replace(made, records=records)
        maker.written[lying.path] = maker.written[made.path]
        maker.commit("append", [lying])
        table = registered(maker.metadata_location, tmp_path / f"w{records}")
        paths = data_paths(tmp_path)
        with pytest.raises(CorruptFileError) as failed:
            table.compact(table.plan_compaction(min_input_files=2), engine="local")
        assert made.path in str(failed.value)
        assert data_paths(tmp_path) == paths
        table.refresh()
        assert len(table.snapshots()) == 2


def test_checksums_notice_changed_values(tmp_path: Path) -> None:
    table = numbered(tmp_path, 3)
    files = data_paths(tmp_path)

    def changed(texts: dict[str, str]) -> Callable[[Any], Any]:
        def change(result: Any) -> Any:
            (path,) = data_paths(tmp_path) - files
            rows = pq.read_table(path)
            other = pa.array([texts[p] for p in rows["p"].to_pylist()])
            pq.write_table(rows.set_column(1, rows.schema.field(1), other), path)
            size = Path(path).stat().st_size
            (file,) = result.files
            return dataclasses.replace(result, files=(dataclasses.replace(file, bytes=size),))

        return change

    plan = table.plan_compaction(min_input_files=2)
    for texts, words, column in (
        ({"a": "a", "b": "c"}, "rewritten values differ", "p"),
        # The same values, but with other ids.
        ({"a": "b", "b": "a"}, "rewritten rows combine other values", None),
    ):
        with pytest.raises(CorruptFileError, match=words) as failed:
            table.compact(plan, engine=Engine(changed(texts)), checksums=True)
        assert failed.value.column == column
        assert data_paths(tmp_path) == files
    report = table.compact(plan, engine=Engine(), checksums=True)
    assert (report.groups, ids_of(table)) == (1, list(range(30)))


# -- commits ---------------------------------------------------------------------------------------


def test_groups_are_committed_in_batches(tmp_path: Path) -> None:
    table = numbered(tmp_path, 2, partition_by=["id"], rows=7)
    told: list[tuple[str, int, int]] = []
    for most, sizes in ((3, [5, 5, 4]), (100, [1] * 14)):
        plan = table.plan_compaction(
            rewrite_all=True, partial_progress_enabled=True, partial_progress_max_commits=most
        )
        known = len(table.snapshots())
        report = table.compact(plan, engine="local", progress=lambda *one: told.append(one))
        added = [int(one.summary["added-data-files"]) for one in table.snapshots()[known:]]
        assert (added, len(report.snapshots), report.groups) == (sizes, len(sizes), 14)
    assert ids_of(table) == list(range(14))
    # Fourteen rows, in as many groups.
    assert {(what, total) for what, _, total in told} == {("rewriting", 14), ("committing", 14)}
    assert [done for what, done, _ in told if what == "committing"] == [0, 5, 10, *range(14)]
    rewritten = [done for what, done, _ in told if what == "rewriting"]
    first = rewritten[: rewritten.index(14) + 1]
    assert first[0] == 0
    assert first == sorted(first)
    assert len(first) >= 10


def test_no_more_groups_at_a_time_than_allowed(tmp_path: Path) -> None:
    table = numbered(tmp_path, 2, partition_by=["id"], rows=7)
    for most, parallelism, waves in ((2, 8, 7), (5, 8, 3), (5, 4, 1)):
        plan = table.plan_compaction(rewrite_all=True, max_concurrent_file_group_rewrites=most)
        engine = Engine(parallelism=parallelism)
        table.compact(plan, engine=engine)
        # An engine with fewer tasks at a time than groups are allowed does not need waves.
        assert len(engine.groups) == waves
        assert all(len(groups) <= most for groups in engine.groups) or waves == 1
        assert set().union(*engine.groups) == set(range(14))


def test_an_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    """The catalog's answer is lost: with the commit in it, or without."""
    table = numbered(tmp_path, 3)
    before = data_paths(tmp_path)
    plan = table.plan_compaction(min_input_files=2, partial_progress_enabled=True)
    catalog = table.table.catalog
    real = type(catalog).load_table
    broken = threading.Event()

    def fail(_: Any) -> None:
        broken.set()
        raise OSError("the connection was lost")

    def load(*args: Any) -> Any:
        if broken.is_set():
            raise OSError("no connection")
        return real(catalog, *args)

    catalog.load_table = load  # type: ignore[method-assign]
    event.listen(Session, "before_commit", fail)
    try:
        report = table.compact(plan, engine="local")
    finally:
        event.remove(Session, "before_commit", fail)
        del catalog.load_table
    assert (report.groups, report.snapshots, len(report.failures)) == (0, (), 1)
    assert "outcome of the commit is unknown" in report.failures[0].error
    # The new file stays, since the commit could have landed.
    assert len(data_paths(tmp_path) - before) == 1
    again = sk.open("db.t", catalog=tmp_path / "w")
    assert ids_of(again) == list(range(30))
    assert again.compact(again.plan_compaction(min_input_files=2), engine="local").groups == 1
    assert ids_of(again) == list(range(30))


def test_interrupts_leave_no_files(tmp_path: Path) -> None:
    table = numbered(tmp_path, 3, partition_by=["p"])
    files = data_paths(tmp_path)

    def stop(result: Any) -> Any:
        if result.group:
            raise KeyboardInterrupt
        return result

    with pytest.raises(KeyboardInterrupt):
        table.compact(table.plan_compaction(min_input_files=2), engine=Engine(stop))
    assert data_paths(tmp_path) == files
    assert ids_of(table) == list(range(30))


# -- tables that can't be rewritten ----------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 3])
def test_other_versions_are_refused_before_any_work(version: int, tmp_path: Path) -> None:
    maker = Maker(tmp_path / "t", [("id", "long")], format_version=version, seed=1)
    maker.append([{"id": 1}])
    maker.append([{"id": 2}])
    for path in data_paths(tmp_path):
        Path(path).unlink()
    table = sk.open(maker.metadata_location)
    problem = f"tables of format version {version} can't be compacted"
    with pytest.raises(UsageError, match=problem) as refused:
        table.plan_compaction(rewrite_all=True)
    assert "format version" in str(refused.value)
    assert "version" in (refused.value.hint or "")
    second = Maker(tmp_path / "u", [("id", "long")], seed=1)
    second.append([{"id": 1}])
    plan = sk.open(second.metadata_location).plan_compaction(rewrite_all=True)
    mine = dataclasses.replace(plan, uuid=str(table.metadata.table_uuid))
    with pytest.raises(UsageError, match=problem):
        table.compact(mine, engine="local")


def test_a_table_without_a_catalog_is_refused(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "t", [("id", "long")], seed=1)
    for n in range(2):
        maker.append([{"id": n}])
    table = sk.open(maker.metadata_location)
    plan, files = table.plan_compaction(rewrite_all=True), data_paths(tmp_path)
    assert plan.files == 2
    with pytest.raises(UsageError, match="table opened from a metadata file is read-only"):
        table.compact(plan, engine="local")
    assert data_paths(tmp_path) == files
    with pytest.raises(UsageError, match="can't run a dict"):
        table.compact(plan.to_json(), engine="local")  # type: ignore[arg-type]


# -- plans of other processes ----------------------------------------------------------------------


def test_a_plan_can_run_in_another_process(tmp_path: Path) -> None:
    """And on a table that was opened before the snapshot of the plan, or at an older one."""
    table = numbered(tmp_path, 2)
    early = sk.open("db.t", catalog=tmp_path / "w")
    old = early.at(early.snapshots()[0])
    append_ids(table, 20, 30)
    table.refresh()
    script = """
import json, sys, skipstone as sk
table = sk.open("db.t", catalog=sys.argv[1])
print(json.dumps(table.plan_compaction(min_input_files=2).to_json()))
"""
    command = [sys.executable, "-c", script, str(tmp_path / "w")]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    plan = type(table.plan_compaction()).from_json(text)
    assert plan.hash == table.plan_compaction(min_input_files=2).hash
    report = early.compact(plan, engine="local")
    assert (report.files_removed, report.plan, ids_of(early)) == (3, plan.hash, list(range(30)))
    # What is current is compacted, whatever the table at hand shows.
    report = old.compact(old.plan_compaction(rewrite_all=True), engine="local")
    assert (report.groups, report.rewritten_again) == (0, 1)
    assert ids_of(old) == list(range(10))
    assert ids_of(sk.open("db.t", catalog=tmp_path / "w")) == list(range(30))


def test_the_index_follows(tmp_path: Path) -> None:
    table = numbered(tmp_path, 3)
    table.index.build(engine="local")
    report = table.compact(table.plan_compaction(min_input_files=2), engine="local")
    assert report.index_problem == ""
    status = sk.open("db.t", catalog=tmp_path / "w").index.status()
    assert (status.files, status.covered) == (1, 1)
    assert json.loads(json.dumps(report.to_json()))["files_added"] == 1
    # It is read from, and right.
    delete_positions(table.table, {file_with(table, "id = 7"): [7]})
    table.refresh()
    assert ids_of(table) == [n for n in range(30) if n != 7]
