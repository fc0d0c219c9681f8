"""``engine="auto"`` with Spark installed: small inputs need no session, large ones ask for one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import skipstone as sk
from skipstone.engine import session
from skipstone.engine.jobs import SMALL_BYTES, EngineUse, LocalEngine, choose_engine
from skipstone.write.rows import settle

ROWS = pa.table({"id": [3, 1, 2], "name": ["c", "a", "b"]})
WHY = "input is below 64 MB; use engine spark to run it on Spark"
BATCH = pa.record_batch({"id": np.zeros(SMALL_BYTES // 16, dtype=np.int64)})
"""Half as large as a small input may be."""


@pytest.fixture(autouse=True)
def _java_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark is installed, but a job that chooses it fails at once."""
    monkeypatch.setattr(session, "running_session", lambda: None)
    monkeypatch.setattr("skipstone.engine.spark.running_session", lambda: None)
    for name in ("SKIPSTONE_ENGINE", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    session._java_version.cache_clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    pq.write_table(ROWS, tmp_path / "source" / "a.parquet")
    return tmp_path / "source"


def _table(root: Path) -> sk.KeyedTable | sk.Table:
    return sk.catalog(root / "warehouse").create_table("db.t", ROWS.schema)


def _compacted(root: Path, _: Path) -> EngineUse | None:
    table = _table(root)
    for _number in range(2):
        sk.ingest(ROWS, table, engine="local", index=False)
    return table.compact(table.plan_compaction(min_input_files=2)).engine


def _refreshed(root: Path, source: Path) -> EngineUse | None:
    lake = sk.open(source, index_root=root / "index")
    lake.index.build(engine="local")
    pq.write_table(ROWS, source / "b.parquet")
    return lake.index.refresh().engine


JOBS: dict[str, Callable[[Path, Path], EngineUse | None]] = {
    "table": lambda root, _: sk.ingest(ROWS, root / "lake").engine,
    "frame": lambda root, _: sk.ingest(pd.DataFrame({"id": [1]}), root / "lake").engine,
    "batches": lambda root, _: sk.ingest(ROWS.to_batches(), root / "lake").engine,
    "reader": lambda root, _: sk.ingest(ROWS.to_reader(), root / "lake").engine,
    "dataset": lambda root, source: sk.ingest(ds.dataset(source), root / "lake").engine,
    "scan": lambda root, source: sk.ingest(sk.open(source).scan(), root / "lake").engine,
    "files": lambda root, source: sk.ingest_new(source, root / "lake").batches[0].engine,
    "Iceberg table": lambda root, _: sk.ingest(ROWS, _table(root)).engine,
    "index": lambda root, source: sk.open(source, index_root=root / "index").index.build().engine,
    "index refresh": _refreshed,
    "compaction": _compacted,
}


@pytest.mark.parametrize("name", JOBS)
def test_a_small_input_runs_here_and_the_report_says_how_to_have_spark(
    tmp_path: Path, source: Path, name: str
) -> None:
    use = JOBS[name](tmp_path, source)
    assert use is not None
    assert (use.name, use.reason, use.other) == ("local", WHY, "spark")
    assert str(use).startswith(f"ran on local threads ({WHY}); Spark would take about ")


def test_rows_of_a_small_stream_are_all_ingested(tmp_path: Path, source: Path) -> None:
    parts: Iterator[pa.RecordBatch] = (batch for _ in range(3) for batch in ROWS.to_batches())
    assert sk.ingest(pa.RecordBatchReader.from_batches(ROWS.schema, parts), tmp_path / "lake").rows == 9
    assert sk.ingest(ROWS.slice(0, 0).to_reader(), tmp_path / "empty").rows == 0
    assert sk.open(source).scan("id > 1").count(engine="auto") == 2
    assert sk.open(source).scan("id > 1").aggregate("sum(id)", engine="auto")["sum(id)"] == 5


def test_a_command_says_it_too(tmp_path: Path, source: Path) -> None:
    from skipstone.cli.main import app

    done = CliRunner().invoke(app, ["ingest", str(source), str(tmp_path / "lake"), "--format", "json"])
    assert (done.exit_code, json.loads(done.stdout)["batches"][0]["engine"]["reason"]) == (0, WHY)
    done = CliRunner().invoke(
        app, ["index", "build", str(tmp_path / "lake"), "--rebuild", "--format", "json"]
    )
    assert (done.exit_code, json.loads(done.stdout)["engine"]["reason"]) == (0, WHY)


LARGE = """
import numpy as np
import pyarrow as pa
import skipstone as sk
from skipstone.engine.jobs import SMALL_BYTES

def attempt(job):
    try:
        job()
    except sk.SkipstoneError as error:
        print(error)

attempt(lambda: sk.ingest(pa.table({"id": np.zeros(SMALL_BYTES // 8, dtype=np.int64)}), "lake"))
attempt(lambda: sk.ingest_new("large", "lake"))
attempt(lambda: sk.ingest(pa.table({"id": [1]}), "lake", engine="spark"))
"""


def test_a_large_input_runs_on_spark(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    with (tmp_path / "large" / "a.csv").open("w") as file:
        file.truncate(SMALL_BYTES)
    # In a process of its own: another test's session may be running here.
    done = subprocess.run(
        [sys.executable, "-c", LARGE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Spark can't be started"] * 3


def test_a_stream_is_read_until_its_size_is_known() -> None:
    drawn = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            drawn.append(number)
            yield BATCH

    rows, choice = settle(pa.RecordBatchReader.from_batches(BATCH.schema, batches()), choose_engine("auto"))
    assert (choice.engine, choice.reason) == ("spark", "PySpark and Java are installed")
    assert drawn == [0, 1]
    assert sum(batch.num_rows for batch in rows) == 5 * len(BATCH)
    given: Any = pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH])
    rows, choice = settle(given, choose_engine("auto"))
    assert (choice.engine, len(rows)) == (LocalEngine(), len(BATCH))
    given = pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH])
    assert settle(given, choose_engine("local"))[0] is given
