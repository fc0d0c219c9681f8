"""The work that an ingest of many small files does for each of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone as sk
from skipstone.store.store import open_root
from skipstone.write.readers import open_files
from tests.support.calls import calls


def _source(root: Path, files: int) -> Path:
    root.mkdir()
    for number in range(files):
        rows = {"id": [number * 2 + 1, number * 2], "name": ["a", None], "half": [0.5, None]}
        pq.write_table(pa.table(rows), root / f"{number:04d}.parquet")
    return root


def test_each_file_has_two_requests(tmp_path: Path) -> None:
    store = open_root(_source(tmp_path / "source", 300))
    entries = store.list()
    files = open_files(store, "parquet", entries)
    batches = [*files.batches()]
    io = files.access.io()
    # The footer, also that of a file whose schema was looked up first; and the columns.
    assert io.requests == 2 * len(entries)
    assert sum(entry.size for entry in entries) < io.bytes < 2 * sum(entry.size for entry in entries)
    # Rows of several files together.
    assert 1 <= len(batches) <= 4
    assert [row["id"] for batch in batches for row in batch.to_pylist()] == [
        number for start in range(0, 600, 2) for number in (start + 1, start)
    ]


def test_calls_for_each_file(tmp_path: Path) -> None:
    counts = []
    for files in (20, 20, 120):
        source = _source(tmp_path / f"source{len(counts)}", files)
        lake = tmp_path / f"lake{len(counts)}"
        counts.append(
            calls(lambda source=source, lake=lake: _ingest(source, lake, 2 * len(list(source.iterdir()))))
        )
    assert 300 < (counts[2] - counts[1]) / 100 <= 500


def _ingest(source: Path, lake: Path, rows: int) -> None:
    report = sk.ingest_new(source, lake, cluster_by=["id"], engine="local", threads=1)
    assert (report.rows, report.files) == (rows, 1)
