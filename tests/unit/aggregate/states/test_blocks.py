import datetime
import decimal
import math
import pickle
from dataclasses import replace
from decimal import Decimal
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

from skipstone.aggregate.states.blocks import BlockMeasure, Blocks, constant_blocks, facets_of, read_blocks
from skipstone.aggregate.states.exact import HUGE_BITS, fraction, to_ints
from skipstone.aggregate.states.state import ALL_FACETS, Facet, RowSelection
from skipstone.core.domain.keys import Kind, key_space, to_key, wide_value
from skipstone.parquet.measure import NotMeasurable

EDGES = [0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, 1.7976931348623157e308, 0.1, 1e16, -1.0, math.pi]
WIDE = decimal.Context(prec=80)
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
    pa.decimal128(38, 2): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-2, WIDE)),
    pa.decimal256(76, 0): st.integers(-(10**76) + 1, 10**76 - 1).map(Decimal),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=70),
    pa.list_(pa.int8()): st.lists(st.integers(0, 3), max_size=2),
}
ZERO = np.zeros(1, dtype=np.int64)


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, pa.ChunkedArray, list[int]]:
    type = draw(st.sampled_from(list(VALUES)))
    chunks = draw(st.lists(st.lists(st.none() | VALUES[type], max_size=12), max_size=3))
    values = pa.chunked_array([pa.array([None, *c], type).slice(1) for c in chunks], type)
    return type, values, [0, *sorted(draw(st.lists(st.integers(0, len(values)), max_size=5)))]


