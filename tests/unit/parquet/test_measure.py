import datetime as dt
import decimal
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.core.domain.keys import Kind, key_space, to_key
from skipstone.core.evidence import ColumnFacts
from skipstone.core.ir.nodes import ColumnRef
from skipstone.parquet.evidence import find_leaf, own_type, page_facts
from skipstone.parquet.measure import ChunkMeasure, NotMeasurable, measure, whole
from skipstone.parquet.metadata import read_footer
from skipstone.parquet.pageindex import page_index_ranges, parse_page_index, walk_pages
from skipstone.store.source import open_source

D = decimal.Decimal
HALVES = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.0, 0.25]
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-3, 3),
    pa.int32(): st.sampled_from([-(2**31), -1, 0, 2**31 - 1]),
    pa.int64(): st.sampled_from([-(2**63), -1, 0, 2**63 - 1]),
    pa.uint8(): st.integers(0, 255),
    pa.uint16(): st.integers(0, 5),
    pa.uint32(): st.sampled_from([0, 2**31, 2**32 - 1]),
    pa.uint64(): st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    pa.float16(): st.sampled_from(HALVES),
    pa.float32(): st.sampled_from([*HALVES, 2.0**-149]),
    pa.float64(): st.sampled_from([*HALVES, 5e-324, 1e308]),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.time32("ms"): st.times().map(lambda t: t.replace(microsecond=0)),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ms", "Europe/Berlin"): st.integers(-(10**13), 10**13),
    pa.timestamp("ns", "UTC"): st.integers(-(2**62), 2**62),
    pa.duration("s"): st.integers(-5, 5),
    pa.decimal32(7, 2): st.decimals(-99999, 99999, places=2),
    pa.decimal64(15, 2): st.decimals(-99999, 99999, places=2),
    pa.decimal128(18, 3): st.decimals(-(10**15) + 1, 10**15 - 1, places=3),
    pa.decimal128(38, 3): st.decimals(-(10**34), 10**34, places=3),
    pa.decimal256(60, 3): st.decimals(-(10**50), 10**50, places=3),
    pa.string(): st.sampled_from(["", "a", "ab", "é", "z\U0001f600"]),
    pa.large_string(): st.text(max_size=3),
    pa.string_view(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.large_binary(): st.binary(max_size=3),
    pa.binary_view(): st.binary(max_size=3),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["b", "a", "c"]),
    pa.dictionary(pa.int32(), pa.int64()): st.integers(-3, 3),
    pa.uuid(): st.sampled_from([bytes(16), b"\xff" * 16, b"0123456789abcdef"]),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, pa.ChunkedArray, list[int]]:
    type = draw(st.sampled_from(list(VALUES)))
    chunks = draw(st.lists(st.lists(st.none() | VALUES[type], max_size=10), max_size=3))
    arrays = []
    for chunk in chunks:
        # A slice, so that nothing relies on arrays that begin at their buffers' beginning.
        storage = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
        items = [None, *chunk]
        if pa.types.is_float16(type):
            items = [None if v is None else np.float16(v) for v in items]
        made = pa.array(items, storage)
        arrays.append((type.wrap_array(made) if storage != type else made).slice(1))
    values = pa.chunked_array(arrays, type)
    starts = sorted(draw(st.lists(st.integers(0, len(values)), max_size=4)))
    return type, values, [0, *starts]


def keys_of(type: pa.DataType, values: pa.ChunkedArray) -> list[Any]:
    """Keys one by one; NULL as None, NaN as NaN."""
    if pa.types.is_floating(type):
        return [None if v is None else float(v) for v in values.to_pylist()]
    return [to_key(type, scalar) if scalar.is_valid else None for scalar in values]


def listed(bounds: Any) -> list[Any]:
    return list(bounds.to_pylist() if isinstance(bounds, pa.Array) else bounds.tolist())


