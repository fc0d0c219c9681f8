"""The files of a small lake for every fault."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS, FILES = 400, 3


@functools.cache
def fault_table(number: int) -> pa.Table:
    """Rows ``number * 400`` onwards: sorted ids, values that are not, texts, a struct and a list."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([float(n * 37 % 101) for n in ids]),
            "text": [f"word {n * 7 % 50:03d}" for n in ids],
            "st": pa.array([{"a": n % 9, "b": "b" * (n % 5)} for n in ids]),
            "items": pa.array([[n, n + 1][: n % 3] for n in ids], pa.list_(pa.int64())),
            # Long enough for the file's tail, which comes with the footer, to be a small part of it.
            "pad": [hashlib.sha512(bytes([n % 251])).hexdigest() * 8 for n in ids],
        }
    )


def write_file(path: Path, number: int) -> None:
    """Groups of 100 rows, pages of 20, checksums, a page index and no bloom filter."""
    pq.write_table(
        fault_table(number),
        path,
        row_group_size=100,
        max_rows_per_page=20,
        write_batch_size=20,
        write_page_index=True,
        write_page_checksum=True,
        use_dictionary=["text"],
        compression={"pad": "none", "id": "snappy", "x": "snappy", "text": "gzip"},
    )
