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
    assert 100 < calls(lambda: lake.scan("id = 1234").plan()) <= 370


def test_the_first_look_at_a_row_group_costs_no_more(lake: sk.Lake) -> None:
    assert 100 < calls(lambda: lake.scan(f"id = {2 * ROWS + GROUP + 3}").plan()) <= 370


def test_a_range_is_planned_in_few_calls(lake: sk.Lake) -> None:
    plans = []
    assert 100 < calls(lambda: plans.append(lake.scan("id between 1300 and 2299").plan())) <= 370
    assert plans[0].rows == 3 * PAGE


def test_an_absent_key_is_planned_in_few_calls(lake: sk.Lake) -> None:
    plans = []
    assert 100 < calls(lambda: plans.append(lake.scan("id = 99999999").plan())) <= 225
    assert plans[0].rows == 0


def test_two_columns_are_planned_in_few_calls(lake: sk.Lake) -> None:
    plans = []
    where = "id >= 900 and text = 'text 000951'"
    assert 100 < calls(lambda: plans.append(lake.scan(where).plan())) <= 670
    assert plans[0].rows == PAGE


def test_the_trace_is_the_same_as_level_by_level(lake: sk.Lake) -> None:
    trace = lake.scan("id = 1234").plan().trace
    files = trace.files
    found = {level.name: (level.units, level.kept) for level in trace.levels}
    assert found["row groups"] == (files * ROWS // GROUP, 1)
    assert found["pages"] == (GROUP // PAGE, 1)
    assert trace.levels[-1].rows == trace.rows_kept == PAGE


def test_a_partition_is_planned_from_the_pages_of_the_whole_lake(tmp_path: Path) -> None:
    for day in range(6):
        (tmp_path / f"day={day}").mkdir()
        table = pa.table({"id": np.arange(day * ROWS, (day + 1) * ROWS)})
        path = tmp_path / f"day={day}" / "part.parquet"
        pq.write_table(table, path, row_group_size=GROUP, max_rows_per_page=PAGE, write_batch_size=PAGE)
    sk.open(tmp_path).index.build(["id"], engine="local")
    lake = sk.open(tmp_path)
    for day in range(2):
        assert lake.scan(f"day = {day} and id = {day * ROWS + 7}").plan().rows == PAGE
    plans: list[sk.ScanPlan] = []
    found = [
        calls(lambda day=day: plans.append(lake.scan(f"day = {day} and id = {day * ROWS + 9}").plan()))
        for day in range(2, 6)
    ]
    assert 100 < max(found) <= 850
    assert [(len(plan.tasks), plan.rows) for plan in plans] == [(1, PAGE)] * 4
    trace = plans[-1].trace
    assert [(level.name, level.units, level.kept) for level in trace.levels] == [
        ("partitions", 6, 1),
        ("files", 1, 1),
        ("row groups", ROWS // GROUP, 1),
        ("pages", GROUP // PAGE, 1),
    ]
    assert trace.rows == ROWS


def test_the_places_of_pages_come_together(lake: sk.Lake) -> None:
    metadata = lake.access.layout(lake.entries[1])
    for group in range(ROWS // GROUP):
        alone = [metadata.page_offsets(group, leaf) for leaf in range(3)]
        for one, other in zip(metadata.all_page_offsets(group, range(3)), alone, strict=True):
            assert one is not None
            assert other is not None
            assert one.first_rows.tolist() == other.first_rows.tolist() == list(range(0, GROUP, PAGE))
            assert one.offsets.tolist() == other.offsets.tolist()
            assert one.sizes.tolist() == other.sizes.tolist()
