"""A small lake in files, row groups and pages, with ids that count up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk

ROWS, FILES = 4_000, 3


def rows_of(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    amounts = pa.array(rng.normal(0, 100, ROWS).round(3), mask=rng.random(ROWS) < 0.1)
    return pa.table(
        {
            "id": pa.array(np.arange(number * ROWS, (number + 1) * ROWS)),
            "amount": amounts,
            "big": pa.array(rng.integers(2**62, 2**63, ROWS)),
            "region": pa.array(["north", "south", "west"][number : number + 1] * ROWS),
            "kind": pa.array(["a", "b", None]).take(pa.array(rng.integers(0, 3, ROWS))),
            "at": pa.array(rng.permutation(ROWS) + number * ROWS, pa.timestamp("us")),
            "pair": pa.array([{"x": int(value)} for value in rng.integers(0, 9, ROWS)]),
        }
    )


def write(folder: Path) -> None:
    folder.mkdir()
    for number in range(FILES):
        path = folder / f"part-{number}.parquet"
        pq.write_table(
            rows_of(number), path, row_group_size=1_000, write_page_index=True, max_rows_per_page=100
        )


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return pa.concat_tables([rows_of(number) for number in range(FILES)])


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    """The lake without an index."""
    folder = tmp_path_factory.mktemp("plain") / "lake"
    write(folder)
    return sk.open(folder)


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    """The lake with sums, sketches, and where ids count up."""
    folder = tmp_path_factory.mktemp("indexed") / "lake"
    write(folder)
    lake = sk.open(folder)
    lake.index.build(sums=["amount", "big"], sketches=["amount", "kind"], ids=["id"], engine="local")
    return lake
