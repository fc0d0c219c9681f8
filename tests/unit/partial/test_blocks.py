import math
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.domain.keys import Kind, key_space, to_key
from skipstone.domain.spans import limits
from skipstone.parquet.measure import NotMeasurable
from skipstone.partial.blocks import BlockSums, block_sums

EDGES = [0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, 1.7976931348623157e308, 0.1, 1e16, -1.0, math.pi]
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.uint8(): st.integers(0, 255),
    pa.int32(): st.sampled_from([-(2**31), -1, 0, 2**31 - 1]),
    pa.uint32(): st.sampled_from([0, 1, 2**32 - 1]),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1]),
    pa.uint64(): st.integers(0, 2**64 - 1) | st.just(2**64 - 1),
    pa.float32(): st.floats(width=32) | st.sampled_from([0.0, -0.0, 0.5]),
    pa.float64(): st.floats() | st.sampled_from(EDGES),
    pa.duration("us"): st.sampled_from([-(2**63) + 1, 0, 2**63 - 1]),
    pa.timestamp("ns"): st.integers(-(2**62), 2**62),
    pa.date32(): st.dates(),
    pa.decimal64(15, 2): st.decimals(-9999, 9999, places=2),
    pa.decimal128(18, 2): st.decimals(-(10**15), 10**15, places=2),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, pa.ChunkedArray, list[int]]:
    type = draw(st.sampled_from(list(VALUES)))
    chunks = draw(st.lists(st.lists(st.none() | VALUES[type], max_size=12), max_size=3))
    values = pa.chunked_array([pa.array([None, *c], type).slice(1) for c in chunks], type)
    return type, values, [0, *sorted(draw(st.lists(st.integers(0, len(values)), max_size=5)))]


