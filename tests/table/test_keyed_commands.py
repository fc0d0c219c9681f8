"""Commands for keyed tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from skipstone.cli.main import app

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command on the catalog ``w``; its output, parsed if it is JSON."""

    def run(*args: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [*args, "--catalog", str(tmp_path / "w")], catch_exceptions=False)
        assert result.exit_code == code, result.output
        text = result.stdout if code == 0 else result.output
        return json.loads(text) if code == 0 and "json" in args else text

    (tmp_path / "w").mkdir()
    result = CliRunner().invoke(
        app,
        [
            *("tables", "create", "db.t", "--schema", "id bigint, day date, v double", "--key", "id, day"),
            *("--catalog", f"{tmp_path / 'w'}/"),
        ],
    )
    assert result.exit_code == 0, result.output
    return run


def test_rows_are_written_and_read_by_key(run: Run, tmp_path: Path) -> None:
    first = tmp_path / "first.csv"
    first.write_text("id,day,v\n1,2026-01-01,0.5\n2,2026-01-01,1.5\n2,2026-01-02,2.5\n")
    report = run("upsert", "db.t", str(first), "--token", "a", "--format", "json")
    assert report["rows"] == {"inserted": 3, "updated": 0, "deleted": 0, "unchanged": 0}
    assert run("upsert", "db.t", str(first), "--token", "a", "--format", "json")["repeated"]
    start = report["snapshot"]

    assert "0.5" in run("get", "db.t", "1,2026-01-01")
    rows = run(
        "get", "db.t", "2,2026-01-02", "9,2026-01-02", "1,2026-01-01", "--columns", "v", "--format", "json"
    )
    assert rows == [{"v": 2.5}, {"v": 0.5}]

    second = tmp_path / "second.parquet"
    days = pa.array(["2026-01-01", "2026-01-01", "2026-01-03"]).cast(pa.date32())
    source = pa.table({"id": [1, 2, 3], "day": days, "v": [9.0, 8.0, 7.0], "gone": [True, False, False]})
    pq.write_table(source, second)
    clauses = ["--when-matched", "source.gone:delete", "--when-matched", "source.v > 100:ignore"]
    text = run("merge", "db.t", str(second), *clauses, "--when-matched", "update")
    assert text.startswith("rows: 1 inserted, 1 updated, 1 deleted")

    text = run("changes", "db.t", "--from", str(start))
    assert text.startswith("rows: 1 inserted, 1 updated, 1 deleted")
    out = tmp_path / "changes.csv"
    run("changes", "db.t", "--from", str(start), "--output", str(out))
    assert sorted(csv.read_csv(out)["_change"].to_pylist()) == ["delete", "insert", "update"]

    assert run("delete", "db.t", "--key", "2,2026-01-02", "--format", "json")["rows"]["deleted"] == 1
    assert run("delete", "db.t", "--where", "v > 7.5", "--yes", "--format", "json")["rows"]["deleted"] == 1
    assert run("count", "db.t").strip() == "1"


def test_mistakes_name_the_option(run: Run, tmp_path: Path) -> None:
    assert "use one of --where and --key" in run("delete", "db.t", code=2)
    (tmp_path / "empty").mkdir()
    assert "no files of a supported format" in run("upsert", "db.t", str(tmp_path / "empty"), code=4)
    assert "is not a key" in run("get", "db.t", "1", code=5)
    assert "not of type date: " in run("get", "db.t", "1,tomorrow", code=4)
    (tmp_path / "a.csv").write_text("id,day,v\n1,2026-01-01,1\n1,2026-01-01,2\n")
    assert "a key more than once" in run("merge", "db.t", str(tmp_path / "a.csv"), code=5)
