"""Pruning over HTTP: the rows of the local file, in as few requests as it takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import ReadError

URI = "s3://bucket/lake/events.parquet"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, s3: dict[str, str]) -> Path:
    path = tmp_path_factory.mktemp("s3") / "events.parquet"
    rng = np.random.default_rng(3)
    rows = 400_000
    table = pa.table({"id": np.arange(rows), "spread": rng.permutation(rows) * 3, "x": rng.random(rows)})
    bloom = {"spread": {"ndv": 20_000, "fpp": 0.01}}
    pq.write_table(
        table,
        path,
        row_group_size=20_000,
        max_rows_per_page=1_000,
        write_page_index=True,
        bloom_filter_options=bloom,
        use_dictionary=False,
    )
    upload(path, s3)
    return path


def upload(path: Path, options: dict[str, str]) -> None:
    obstore.put(obstore.store.S3Store("bucket", config=options), "lake/events.parquet", path.read_bytes())


@pytest.mark.parametrize("text", ["id = 123456", "spread = 600001", "id < 30000 or x > 2", "id < 0"])
def test_the_same_rows_as_locally(local: Path, s3: dict[str, str], text: str) -> None:
    pruner = sk.Pruner(text)
    here = pruner.prune(local)
    there = pruner.prune(URI, storage_options=s3)
    awaited = asyncio.run(pruner.prune_async(URI, storage_options=s3))
    assert there.rows == here.rows == awaited.rows
    assert there.proven == here.proven
    assert there.trace.path == URI
    assert there.trace.requests == awaited.trace.requests


def test_requests_are_few(local: Path, s3: dict[str, str]) -> None:
    dropped = sk.prune(URI, "id < 0", storage_options=s3).trace
    assert (dropped.requests, dropped.bytes) == (1, 65_536)  # the tail holds the footer
    point = sk.prune(URI, "id = 123456", storage_options=s3)
    assert point.rows.ranges() == [(123_000, 124_000)]
    assert point.trace.requests == 1  # and the page index
    blooms = sk.prune(URI, "spread = 600001", storage_options=s3, page_index=False)
    assert blooms.rows.is_empty
    level = blooms.trace.level("bloom filters")
    assert level is not None
    assert 1 <= level.requests <= 20


def test_metadata_of_a_replaced_object_is_refused(local: Path, s3: dict[str, str], tmp_path: Path) -> None:
    metadata = sk.read_metadata(URI, storage_options=s3)
    assert sk.prune(URI, "id = 123456", metadata=metadata, storage_options=s3).rows.ranges() == [
        (123_000, 124_000)
    ]
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"id": range(10), "spread": range(10), "x": [0.5] * 10}), other)
    upload(other, s3)
    try:
        with pytest.raises(ReadError, match="changed"):
            sk.prune(URI, "id = 123456", metadata=metadata, storage_options=s3)
    finally:
        upload(local, s3)


def test_missing_objects(s3: dict[str, str]) -> None:
    with pytest.raises(ReadError, match=r"nope\.parquet.*no such object"):
        sk.prune("s3://bucket/nope.parquet", "id = 1", storage_options=s3)
