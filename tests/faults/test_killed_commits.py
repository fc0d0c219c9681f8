"""kill -9 at every step of a commit to a table of a SQL catalog: all of it is there, or nothing of it.

What is left of a killed one is known: the files that it had begun, and no others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table as IcebergTable

import skipstone as sk
from skipstone.iceberg.manifests.reading import clear_cache
from skipstone.iceberg.writing.target import Target
from tests.compact._writers import delete_positions, file_with
from tests.faults._kills import NEW, OPERATIONS, SCHEMA, TABLE, kind_of, rows

BASE = rows(0, 40)
MANIFEST, LIST, METADATA = (
    [f"{kind} created", f"{kind} written"] for kind in ("manifest", "list", "metadata")
)
END = [*LIST, *METADATA, "catalog before", "catalog after"]
STEPS = {
    "append": [*["data written"] * 2, *MANIFEST, *END],
    # The files that are dropped are marked in a manifest of their own.
    "partitions": [*["data written"] * 2, *MANIFEST * 2, *END],
    # Rows that stay are copied, one file for each that has some of both.
    "predicate": [*["data written"] * 6, *MANIFEST * 2, *END],
    # One file per partition; manifests of the new files, of three appends and of the deletes.
    "compact": [*["data written"] * 4, *MANIFEST * 4, *END],
}


@dataclass
class Killer:
    """Sends orders to the process that is killed, time and again."""

    process: subprocess.Popen[str]
    root: Path
    count: int = 0

    @property
    def job(self) -> str:
        """The name of the last one."""
        return f"{self.count:020x}"

    def order(self, operation: str, last: int | None) -> tuple[int, list[str], list[str]]:
        """How the work ended, the steps that it came to, and the files that it made."""
        self.count += 1
        log = self.root.with_name(f"{self.root.name}-{self.count}.log")
        log.touch()
        order = {"root": str(self.root), "operation": operation, "last": last, "log": str(log)}
        order["job"] = self.job
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        status = json.loads(self.process.stdout.readline())
        taken = [json.loads(line) for line in log.read_text().splitlines()]
        return status, [name for name, _ in taken], [path for _, path in taken if path is not None]


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", "from tests.faults._kills import main; main()"]
    here = Path(__file__).parents[2]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        command, cwd=here, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        yield started
        assert started.stdin is not None
        started.stdin.close()


def look(root: Path) -> tuple[list[tuple[int, str]], set[str], Target]:
    """The rows of the table as it is now, the files that it doesn't name, and where new files would go."""
    clear_cache()
    table = sk.open(TABLE, catalog=root)
    return pairs(table.scan().to_arrow()), orphans(table.table, root), Target.of(table.table)


def pairs(table: pa.Table) -> list[tuple[int, str]]:
    return sorted(zip(table["id"].to_pylist(), table["p"].to_pylist(), strict=True))


def orphans(table: IcebergTable, root: Path) -> set[str]:
    """The files that a table, at any of its snapshots, doesn't name."""
    named = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            named.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            named |= {entry.data_file.file_path for entry in entries}
    named = {path.removeprefix("file://") for path in named}
    files = {str(path) for path in root.rglob("*") if path.is_file()}
    there = {path for path in files if kind_of(path) is not None}
    assert {path.removesuffix("-journal") for path in files - there} == {f"{root}/catalog.db"}
    assert named <= there
    return there - named


# Overwriting by predicate has all steps of the others.
@pytest.mark.parametrize(
    "operation",
    ["predicate", *(pytest.param(name, marks=pytest.mark.slow) for name in ("append", "partitions"))],
)
def test_a_commit_that_is_killed_is_in_or_not(
    operation: str, process: subprocess.Popen[str], tmp_path: Path
) -> None:
    root = tmp_path / "warehouse"
    killer = Killer(process, root)
    sk.catalog(root).create_table(TABLE, SCHEMA, partition_by=["p"]).table.append(BASE)
    replaces = OPERATIONS[operation][1]
    before = pairs(BASE)
    after = sorted([*(row for row in before if not replaces(*row)), *pairs(NEW)])
    left: set[str] = set()
    for last, step in enumerate(STEPS[operation]):
        status, steps, created = killer.order(operation, last)
        assert (status, steps) == (-signal.SIGKILL, STEPS[operation][: last + 1])
        landed = step == "catalog after"
        left |= set() if landed else {*created}
        found, lost, target = look(root)
        assert found == (after if landed else before)
        # Nothing but what it made, and all of that: who is killed can't tidy up.
        assert lost == left
        # Its data files are known by their job, as those are that a driver removes.
        mine = {f"{target.store.uri}/{key}" for key in target.leftovers(killer.job, [])}
        assert mine == {path for path in created if kind_of(path) == "data"}
    # What is left stands in nobody's way.
    status, steps, _ = killer.order("append", None)
    assert (status, steps) == (0, STEPS["append"])
    found, lost, _ = look(root)
    assert (found, lost) == (sorted([*after, *pairs(NEW)]), left)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_compaction_that_is_killed_changes_nothing_or_all(
    every: int, process: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The rows are right at every step, and what is left are the files that it had begun: the orphans."""
    root = tmp_path / "warehouse"
    killer = Killer(process, root)
    table = sk.catalog(root).create_table(TABLE, SCHEMA, partition_by=["p"])
    table.table.append(rows(0, 20))
    table.table.append(rows(20, 40))
    table.refresh()
    delete_positions(table.table, {file_with(table, "id = 3 AND p = 'd'"): [0]})
    table.refresh()
    wanted = [row for row in pairs(rows(0, 40)) if row[0] != 3]
    snapshots = [one.id for one in table.snapshots()]
    left: set[str] = set()
    numbers = range(len(STEPS["compact"]))
    for last in sorted({*numbers[::every], *numbers[-2:]}):
        step = STEPS["compact"][last]
        status, steps, created = killer.order("compact", last)
        assert (status, steps) == (-signal.SIGKILL, STEPS["compact"][: last + 1])
        landed = step == "catalog after"
        left |= set() if landed else {*created}
        found, lost, _ = look(root)
        assert (found, lost) == (wanted, left)
        table = sk.open(TABLE, catalog=root)
        assert [one.id for one in table.snapshots()][: len(snapshots)] == snapshots
        assert [one.operation for one in table.snapshots()].count("replace") == landed
        assert (len(table.files), len(table.delete_inventory)) == ((4, 0) if landed else (8, 1))
        # The job's earlier snapshots are still what they were.
        assert pairs(table.at(snapshots[0]).scan().to_arrow()) == pairs(rows(0, 20))
    now = datetime.now(UTC) + timedelta(seconds=5)
    dry = table.remove_orphans(older_than=now, allow_recent=True, dry_run=True)
    assert {path.removeprefix("file://") for path in dry.files} == left
    removed = table.remove_orphans(older_than=now, allow_recent=True)
    assert (removed.deleted, removed.files) == (len(left), dry.files)
    assert look(root)[:2] == (wanted, set())
    # A second compaction has nothing to do.
    assert table.plan_compaction(min_input_files=2).groups == ()