def check(measured: ChunkMeasure, type: pa.DataType, keys: list[Any], starts: list[int]) -> None:
    facts, space = measured.facts, key_space(type)
    unknown = (None, None) if space.kind is Kind.BYTES else space.limits
    assert (facts.type, len(facts)) == (type, len(starts))
    if space.kind is not Kind.BYTES:
        assert facts.lower.dtype == facts.upper.dtype == space.dtype
    lower, upper = listed(facts.lower), listed(facts.upper)
    for page, start in enumerate(starts):
        rows = keys[start : starts[page + 1] if page + 1 < len(starts) else None]
        nulls = sum(k is None for k in rows)
        nans = sum(k is not None and k != k for k in rows)
        numbers = [k for k in rows if k is not None and k == k]
        assert (measured.rows[page], measured.nulls[page], measured.nans[page]) == (len(rows), nulls, nans)
        assert facts.may_value[page] == bool(numbers)
        assert (facts.may_null[page], facts.may_nan[page]) == (nulls > 0, nans > 0)
        ends = (min(numbers), max(numbers)) if numbers else unknown
        assert (lower[page], upper[page]) == ends
        zeros = [space.kind is Kind.FLOAT and end == 0 for end in ends]
        exact = [bool(numbers) and not zero for zero in zeros]
        assert [facts.lower_exact[page], facts.upper_exact[page]] == exact
        if zeros[0]:
            assert math.copysign(1, lower[page]) == -1
        if zeros[1]:
            assert math.copysign(1, upper[page]) == 1
    different = {"nan" if k != k else k for k in keys if k is not None}
    assert measured.distinct == len(different)


@given(columns())
def test_values_of_every_type(case: tuple[pa.DataType, pa.ChunkedArray, list[int]]) -> None:
    type, values, starts = case
    measured = measure(type, values, np.array(starts))
    check(measured, type, keys_of(type, values), starts)
    one = measure(type, values, np.array([0]))
    found = whole(measured)
    for name in ("lower", "upper", "lower_exact", "upper_exact", "may_value", "may_null", "may_nan"):
        assert listed(getattr(found, name)) == listed(getattr(one.facts, name))


def test_no_pages() -> None:
    for type in VALUES:
        measured = measure(type, pa.chunked_array([], type), np.zeros(0, dtype=np.int64))
        assert (len(measured.facts), measured.distinct) == (0, 0)
        found = whole(measured)
        assert (len(found), found.may_value[0], found.may_null[0]) == (1, False, False)


def test_long_bounds_are_cut_soundly() -> None:
    long = [b"\x01" + b"\xff" * 70, b"b" * 65, b"c" * 64, b"\xff" * 65, b"d" * 63 + b"\xff\xff"]
    measured = measure(pa.binary(), pa.array(long), np.arange(5))
    facts = measured.facts
    assert listed(facts.lower) == [
        b"\x01" + b"\xff" * 63,
        b"b" * 64,
        b"c" * 64,
        b"\xff" * 64,
        b"d" * 63 + b"\xff",
    ]
    assert listed(facts.upper) == [b"\x02", b"b" * 63 + b"c", b"c" * 64, None, b"d" * 62 + b"e"]
    assert facts.lower_exact.tolist() == facts.upper_exact.tolist() == [False, False, True, False, False]
    assert facts.may_value.all()
    text = measure(pa.string(), pa.array(["é" * 40]), np.array([0])).facts
    low, high = listed(text.lower)[0], listed(text.upper)[0]
    assert low < ("é" * 40).encode() < high
    assert (len(low), len(high)) == (64, 64)


def test_other_types_that_widen_without_loss() -> None:
    starts = np.array([0, 1])
    same = [
        (pa.int64(), pa.array([1, -2], pa.int8()), [1, -2]),
        (pa.float64(), pa.array([0.5, 1.5], pa.float32()), [0.5, 1.5]),
        (pa.float64(), pa.array([np.float16(0.5), None], pa.float16()), [0.5, -math.inf]),
        (pa.timestamp("us"), pa.array([1, -2], pa.timestamp("ms")), [1_000, -2_000]),
        (pa.timestamp("us", "UTC"), pa.array([1, -2], pa.timestamp("s", "Asia/Tokyo")), [10**6, -2 * 10**6]),
        (pa.timestamp("ns", "UTC"), pa.array([1, -2], pa.timestamp("ns")), [1, -2]),
        (pa.decimal128(12, 4), pa.array([D("1.5"), D("-2.25")], pa.decimal128(5, 2)), [15_000, -22_500]),
        (pa.decimal128(7, 2), pa.array([D("1.5"), D("-2.25")], pa.decimal32(5, 2)), [150, -225]),
        (pa.large_string(), pa.array(["a", "b"]), [b"a", b"b"]),
        (pa.int32(), pa.nulls(2), [-(2**31), -(2**31)]),
    ]
    for type, values, lower in same:
        facts = measure(type, values, starts).facts
        assert (facts.type, listed(facts.lower)) == (type, lower)


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.struct([("a", pa.int32())]), pa.array([{"a": 1}])),
        (pa.list_(pa.int32()), pa.array([[1]])),
        (pa.null(), pa.nulls(1)),
        (pa.int32(), pa.array([1], pa.int64())),
        (pa.int64(), pa.array([1], pa.uint64())),
        (pa.int64(), pa.array(["1"])),
        (pa.string(), pa.array([b"a"])),
        (pa.timestamp("us"), pa.array([1], pa.timestamp("us", "UTC"))),
        (pa.timestamp("ms"), pa.array([1], pa.timestamp("us"))),
        (pa.timestamp("ns"), pa.array([2**62], pa.timestamp("s"))),
        (pa.decimal128(5, 1), pa.array([D("1.25")], pa.decimal128(5, 2))),
    ],
)
def test_what_cannot_be_measured(type: pa.DataType, values: pa.Array) -> None:
    with pytest.raises(NotMeasurable):
        measure(type, values, np.array([0]))


