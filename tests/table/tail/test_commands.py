"""``skipstone tail``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import skipstone as sk
from skipstone.cli.main import app


@pytest.fixture
def table(tmp_path: Path) -> sk.Table:
    schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
    return sk.catalog(tmp_path / "w").create_table("db.t", schema, key=["id"])


def run(folder: Path, *args: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["tail", *args, "--catalog", f"{folder / 'w'}/"])
    assert result.exit_code == code, result.output
    return result.output


def test_status_and_flush(table: sk.Table, tmp_path: Path) -> None:
    assert "nothing to flush" in run(tmp_path, "status", "db.t")
    assert run(tmp_path, "flush", "db.t") == "db.t has nothing to flush\n"
    writer = table.writer(flush_seconds=None)
    writer.upsert(pa.table({"id": [1, 2], "v": [10, 20]}))
    writer.delete(keys=[3])
    shown = run(tmp_path, "status", "db.t")
    assert "2 rows, 1 deleted key in 2 unflushed calls" in shown
    assert "calls 1 to 2" in shown
    assert "open" in shown
    assert "already has a tail writer" in run(tmp_path, "flush", "db.t", code=4)
    writer.close(flush=False)
    status = json.loads(run(tmp_path, "status", "db.t", "--format", "json"))
    assert (status["calls"], status["rows"], status["deletes"], status["open"]) == (2, 2, 1, False)
    assert run(tmp_path, "flush", "db.t").startswith("flushed 2 calls of db.t; its snapshot is ")
    flushed = json.loads(run(tmp_path, "flush", "db.t", "--format", "json"))
    assert flushed == {"table": "db.t", "calls": 0, "snapshot": table.refresh().snapshot}
    assert table.scan().count() == 2


def test_a_table_without_a_key(tmp_path: Path, table: sk.Table) -> None:
    sk.catalog(tmp_path / "w").create_table("db.plain", table.schema)
    assert "nothing to flush" in run(tmp_path, "status", "db.plain")
    assert "no such table" in run(tmp_path, "status", "db.none", code=4)
