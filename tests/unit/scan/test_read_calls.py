"""How many calls reading takes, from a plan to a table: the cost of a look-up is calls, not work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk

FILES, ROWS = 4, 40_000
PAGE = 2_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An indexed lake of seven columns, two row groups to a file."""
    root = tmp_path_factory.mktemp("lake")
    rng = np.random.default_rng(3)
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        table = pa.table(
            {
                "id": ids,
                "ts": pa.array(ids * 1_000, pa.timestamp("us")),
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
            row_group_size=ROWS // 2,
            write_page_index=True,
            max_rows_per_page=PAGE,
            use_dictionary=["kind"],
        )
    sk.open(root).index.build(engine="local")
    return root


def calls(run: Callable[[], Any]) -> tuple[int, Any]:
    """Calls of Python and C functions, and the result."""
    count = 0

    def profile(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        found = run()
    finally:
        sys.setprofile(None)
    return count, found


def read(lake: Any, where: str, rows: int) -> int:
    """The calls of reading alone: the plan and its filter are made before."""
    plan = lake.scan(where).plan()
    assert plan.filter is not None
    count, table = calls(lambda: sk.execute(plan).to_arrow())
    assert table.num_rows == rows
    return count


def test_a_look_up_in_a_row_group_that_was_read_before(root: Path) -> None:
    lake = sk.open(root)
    read(lake, "id = 70", 1)
    assert 100 < read(lake, "id = 3071", 1) <= 400
    assert 100 < read(lake, "id = 9072", 1) <= 400


def test_a_range_of_one_or_two_pages(root: Path) -> None:
    lake = sk.open(root)
    read(lake, "id = 70", 1)
    assert 100 < read(lake, "id between 2100 and 3099", 1_000) <= 415
    assert 100 < read(lake, "id between 3100 and 4099", 1_000) <= 415
    # The last of one row group and the first of the next.
    read(lake, "id = 20100", 1)
    assert 100 < read(lake, "id between 19500 and 20499", 1_000) <= 660


def test_no_row_that_matches(root: Path) -> None:
    lake = sk.open(root)
    read(lake, "id = 70", 1)
    assert 100 < read(lake, "id = 3071 and amount * 2 > 7", 0) <= 470


def test_whole_files(root: Path) -> None:
    lake = sk.open(root)
    lake.scan(threads=1).to_arrow()
    per_row_group = read(lake, "id >= 0", FILES * ROWS) / (2 * FILES)
    assert 50 < per_row_group <= 400


def test_the_first_look_up_in_another_row_group(root: Path) -> None:
    lake = sk.open(root)
    read(lake, "id = 70", 1)
    assert 300 < read(lake, "id = 25071", 1) <= 510
