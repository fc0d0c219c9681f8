"""``skipstone ingest`` on Spark: a folder of CSV becomes a lake; later runs take in what is new."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skipstone.cli.main import app

pytestmark = pytest.mark.spark

Run = Callable[..., Any]


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the app in this process, whose session is used as it is and goes on."""
    monkeypatch.setenv("COLUMNS", "100")

    def invoke(*args: object) -> Any:
        done = CliRunner().invoke(app, [str(arg) for arg in args])
        assert (done.exit_code, done.stderr) == (0, "")
        return done

    return invoke


def write(folder: Path, day: int, rows: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"{(k * 7919) % rows + 1000 * day},name {k},2026-01-{day:02d}" for k in range(rows)]
    (folder / f"{day}.csv").write_text("\n".join(["id,name,day", *lines, ""]))


def test_csv_to_lake(run: Run, tmp_path: Path) -> None:
    source, lake = tmp_path / "source", tmp_path / "lake"
    write(source, 1, 300)
    write(source, 2, 400)
    options = ("--cluster-by", "id", "--page-rows", 50, "--blooms", "name", "--format", "json")

    told = json.loads(run("ingest", source, lake, *options).stdout)
    assert (told["new"], told["already_ingested"], told["rows"], told["files"]) == (2, 0, 700, 1)
    assert [one["column"] for one in told["batches"][0]["skips"]] == ["id", "name"]

    done = run("query", lake, "--where", "id = 1007", "--format", "jsonl")
    assert [json.loads(line)["day"] for line in done.stdout.splitlines()] == ["2026-01-01"]
    counted = json.loads(run("count", lake, "--where", "id >= 2000", "--format", "json").stdout)
    assert (counted["count"], counted["engine"]) == (400, "local")
    trace = json.loads(run("explain", lake, "--where", "id = 1007", "--format", "json").stdout)
    pages = next(level for level in trace["levels"] if level["name"] == "pages")
    assert (pages["kept"], pages["units"]) == (1, 14)

    said = run("ingest", source, lake, *options[:-2]).stdout
    assert said == "nothing to do: 2 files already ingested\n"

    write(source, 3, 50)
    told = json.loads(run("ingest", source, lake, *options).stdout)
    assert (told["new"], told["already_ingested"], told["rows"], told["files"]) == (1, 2, 50, 1)
    assert run("count", lake).stdout == "750\n"


def test_count_and_explain(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "source", 1, 300)
    run("ingest", tmp_path / "source", tmp_path / "lake", "--no-index")
    where = ("--where", "name like '%9'")
    assert run("count", tmp_path / "lake", *where, "--engine", "spark").stdout == "30\n"
    told = json.loads(run("explain", tmp_path / "lake", *where, "--spark", "--format", "json").stdout)
    assert told["spark"]["route"] == "driver"
    done = run("explain", tmp_path / "lake", *where, "--spark", "--route", "slices")
    assert ", 1 task: requested" in done.stdout
