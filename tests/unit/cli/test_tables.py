"""Iceberg tables on the command line: how they are named, listed, looked at and asked at a snapshot."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.cli.output import Exit
from skipstone.inspection.lake import SizeClass, measure_sizes
from skipstone.report.lines import width_of
from tests.iceberg._maker import Maker

Run = Callable[..., Any]
FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``db.events``: 20 rows by day and bucket, then (tagged) 10 more; 5 by day only, with a new column."""
    root = tmp_path_factory.mktemp("tables") / "warehouse"
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("ts", pa.timestamp("us", "UTC")),
            pa.field("place", pa.struct([("city", pa.string())])),
        ]
    )

    def rows(start: int, stop: int) -> pa.Table:
        columns = {
            "id": range(start, stop),
            "ts": [FIRST + dt.timedelta(hours=row) for row in range(start, stop)],
            "place": [{"city": f"c{row}" if row % 10 else None} for row in range(start, stop)],
        }
        return pa.table(columns, schema)

    catalog = sk.catalog(root)
    order = {"partition_by": ["day(ts)", "bucket(2, id)"], "sort_by": ["ts desc", "id"]}
    table = catalog.create_table("db.events", schema, **order).table
    table.append(rows(0, 20))
    table.append(rows(20, 30))
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "v1").commit()
    with table.update_spec() as spec:
        spec.remove_field("id_bucket")
    with table.update_schema() as change:
        change.add_column("note", table.schema().find_type("place.city"), doc="of a person")
    table.append(rows(30, 35).append_column("note", pa.array(["x"] * 5)))
    catalog.create_table("db.empty", schema)
    catalog.create_table("other.names", schema)
    return root


