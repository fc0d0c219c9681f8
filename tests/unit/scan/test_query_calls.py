"""How many calls whole queries make, from the question to a table: at most what selective queries may cost.

A cold lake without an index has its budget in ``tests/unit/lake/test_cold_calls.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk

FILES, ROWS, GROUP, PAGE = 8, 20_000, 5_000, 1_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An indexed lake of seven columns, four row groups to a file, whose modules are loaded."""
    root = tmp_path_factory.mktemp("lake")
    rng = np.random.default_rng(1)
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        table = pa.table(
            {
                "id": ids,
                "ts": pa.array(ids * 1_000 + rng.integers(0, 999, ROWS), pa.timestamp("us")),
                "user": rng.integers(0, 10**6, ROWS),
                "session": [f"s{n:08d}" for n in rng.integers(0, 10**7, ROWS)],
                "kind": pa.array(["a", "b", "c", "d"]).take(rng.integers(0, 4, ROWS)),
                "amount": rng.random(ROWS),
                "payload": [f"payload {n:020d}" for n in rng.integers(0, 10**9, ROWS)],
            }
        )
        pq.write_table(
            table,
            root / f"{number}.parquet",
            row_group_size=GROUP,
            max_rows_per_page=PAGE,
            write_batch_size=PAGE,
            write_page_index=True,
            compression="zstd",
        )
    sk.open(root).index.build(blooms=["id", "user", "session"], engine="local")
    assert sk.open(root).scan("id = 5").to_arrow().num_rows == 1
    return root


def calls(ask: Callable[[], pa.Table], rows: int) -> int:
    """Calls of Python and C functions that a query makes whose answer has so many rows."""
    count = 0

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        found = ask()
    finally:
        sys.setprofile(before)
    assert found.num_rows == rows
    return count


def point(lake: sk.Lake, key: int) -> int:
    """The calls of looking up a key."""
    return calls(lambda: lake.scan(f"id = {key}").to_arrow(), 1)


def test_opening_and_the_first_point(root: Path) -> None:
    assert 1_000 < calls(lambda: sk.open(root).scan("id = 77").to_arrow(), 1) <= 3_750


def test_a_point_where_something_was_read_before(root: Path) -> None:
    lake = sk.open(root)
    point(lake, 3 * ROWS + 7)
    assert 400 < point(lake, 3 * ROWS + 70) <= 800
    # Another page of the same row group.
    assert 400 < point(lake, 3 * ROWS + 2 * PAGE) <= 800


def test_the_first_touch_of_a_row_group(root: Path) -> None:
    lake = sk.open(root)
    point(lake, 7)
    # In a file that was not read before, then in one that was.
    assert 400 < point(lake, 5 * ROWS + GROUP + 7) <= 970
    assert 400 < point(lake, 5 * ROWS + 2 * GROUP + 7) <= 900


def test_a_range_of_a_thousand_rows(root: Path) -> None:
    lake = sk.open(root)
    point(lake, 3 * ROWS + 7)
    first = 3 * ROWS + PAGE // 2
    where = f"id between {first} and {first + 999}"
    assert 400 < calls(lambda: lake.scan(where).to_arrow(), 1_000) <= 1_200


def test_an_absent_key(root: Path) -> None:
    lake = sk.open(root)
    point(lake, 3 * ROWS + 7)
    absent = FILES * ROWS + 7
    assert 100 < calls(lambda: lake.scan(f"id = {absent}").to_arrow(), 0) <= 240


def test_a_condition_on_a_time(root: Path) -> None:
    """A new time of a known shape is not parsed, and is compared as an integer."""
    lake = sk.open(root)

    def ask(second: int) -> pa.Table:
        return lake.scan(f"id < 10 and ts >= timestamp '1970-01-01 00:00:{second:02d}.000000'").to_arrow()

    assert ask(1).num_rows == 0
    assert 300 < calls(lambda: ask(2), 0) <= 530
