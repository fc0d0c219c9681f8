"""Ingest on threads of this process: the rows of the input, in the order of the layout."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skipstone as sk
from skipstone.engine.jobs import LocalEngine
from skipstone.errors import SchemaError, UnknownColumnError, UsageError
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.order import sort_batch
from skipstone.store.store import open_root
from skipstone.write.job import Ingest
from skipstone.write.local import LocalRows

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int32(), st.integers(-5, 5)),
    "u": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "f": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, -math.inf, math.nan])),
    "s": (pa.large_string(), st.sampled_from(["", "a", "ab", "é", "z" * 40])),
    "b": (pa.binary(2), st.binary(min_size=2, max_size=2)),
    "t": (pa.timestamp("ns", "Europe/Paris"), st.integers(-3, 3).map(lambda day: day * 86_400_000_000_000)),
    "d": (pa.date32(), st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 5))),
    "n": (pa.decimal128(9, 2), st.sampled_from([decimal.Decimal("1.25"), decimal.Decimal("-7.00")])),
    "o": (pa.bool_(), st.booleans()),
    "l": (pa.large_list(pa.int16()), st.lists(st.integers(0, 3), max_size=3)),
    "r": (pa.struct([("x", pa.int8()), ("y", pa.string())]), st.fixed_dictionaries({"x": st.integers(0, 3)})),
    "m": (pa.map_(pa.string(), pa.int64()), st.just([("k", 1)])),
    "c": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["red", "blue"])),
}
PARTITIONS = ("i", "d", "c")
ORDERED = ("i", "u", "f", "s", "t", "d", "n", "r.x", "c")


@st.composite
def ingests(draw: st.DrawFn) -> tuple[list[pa.RecordBatch], PageLayout, int | None]:
    """Batches of one schema, a layout for them, and the bytes to hold in memory."""
    batches = []
    for rows in draw(st.lists(st.integers(0, 40), min_size=1, max_size=4)):
        columns = []
        for type, values in TYPES.values():
            some = draw(st.lists(values | st.none(), min_size=1, max_size=6))
            columns.append(pa.array([some[n % len(some)] for n in range(rows)], type))
        batches.append(pa.record_batch(columns, names=list(TYPES)))
    partition = draw(st.lists(st.sampled_from(PARTITIONS), max_size=2, unique=True))
    others = [name for name in ORDERED if name not in partition]
    order = draw(st.lists(st.sampled_from(others), max_size=3, unique=True))
    layout = PageLayout(
        partition_by=tuple(partition),
        cluster_by=tuple(order),
        cluster=draw(st.sampled_from(["sort", "zorder", "hilbert"] if order else ["sort"])),
        target_file_bytes=draw(st.sampled_from([2_000, 128 << 20])),
        page_rows=draw(st.sampled_from([3, 2_000])),
    )
    return batches, layout, draw(st.sampled_from([None, 2_000]))


def text(rows: pa.Table) -> list[str]:
    """Rows in a form that can be compared: NaN equals itself."""
    return [repr([row[name] for name in sorted(row)]) for row in rows.to_pylist()]


def lake_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.parquet"), key=lambda path: path.name)


def expected_rows(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table.set_column(5, "t", table["t"].cast(pa.timestamp("us", "UTC"))).set_column(
        1, "u", table["u"].cast(pa.decimal128(20, 0))
    )


@given(ingests())
@settings(max_examples=int(os.environ.get("SKIPSTONE_CASES", "12")))
def test_rows_come_out_in_order(case: tuple[list[pa.RecordBatch], PageLayout, int | None]) -> None:
    batches, layout, memory = case
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "lake"
        rows = LocalRows(batches[0].schema, iter(batches), engine=LocalEngine(2), memory=memory)
        report = Ingest(open_root(root), layout, index=False).run(rows)
        wanted = expected_rows(batches)
        assert report.rows == wanted.num_rows
        assert len(lake_files(root)) == report.files
        if not report.rows:
            return
        found = sk.open(root).scan(columns=list(TYPES)).to_arrow()
        assert Counter(text(found)) == Counter(text(wanted))
        if layout.curve is None and layout.cluster_by and not layout.partition_by:
            written = pa.concat_tables([pq.read_table(path, partitioning=None) for path in lake_files(root)])
            assert text(sort_batch(written, layout)) == text(written)


# -- more than fits into memory ----------------------------------------------------------------


def stream(blocks: int, rows: int = 20_000) -> pa.RecordBatchReader:
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("s", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        for block in range(blocks):
            ids = np.arange(block * rows, (block + 1) * rows)
            keys = np.where(ids % 2, 7, (ids * 7919) % 1_000_003)
            yield pa.record_batch([ids, keys, pa.array([f"{n:020d}" for n in ids])], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


@pytest.mark.parametrize("cluster_by", [(), ("k",), pytest.param(("k", "id"), marks=pytest.mark.slow)])
def test_memory_is_bounded(tmp_path: Path, cluster_by: tuple[str, ...]) -> None:
    """Half of the rows have one key, which no range of keys divides."""
    memory = 1 << 20
    layout = PageLayout(cluster_by=cluster_by, target_file_bytes=700_000, row_group_bytes=1 << 19)
    source = stream(20)
    rows = LocalRows(source.schema, source, engine=LocalEngine(2), memory=memory)
    pool, usual = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        report = Ingest(open_root(tmp_path / "lake"), layout, index=False).run(rows)
    finally:
        pa.set_memory_pool(usual)
    total = 400_000 * 44
    assert report.rows == 400_000
    assert pool.max_memory() < total / 2
    found = pa.concat_tables([pq.read_table(path) for path in lake_files(tmp_path / "lake")])
    assert sorted(found["id"].to_pylist()) == list(range(400_000))
    if cluster_by:
        assert sort_batch(found.select(["id", "k"]), layout).equals(found.select(["id", "k"]))
    else:
        assert found["id"].to_pylist() == list(range(400_000))
    assert report.bytes / 700_000 * 0.8 <= report.files <= report.bytes / 700_000 + 6


def test_no_spilled_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def broken() -> Iterator[pa.RecordBatch]:
        yield from stream(3)
        assert list((tmp_path / "tmp").rglob("*.arrow"))
        raise RuntimeError("the source broke")

    rows = LocalRows(stream(1).schema, broken(), engine=LocalEngine(), memory=1_000)
    with pytest.raises(RuntimeError, match="the source broke"):
        Ingest(open_root(tmp_path / "lake"), PageLayout()).run(rows)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert lake_files(tmp_path) == []


# -- inputs and options ------------------------------------------------------------------------


def test_inputs(tmp_path: Path) -> None:
    table = pa.table({"id": [3, 1, 2], "s": ["c", "a", None]})
    pq.write_table(table, tmp_path / "one.parquet")
    inputs = {
        "table": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(),
        "pandas": table.to_pandas(),
        "polars": pl.from_arrow(table),
        "dataset": ds.dataset(tmp_path / "one.parquet"),
    }
    for name, data in inputs.items():
        report = sk.ingest(data, tmp_path / name, cluster_by=["id"], engine="local")
        assert (report.rows, report.files) == (3, 1)
        assert report.engine is not None
        assert (report.engine.name, report.engine.reason) == ("local", "requested")
        found = pq.read_table(lake_files(tmp_path / name)[0])
        assert found.to_pylist() == table.sort_by("id").to_pylist()
    days = pd.DataFrame({"t": pd.to_datetime(["2020-01-01 00:00:00.000001"])})
    sk.ingest(days, tmp_path / "days", engine="local")
    assert sk.open(tmp_path / "days").schema.field("t").type == pa.timestamp("us")
    with pytest.raises(SchemaError, match=r"column t: .* would lose data.*round the column to microseconds"):
        sk.ingest(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), tmp_path / "days", engine="local")
    assert sk.ingest(table.slice(0, 0), tmp_path / "none", engine="local").files == 0


def test_options_are_checked_before_anything_starts(tmp_path: Path) -> None:
    table = pa.table({"user_id": [1], "x": [2]})
    for options, error, message in (
        ({"engine": "sparc"}, UsageError, r"unknown engine \'sparc\' \(did you mean spark\?\)"),
        ({"cluster_by": ["user_ID"]}, UnknownColumnError, r"user_ID.*did you mean user_id\?"),
        (
            {"cluster_by": ["x"], "cluster": "hilber"},
            UsageError,
            r"'hilber' \(did you mean hilbert\?",
        ),
        ({"compression": "ztsd"}, UsageError, r"compression 'ztsd' \(did you mean zstd\?"),
        ({"threads": 0}, UsageError, "threads must be at least 1"),
        ({"engine": "spark", "threads": 2}, UsageError, "threads= applies to local threads only"),
        ({"blooms": ["userid"]}, UnknownColumnError, r"userid.*did you mean user_id\?"),
        ({"mode": "overwite"}, UsageError, r"mode 'overwite' \(did you mean overwrite\?"),
    ):
        with pytest.raises(error, match=message):
            sk.ingest(table, tmp_path / "lake", **options)
    assert not (tmp_path / "lake").exists()


# -- failures ----------------------------------------------------------------------------------


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def stop(phase: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    table = pa.table({"id": range(50_000)})
    root = tmp_path / "lake"
    with pytest.raises(KeyboardInterrupt):
        sk.ingest(
            table, root, cluster_by=["id"], target_file_bytes=9_000, force=True, progress=stop, engine="local"
        )
    assert [path for path in tmp_path.rglob("*") if "parquet" in path.name] == []
    assert sk.ingest(table, root, engine="local").rows == 50_000


KILLED = """
import os, signal, sys
import pyarrow as pa
import skipstone as sk