@pytest.fixture(scope="module")
def deleted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The metadata of a table with deletes of every kind, whose data files are gone."""
    root = tmp_path_factory.mktemp("deleted") / "table"
    made = Maker(root, [("id", "long"), ("name", "string")], [("name", "truncate[1]")], format_version=3)
    made.append([{"id": row, "name": f"{'ab'[row % 2]}{row}"} for row in range(40)])
    data = sorted(entry.file.path for entry in made.head("main").files)
    made.delete_positions([(data[0], 0), (data[0], 3)])
    made.delete_equal([1], [(5,), (6,), (7,)])
    made.delete_vector({data[1]: [1]})
    made.evolve_schema(add={"note": "string"}, defaults={"note": "none"})
    shutil.rmtree(root / "data")
    return max(made.metadata_files, key=lambda path: path.stat().st_mtime_ns)


def listed(run: Run, warehouse: Path, table: str = "db.events") -> list[dict[str, Any]]:
    done = run("snapshots", table, "--catalog", warehouse, "--format", "json")
    assert done.exit_code == 0
    found: list[dict[str, Any]] = json.loads(done.stdout)["snapshots"]
    return found


# -- naming a table ------------------------------------------------------------------------------


def test_names(run: Run, warehouse: Path) -> None:
    assert run("tables", "--catalog", warehouse).stdout == "db.empty\ndb.events\nother.names\n"
    done = run("tables", "db", "--catalog", warehouse, "--format", "json")
    assert json.loads(done.stdout)["tables"] == ["db.empty", "db.events"]


def test_ways_to_name_a_table(
    run: Run, warehouse: Path, monkeypatch: pytest.MonkeyPatch, events: Path
) -> None:
    assert run("count", "db.events", "--catalog", warehouse).stdout == "35\n"
    metadata = sk.open("db.events", catalog=str(warehouse)).table.metadata_location
    assert run("count", metadata).stdout == "35\n"
    database = f"uri=sqlite:///{warehouse}/catalog.db"
    properties = ("--catalog-property", "type=sql", "--catalog-property", database)
    assert run("count", "db.events", "--catalog", "skipstone", *properties).stdout == "35\n"
    assert run("tables", *properties).stdout == "no tables\n"
    monkeypatch.setenv("SKIPSTONE_CATALOG", str(warehouse))
    assert run("count", "db.events").stdout == "35\n"
    # What the environment says is no reason to take a path for a table.
    assert run("count", events).stdout == "400\n"
    monkeypatch.chdir(events.parent)
    assert run("count", events.name).stdout == "400\n"
    assert "no such file" in run("count", "nothing.parquet").stderr
    assert run("inspect", events.name).stdout.startswith("events.parquet\nrows ")


def test_every_question_takes_a_table(run: Run, warehouse: Path, tmp_path: Path) -> None:
    table = ("db.events", "--catalog", warehouse, "--index-root", tmp_path / "index")
    where = ("--where", "id >= 33")
    done = run("query", *table, *where, "--columns", "id,note", "--order-by", "id", "--format", "csv")
    assert done.stdout == "id,note\n33,x\n34,x\n"
    assert " skipped · " in run("query", *table, *where).stdout
    assert run("verify", *table, *where).exit_code == 0
    found = json.loads(run("explain", *table, *where, "--format", "json").stdout)
    assert found["partitions"]["unconstrained_specs"] == 1
    assert [level["name"] for level in found["levels"]][:3] == ["manifests", "partitions", "files"]
    assert "indexed 6 files" in run("index", "build", *table, "--engine", "local").stdout
    assert "6 of 6 indexed" in run("index", "status", *table).stdout
    assert "index version 1 covers 6 of 6 files" in run("explain", *table, *where).stdout
    assert run("index", "drop", *table, "--yes").exit_code == 0


def test_tables_and_lakes_from_others(run: Run, warehouse: Path, events: Path, tmp_path: Path) -> None:
    stay = "--stay-below-root"
    table = sk.open("db.events", catalog=str(warehouse)).table
    assert run("count", "db.events", "--catalog", warehouse, stay).stdout == "35\n"
    assert run("count", table.metadata_location, stay).stdout == "35\n"
    moved = tmp_path / "moved.metadata.json"
    shutil.copy(table.metadata_location.removeprefix("file://"), moved)
    assert run("count", moved).stdout == "35\n"
    for command in ("count", "inspect"):
        done = run(command, moved, stay)
        assert (done.exit_code, done.stdout) == (Exit.FILE, "")
        assert f"outside its root {tmp_path}" in done.stderr
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "f.parquet").symlink_to(events)
    assert run("count", lake).stdout == "400\n"
    for command in (("count", lake), ("index", "status", lake), ("query", lake, "--limit", 1)):
        done = run(*command, stay)
        assert (done.exit_code, done.stdout) == (Exit.FILE, "")
        assert "a link leads out of" in done.stderr
    # Nor are a table's files rows of a lake.
    for folder in ("db/events", "db/events/data", "db", ""):
        done = run("count", warehouse / folder)
        assert (done.exit_code, done.stdout) == (Exit.OTHER, "")
        assert "an Iceberg table" in done.stderr


# -- snapshots -----------------------------------------------------------------------------------


def test_snapshots(run: Run, warehouse: Path) -> None:
    found = listed(run, warehouse)
    assert [one["operation"] for one in found] == ["append"] * 3
    assert [one["added_rows"] for one in found] == [20, 10, 5]
    assert [one["total_rows"] for one in found] == [20, 30, 35]
    assert [one["removed_files"] for one in found] == [None] * 3
    assert [one["current"] for one in found] == [False, False, True]
    assert [one["parent"] for one in found] == [None, found[0]["id"], found[1]["id"]]
    assert found[1]["refs"] == [{"name": "v1", "type": "tag"}]
    assert found[2]["refs"] == [{"name": "main", "type": "branch"}]
    lines = run("snapshots", "db.events", "--catalog", warehouse).stdout.splitlines()
    head, *rows, legend = [line.split() for line in lines]
    assert " ".join(head) == "snapshot committed (UTC) operation files rows live rows refs"
    assert [row[-4:] for row in rows[1:]] == [["+10", "30", "tag", "v1"], ["+1", "+5", "35", "main"]]
    assert rows[2][:2] == ["*", str(found[2]["id"])]
    assert legend[0] == "*"
    assert run("snapshots", "db.empty", "--catalog", warehouse).stdout == "the table has no snapshots\n"


def test_a_question_at_a_snapshot(run: Run, warehouse: Path) -> None:
    found = listed(run, warehouse)
    lines = run("snapshots", "db.events", "--catalog", warehouse).stdout.splitlines()
    # A time as it is printed names the snapshot it is printed for.
    printed = [" ".join(line.replace("*", "").split()[1:3]) for line in lines[1:-1]]
    asked = {
        str(found[0]["id"]): 20,
        printed[0]: 20,
        printed[1]: 30,
        found[1]["at"]: 30,
        "v1": 30,
        "main": 35,
    }
    for snapshot, rows in asked.items():
        done = run("count", "db.events", "--catalog", warehouse, "--snapshot", snapshot)
        assert done.stdout == f"{rows}\n", snapshot
    done = run(
        "query", "db.events", "--catalog", warehouse, "--snapshot", "v1", "--format", "csv", "--limit", 0
    )
    assert done.stdout == "id,ts,place\n"
    done = run("explain", "db.events", "--catalog", warehouse, "--snapshot", "v1", "--format", "json")
    assert json.loads(done.stdout)["rows_total"] == 30


def test_doctor(run: Run, warehouse: Path) -> None:
    found = json.loads(run("doctor", "db.events", "--catalog", warehouse, "--format", "json").stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["lake"]["said"].startswith(f"file://{warehouse}/db/events: 6 files, ")
    assert checks["index"]["fix"] == f"skipstone index build db.events --catalog {warehouse}"
    assert checks["write to lake"]["said"] == f"{warehouse}/db/events"


# -- create and drop -----------------------------------------------------------------------------


def test_create_and_drop(run: Run, tmp_path: Path, words: Callable[[str], str]) -> None:
    home = ("--catalog", f"{tmp_path}/new/")
    columns = ("--schema", "id bigint, ts timestamp, tags array<string>")
    layout = (
        "--partition-by",
        "day(ts), bucket(16, id)",
        "--sort-by",
        "ts desc,id",
        "--property",
        "owner=me",
    )
    done = run("tables", "create", "db.made", *columns, *layout, *home)
    assert (done.exit_code, done.stdout) == (0, f"created db.made in file://{tmp_path}/new/db/made\n")
    found = json.loads(run("inspect", "db.made", *home, "--format", "json").stdout)
    assert [(one["name"], one["type"]) for one in found["columns"][:3]] == [
        ("id", "int64"),
        ("ts", "timestamp[us, UTC]"),
        ("tags", "list<string>"),
    ]
    assert found["specs"][0]["fields"] == ["day(ts)", "bucket(16, id)"]
    assert [term.split()[0] for term in found["sort_order"]] == ["ts", "id"]
    assert found["properties"]["owner"] == "me"
    done = run("tables", "create", "db.made", *columns, *home)
    assert (done.exit_code, "table already exists" in done.stderr) == (Exit.FILE, True)
    assert "use one of --schema and --like" in words(run("tables", "create", "db.x", *home).stderr)
    assert "can't be parsed" in run("tables", "create", "db.x", "--schema", "id bigit", *home).stderr
    # A table like a lake, or like a file.
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "f.parquet")
    done = run("tables", "create", "db.like", "--like", tmp_path / "f.parquet", *home, "--format", "json")
    assert json.loads(done.stdout)["columns"] == ["a", "b"]
    for listing in (("tables",), ("tables", "db"), ("tables", "list"), ("tables", "list", "db")):
        assert run(*listing, *home).stdout == "db.like\ndb.made\n"
    # Without a terminal nobody can be asked.
    assert "use --yes to confirm" in words(run("tables", "drop", "db.like", *home).stderr)
    assert run("tables", "drop", "db.like", "--yes", *home).stdout.startswith("removed db.like; its files")
    assert run("tables", *home).stdout == "db.made\n"
    assert "no such table" in run("tables", "drop", "db.like", "--yes", *home).stderr


# -- inspect -------------------------------------------------------------------------------------


def test_inspect(run: Run, warehouse: Path) -> None:
    done = run("inspect", "db.events", "--catalog", warehouse)
    assert done.exit_code == 0
    parts = done.stdout.strip("\n").split("\n\n")
    assert [part.split("\n")[0] for part in parts] == [
        "db.events",
        "columns",
        "values",
        "partitioning",
        "data file sizes",
    ]
    facts = dict(line.split("  ", 1) for line in parts[0].splitlines()[1:])
    facts = {label: value.strip() for label, value in facts.items()}
    assert facts["location"] == f"file://{warehouse}/db/events"
    assert facts["format"] == "Iceberg version 2"
    assert facts["snapshot"].endswith(" (main), the current snapshot of 3")
    assert facts["rows"] == "35"
    assert facts["sort order"] == "ts desc nulls last, id asc nulls first"
    assert parts[1].splitlines()[1:] == [
        "id  column      type                null  about",
        " 1  id          int64               no",
        " 2  ts          timestamp[us, UTC]  yes",
        " 3  place       struct              yes",
        " 4  place.city  string              yes",
        " 5  note        string              yes   of a person",
    ]
    # Iceberg's bounds may be cut, so they need not be values.
    row = parts[2].splitlines()[2].split()
    assert row[:7] == ["id", "≥", "0", "≤", "34", "0", "clustered"]
    assert facts["index"].startswith("none; build the index")
    head, old, new, _ = parts[3].splitlines()[1:]
    assert head.split() == ["spec", "partitioned", "by", "files", "rows", "size", "share", "partitions"]
    assert old.split()[:6] == ["0", "day(ts),", "bucket(2,", "id)", "5", "30"]
    assert old.split()[-1] == "4"
    assert new.split()[:5] == ["*", "1", "day(ts)", "1", "5"]


def test_inspect_as_json(run: Run, warehouse: Path) -> None:
    done = run("inspect", "db.events", "--catalog", warehouse, "--format", "json")
    found = json.loads(done.stdout)
    theirs = sk.open("db.events", catalog=str(warehouse)).table
    sizes = theirs.inspect.files().column("file_size_in_bytes").to_pylist()
    assert found["uuid"] == str(theirs.metadata.table_uuid)
    assert (found["files"], found["rows"], found["bytes"]) == (len(sizes), 35, sum(sizes))
    assert [spec["files"] for spec in found["specs"]] == [5, 1]
    assert [spec["partitions"] for spec in found["specs"]] == [4, 1]
    assert [spec["fields"] for spec in found["specs"]] == [["day(ts)", "bucket(2, id)"], ["day(ts)"]]
    assert found["sizes"]["smallest"] == min(sizes)
    assert found["sizes"]["largest"] == max(sizes)
    assert sum(one["bytes"] for one in found["sizes"]["classes"]) == sum(sizes)
    assert found["manifests"][0] == {
        "content": "data",
        "manifests": 3,
        "bytes": sum(theirs.inspect.manifests().column("length").to_pylist()),
    }
    assert found["deletes"] == []
    assert found["index"]["exists"] is False
    assert [one["name"] for one in found["values"]] == ["id", "ts", "place.city", "note"]
    assert found["values"][0]["clustering"]["files"]["units"] == 6
    # Older files lack the note, so that they don't say how many NULLs it has.
    assert [one["null_count"] for one in found["values"]] == [0, 0, 4, None]
    assert 1 <= found["read"]["requests"] <= 4
    done = run("inspect", "db.events", "--catalog", warehouse, "--snapshot", "v1", "--format", "json")
    older = json.loads(done.stdout)
    assert (older["rows"], older["snapshot_is_current"], older["schema_is_current"]) == (30, False, False)
    assert len(older["columns"]) == 4


def test_live_rows(run: Run, tmp_path: Path) -> None:
    rows = lambda ids: pa.table({"id": ids, "x": ["a"] * len(ids)})  # noqa: E731
    table = sk.catalog(tmp_path).create_table("db.t", rows([0]).schema, key=["id"])
    table.upsert(rows([*range(20)]))
    table.upsert(rows([3, 4, 20]))
    table.delete("id < 3")
    with table.transaction() as transaction:
        transaction.delete(keys=[3])
        transaction.upsert(rows([21, 22]))
    table.update("id = 5", {"x": "'b'"})
    table.compact(table.plan_compaction(min_input_files=2), engine="local")
    with table.writer() as writer:
        writer.upsert(rows([5, 23]))
        writer.delete(keys=[22])
    table.delete("id >= 19")
    found = listed(run, tmp_path, "db.t")
    counted = [table.at(one["id"]).scan().count() for one in found]
    assert [one["live_rows"] for one in found] == counted
    assert counted[:4] == [20, 21, 18, 19]
    assert any(one["total_rows"] > one["live_rows"] for one in found)
    live, total = found[-1]["live_rows"], found[-1]["total_rows"]
    done = run("inspect", "db.t", "--catalog", tmp_path)
    assert f"rows           {live}, and {total - live} deleted rows in the files\n" in done.stdout
    assert re.search(rf"^rows +{live}$", str(table.refresh()), re.MULTILINE)
    # Without the snapshots before, the rows of the current one are at most those of its files.
    table.expire(older_than=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), retain_last=1)
    (last,) = listed(run, tmp_path, "db.t")
    assert (last["live_rows"], last["total_rows"]) == (None, total)
    assert f"≤ {total}  main" in run("snapshots", "db.t", "--catalog", tmp_path).stdout


def test_inspect_opens_no_data_file(run: Run, deleted: Path) -> None:
    done = run("inspect", deleted)
    assert done.exit_code == 0
    assert "rows           ≤ 40\n" in done.stdout
    part = next(part for part in done.stdout.split("\n\n") if part.startswith("deletes\n"))
    assert [line.split()[:4] for line in part.splitlines()[2:]] == [
        ["position", "deletes", "1", "2"],
        ["equality", "deletes", "1", "3"],
        ["deletion", "vectors", "1", "1"],
        ["all", "3", "6", *part.splitlines()[-1].split()[3:4]],
    ]
    found = json.loads(run("inspect", deleted, "--format", "json").stdout)
    assert [kind["data_files"] for kind in found["deletes"]] == [1, 2, 1]
    assert found["files_with_deletes"] == 2
    assert found["columns"][-1]["initial_default"] == "'none'"
    assert [one["manifests"] > 0 for one in found["manifests"]] == [True, True]


def test_inspect_of_nothing(run: Run, warehouse: Path) -> None:
    for format in ("text", "json"):
        done = run("inspect", "db.empty", "--catalog", warehouse, "--format", format)
        assert done.exit_code == 0
    assert json.loads(done.stdout)["sizes"] is None


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_the_screen(
    run: Run, warehouse: Path, deleted: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for command in (("inspect", "db.events"), ("snapshots", "db.events")):
        done = run(*command, "--catalog", warehouse)
        lines = done.stdout.splitlines()
        # A snapshot's id and time are never cut.
        assert max(map(width_of, lines)) <= max(width, 70 if command[0] == "snapshots" else 0)
        assert "\x1b" not in done.stdout
    lines = run("inspect", deleted).stdout.splitlines()[1:]
    assert max(map(width_of, lines)) <= width


def test_classes_of_sizes() -> None:
    found = measure_sizes(np.array([0, 1, 1023, 1024, 1025, 5000]))
    assert (found.smallest, found.median, found.largest) == (0, 1023, 5000)
    assert found.classes[:2] == (SizeClass(0, 1, 1, 0), SizeClass(1, 2, 1, 1))
    assert found.classes[2] == SizeClass(2, 4, 0, 0)
    assert found.classes[-4:] == (
        SizeClass(512, 1024, 1, 1023),
        SizeClass(1024, 2048, 2, 2049),
        SizeClass(2048, 4096, 0, 0),
        SizeClass(4096, 8192, 1, 5000),
    )


# -- errors --------------------------------------------------------------------------------------

WRONG = {
    "count db.nothing --catalog {w}": (
        Exit.FILE,
        "has no such table; hint: tables in its namespace: db.empty, db.ev",
    ),
    "count nothing --catalog {w}": (Exit.OTHER, "invalid table name 'nothing'; hint: "),
    "count db.events --catalog unheard-of": (Exit.OTHER, "unknown catalog 'unheard-of'; hint: "),
    "count db.events --catalog {w}/typo": (Exit.FILE, "/typo: no embedded catalog in this directory; hint: "),
    "count db.events --catalog {w} --snapshot zzz": (
        Exit.OTHER,
        "unknown snapshot 'zzz'; hint: use an id",
    ),
    "inspect db.events --catalog {w} --snapshot 1": (Exit.OTHER, "unknown snapshot '1'; hint: "),
    "count {w}/none.metadata.json": (Exit.FILE, "/none.metadata.json: no such file"),
    "tables nothing --catalog {w}": (Exit.FILE, "nothing: catalog skipstone has no such namespace"),
    "query db.events --catalog {w} --where nothing=1": (
        Exit.PREDICATE,
        "column nothing: unknown column",
    ),
}
MISUSED = {
    "count {w} --snapshot 1": "--snapshot: ",
    "snapshots {w}": "is a directory, not an Iceberg table; use --catalog",
    "inspect {w}/f.parquet --snapshot 1": "--snapshot: needs a table",
    "inspect {w}/f.parquet --stay-below-root": "--stay-below-root: needs a lake or a table",
    "inspect db.events --catalog {w} --pages id": "--pages: needs a file",
    "count db.events --catalog-property secret": "--catalog-property: expected KEY=VALUE",
}


@pytest.mark.parametrize("command", WRONG)
def test_errors(run: Run, warehouse: Path, command: str) -> None:
    code, said = WRONG[command]
    done = run(*command.replace("{w}", str(warehouse)).split())
    assert done.exit_code == code
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (warehouse / "typo").exists()


@pytest.mark.parametrize("command", MISUSED)
def test_wrong_usage(run: Run, warehouse: Path, command: str, words: Callable[[str], str]) -> None:
    done = run(*command.replace("{w}", str(warehouse)).split())
    assert done.exit_code == Exit.USAGE
    assert MISUSED[command] in words(done.stderr)
    assert "secret" not in done.output


def test_without_pyiceberg(run: Run, warehouse: Path, deleted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    for command in (("count", "db.events", "--catalog", warehouse), ("count", deleted), ("tables",)):
        done = run(*command)
        assert done.exit_code == Exit.OTHER
        assert done.stderr == (
            "error: pyiceberg is not installed; hint: run pip install 'skipstone[iceberg]'\n"
        )