def float_sum(numbers: list[float]) -> float:
    odd = [n for n in numbers if math.isinf(n) or math.isnan(n)]
    if odd:
        return sum(odd)
    total = sum(map(Fraction, numbers), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def same(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def check(sums: BlockSums, type: pa.DataType, blocks: list[list[Any]], totals: list[Any]) -> None:
    space = key_space(type)
    assert len(sums) == len(blocks)
    for i, (keys, total) in enumerate(zip(blocks, totals, strict=True)):
        present = [k for k in keys if k is not None]
        numbers = [k for k in present if k == k]
        assert (sums.count[i], sums.nans[i]) == (len(present), len(present) - len(numbers))
        assert sums.has[i] == bool(numbers)
        assert sums.lower.dtype == space.dtype
        ends = (min(numbers), max(numbers)) if numbers else limits(space)
        assert (sums.lower[i], sums.upper[i]) == ends
        if space.kind is Kind.FLOAT:
            assert sums.total is not None
            assert same(float(sums.total[i]), total)
            assert same(sums.sum(i), math.nan if sums.nans[i] else total)
        else:
            assert sums.sum(i) == total


def split(items: list[Any], starts: list[int]) -> list[list[Any]]:
    return [items[a:b] for a, b in zip(starts, [*starts, len(items)][1:], strict=True)]


def sums_of(type: pa.DataType, blocks: list[list[Any]]) -> list[Any]:
    add = float_sum if pa.types.is_floating(type) else sum
    return [add([k for k in block if k is not None and k == k]) for block in blocks]


@given(columns(), st.data())
def test_sums_are_those_of_the_values_one_by_one(
    case: tuple[pa.DataType, pa.ChunkedArray, list[int]], data: st.DataObject
) -> None:
    type, values, starts = case
    if pa.types.is_floating(type):
        keys: list[Any] = values.to_pylist()
    else:
        keys = [to_key(type, v) if v.is_valid else None for v in values]
    sums = block_sums(type, values, np.array(starts))
    blocks = split(keys, starts)
    totals = sums_of(type, blocks)
    check(sums, type, blocks, totals)
    larger = sorted(data.draw(st.lists(st.integers(0, len(blocks)), max_size=4)))
    merged = [[k for b in part for k in b] for part in split(blocks, larger)]
    # Floats: the rounded sum of rounded sums. Whole numbers: the sum itself.
    add = float_sum if pa.types.is_floating(type) else sum
    again = [add(part) for part in split(totals, larger)]
    check(sums.merge(np.array(larger, dtype=np.int64)), type, merged, again)
    stored = BlockSums.from_arrays(type, pickle.loads(pickle.dumps(sums.to_arrays())))
    check(BlockSums.concat([sums, stored]), type, blocks * 2, totals * 2)


def test_sums_beyond_64_bits() -> None:
    sums = block_sums(pa.int64(), pa.array([2**63 - 1] * 1_000), np.array([0, 500]))
    assert [sums.sum(0), sums.sum(1)] == [500 * (2**63 - 1)] * 2
    assert sums.merge(np.array([0])).sum(0) == 1_000 * (2**63 - 1)
    least = block_sums(pa.int64(), pa.array([-(2**63)] * 1_000), np.array([0, 500])).merge(np.array([0]))
    assert least.sum(0) == -1_000 * 2**63
    unsigned = block_sums(pa.uint64(), pa.array([2**64 - 1] * 1_000, pa.uint64()), np.array([0, 1]))
    assert unsigned.merge(np.array([0])).sum(0) == 1_000 * (2**64 - 1)
    assert set(unsigned.to_arrays()) == {"count", "nans", "low", "high", "lower", "upper", "has"}


def test_long_blocks_of_floats() -> None:
    rng = np.random.default_rng(7)
    numbers = rng.normal(size=100_000) * 10.0 ** rng.integers(-300, 300, size=100_000)
    numbers = np.concatenate((numbers, -numbers[:-1]))
    rng.shuffle(numbers)
    sums = block_sums(pa.float64(), pa.array(numbers), np.array([0, 150_000]))
    assert [sums.sum(0), sums.sum(1)] == [math.fsum(numbers[:150_000]), math.fsum(numbers[150_000:])]
    assert block_sums(pa.float64(), pa.array(numbers), np.array([0])).sum(0) == math.fsum(numbers)


def test_infinities_and_nan() -> None:
    inf, nan = math.inf, math.nan
    values = pa.array([1e308, 1e308, inf, 1.0, inf, -inf, nan, 2.0, None, nan])
    sums = block_sums(pa.float64(), values, np.array([0, 2, 4, 6, 8]))
    assert sums.total is not None
    assert [str(t) for t in sums.total.tolist()] == ["inf", "inf", "nan", "2.0", "0.0"]
    assert (sums.nans.tolist(), sums.count.tolist()) == ([0, 0, 0, 1, 1], [2, 2, 2, 2, 1])
    assert sums.has.tolist() == [True, True, True, True, False]
    assert math.isnan(sums.sum(3))
    assert math.isnan(sums.merge(np.array([0])).sum(0))
    assert set(sums.to_arrays()) == {"count", "nans", "total", "lower", "upper", "has"}


def test_an_overflow_on_the_way_is_none() -> None:
    values = pa.array([1e308, 1e308, -1e308, -1e308, 3.0])
    assert block_sums(pa.float64(), values, np.array([0])).sum(0) == 3.0


@pytest.mark.parametrize("type", [pa.string(), pa.decimal128(38, 2), pa.list_(pa.int32())])
def test_types_without_sums(type: pa.DataType) -> None:
    with pytest.raises(NotMeasurable):
        block_sums(type, pa.array([], type), np.array([0]))


def test_a_duckdb_file(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    duckdb.sql(
        "select (i * 7919 % 100003)::decimal(12,2) d, i::int i, if(i % 4 = 0, null, (i * 0.1)::double) f"
        " from range(50000) r(i)"
    ).write_parquet(str(path))
    table = pq.read_table(path)
    starts = np.arange(0, 50_000, 5_000)
    (row,) = duckdb.sql(f"select sum(d) * 100, sum(i), count(f), min(f), max(f) from '{path}'").fetchall()
    whole = {
        name: block_sums(table.schema.field(name).type, table.column(name), starts).merge(np.array([0]))
        for name in table.column_names
    }
    f = whole["f"]
    assert (whole["d"].sum(0), whole["i"].sum(0)) == (int(row[0]), row[1])
    assert (f.count[0], f.lower[0], f.upper[0]) == row[2:]