def die(phase, done, total):
    assert total == 50_000
    if done:
        os.kill(os.getpid(), signal.SIGKILL)

rows = pa.table({"id": range(50_000)})
sk.ingest(rows, sys.argv[1], target_file_bytes=9_000, force=True, progress=die, engine="local")
"""


def test_a_killed_ingest_publishes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    sk.ingest(pa.table({"id": [-1]}), root, engine="local")
    done = subprocess.run([sys.executable, "-c", KILLED, str(root)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path for path in tmp_path.rglob("*.staged") if path.is_file()]
    assert sk.open(root).scan().count() == 1
    sk.ingest(pa.table({"id": [-2]}), root, engine="local")
    assert [path for path in tmp_path.rglob("*.staged") if path.is_file()] == []
    assert sk.open(root).scan().count() == 2


# -- tables ------------------------------------------------------------------------------------


def test_partitioned_tables_need_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pyspark", "pyiceberg_core")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyiceberg_core", None)
    schema = pa.schema([("id", pa.int64()), ("country", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    catalog = sk.catalog(tmp_path / "warehouse")
    spec = ["country", "day(ts)", "bucket(4, id)", "truncate(1, country)"]
    table = catalog.create_table("db.visits", schema, partition_by=spec, sort_by=["id"])
    days = pa.array([n % 2 * 86_400_000_000 for n in range(100)], pa.timestamp("us", "UTC"))
    rows = pa.table([pa.array(range(100)), pa.array(["DE", "NL", None, "N"] * 25), days], schema=schema)
    report = sk.ingest(rows, table)
    assert report.engine is not None
    assert (report.engine.name, report.engine.reason) == ("local", "PySpark is not installed")
    assert (report.rows, report.partitions) == (100, report.files)
    assert table.scan("country = 'NL' and id < 50", order_by="id").to_arrow()["id"].to_pylist() == [
        n for n in range(50) if n % 4 == 1
    ]
    sk.ingest(rows.slice(0, 2), table, mode="overwrite", overwrite="partitions")
    sk.ingest(rows.slice(0, 1), table, mode="overwrite", where="country is null")
    left = Counter(table.scan().to_arrow()["country"].to_pylist())
    assert left[None] == 0
    assert left["DE"] >= 2
    sk.ingest(rows, "db.visits", catalog=catalog, mode="overwrite")
    table.refresh()
    assert table.scan().count() == 100
