"""``skipstone compact`` and ``skipstone maintain``: plans, files of plans, runs, and what is proposed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skipstone as sk
from skipstone.cli import progress
from skipstone.cli.output import Exit
from tests.compact._tables import registered, rows_of
from tests.iceberg._maker import Maker

Run = Callable[..., Any]
ALL = {
    "strategy": "hilbert",
    "sort-by": ["id", "name"],
    "target-file-size-bytes": 64 << 20,
    "min-file-size-bytes": 1 << 20,
    "max-file-size-bytes": 100_000_000,
    "min-input-files": 2,
    "max-file-group-size-bytes": 1 << 30,
    "rewrite-all": True,
    "delete-file-threshold": 3,
    "delete-ratio-threshold": 0.5,
    "output-spec-id": 0,
    "rewrite-job-order": "files-desc",
    "max-concurrent-file-group-rewrites": 3,
    "partial-progress.enabled": True,
    "partial-progress.max-commits": 4,
    "use-starting-sequence-number": False,
    "remove-dangling-deletes": False,
}


@pytest.fixture
def table(tmp_path: Path) -> sk.Table:
    """Three files of ``a`` and three of ``b`` with deleted rows; one of ``c``."""
    made = Maker(tmp_path / "table", [("id", "long"), ("name", "string")], [("name", "truncate[1]")])
    for start in (0, 20, 40):
        made.append([{"id": start + row, "name": f"{'ab'[row % 2]}{row}"} for row in range(20)])
    made.append([{"id": 99, "name": "c"}])
    paths = sorted(entry.file.path for entry in made.head("main").files if "=b" in entry.file.path)
    made.delete_positions([(path, 1) for path in paths])
    return registered(str(max(made.metadata_files, key=lambda path: path.stat().st_mtime_ns)), tmp_path)


@pytest.fixture
def compact(run: Run, table: sk.Table, tmp_path: Path) -> Run:
    """Run ``skipstone compact`` on the table."""
    return lambda *args: run("compact", "db.t", *args, "--catalog", tmp_path / "catalog")


def test_a_dry_run_shows_the_plan(compact: Run, table: sk.Table) -> None:
    done = compact("--dry-run", "--min-input-files", 3)
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "6 files in 2 groups become about 2 files"
    rows = {line.split(" ")[1]: line for line in lines if "name_truncate" in line and line[0].isdigit()}
    assert {name: line.split(" ")[2] for name, line in rows.items()} == {
        "name_truncate=a": "3",
        "name_truncate=b": "3",
    }
    assert all(line.endswith("1 small 3") for line in rows.values())
    (skipped,) = [line for line in lines if line.startswith("name_truncate=c")]
    assert skipped.endswith("only one file")
    assert not [line for line in lines if ".parquet" in line]
    assert table.refresh().snapshots()[-1].operation != "replace"


def test_files_of_a_plan(compact: Run, table: sk.Table) -> None:
    done = compact("--dry-run", "--files", "--min-input-files", 3)
    listed = [line.split() for line in done.stdout.splitlines() if ".parquet" in line]
    assert len(listed) == 6
    # The group, the file, its size in two words, rows, deletes, and why.
    planned = [
        (str(group.id), file.path.removeprefix(f"{table.uri}/data/"), "10", str(file.deletes), "small")
        for group in table.plan_compaction(min_input_files=3).groups
        for file in group.files
    ]
    assert [(line[0], line[1], *line[4:]) for line in listed] == planned
    assert f"files below {table.uri}/data/" in done.stdout


def test_the_plan_as_json(compact: Run, table: sk.Table) -> None:
    found = json.loads(compact("--dry-run", "--min-input-files", 3, "--format", "json").stdout)
    plan = table.plan_compaction(min_input_files=3)
    assert found == json.loads(json.dumps(plan.to_json()))
    assert (found["files"], found["expected_files"]) == (6, 2)
    sizes = {file["path"]: file["bytes"] for group in found["groups"] for file in group["files"]}
    assert found["bytes_to_read"] == found["bytes_to_write"] == sum(sizes.values()) > 0
    assert [group["name"] for group in found["groups"]] == ["name_truncate=a", "name_truncate=b"]
    assert [(one["name"], one["reason"]) for one in found["skipped"]] == [
        ("name_truncate=c", "only one file")
    ]
    assert [len(group["delete_files"]) for group in found["groups"]] == [0, 3]


def test_every_option_reaches_the_plan(compact: Run) -> None:
    text = {**ALL, "sort-by": "id,name", "target-file-size-bytes": "64MiB", "min-file-size-bytes": "1MiB"}
    text |= {"max-file-size-bytes": "100MB", "max-file-group-size-bytes": "1GiB"}
    # Iceberg's name of the option says the same as ours.
    text["target-spec-id"] = text.pop("output-spec-id")
    args = []
    for name, value in text.items():
        args += (
            [f"--{name}"] if value is True else [f"--no-{name}"] if value is False else [f"--{name}", value]
        )
    done = compact("--dry-run", "--format", "json", *args)
    assert json.loads(done.stdout)["options"] == ALL
    # One that is not set has Iceberg's default.
    defaults = json.loads(compact("--dry-run", "--format", "json").stdout)["options"]
    assert defaults == sk.CompactionOptions().to_json() | {"sort-by": []}
    assert defaults.keys() == ALL.keys()


def test_conditions_and_snapshots_select_files(compact: Run, table: sk.Table) -> None:
    def files(*args: object) -> int:
        done = compact("--dry-run", "--format", "json", "--rewrite-all", *args)
        return int(json.loads(done.stdout)["files"])

    assert (files(), files("name = 'a2'"), files("-w", "name = 'c'")) == (7, 3, 1)
    assert files("--since", table.snapshots()[1].id) == 3
    assert compact("nmae = 'a'", "--dry-run").exit_code == Exit.PREDICATE


def test_a_run(compact: Run, table: sk.Table) -> None:
    before = rows_of(table)
    done = compact("--min-input-files", 3, "--engine", "local", "--checksums", "--format", "json")
    report = json.loads(done.stdout)
    assert (report["groups"], report["files_removed"], report["files_added"]) == (2, 6, 2)
    assert (report["rows"], report["rows_removed"], report["failures"]) == (57, 3, [])
    assert rows_of(table.refresh()) == before
    assert len(before) == 58
    assert table.snapshots()[-1].operation == "replace"
    again = compact("--min-input-files", 3, "--engine", "local")
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, "nothing was compacted")


def test_a_plan_in_a_file(compact: Run, table: sk.Table, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = compact("--rewrite-all", "--dry-run", "--save-plan", file)
    assert done.stdout.splitlines()[-1] == f"plan written to {file}; run it with --plan {file}"
    assert sk.CompactionPlan.from_json(file.read_text()) == table.plan_compaction(rewrite_all=True)
    refused = compact("--rewrite-all", "--dry-run", "--save-plan", file)
    assert (refused.exit_code, "exists; use --force" in " ".join(refused.stderr.split())) == (2, True)
    shown = compact("--plan", file, "--dry-run", "--format", "json")
    assert json.loads(shown.stdout) == json.loads(file.read_text())
    ran = compact("--plan", file, "--engine", "local", "--format", "json")
    assert json.loads(ran.stdout)["plan"] == json.loads(file.read_text())["hash"]
    stale = compact("--plan", file, "--engine", "local")
    assert stale.exit_code == Exit.FILE
    assert stale.stderr.endswith("are no longer in the table; hint: make a new plan\n")
    file.write_text(file.read_text().replace('"rows": 10', '"rows": 11', 1))
    damaged = compact("--plan", file, "--dry-run")
    assert (damaged.exit_code, damaged.stderr) == (
        Exit.FILE,
        f"error: {file}: compaction plan does not match its hash; hint: make a new plan\n",
    )
    file.write_text("no plan")
    damaged = compact("--plan", file, "--dry-run")
    assert damaged.stderr.startswith(f"error: {file}: compaction plan is damaged: Expecting value: line 1")
    missing = compact("--plan", tmp_path / "none.json", "--dry-run")
    assert (missing.exit_code, "plan can't be read: No such file" in missing.stderr) == (Exit.FILE, True)


def live(table: sk.Table) -> list[int]:
    """Ids of the rows whose files can all be read."""
    found: list[int] = table.scan("name >= 'b'", columns=["id"]).to_arrow()["id"].to_pylist()
    return sorted(found)


def test_groups_that_fail(compact: Run, table: sk.Table) -> None:
    """With partial progress the others are committed, and the exit code says that some were not."""
    before = live(table)
    lost = next(path for path in table.plan_compaction("name = 'a0'", rewrite_all=True).groups[0].paths)
    Path(lost.as_py().removeprefix("file://")).unlink()
    args = ("--min-input-files", 3, "--engine", "local")
    done = compact(*args, "--partial-progress.enabled", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["groups"], len(report["failures"])) == (Exit.OTHER, 1, 1)
    assert report["failures"][0]["files"] == 3
    assert live(table.refresh()) == before
    stopped = compact(*args)
    assert stopped.exit_code == Exit.FILE
    assert "no longer exists" in stopped.stderr


def test_progress_by_row(compact: Run, monkeypatch: pytest.MonkeyPatch, table: sk.Table) -> None:
    seen: list[tuple[str, int, int]] = []
    table.compact(
        table.plan_compaction(min_input_files=3),
        engine="local",
        progress=lambda phase, done, total: seen.append((phase, done, total)),
    )
    rewriting, (committing,) = seen[:-1], seen[-1:]
    assert rewriting == sorted(rewriting)
    assert {(phase, total) for phase, _, total in rewriting} == {("rewriting", 57)}
    assert (rewriting[0][1], rewriting[-1][1], committing) == (0, 57, ("committing", 0, 2))
    # The command has a noun for each phase.
    bar = progress.Steps("planning", {"rewriting": "row", "committing": "group", "indexing": "file"})
    shown = []
    for phase, done, total in seen:
        bar.update(phase, done, total)
        shown.append(f"{bar.shown.tasks[0].description} {bar.shown.tasks[0].fields['said']}")
    assert (shown[0], shown[-2]) == ("rewriting 0 of 57 rows", "rewriting 57 of 57 rows")
    assert shown[-1] == "committing 0 of 2 groups"


# -- maintain ------------------------------------------------------------------------------------


def test_a_proposal(run: Run, table: sk.Table, tmp_path: Path) -> None:
    args = ("maintain", "db.t", "--catalog", tmp_path / "catalog")
    before = table.snapshots()
    text = " ".join(run(*args).stdout.replace("│", " ").split())
    found = json.loads(run(*args, "--format", "json").stdout)
    assert table.refresh().snapshots() == before
    assert found["recommended"] == ["deletes", "index"]
    for task in found["tasks"]:
        assert task["why"] in text
        verbs = " ".join(task["command"][: 2 if task["command"][0] == "index" else 1])
        assert f"skipstone {verbs} db.t --catalog {tmp_path / 'catalog'}" in text
    assert f"skipstone maintain db.t --catalog {tmp_path / 'catalog'} --apply" in text


def test_applying_a_proposal(run: Run, table: sk.Table, tmp_path: Path) -> None:
    args = ("maintain", "db.t", "--catalog", tmp_path / "catalog", "--apply", "--engine", "local")
    before = rows_of(table)
    done = run(*args, "--only", "index,deletes", "--format", "json")
    report = json.loads(done.stdout)
    # In the order in which they make sense, whatever the order of the names.
    assert [task["name"] for task in report["tasks"]] == ["deletes", "index"]
    assert (done.exit_code, report["failed"]) == (0, [])
    assert report["tasks"][0]["report"]["delete_files_removed"] == 3
    assert report["tasks"][1]["report"]["indexed"] == len(table.refresh().files)
    assert rows_of(table) == before
    assert len(table.delete_inventory) == 0
    again = run(*args, "--only", "index,deletes")
    assert again.stdout.count("nothing left to do") == 2
