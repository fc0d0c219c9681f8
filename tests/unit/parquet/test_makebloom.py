import datetime as dt
import decimal
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.core.domain.keys import to_key
from skipstone.parquet.bloom import BloomFilter, bloom_range, hash_values, parse_bloom, probe
from skipstone.parquet.measure import build_bloom, hash_rows
from skipstone.parquet.metadata import ParquetMetadata, read_footer
from skipstone.parquet.values import encode_key
from skipstone.store.source import open_source

D = decimal.Decimal
N = 2_000
DAY, MOMENT = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)
INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]


def spread(type: pa.DataType) -> list[int]:
    """Integers over the whole range of a type."""
    low = 0 if pa.types.is_unsigned_integer(type) else -(2 ** (type.bit_width - 1))
    return [low + (2**type.bit_width - 1) * i // (N - 1) for i in range(N)]


COLUMNS: dict[str, pa.Array] = {
    **{str(type): pa.array(spread(type), type) for type in INTEGERS},
    "f32": pa.array(np.linspace(-5, 5, N, dtype=np.float32)),
    "f64": pa.array([math.nan, -0.0, *np.linspace(-5, 5, N - 2).tolist()]),
    "f16": pa.array(np.linspace(-5, 5, N).astype(np.float16)),
    "text": pa.array([f"name {i}" for i in range(N)]),
    "empty": pa.array(["" if i % 2 else None for i in range(N)]),
    "large": pa.array([f"name {i}" for i in range(N)], pa.large_string()),
    "raw": pa.array([i.to_bytes(3, "big") for i in range(N)], pa.binary()),
    "fixed": pa.array([i.to_bytes(5, "big") for i in range(N)], pa.binary(5)),
    "long": pa.array([i.to_bytes(40, "big") for i in range(N)], pa.binary(40)),
    "day": pa.array([DAY + dt.timedelta(days=i) for i in range(N)]),
    "moment": pa.array([MOMENT + dt.timedelta(hours=i) for i in range(N)], pa.timestamp("us", "UTC")),
    "millis": pa.array([MOMENT + dt.timedelta(hours=i) for i in range(N)], pa.timestamp("ms")),
    "clock": pa.array(range(N), pa.time32("ms")),
    "length": pa.array(range(-3, N - 3), pa.duration("us")),
    "narrow": pa.array([D(i - 1_000) / 100 for i in range(N)], pa.decimal128(5, 2)),
    "middle": pa.array([D(i - 1_000) / 100 for i in range(N)], pa.decimal128(18, 2)),
    "wide": pa.array([D(i - 1_000) * 10**25 for i in range(N)], pa.decimal128(38, 2)),
    "wider": pa.array([D(i - 1_000) * 10**25 for i in range(N)], pa.decimal256(60, 2)),
    "coded": pa.array([f"c{i % 50}" for i in range(N)]).dictionary_encode(),
    "holes": pa.array([None if i % 3 else i for i in range(N)], pa.int64()),
    "nothing": pa.nulls(N, pa.int32()),
}


@pytest.fixture(scope="module")
def file() -> tuple[bytes, ParquetMetadata, pa.Table]:
    """Every column with a filter of pyarrow's own, where it makes one."""
    table = pa.table(COLUMNS)
    sink = pa.BufferOutputStream()
    options = {name: {"ndv": N, "fpp": 0.01} for name in COLUMNS}
    pq.write_table(table, sink, bloom_filter_options=options, store_decimal_as_integer=False)
    data = sink.getvalue().to_pybytes()
    return data, read_footer(open_source(data)), pq.read_table(pa.BufferReader(data))


def stored(leaf: Any, column: pa.ChunkedArray) -> list[bytes]:
    found: list[bytes] = []
    for value in column:
        if value.is_valid and value.as_py() == value.as_py():
            encoded = encode_key(leaf, to_key(column.type, value))
            assert encoded
            found += encoded
    return found


@pytest.mark.parametrize("name", list(COLUMNS))
def test_every_value_is_found_as_it_is_stored(
    file: tuple[bytes, ParquetMetadata, pa.Table], name: str
) -> None:
    data, metadata, table = file
    leaf = next(leaf for leaf in metadata.leaves if leaf.path == (name,))
    column = table.column(name)
    bloom = build_bloom(leaf, column)
    assert bloom is not None
    values = stored(leaf, column)
    assert len(values) or name == "nothing"
    assert probe([bloom], hash_values(values)).all()
    absent = hash_values(f"never {i} there".encode() for i in range(5_000))
    assert probe([bloom], absent).mean() <= 0.015
    span = bloom_range(metadata, 0, leaf.index)
    assert span is not None
    theirs = parse_bloom(data[span.start : span.stop])
    # Of the zeros pyarrow puts in just those that occur, but NaN as well.
    assert probe([theirs], hash_values(values)).sum() >= len(values) - 2
    if len(theirs.blocks) == len(bloom.blocks) and name != "f64":
        assert ((theirs.blocks & ~bloom.blocks) == 0).all()


def test_filters_are_pyarrows_bit_by_bit() -> None:
    table = pa.table({"i": pa.array(range(1_000, 3_000), pa.int64()), "s": [f"k{i}" for i in range(N)]})
    sink = pa.BufferOutputStream()
    options = {name: {"ndv": N, "fpp": 0.01} for name in table.column_names}
    pq.write_table(table, sink, bloom_filter_options=options)
    data = sink.getvalue().to_pybytes()
    metadata = read_footer(open_source(data))
    for leaf in metadata.leaves:
        span = bloom_range(metadata, 0, leaf.index)
        assert span is not None
        theirs, ours = parse_bloom(data[span.start : span.stop]), build_bloom(leaf, table.column(leaf.name))
        assert ours is not None
        assert ours.blocks.tolist() == theirs.blocks.tolist()


def leaf_of(array: pa.Array, **options: Any) -> Any:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": array}), sink, **options)
    return read_footer(open_source(sink.getvalue().to_pybytes())).leaves[0]


def test_decimals_stored_as_integers() -> None:
    for type in (pa.decimal128(5, 2), pa.decimal128(12, 2)):
        column = pa.array([D(i - 1_000) / 100 for i in range(N)], type)
        leaf = leaf_of(column, store_decimal_as_integer=True)
        assert leaf.physical.name in ("INT32", "INT64")
        bloom = build_bloom(leaf, column)
        assert bloom is not None
        assert probe([bloom], hash_values(stored(leaf, pa.chunked_array([column])))).all()


def test_what_is_not_stored_in_one_certain_way() -> None:
    moments = pa.array([MOMENT], pa.timestamp("ns"))
    assert build_bloom(leaf_of(pa.array([True])), pa.array([True])) is None
    assert build_bloom(leaf_of(moments, use_deprecated_int96_timestamps=True), moments) is None
    assert build_bloom(leaf_of(pa.array([DAY], pa.date64())), pa.array([DAY], pa.date64())) is None
    assert build_bloom(leaf_of(pa.nulls(1)), pa.nulls(1)) is None
    lists = pa.array([[1]])
    assert build_bloom(leaf_of(lists), lists) is None
    # Another type than the file's own.
    assert build_bloom(leaf_of(pa.array([1], pa.int32())), pa.array([1], pa.int64())) is None


def test_decimals_of_varying_length(corpus: Path) -> None:
    path = corpus / "data" / "byte_array_decimal.parquet"
    leaf = read_footer(open_source(path.read_bytes())).leaves[0]
    assert build_bloom(leaf, pq.read_table(path).column(0)) is None


def test_both_zeros_and_no_nan() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        for zero in (0.0, -0.0):
            column = pa.array(np.array([zero, math.nan], dtype=dtype))
            bloom = build_bloom(leaf_of(column), column)
            assert bloom is not None
            zeros = [dtype(0.0).tobytes(), dtype(-0.0).tobytes()]
            assert bloom.might_contain(hash_values(zeros)).all()
            assert not bloom.might_contain(hash_values([dtype(math.nan).tobytes(), dtype(1).tobytes()])).any()


@pytest.mark.parametrize("fpp", [0.2, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("count", [1, 700, 5_000, 60_000])
def test_rates_and_sizes(fpp: float, count: int) -> None:
    column = pa.array(np.repeat(np.arange(count), 2), pa.int64())
    bloom = build_bloom(leaf_of(column), column, fpp=fpp)
    assert bloom is not None
    size = bloom.blocks.nbytes
    assert size & (size - 1) == 0
    assert 32 <= size <= max(64, 6 * count * math.log2(1 / fpp) / 8 + 64)
    absent = np.arange(10**7, 10**7 + 50_000, dtype="<i8").view(np.uint8).reshape(-1, 8)
    assert bloom.might_contain(hash_rows(absent)).mean() <= fpp * 1.3 + 0.0005


def test_an_empty_chunk_has_an_empty_filter() -> None:
    for type in (pa.int64(), pa.string(), pa.decimal128(9, 2), pa.float32(), pa.binary(4)):
        leaf = leaf_of(pa.array([], type))
        for column in (pa.array([], type), pa.nulls(3, type), pa.chunked_array([], type)):
            bloom = build_bloom(leaf, column)
            assert isinstance(bloom, BloomFilter)
            assert bloom.blocks.tolist() == [[0] * 8]


@given(st.integers(1, 31), st.data())
def test_hashes_are_those_of_the_library(width: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.binary(min_size=width, max_size=width), max_size=5))
    matrix = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, width)
    assert hash_rows(matrix).tolist() == hash_values(rows).tolist()
