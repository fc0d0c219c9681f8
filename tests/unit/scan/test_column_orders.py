"""One lake asked for its columns in one order after another: no scan may change the next."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone as sk

NAMES = ("id", "a", "b", "c", "nested")


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("route", ["auto", "slice", "pyarrow"])
def test_columns_come_in_the_order_of_each_scan(tmp_path: Path, indexed: bool, route: str) -> None:
    table = pa.table(
        {
            "id": range(400),
            "a": [n * 0.5 for n in range(400)],
            "b": [f"b{n}" for n in range(400)],
            "c": [n % 7 for n in range(400)],
            "nested": [{"x": n, "y": str(n)} for n in range(400)],
        }
    )
    for number in range(4):
        path = tmp_path / "lake" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        part = table.slice(number * 100, 100)
        pq.write_table(part, path, row_group_size=25, max_rows_per_page=5, write_page_index=True)
    if indexed:
        sk.open(tmp_path / "lake").index.build(engine="local")
    lake = sk.open(tmp_path / "lake")
    rng = random.Random(7)
    for _ in range(60):
        columns = rng.sample(NAMES, rng.randint(1, len(NAMES)))
        low = rng.randrange(400)
        high = rng.choice((low, low + 30, 400))
        found = lake.scan(f"id between {low} and {high}", columns=columns, route=route).to_arrow()
        ids = table["id"]
        wanted = table.filter(pc.and_(pc.greater_equal(ids, low), pc.less_equal(ids, high)))
        assert found.equals(wanted.select(columns)), (columns, low, high)
