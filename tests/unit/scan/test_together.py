"""Rows of several files that are read and tested together are those of each file read alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import CorruptFileError
from skipstone.parquet.slice import SlicePart
from skipstone.scan import reader

FILES, ROWS = 6, 1_000
NEEDLES = "key in (50, 1050, 2999, 4400, 5001)"


def write(root: Path, number: int, **changes: Any) -> Path:
    rng = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    columns = {
        "key": ids,
        "n": pa.array(rng.integers(0, 99, ROWS), pa.int32(), mask=rng.random(ROWS) < 0.1),
        "text": [f"row {i}" for i in ids],
        "l": [[int(i), None] for i in ids],
    }
    path = root / f"part={number % 2}" / f"{number}.parquet"
    path.parent.mkdir(exist_ok=True)
    options = {"max_rows_per_page": 100, "write_batch_size": 50, "use_dictionary": False}
    pq.write_table(pa.table(columns | changes), path, write_page_index=True, **options)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(FILES):
        write(tmp_path, number)
    return tmp_path


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parts were decoded as one, each time that worked."""
    counts: list[int] = []
    true = reader.decode_together

    def watched(parts: list[SlicePart], *, checksums: bool) -> pa.Table | None:
        found = true(parts, checksums=checksums)
        counts.extend([len(parts)] if found is not None else [])
        return found

    monkeypatch.setattr(reader, "decode_together", watched)
    return counts


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("materialise", ["one-pass", "late"])
@pytest.mark.parametrize("columns", [["key", "n", "text"], ["text", "part"], ["n"]])
def test_files_of_one_kind_are_decoded_at_once(
    root: Path, decoded: list[int], indexed: bool, materialise: Any, columns: list[str]
) -> None:
    if indexed:
        sk.open(root).index.build(engine="local")
    lake = sk.open(root)
    scan = lake.scan(NEEDLES, columns=columns, materialise=materialise)
    found = scan.to_arrow()
    assert found.equals(lake.scan(NEEDLES, columns=columns, skipping=False).to_arrow())
    assert found.schema == scan.schema
    assert found.num_rows == 5
    # Predicate columns first and the others after them, or all of them at once.
    assert decoded == ([5, 5] if materialise == "late" else [5])


def test_nested_columns_are_decoded_file_by_file(root: Path, decoded: list[int]) -> None:
    lake = sk.open(root)
    found = lake.scan(NEEDLES).to_arrow()
    assert found.equals(lake.scan(NEEDLES, skipping=False).to_arrow())
    assert found["l"].to_pylist() == [[key, None] for key in found["key"].to_pylist()]
    assert decoded == []


def test_types_that_differ_become_the_lakes(root: Path, decoded: list[int]) -> None:
    for number in (1, 4):
        write(root, number, n=pa.array(range(ROWS), pa.int64()))
    lake = sk.open(root)
    found = lake.scan(NEEDLES, columns=["key", "n"]).to_arrow()
    assert found.schema.field("n").type == pa.int64()
    assert found.equals(lake.scan(NEEDLES, columns=["key", "n"], skipping=False).to_arrow())
    assert decoded == []


def test_the_file_at_fault_is_named(root: Path) -> None:
    path = root / "part=1" / "1.parquet"
    chunk = pq.read_metadata(path).row_group(0).column(2)
    lake = sk.open(root)
    body = bytearray(path.read_bytes())
    stop = chunk.data_page_offset + chunk.total_compressed_size // 10
    body[stop - 60 : stop - 10] = b"\xff" * 50
    path.write_bytes(body)
    with pytest.raises(sk.SkipstoneError, match=r"1\.parquet"):
        lake.scan(NEEDLES, columns=["key", "text"]).to_arrow()  # it is another file than the one listed
    with pytest.raises(CorruptFileError, match=r"1\.parquet, row group 0, column text"):
        sk.open(root).scan(NEEDLES, columns=["key", "text"]).to_arrow()


def test_pieces_are_counted_one_by_one(root: Path) -> None:
    ran = sk.open(root).scan(NEEDLES, columns=["key"]).execute()
    ran.to_arrow()
    assert ran.trace.run is not None
    assert (ran.trace.run.pieces, ran.trace.run.rows) == (5, 5)
    assert ran.trace.run.requests >= 5