# ---------------------------------------------------------------- files


def written_facts(data: bytes, name: str) -> list[tuple[ColumnFacts, np.ndarray[Any, Any]]]:
    """What the writer's own page index says, per row group."""
    metadata = read_footer(open_source(data))
    bound = find_leaf(metadata, ColumnRef((name,), metadata.query_schema.field(name).type))
    assert bound is not None
    found = []
    for group in range(metadata.row_group_count):
        columns, offsets = page_index_ranges(metadata, group, bound.leaf.index)
        assert columns is not None
        assert offsets is not None
        index = parse_page_index(
            data[columns.start : columns.stop],
            data[offsets.start : offsets.stop],
            metadata,
            group,
            bound.leaf.index,
        )
        found.append((page_facts(metadata, bound, index), index.first_rows))
    return found


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_bounds_are_those_that_pyarrow_writes(table: pa.Table, write: Any, version: str) -> None:
    flat = [name for name in table.column_names if not pa.types.is_nested(table.schema.field(name).type)]
    nulls = pa.array([None] * 1_500 + list(range(1_500)), pa.int32())
    some = table.select(flat).append_column("holes", nulls)
    data = write(some, write_page_index=True, max_rows_per_page=100, data_page_version=version)
    file = pq.ParquetFile(pa.BufferReader(data))
    for name in some.column_names:
        for group, (wanted, first_rows) in enumerate(written_facts(data, name)):
            values = file.read_row_group(group, columns=[name]).column(0)
            found = measure(wanted.type, values, first_rows).facts
            assert len(found) == 10
            assert listed(found.lower) == listed(wanted.lower)
            assert listed(found.upper) == listed(wanted.upper)
            assert found.may_null.tolist() == wanted.may_null.tolist()
            # The footer can't rule out NaN; the values can.
            assert (found.may_value <= wanted.may_value).all()
            assert (found.may_nan <= wanted.may_nan).all()
            assert (found.lower_exact >= wanted.lower_exact).all()


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_files_of_others(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "f.parquet"
    if engine == "duckdb":
        duckdb.sql(
            "select i::int8 a, i::uint64 b, i * 0.5::double f, (i / 7)::decimal(9,2) d, 'n' || i s,"
            " date '2026-01-01' + i::int dy, timestamp '2026-01-01' + to_seconds(i) t, i % 2 = 0 q,"
            " case when i % 5 = 0 then null else i end h from range(100) r(i)"
        ).write_parquet(str(path))
    else:
        day = dt.date(2026, 1, 1)
        pl.DataFrame(
            {
                "a": range(100),
                "f": [math.nan if i % 9 == 0 else i / 3 for i in range(100)],
                "s": [f"n{i}" for i in range(100)],
                "dy": [day + dt.timedelta(days=i) for i in range(100)],
                "h": [None if i % 5 == 0 else i for i in range(100)],
                "c": pl.Series([f"c{i % 3}" for i in range(100)], dtype=pl.Categorical),
            }
        ).write_parquet(path)
    data = path.read_bytes()
    metadata = read_footer(open_source(data))
    read = pq.read_table(path)
    for leaf in metadata.leaves:
        span = metadata.chunk_range(0, leaf.index)
        index = walk_pages(data[span.start : span.stop], metadata, 0, leaf.index)
        type = own_type(metadata, leaf.path)
        assert type is not None
        column = read.column(leaf.name)
        measured = measure(type, column, index.first_rows)
        assert (measured.rows.sum(), measured.nulls.sum()) == (100, column.null_count)
        present = {"nan" if v != v else v for v in column.to_pylist() if v is not None}
        assert measured.distinct == len(present)
        facts = whole(measured)
        numbers = [v for v in present if v != "nan"]
        assert listed(facts.lower) == [to_key(type, min(numbers))]
        assert listed(facts.upper) == [to_key(type, max(numbers))]
