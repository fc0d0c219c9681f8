"""Indexes built on Spark answer as those built by threads, on the session that all tests share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import CorruptFileError, NotParquetError
from skipstone.index import build
from skipstone.lake import records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES, ROWS = 24, 400
QUESTIONS = [
    "id = 4711",
    "id between 1000 and 1100",
    "id < 0",
    "name = 'n-000077'",
    "name like 'n-0001%' and value > 0.5",
    "value is null",
    "isnan(value)",
    "day = 2 and id > 5000",
]


def rows(start: int, count: int) -> pa.Table:
    """``id`` rises, ``name`` is scattered, ``value`` has nulls and NaN."""
    rng = np.random.default_rng(start)
    value = rng.random(count)
    value[rng.random(count) < 0.02] = np.nan
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "name": [f"n-{number:06d}" for number in rng.integers(0, 9_600, count)],
            "value": pa.array(value, mask=rng.random(count) < 0.1),
        }
    )


def write(root: Path, files: range) -> None:
    for number in files:
        folder = root / f"day={number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        table = rows(number * ROWS, ROWS)
        pq.write_table(
            table,
            folder / f"{number:03}.parquet",
            row_group_size=200,
            write_page_index=number % 3 > 0,
            max_rows_per_page=50,
        )


def answers(lake: sk.Lake, *, index: bool = True) -> list[bytes]:
    """As bytes, since NaN equals nothing."""
    tables = [lake.scan(where, index=index).to_arrow().sort_by("id") for where in QUESTIONS]
    return [repr(table.to_pylist()).encode() for table in tables]


def segments(root: Path) -> dict[str, bytes]:
    """What the segments hold, by their names."""
    return {path.name: path.read_bytes() for path in sorted(root.glob("segment-*.skip"))}


class Steps(list[tuple[int, int]]):
    """What a job tells of its progress."""

    def __call__(self, done: int, total: int) -> None:
        self.append((done, total))


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of three files, and no merging: this is decided here, not on the executors."""
    monkeypatch.setattr(build, "_GROUP_FILES", 3)
    monkeypatch.setattr(build, "MANY_SEGMENTS", 100)


@pytest.mark.parametrize("merged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_spark_and_threads_write_the_same_index(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged: bool
) -> None:
    monkeypatch.setattr(build, "_GROUP_FILES", 3)
    monkeypatch.setattr(build, "MANY_SEGMENTS", 2 if merged else 100)
    root = tmp_path / "lake"
    write(root, range(FILES))
    choices: dict[str, Any] = {"blooms": ["name"], "values": True, "sums": True, "sketches": ["name"]}
    lakes, reports, told = [], [], []
    for name, engine in (("spark", spark), ("local", "local")):
        lakes.append(sk.open(root, index_root=tmp_path / name))
        told.append(Steps())
        reports.append(lakes[-1].index.build(engine=engine, progress=told[-1], **choices))
    for steps in told:
        assert steps == sorted(set(steps))
        assert steps[-1] == (FILES, FILES)
    count = 1 if merged else 8
    assert [(r.indexed, r.already_indexed, r.segments, r.skipped) for r in reports] == [
        (FILES, 0, count, ())
    ] * 2
    assert reports[0].bytes == reports[1].bytes > 0
    assert reports[0].requests == reports[1].requests > 0
    assert segments(tmp_path / "spark") == segments(tmp_path / "local")
    # Parts that were merged are left to the sweep.
    assert len(segments(tmp_path / "spark")) == (9 if merged else 8)
    truth = answers(lakes[1], index=False)
    assert sum(map(len, truth)) > 10_000
    for lake in lakes:
        assert answers(lake) == truth
        trace = lake.scan("id = 4711").plan().trace
        assert trace.index is not None
        assert (trace.index.covered, trace.index.problems) == (FILES, ())
        assert trace.rows_kept == 50