def keys_of(type: pa.DataType, values: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_floating(type):
        return values.to_pylist()
    if pa.types.is_list(type):
        return [0 if v.is_valid else None for v in values]
    return [to_key(type, v) if v.is_valid else None for v in values]


def whole(type: pa.DataType, key: Any) -> Any:
    return wide_value(key) if pa.types.is_decimal(type) and isinstance(key, bytes) else key


def total(blocks: Blocks, block: int) -> Fraction:
    limbs = to_ints(blocks.limbs)[block]
    floating = key_space(blocks.type).kind is Kind.FLOAT
    return fraction(blocks.parts, block) + (limbs << HUGE_BITS if floating else limbs)


def check(blocks: Blocks, type: pa.DataType, lists: list[list[Any]]) -> None:
    assert len(blocks) == len(lists)
    for i, keys in enumerate(lists):
        assert blocks.facets[i] == facets_of(type)
        present = [k for k in keys if k is not None]
        numbers = [k for k in present if k == k]
        assert blocks.count[i] == len(present)
        if not facets_of(type) & Facet.MIN_MAX:
            continue
        assert (blocks.nans[i], blocks.has[i]) == (len(present) - len(numbers), bool(numbers))
        if numbers:
            ends = blocks.lower[i], blocks.upper[i]
            found = tuple(end.as_py() if isinstance(end, pa.Scalar) else end for end in ends)
            assert found == (min(numbers), max(numbers))
            assert not isinstance(found[0], float) or math.copysign(1, found[0]) == 1 or found[0] != 0
        if not facets_of(type) & Facet.SUM:
            continue
        finite = [whole(type, n) for n in numbers if not isinstance(n, float) or math.isfinite(n)]
        infinite = [n for n in numbers if isinstance(n, float) and math.isinf(n)]
        assert total(blocks, i) == sum(map(Fraction, finite), Fraction(0))
        assert repr(float(blocks.infinite[i])) == repr(float(sum(infinite)))
        if any(abs(n) >= 2**480 for n in finite) or infinite:
            assert np.isinf(blocks.squares[:, i]).any()
        elif not any(isinstance(n, float) and 0 < abs(n) < 1e-120 for n in finite):
            assert fraction(blocks.squares, i) == sum((Fraction(n) ** 2 for n in finite), Fraction(0))


def split(items: list[Any], starts: list[int]) -> list[list[Any]]:
    return [items[a:b] for a, b in zip(starts, [*starts, len(items)][1:], strict=True)]


@given(columns(), st.data())
def test_blocks_match_a_loop_over_values(
    case: tuple[pa.DataType, pa.ChunkedArray, list[int]], data: st.DataObject
) -> None:
    type, values, starts = case
    lists = split(keys_of(type, values), starts)
    blocks = read_blocks(type, values, np.array(starts), ALL_FACETS)
    check(blocks, type, lists)
    larger = [0, *sorted(data.draw(st.lists(st.integers(0, len(lists)), max_size=4)))]
    merged = [[k for b in part for k in b] for part in split(lists, larger)]
    check(blocks.merge(np.array(larger)), type, merged)
    order = data.draw(st.permutations(range(len(lists))))
    taken = pickle.loads(pickle.dumps(blocks)).take(np.array(order))
    check(Blocks.concat([blocks, taken]), type, [*lists, *(lists[n] for n in order)])
    if facets_of(type) & Facet.SUM:
        check(Blocks.from_arrays(type, blocks.to_arrays()), type, lists)


@given(columns(), st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_constant_blocks_match_rows(
    case: tuple[pa.DataType, pa.ChunkedArray, list[int]], counts: list[int]
) -> None:
    type, values, _ = case
    for value in values.slice(0, 3):
        keys = keys_of(type, pa.chunked_array([pa.array([value.as_py() if value.is_valid else None], type)]))
        if pa.types.is_timestamp(type) or pa.types.is_duration(type):
            keys = [value.value if value.is_valid else None]
        check(constant_blocks(type, value, np.array(counts), ALL_FACETS), type, [keys * n for n in counts])


def test_facets() -> None:
    values = pa.array([1.5, None, 2.5])
    counted = read_blocks(pa.float64(), values, ZERO, Facet.COUNT)
    assert (counted.facets.tolist(), counted.count.tolist()) == ([Facet.COUNT], [2])
    summed = read_blocks(pa.float64(), values, ZERO, Facet.SUM)
    assert summed.has_facets(Facet.SUM).all()
    assert not summed.has_facets(ALL_FACETS).any()
    texts = read_blocks(pa.string(), pa.array(["a", None]), ZERO, Facet.SUM)
    assert (texts.facets.tolist(), texts.count.tolist()) == ([Facet.COUNT], [1])


def test_merging_without_bounds() -> None:
    for type, values in (
        (pa.decimal128(38, 2), [Decimal(1), None, Decimal(2)]),
        (pa.string(), ["a", None, "b"]),
    ):
        blocks = read_blocks(type, pa.array(values, type), np.arange(3), Facet.COUNT | Facet.SUM)
        merged = blocks.merge(np.array([0, 2]))
        assert not merged.has_facets(Facet.MIN_MAX).any()
        assert merged.count.tolist() == [1, 1]


def test_merging_where_one_bound_is_missing() -> None:
    """Statistics may have a lower bound of text and no upper one; the counts are still those of the rows."""
    blocks = read_blocks(pa.string(), pa.array(["b", "a", None, "c"]), np.array([0, 2]), ALL_FACETS)
    half = replace(blocks, upper=pa.nulls(2, pa.large_binary()), facets=blocks.facets & Facet.COUNT)
    merged = half.merge(ZERO)
    assert (merged.count.tolist(), merged.facets.tolist()) == ([3], [Facet.COUNT])


def test_an_infinite_single() -> None:
    for type in (pa.float32(), pa.float16()):
        blocks = read_blocks(type, pa.array(np.array([1.0, np.inf]), type), ZERO, ALL_FACETS)
        assert (blocks.infinite.tolist(), total(blocks, 0)) == ([math.inf], 1)


def test_what_is_unknown_stays_unknown() -> None:
    known = read_blocks(pa.int64(), pa.array([1, 2]), np.array([0, 1]), ALL_FACETS)
    both = Blocks.concat([known, Blocks.unknown(pa.int64(), 2)])
    assert both.has_facets(ALL_FACETS).tolist() == [True, True, False, False]
    assert both.merge(np.array([0, 1, 3])).has_facets(ALL_FACETS).tolist() == [True, False, False]
    assert both.merge(np.array([0, 4])).has_facets(ALL_FACETS).tolist() == [False, True]


def test_sums_beyond_64_bits() -> None:
    for type, value in ((pa.int64(), 2**63 - 1), (pa.int64(), -(2**63)), (pa.uint64(), 2**64 - 1)):
        blocks = read_blocks(type, pa.array([value] * 1_000, type), np.array([0, 1]), ALL_FACETS)
        assert [total(blocks, 0), total(blocks.merge(ZERO), 0)] == [value, 1_000 * value]


def test_more_rows_than_limbs_can_sum() -> None:
    blocks = constant_blocks(
        pa.uint64(), pa.scalar(2**64 - 1, pa.uint64()), np.array([2**40] * 5), ALL_FACETS
    )
    for _ in range(6):
        blocks = Blocks.concat([blocks] * 10).merge(ZERO)
    assert total(blocks, 0) == 5 * 10**6 * 2**40 * (2**64 - 1)
    assert fraction(blocks.squares, 0) == 5 * 10**6 * 2**40 * (2**64 - 1) ** 2


def test_intermediate_overflow_is_harmless() -> None:
    values = pa.array([1e308, 1e308, -1e308, -1e308, 3.0])
    for starts in ([0], [0, 1], [0, 2, 4]):
        assert total(read_blocks(pa.float64(), values, np.array(starts), ALL_FACETS).merge(ZERO), 0) == 3


def test_files_of_other_types() -> None:
    """Values are measured in the type that is asked for, or not at all."""
    narrow = pa.array([1, 2], pa.decimal128(9, 2))
    wider = read_blocks(pa.decimal128(15, 4), narrow, ZERO, ALL_FACETS)
    assert total(wider, 0) == 30_000
    assert read_blocks(pa.int64(), pa.array([1, 2], pa.int8()), ZERO, ALL_FACETS).lower.dtype == np.int64
    with pytest.raises(NotMeasurable):
        read_blocks(pa.int8(), pa.array([1, 2], pa.int64()), ZERO, ALL_FACETS)


def test_text_in_long_and_short_blocks() -> None:
    words = pa.array([f"w{n * 7919 % 1000:04}" for n in range(1_000)])
    long = read_blocks(pa.string(), words, np.array([0, 500]), ALL_FACETS)
    short = read_blocks(pa.string(), words, np.arange(0, 1_000, 5), ALL_FACETS).merge(np.array([0, 100]))
    assert long.lower.equals(short.lower)
    assert long.upper.equals(short.upper)
    assert long.lower.to_pylist() == [
        min(words.to_pylist()[s]).encode() for s in (slice(500), slice(500, None))
    ]


def test_the_measure() -> None:
    table = pa.table({"s": pa.array([{"x": 1}, {"x": 5}, None, {"x": 2}]), "day": [datetime.date.min] * 4})
    measure = BlockMeasure(("s", "x"), pa.int64(), Facet.SUM | Facet.COUNT)
    assert measure.columns == (("s", "x"),)
    one = measure.update(RowSelection(table, np.array([0, 1])))
    two = measure.update(RowSelection(table.slice(1), np.array([0, 2])))
    joined = measure.join([one, two])
    folded = measure.fold(joined, np.array([3, 0, 1, 2]), np.array([0, 2]))
    assert [total(folded, n) for n in (0, 1)] == [2 + 1, 7 + 5]
    assert folded.count.tolist() == [2, 3]
    blocks, sure = measure.from_blocks(Blocks.concat([one, Blocks.unknown(pa.int64(), 1)]))
    assert sure.tolist() == [True, True, False]
    assert len(blocks) == 3


def test_a_duckdb_file(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    duckdb.sql(
        "select (i * 7919 % 100003)::decimal(12,2) d, i::int i, if(i % 4 = 0, null, (i * 0.1)::double) f"
        " from range(50000) r(i)"
    ).write_parquet(str(path))
    table = pq.read_table(path)
    starts = np.arange(0, 50_000, 5_000)
    (row,) = duckdb.sql(f"select sum(d) * 100, sum(i), count(f), min(f), max(f) from '{path}'").fetchall()
    found = {
        name: read_blocks(table.schema.field(name).type, table.column(name), starts, ALL_FACETS).merge(ZERO)
        for name in table.column_names
    }
    f = found["f"]
    assert (total(found["d"], 0), total(found["i"], 0)) == (int(row[0]), row[1])
    assert (f.count[0], f.lower[0], f.upper[0]) == row[2:]
