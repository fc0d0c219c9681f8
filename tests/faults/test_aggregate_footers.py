"""Footers that tell less than they could, or what can't be: aggregates read what they can't be sure of."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.property._patch import BINARY, FALSE, I64, Struct, patch_statistics

NULLS, UPPER, LOWER, UPPER_EXACT, LOWER_EXACT = 3, 5, 6, 7, 8
WHOLE = [1, None, 3, 4] * 2
LONG = ["a" * 100 + "x", "a" * 100 + "y", "b", "c"] * 2
Change = Callable[[Struct], object]


def without(*fields: int) -> Change:
    """Statistics without some fields."""
    return lambda stats: [stats.pop(field, None) for field in fields]


def lying(fields: dict[int, list[Any]], *left_out: int) -> Change:
    """Statistics with other fields."""
    return lambda stats: (without(*left_out)(stats), stats.update(fields))


CUT = lying({UPPER: [BINARY, b"d"], LOWER: [BINARY, b"a"]}, UPPER_EXACT, LOWER_EXACT)
ABOVE = lying({UPPER: [BINARY, struct.pack("<q", 10)], UPPER_EXACT: [FALSE, False]})
NAN = lying({UPPER: [BINARY, struct.pack("<d", math.nan)]})
CASES: dict[str, tuple[list[Any], Change | None, bool]] = {
    # Values, what is done to the statistics of every chunk, and whether they still answer.
    "whole numbers": (WHOLE, None, True),
    "whole numbers, nothing said about exactness": (WHOLE, without(UPPER_EXACT, LOWER_EXACT), True),
    "no null count": (WHOLE, without(NULLS), False),
    "a negative null count": (WHOLE, lying({NULLS: [I64, -1]}), False),
    "more nulls than rows": (WHOLE, lying({NULLS: [I64, 99]}), False),
    "a bound that is no value": (WHOLE, ABOVE, False),
    "no bounds": (WHOLE, without(UPPER, LOWER, 1, 2), False),
    "texts": (LONG, None, True),
    "texts, nothing said about exactness": (LONG, without(UPPER_EXACT, LOWER_EXACT), False),
    "texts that were cut": (LONG, CUT, False),
    "floats, of which some may be NaN": ([1.0, math.nan, 3.0, None] * 2, None, False),
    "NaN as a bound": ([1.0, 2.0, 3.0, 4.0] * 2, NAN, False),
    "nothing but NULL": ([None] * 8, None, True),
}


@pytest.mark.parametrize("name", CASES)
def test_what_footers_don_t_prove_is_read(tmp_path: Path, name: str) -> None:
    values, change, known = CASES[name]
    path = tmp_path / "a.parquet"
    array = pa.array(values, pa.int64()) if not any(values) else pa.array(values)
    pq.write_table(pa.table({"x": array}), path, row_group_size=4)
    if change is not None:
        patch_statistics(path, change)
    scan = sk.open(path).scan()
    functions = (sk.count("x"), sk.min("x"), sk.max("x"))
    answer, read = scan.aggregate(*functions), scan.aggregate(*functions, use_cached=False)
    present = [v for v in values if v is not None]
    numbers = [v for v in present if v == v]
    wanted = [len(present), min(numbers, default=None), max(numbers, default=None)]
    if len(numbers) < len(present):
        wanted[2] = math.nan
    assert [repr(answer[f.name]) for f in functions] == [*map(repr, wanted)]
    assert repr(answer.to_pylist()) == repr(read.to_pylist())
    (use,) = answer.trace.columns
    assert (use.rows_answered, use.read) == ((8, 0) if known else (0, 8))
    assert (read.trace.columns[0].rows_answered, read.trace.columns[0].read) == (0, 8)


def test_one_value_in_every_row_is_its_own_sum(tmp_path: Path) -> None:
    """Bounds that are equal tell sums and groups too."""
    table = pa.table({"x": [5] * 4 + [-6] * 4, "s": ["q"] * 8, "n": pa.nulls(8, pa.int32())})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    answer = (
        sk.open(tmp_path)
        .scan()
        .aggregate(
            *(sk.sum("x"), sk.avg("x"), sk.var("x", ddof=0), sk.sum("n"), sk.count()), group_by=["s", "x"]
        )
    )
    assert answer.to_pylist() == [
        {"s": "q", "x": x, "sum(x)": 4 * x, "avg(x)": x, "var_pop(x)": 0.0, "sum(n)": None, "count": 4}
        for x in (-6, 5)
    ]
    assert all(use.read == 0 for use in answer.trace.columns)
