"""Calls that a question costs where nothing is known yet: footers read in one loop, facts in arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk

FILES, ROWS = 100, 40


def count_calls(work: Callable[[], Any]) -> int:
    """Calls of Python and C functions."""
    calls = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A hundred files of seven columns in four row groups."""
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"id": ids, **{f"c{n}": ids * n for n in range(5)}, "s": [f"v{i}" for i in ids]})
        pq.write_table(
            table, tmp_path / f"f{number:03}.parquet", row_group_size=ROWS // 4, write_page_index=True
        )
    return tmp_path


def test_a_cold_point_over_many_files(lake: Path) -> None:
    def ask() -> None:
        found = sk.open(lake).scan("id = 77").to_arrow()
        assert found["c2"].to_pylist() == [154]

    ask()  # imports, and what is worked out once for a schema
    assert 1_000 < count_calls(ask) <= 15_000


def test_footers_read_again_come_from_the_cache(lake: Path) -> None:
    opened = sk.open(lake)
    assert opened.scan("id = 77").count() == 1
    read = opened.io.requests
    assert opened.scan("c2 = 154").count() == 1
    # A page index and the pages of the one file that is left.
    assert 0 < opened.io.requests - read <= 4
