"""Tables that are written, and files as our own reader sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import skipstone as sk
from skipstone.parquet.pageindex import PageIndex, page_index_ranges, parse_page_index


def hexes(rng: np.random.Generator, rows: int) -> pa.Array:
    text = rng.bytes(rows * 8).hex().encode()
    offsets = np.arange(0, (rows + 1) * 16, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))


def make_events(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    kinds = pa.array(["view", "click", "scroll", "search", "cart"])
    amount = pa.array(rng.lognormal(3.0, 1.2, rows), mask=rng.random(rows) < 0.05)
    return pa.table(
        {
            "id": np.arange(rows) * 10,
            "ts": pa.array(np.arange(rows) * 1_000_000 + 10**15, pa.timestamp("us", "UTC")),
            "user": rng.integers(0, rows, rows) * 1_000_003,
            "session": hexes(rng, rows),
            "kind": kinds.take(rng.integers(0, 5, rows)),
            "level": pa.array(rng.integers(0, 40, rows), pa.int32()),
            "amount": amount,
            "on": rng.random(rows) < 0.5,
        }
    )


def pieces(table: pa.Table, rows: int = 1_777) -> Iterator[pa.RecordBatch]:
    return iter(table.combine_chunks().to_batches(max_chunksize=rows))


def by_id(table: pa.Table) -> Any:
    return table.sort_by("id").to_pylist()


def page_index(path: Any, group: int, leaf: int) -> PageIndex:
    """The page index of a chunk, which must have both halves."""
    metadata = sk.read_metadata(path)
    column, offset = page_index_ranges(metadata, group, leaf)
    assert column is not None
    assert offset is not None
    data = Path(path).read_bytes()
    found = parse_page_index(
        data[column.start : column.stop], data[offset.start : offset.stop], metadata, group, leaf
    )
    assert found.has_statistics
    return found