def test_a_refresh_on_spark(
    spark: SparkSession, tmp_path: Path, groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_MANY_FILES", 8)
    monkeypatch.setattr(records, "_MANY_FOLDERS", 3)
    root = tmp_path / "lake"
    write(root, range(16))
    lakes = [sk.open(root, index_root=tmp_path / name) for name in ("spark", "local")]
    engines: list[Any] = [spark, "local"]
    for lake, engine in zip(lakes, engines, strict=True):
        lake.index.build(engine=engine, blooms=["name"])
    write(root, range(16, FILES))
    (root / "day=1" / "001.parquet").unlink()
    pq.write_table(rows(2 * ROWS, 100), root / "day=2" / "002.parquet")
    reports = [lake.index.refresh(engine=e) for lake, e in zip(lakes, engines, strict=True)]
    for report in reports:
        assert (report.indexed, report.already_indexed, report.dropped) == (9, 14, 2)
    assert lakes[0].entries == lakes[1].entries == sk.open(root).entries
    assert segments(tmp_path / "spark") == segments(tmp_path / "local")
    truth = answers(sk.open(root))
    for lake in lakes:
        assert answers(lake) == truth == answers(lake, index=False)
        trace = lake.scan("id = 800").plan().trace
        assert trace.index is not None
        assert trace.index.covered == FILES - 1
    again = lakes[0].index.refresh(engine=spark)
    assert (again.indexed, again.already_indexed, again.version) == (0, 23, reports[0].version)


def test_pages_and_blooms_of_files_without_them(spark: SparkSession, tmp_path: Path, groups: None) -> None:
    """Without a page index, values are read for one, on the executors."""
    for number in range(4):
        table = rows(4_000 * number, 4_000)
        if number < 3:
            # DuckDB writes one page per row group.
            pq.write_table(
                table, tmp_path / f"{number}.parquet", write_page_index=False, max_rows_per_page=500
            )
        else:
            options = "row_group_size 2048, compression uncompressed"
            with duckdb.connect() as connection:
                connection.register("t", table)
                connection.execute(f"copy (select * from t) to '{tmp_path}/3.parquet' ({options})")
    lake = sk.open(tmp_path)
    asked = {"id = 6100": (500, 4_000), "id = 12001": (2_048, 2_048)}
    for where, (_, kept) in asked.items():
        trace = lake.scan(where).plan().trace
        assert (trace.rows_kept, trace.index) == (kept, None)
    report = lake.index.build(engine=spark, values=True, blooms=["name"])
    assert (report.indexed, report.skipped) == (4, ())
    for where, (kept, _) in asked.items():
        trace = lake.scan(where).plan().trace
        assert trace.index is not None
        assert (trace.rows_kept, trace.index.covered) == (kept, 4)
        assert lake.scan(where).to_arrow() == lake.scan(where, index=False).to_arrow()
    pages = lake.scan("id = 6100").plan().trace.level("pages")
    assert pages is not None
    assert (pages.units, pages.kept) == (8, 1)
    # Scattered as names are, only filters tell where one is not.
    name = lake.scan("id = 6100").to_arrow()["name"][0].as_py()
    where = f"name = '{name}'"
    assert lake.scan(where, index=False).plan().trace.rows_kept == 16_000
    assert 500 <= lake.scan(where).plan().trace.rows_kept < 8_000
    assert lake.scan(where).to_arrow().num_rows == lake.scan(where, index=False).to_arrow().num_rows > 0


def test_broken_files_are_told_and_not_fatal(spark: SparkSession, tmp_path: Path, groups: None) -> None:
    write(tmp_path, range(9))
    (tmp_path / "day=0" / "none.parquet").write_bytes(b"this is no Parquet file at all")
    torn = tmp_path / "day=1" / "torn.parquet"
    body = bytearray((tmp_path / "day=1" / "001.parquet").read_bytes())
    footer = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    body[footer : footer + 40] = b"\xff" * 40
    torn.write_bytes(body)
    lake = sk.open(tmp_path)
    report = lake.index.build(engine=spark)
    assert [Path(one.path).name for one in report.skipped] == ["none.parquet", "torn.parquet"]
    assert all(one.reason for one in report.skipped)
    assert report.indexed == 9
    trace = lake.scan("id = 5 and day = 2").plan().trace
    assert trace.index is not None
    assert trace.index.covered == 9
    assert lake.scan("day = 2 and id > 1000").to_arrow().num_rows == 599
    with pytest.raises((CorruptFileError, NotParquetError), match=r"(none|torn)\.parquet"):
        lake.scan("id = 5").to_arrow()
    # It is tried again at every refresh, and counts once it has been mended.
    again = lake.index.refresh(engine=spark)
    assert (again.indexed, again.already_indexed, len(again.skipped)) == (0, 9, 2)
    torn.unlink()
    (tmp_path / "day=0" / "none.parquet").write_bytes((tmp_path / "day=0" / "000.parquet").read_bytes())
    mended = lake.index.refresh(engine=spark)
    assert (mended.indexed, mended.already_indexed, mended.skipped) == (1, 9, ())
    assert lake.scan("id = 5").count() == 2
    assert re.search("10 of 10 files", repr(lake.index))
