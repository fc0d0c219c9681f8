"""How many calls planning makes: most of a selective query's time, and the same on every machine."""

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

ROWS, GROUP, PAGE = 8_000, 2_000, 400


def calls(ask: Callable[[], object]) -> int:
    """Calls of Python and C functions that ``ask`` makes."""
    count = 0

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        ask()
    finally:
        sys.setprofile(before)
    return count


def _lake(root: Path, files: int) -> sk.Lake:
    rng = np.random.default_rng(3)
    for number in range(files):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        table = pa.table(
            {"id": ids, "user": rng.integers(0, 10**6, ROWS), "text": [f"text {i:06d}" for i in ids]}
        )
        pq.write_table(
            table,
            root / f"{number:03d}.parquet",
            row_group_size=GROUP,
            max_rows_per_page=PAGE,
            write_batch_size=PAGE,
            write_page_index=True,
        )
    sk.open(root).index.build(blooms=["id", "user"], engine="local")
    return sk.open(root)


@pytest.fixture(scope="module", params=[3, 30])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    """Few files and more of them: planning costs the same."""
    opened = _lake(tmp_path_factory.mktemp("lake"), request.param)
    for key in (5, 77):
        # Filters of every size are loaded.
        assert sum(opened.scan(f"id = {n * ROWS + key}").plan().rows for n in range(3)) == 3 * PAGE
        assert opened.scan(f"id = {key}").plan().rows == PAGE
        assert opened.scan(f"id between {key} and {key + 50}").plan().rows == PAGE
        assert opened.scan(f"id >= {key} and text = 'text 000401'").plan().rows == PAGE
    return opened


def test_a_point_is_planned_in_few_calls(lake: sk.Lake) -> None:
    assert 100 < calls(lambda: lake.scan("id = 1234").plan()) <= 380


def test_the_first_look_at_a_row_group_costs_no_more(lake: sk.Lake) -> None:
    assert 100 < calls(lambda: lake.scan(f"id = {2 * ROWS + GROUP + 3}").plan()) <= 380


def test_a_range_is_planned_in_few_calls(lake: sk.Lake) -> None:
    plans = []
    assert 100 < calls(lambda: plans.append(lake.scan("id between 1300 and 2299").plan())) <= 380
    assert plans[0].rows == 3 * PAGE


def test_an_absent_key_is_planned_in_few_calls(lake: sk.Lake) -> None:
    plans = []
    assert 100 < calls(lambda: plans.append(lake.scan("id = 99999999").plan())) <= 230
    assert plans[0].rows == 0


def test_two_columns_are_planned_in_few_calls(lake: sk.Lake) -> None:
    plans = []
    where = "id >= 900 and text = 'text 000951'"
    assert 100 < calls(lambda: plans.append(lake.scan(where).plan())) <= 680
    assert plans[0].rows == PAGE


def test_the_trace_is_the_same_as_level_by_level(lake: sk.Lake) -> None:
    trace = lake.scan("id = 1234").plan().trace
    files = trace.files
    found = {level.name: (level.units, level.kept) for level in trace.levels}
    assert found["row groups"] == (files * ROWS // GROUP, 1)
    assert found["pages"] == (GROUP // PAGE, 1)
    assert trace.levels[-1].rows == trace.rows_kept == PAGE
