from __future__ import annotations

import datetime as dt
import decimal
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[3]
CORPUS = ROOT.parent / "shared" / "corpus" / "parquet-testing"


@pytest.fixture(scope="session")
def table() -> pa.Table:
    """3,000 rows of every kind of column, with nulls."""
    n = 3_000
    some = [None if i % 7 == 0 else i for i in range(n)]
    return pa.table(
        {
            "id": pa.array(range(n), pa.int64()),
            "small": pa.array([None if v is None else v % 100 for v in some], pa.int8()),
            "unsigned": pa.array(some, pa.uint32()),
            "name": pa.array([None if v is None else f"name {v % 50}" for v in some]),
            "score": pa.array([None if v is None else v / 3 for v in some], pa.float64()),
            "price": pa.array([decimal.Decimal(i) / 100 for i in range(n)], pa.decimal128(12, 2)),
            "at": pa.array(
                [dt.datetime(2026, 1, 1) + dt.timedelta(minutes=i) for i in range(n)], pa.timestamp("us")
            ),
            "utc": pa.array([i * 1_000 for i in range(n)], pa.timestamp("ns", tz="UTC")),
            "day": pa.array([dt.date(2026, 1, 1) + dt.timedelta(days=i % 300) for i in range(n)]),
            "time": pa.array([i * 1000 for i in range(n)], pa.time32("ms")),
            "flag": pa.array([i % 2 == 0 for i in range(n)]),
            "half": pa.array([float(i) for i in range(n)], pa.float16()),
            "raw": pa.array([i.to_bytes(4, "big") for i in range(n)], pa.binary(4)),
            "tags": pa.array(
                [[f"t{j}" for j in range(i % 4)] or None for i in range(n)], pa.list_(pa.string())
            ),
            "place": pa.array([{"x": i, "y": {"z": None}} for i in range(n)]),
            "counts": pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
            "a.b": pa.array(range(n), pa.int32()),
        },
        schema=None,
    )


def encode(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"row_group_size": 1_000, **options})
    return sink.getvalue()


@pytest.fixture(scope="session")
def write() -> Any:
    """Write a table into memory with pyarrow."""
    return encode


@pytest.fixture(scope="session")
def indexed(table: pa.Table) -> bytes:
    """The table with a page index and small pages."""
    return encode(table, write_page_index=True, max_rows_per_page=100)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of files that nobody here wrote."""
    if not CORPUS.is_dir():
        pytest.skip(f"no corpus at {CORPUS}")
    return CORPUS
