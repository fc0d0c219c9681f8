"""Files of ids, in each of their forms."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap, BitMap64

from skipstone.aggregate.id_files import read_ids
from skipstone.errors import FileError

Write = Callable[[bytes], Path]
WIDE = 2**64 - 1


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(data: bytes) -> Path:
        path = tmp_path / "ids"
        path.write_bytes(data)
        return path

    return put


def saved(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def parquet(columns: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (BitMap([3, 5]).serialize(), [3, 5]),
        (BitMap(range(1000)).serialize(), list(range(1000))),
        (BitMap().serialize(), []),
        (BitMap64([3, WIDE]).serialize(), [3, WIDE]),
        (BitMap64().serialize(), []),
        (b"3\n5\n", [3, 5]),
        (b"  3 \r\n\n18446744073709551615", [3, WIDE]),
        (b"", []),
        (b"\n \n", []),
        (saved(np.array([3, 5], np.int32)), [3, 5]),
        (saved(np.array([WIDE], np.uint64)), [WIDE]),
        (parquet({"id": [3, None, 5], "x": ["a", "b", "c"]}), [3, 5]),
        (parquet({"other": [3, 5]}), [3, 5]),
    ],
)
def test_forms(write: Write, data: bytes, found: list[int]) -> None:
    assert [int(one) for one in read_ids(write(data), "id")] == found


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"3\n5\n")))
    assert read_ids(Path("-"), None).tolist() == [3, 5]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"id\n3\n", "line has 'id', which is not an id"),
        (b"3\n-1\n", "line has '-1', which is not an id"),
        (b"3,5\n", "line has '3,5', which is not an id"),
        (b"1.5\n", "line has '1.5', which is not an id"),
        (b"\x07\x00\x00", "unknown file format"),
        (BitMap(range(0, 99, 3)).serialize()[:20], "roaring bitmap can't be deserialized"),
        (saved(np.array([1.5])), "NumPy array has 1 values of type float64"),
        (saved(np.zeros((2, 3), np.int64)), "NumPy array has 2×3 values of type int64"),
        (saved(np.array([object()])), "NumPy array can't be loaded"),
        (saved(np.array([3]))[:20], "NumPy array can't be loaded"),
        (parquet({"id": ["a"]}), "ids have type string"),
        (parquet({"x": [1], "y": [2]}), "2 columns, and none is named id"),
        (b"PAR1 and nothing", "Parquet file can't be read"),
    ],
)
def test_what_is_no_set_of_ids_is_refused(write: Write, data: bytes, said: str) -> None:
    path = write(data)
    with pytest.raises(FileError) as caught:
        read_ids(path, "id")
    assert said in caught.value.message
    assert caught.value.path == str(path)
    assert caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        read_ids(tmp_path / "none", None)
