from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk

ROWS = 40_000


@pytest.fixture(scope="session")
def events(tmp_path_factory):
    """A lake of four files with four row groups each: ``id`` rises, ``x`` is anything, ``kind`` repeats."""
    root = tmp_path_factory.mktemp("events")
    rng = np.random.default_rng(7)
    per_file = ROWS // 4
    for n in range(4):
        ids = np.arange(n * per_file, (n + 1) * per_file)
        table = pa.table(
            {
                "id": ids,
                "x": pa.array(rng.normal(size=per_file), mask=rng.random(per_file) < 0.01),
                "kind": [f"kind {i % 5}" for i in range(per_file)],
                "text": [f"row {i} " + "·" * 40 for i in ids],
            }
        )
        folder = root / f"part={n % 2}"
        folder.mkdir(exist_ok=True)
        pq.write_table(
            table,
            folder / f"{n}.parquet",
            row_group_size=per_file // 4,
            write_page_index=True,
            max_rows_per_page=500,
        )
    return root


@pytest.fixture
def lake(events):
    return sk.open(events)
