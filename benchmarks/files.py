"""The files that benchmarks of one file read, and a way to count what is read of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 1_000
PAGE_ROWS = 100
STEP = 10


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file on disk, and an id that it holds."""

    path: str
    groups: int
    indexed: bool
    an_id: int
    absent_id: int

    def __str__(self) -> str:
        return f"{self.groups:,} row groups, page index {'on' if self.indexed else 'off'}"


def write_data(folder: Path, groups: int, *, indexed: bool, seed: int) -> DataFile:
    """Write a file in one of the shapes."""
    rng = np.random.default_rng(seed)
    rows = groups * ROWS
    ids = rng.integers(0, 2**62, rows) * 2
    table = pa.table(
        {
            "ts": np.arange(rows) * STEP,
            "id": ids,
            "amount": rng.random(rows),
            "name": pa.array([f"name {n:05d}" for n in range(2_000)]).take(rng.integers(0, 2_000, rows)),
        }
    )
    path = folder / f"{groups}-{'indexed' if indexed else 'plain'}.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=ROWS,
        max_rows_per_page=PAGE_ROWS,
        write_page_index=indexed,
        use_dictionary=["name"],
        # Without ndv pyarrow sizes each filter for a million values and keeps all of them in memory.
        bloom_filter_options={"id": {"ndv": ROWS, "fpp": 0.01}},
    )
    middle = int(ids[rows // 2])
    return DataFile(str(path), groups, indexed, middle, middle + 1)


def write_footer(folder: Path, groups: int, columns: int, seed: int) -> str:
    """Write a file that is nearly all footer: integers, floats and strings in turn."""
    rng = np.random.default_rng(seed)
    rows = groups * 10
    makers: Sequence[Callable[[], Any]] = (
        lambda: rng.integers(0, 2**40, rows),
        lambda: rng.random(rows),
        lambda: pa.array([f"text {n:06d}" for n in rng.integers(0, 10**6, rows).tolist()]),
    )
    table = pa.table({f"column_{n}": makers[n % len(makers)]() for n in range(columns)})
    path = folder / f"footer-{groups}-{columns}.parquet"
    pq.write_table(table, path, row_group_size=10, write_page_index=True)
    return str(path)


class CountingFile(io.FileIO):
    """A file that counts what is read of it."""

    requests = 0
    transferred = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(-1 if size is None else size)
        if data:
            self.requests += 1
            self.transferred += len(data)
        return data


def counted(path: str, read: Callable[[Any], Any]) -> tuple[int, int]:
    """Bytes and requests of a read through pyarrow."""
    with CountingFile(path) as file:
        read(pa.PythonFile(file, mode="r"))
        return file.transferred, file.requests
