from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from skipstone.parquet.bloom import (
    BadBloom,
    BloomFilter,
    bloom_length,
    bloom_range,
    hash_values,
    parse_bloom,
    probe,
)
from skipstone.parquet.metadata import read_footer
from skipstone.store.source import open_source

HEADER = b"\x15\x40\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x00"


def blooms(data: bytes, leaf: int) -> list[BloomFilter]:
    metadata = read_footer(open_source(data))
    found = []
    for group in range(metadata.row_group_count):
        span = bloom_range(metadata, group, leaf)
        assert span is not None
        piece = data[span.start : span.stop]
        found.append(parse_bloom(data[span.start : span.start + bloom_length(piece)]))
    return found


def int64(values: Any) -> list[bytes]:
    return [int(value).to_bytes(8, "little", signed=True) for value in values]


@pytest.fixture(scope="module")
def data(write: Any) -> bytes:
    table = pa.table({"i": range(0, 30_000, 3), "s": [f"key {i}" for i in range(10_000)]})
    options = {"i": {"ndv": 5_000, "fpp": 0.01}, "s": {"ndv": 5_000, "fpp": 0.01}}
    encoded: bytes = write(table, row_group_size=5_000, bloom_filter_options=options)
    return encoded


def test_pyarrow_filters_know_their_values_and_refuse_most_others(data: bytes) -> None:
    for group, bloom in enumerate(blooms(data, 0)):
        inside = hash_values(int64(range(group * 15_000, (group + 1) * 15_000, 3)))
        outside = hash_values(int64(range(group * 15_000 + 1, (group + 1) * 15_000, 3)))
        assert bloom.might_contain(inside).all()
        assert bloom.might_contain(outside).mean() < 0.02
    for group, bloom in enumerate(blooms(data, 1)):
        names = [f"key {i}".encode() for i in range(10_000)]
        mine = names[group * 5_000 : (group + 1) * 5_000]
        assert bloom.might_contain(hash_values(mine)).all()
        assert bloom.might_contain(hash_values(f"other {i}".encode() for i in range(5_000))).mean() < 0.02


def test_duckdb_filters(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    duckdb.sql("select (i % 500) * 2 k, 'v' || (i % 300) s from range(20000) r(i)").write_parquet(str(path))
    encoded = path.read_bytes()
    (bloom,) = blooms(encoded, 0)
    assert bloom.might_contain(hash_values(int64(range(0, 1_000, 2)))).all()
    assert bloom.might_contain(hash_values(int64(range(1, 1_000, 2)))).mean() < 0.05
    (bloom,) = blooms(encoded, 1)
    assert bloom.might_contain(hash_values(f"v{i}".encode() for i in range(300))).all()
    assert bloom.might_contain(hash_values(f"w{i}".encode() for i in range(300))).mean() < 0.05


def test_a_filter_of_parquet_java(corpus: Path) -> None:
    encoded = (corpus / "data" / "data_index_bloom_encoding_stats.parquet").read_bytes()
    (bloom,) = blooms(encoded, 0)
    assert bloom.might_contain(hash_values([b"Hello", b"This is", b"test"])).all()
    absent = hash_values(f"absent {i}".encode() for i in range(100))
    assert not bloom.might_contain(absent).any()


def test_many_filters_of_many_sizes_at_once(data: bytes) -> None:
    small = BloomFilter(np.zeros((1, 8), dtype=np.uint32))
    full = BloomFilter(np.full((4, 8), 0xFFFFFFFF, dtype=np.uint32))
    filters = [small, *blooms(data, 0), full]
    hashes = hash_values(int64([0, 3, 15_000, 7]))
    together = probe(filters, hashes)
    assert together.shape == (4, 4)
    assert (together == np.array([bloom.might_contain(hashes) for bloom in filters])).all()
    assert not together[0].any()
    assert together[3].all()
    assert probe([], hashes).shape == (0, 4)
    assert probe(filters, hash_values([])).shape == (4, 0)


def test_a_long_list_of_hashes_is_probed_in_pieces(data: bytes) -> None:
    filters = blooms(data, 0)
    hashes = hash_values(int64(range(300_000)))
    found = probe(filters, hashes)
    assert found.sum(axis=1).min() >= 5_000
    for group, bloom in enumerate(filters):
        assert (found[group, -1_000:] == bloom.might_contain(hashes[-1_000:])).all()


def test_columns_without_a_filter(table: pa.Table, write: Any) -> None:
    assert bloom_range(read_footer(open_source(write(table))), 0, 0) is None


def test_a_filter_without_a_length_is_read_in_two_steps(data: bytes) -> None:
    metadata = read_footer(open_source(data))
    whole = bloom_range(metadata, 0, 0)
    assert whole is not None
    metadata.chunks(0)[0].bloom_filter_length = None
    piece = bloom_range(metadata, 0, 0)
    assert piece is not None
    assert (piece.start, piece.length <= 16_384) == (whole.start, True)
    assert bloom_length(data[piece.start : piece.start + 40]) == whole.length
    parse_bloom(data[whole.start : whole.stop])


@pytest.mark.parametrize(
    ("offset", "length"), [(-1, 10), (10**9, 10), (10**9, None), (0, 10**9), (4, -5), (4, 0)]
)
def test_places_outside_the_file(data: bytes, offset: int, length: int | None) -> None:
    metadata = read_footer(open_source(data))
    chunk = metadata.chunks(0)[0]
    chunk.bloom_filter_offset, chunk.bloom_filter_length = offset, length
    with pytest.raises(BadBloom):
        bloom_range(metadata, 0, 0)


def test_the_hand_made_header_is_sound() -> None:
    assert len(parse_bloom(HEADER + b"\x00" * 32).blocks) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        HEADER + b"\x00" * 31,
        HEADER.replace(b"\x15\x40", b"\x15\x42"),
        HEADER.replace(b"\x15\x40", b"\x15\x00") + b"\x00" * 32,
        HEADER.replace(b"\x15\x40", b"\x15\x3f") + b"\x00" * 32,
        HEADER.replace(b"\x15\x40", b"\x15\x80\x80\x80\x80\x01") + b"\x00" * 32,
        HEADER.replace(b"\x1c\x1c", b"\x1c\x2c", 1) + b"\x00" * 32,
        HEADER[:5] + HEADER[5:].replace(b"\x1c\x1c", b"\x1c\x2c", 1) + b"\x00" * 32,
        HEADER[:9] + HEADER[9:].replace(b"\x1c\x1c", b"\x1c\x2c", 1) + b"\x00" * 32,
    ],
)
def test_bad_filters(data: bytes) -> None:
    with pytest.raises(BadBloom):
        parse_bloom(data)
