"""What is proposed for a table, whether it saves what is promised, and what is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.parquet.bloom import has_bloom
from skipstone.parquet.metadata import read_footer
from skipstone.store.source import open_source
from tests.compact._tables import registered, rows_of
from tests.iceberg._maker import Maker

EACH, FILES = 400, 10


def made(root: Path, name: str = "db.t", **options: object) -> sk.Table:
    """A table of ten small files."""
    rows = np.random.default_rng(5).permutation(EACH * FILES)
    schema = pa.schema({"id": pa.int64(), "ts": pa.int64()})
    table = sk.catalog(root).create_table(name, schema, **options)  # type: ignore[arg-type]
    for number in range(FILES):
        part = rows[number * EACH : (number + 1) * EACH]
        table.table.append(pa.table({"id": part, "ts": np.arange(EACH) + number * EACH}, schema))
    return table.refresh()


def requests(table: sk.Table) -> int:
    """Requests of a scan of all rows by a reader that knows the manifests."""
    opened = sk.open(table.table)
    assert len(opened.inventory.everything[0]) == len(table.inventory)
    before = opened.io
    assert opened.scan(threads=1).to_arrow().num_rows > 0
    return (opened.io - before).requests


def test_a_compaction_saves_what_is_promised(tmp_path: Path) -> None:
    table = made(tmp_path)
    proposal = table.maintenance()
    assert proposal.files == FILES
    assert proposal["compact"].why == "10 files too small"
    assert proposal.recommended == ("compact", "manifests", "index")
    before, rows = requests(table), rows_of(table)
    report = table.maintain(proposal, only="compact", engine="local")
    assert report.tasks[0].report is not None
    assert len(table.inventory) == 1
    # A footer, and the rows.
    assert proposal["compact"].saves.requests == before - requests(table) == 2 * (FILES - 1)
    assert rows_of(table) == rows
    assert "compact" not in {task.name for task in table.maintenance().tasks}


def test_everything_that_is_recommended_is_done(tmp_path: Path) -> None:
    table = made(tmp_path)
    rows = rows_of(table)
    report = table.maintain(engine="local")
    assert [task.name for task in report.tasks] == ["compact", "manifests", "index"]
    assert report.failed == ()
    # A compaction leaves few manifests: there is nothing left to do for some tasks, and that is no error.
    assert next(task.name for task in report.tasks if task.report is not None) == "compact"
    assert table.refresh().index.status().covered == len(table.files) == 1
    assert rows_of(table) == rows
    after = table.maintenance()
    assert after.recommended == ()
    assert "nothing to do" in str(after)
    done = sum(task.report is not None for task in report.tasks)
    assert f"{done} tasks done" in str(report)


def test_an_order_is_judged_by_queries(tmp_path: Path) -> None:
    table = made(tmp_path)
    with table.table.transaction() as change:
        change.set_properties({"write.parquet.page-row-limit": "100"})
    table.refresh()
    table.maintain(only=["compact"], engine="local")
    queries = [f"id = {number}" for number in (1_000, 1_500, 3_000)]
    proposal = table.maintenance(queries)
    task = proposal["recluster"]
    assert (task.recommended, proposal.recommended[0]) == (True, "recluster")
    assert task.command == ("compact", "--strategy", "sort", "--sort-by", "id", "--rewrite-all")
    before = sum(len(table.scan(query).plan().tasks[0].rows) for query in queries)
    table.maintain(only="recluster", queries=queries, engine="local")
    after = sum(len(table.scan(query).plan().tasks[0].rows) for query in queries)
    assert (before, after) == (3 * EACH * FILES, 3 * 100)
    # Without queries nobody knows whether another order is worth a rewrite.
    assert "recluster" not in table.maintenance().recommended


def test_files_in_another_order_than_the_tables(tmp_path: Path) -> None:
    table = made(tmp_path, sort_by=["id"])
    proposal = table.maintenance()
    task = proposal["recluster"]
    assert task.recommended
    # pyiceberg does not sort what it appends.
    assert task.why == "10 files not sorted by id, the table's sort order"
    table.maintain(proposal, only=["recluster"], engine="local")
    assert table.scan().to_arrow()["id"].to_pylist() == list(range(EACH * FILES))
    assert "recluster" not in {one.name for one in table.maintenance().tasks}


def test_deletes_that_every_query_applies(tmp_path: Path) -> None:
    """Three delete files for three files; the ratio of deleted rows is too small for a default plan."""
    maker = Maker(tmp_path / "table", [("id", "long"), ("name", "string")])
    for start in (0, 100, 200):
        maker.append([{"id": start + row, "name": str(row)} for row in range(100)])
        newest = next(
            one.file.path for one in maker.head("main").files if f"{start}" and one.file.content == 0
        )
        maker.delete_positions([(newest, start // 100)])
    latest = max(maker.metadata_files, key=lambda path: path.stat().st_mtime_ns)
    table = registered(str(latest), tmp_path)
    proposal = table.maintenance()
    task = proposal["deletes"]
    assert (task.recommended, task.saves.requests >= proposal.delete_files > 0) == (True, True)
    rows = rows_of(table)
    table.maintain(only="deletes", engine="local")
    assert (rows_of(table), len(table.delete_inventory)) == (rows, 0)


def test_an_error_ends_only_its_task(tmp_path: Path) -> None:
    table = made(tmp_path)
    lost = Path(table.inventory.everything[0].paths[3].as_py().removeprefix("file://"))
    saved = lost.read_bytes()
    lost.unlink()
    report = table.maintain(only=["compact", "manifests"], engine="local")
    assert report.failed == ("compact",)
    assert "no longer exists" in report.tasks[0].error
    assert report.tasks[1].report is not None
    assert "1 task done, 1 failed" in str(report)
    assert json.loads(json.dumps(report.to_json()))["failed"] == ["compact"]
    lost.write_bytes(saved)
    assert table.maintain(only="compact", engine="local").failed == ()


def test_tables_that_can_not_be_compacted(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "table", [("id", "long")], format_version=3)
    maker.append([{"id": 1}])
    table = sk.open(str(max(maker.metadata_files, key=lambda path: path.stat().st_mtime_ns)))
    assert isinstance(table, sk.Table)
    proposal = table.maintenance()
    assert "compact: tables of format version 3 can't be compacted" in " ".join(proposal.problems)
    assert [task.name for task in proposal.tasks] == ["index"]
    assert "not examined" in str(proposal)


def test_wrong_arguments(tmp_path: Path) -> None:
    table = made(tmp_path)
    with pytest.raises(sk.UsageError, match="can't apply a str"):
        table.maintain("compact")  # type: ignore[arg-type]
    other = made(tmp_path, "db.u")
    with pytest.raises(sk.UsageError, match=r"db\.u: proposal belongs to table db\.t"):
        other.maintain(table.maintenance(), engine="local")
    before = table.snapshots()
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"queries": ["nope = 1"]}, "unknown column"),
        ({"queries": 5}, "queries must be a list or a path, got int"),
        ({"queries": []}, "no queries to advise on"),
        ({"sample": 0}, "sample must be a positive integer, got 0"),
    ]
    for arguments, problem in mistakes:
        with pytest.raises(sk.SkipstoneError, match=problem):
            table.maintenance(**arguments)
        with pytest.raises(sk.SkipstoneError, match=problem):
            table.maintain(**arguments, engine="local")
        with pytest.raises(sk.SkipstoneError, match=problem):
            table.maintain(**arguments, only="manifests", engine="local")
    assert table.refresh().snapshots() == before
    with pytest.raises(sk.UsageError, match="columns must be a list of column names, got 5"):
        table.layout(5)  # type: ignore[arg-type]
    # Queries that can be read only once serve the proposal and the task.
    assert table.maintain(only="recluster", queries=iter(["id = 5"]), engine="local").failed == ()


# -- what the new files have ---------------------------------------------------------------------


def test_new_files_follow_the_tables_properties_and_are_indexed(tmp_path: Path) -> None:
    properties = {
        "write.parquet.page-row-limit": "250",
        "write.parquet.row-group-limit": "1000",
        "write.parquet.compression-codec": "snappy",
        "write.parquet.bloom-filter-enabled.column.id": "true",
    }
    table = made(tmp_path)
    with table.table.transaction() as change:
        change.set_properties(properties)
    table.refresh()
    table.index.build(blooms=["id"], engine="local")
    report = table.compact(table.plan_compaction(), engine="local")
    assert (report.index_problem, report.files_added) == ("", 1)
    status = table.index.status()
    assert (status.covered, status.unknown) == (1, 0)
    path = table.inventory.everything[0].paths[0].as_py().removeprefix("file://")
    file = pq.read_metadata(path)
    assert [file.row_group(number).num_rows for number in range(file.num_row_groups)] == [1_000] * 4
    assert file.row_group(0).column(0).compression == "SNAPPY"
    footer = read_footer(open_source(path))
    assert (has_bloom(footer, 0), has_bloom(footer, 1)) == (True, False)
    pruned = sk.prune(path, "ts between 0 and 10")
    assert len(pruned.rows) == 250
    # Planning opens no file.
    opened = sk.open(table.table)
    assert len(opened.scan("ts = 3").plan().tasks) == 1
    assert opened.access.io().requests == 0


def test_what_saves_little_is_not_recommended(tmp_path: Path) -> None:
    """A single file that is not sorted: to rewrite it would change no request."""
    schema = pa.schema({"id": pa.int64(), "ts": pa.int64()})
    table = sk.catalog(tmp_path).create_table("db.t", schema, sort_by=["id"])
    rows = np.random.default_rng(5).permutation(EACH)
    table.table.append(pa.table({"id": rows, "ts": np.arange(EACH)}, schema))
    proposal = table.refresh().maintenance()
    task = proposal["recluster"]
    assert (str(task.saves), task.recommended) == ("little", False)
    assert "not recommended: 1 file not sorted by id" in " ".join(str(proposal).split())
    assert "recluster" not in {one.name for one in table.maintain(engine="local").tasks}
    assert all(not one.saves.little for one in proposal.tasks if one.recommended)
    # Who wants it, can have it.
    table.maintain(only=["recluster"], engine="local")
    assert table.scan().to_arrow()["id"].to_pylist() == sorted(rows.tolist())
