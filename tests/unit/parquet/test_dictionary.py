import zlib
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from skipstone.parquet.dictionary import (
    MAX_BYTES,
    BadDictionary,
    decode_dictionary,
    dictionary_complete,
    dictionary_range,
)
from skipstone.parquet.metadata import ParquetMetadata, read_footer
from skipstone.store.source import open_source

CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


def values_of(data: bytes, metadata: ParquetMetadata, group: int, leaf: int) -> list[Any]:
    span = dictionary_range(metadata, group, leaf)
    assert span is not None
    column = metadata.chunks(leaf)[group]
    return list(decode_dictionary(data[span.start : span.stop], column, metadata.leaves[leaf]))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_values_of_every_type(write: Any, codec: str, version: str) -> None:
    table = pa.table(
        {
            "i32": pa.array([5, -3, None, 5] * 100, pa.int32()),
            "i64": pa.array([5, -3, None, 5] * 100, pa.int64()),
            "f32": pa.array([0.5, -3, None, 0.5] * 100, pa.float32()),
            "f64": pa.array([0.5, -3, None, 0.5] * 100, pa.float64()),
            "text": pa.array(["ä", "", None, "ä"] * 100),
            "fixed": pa.array([b"ab\0", b"\0cd", None, b"ab\0"] * 100, pa.binary(3)),
        }
    )
    data = write(table, compression=codec, data_page_version=version)
    metadata = read_footer(open_source(data))
    found = [values_of(data, metadata, 0, leaf) for leaf in range(6)]
    assert found == [[5, -3], [5, -3], [0.5, -3], [0.5, -3], ["ä".encode(), b""], [b"ab\0", b"\0cd"]]
    assert all(dictionary_complete(metadata, 0, leaf) for leaf in range(6))


def test_a_chunk_that_fell_back_to_plain_is_not_complete(write: Any) -> None:
    table = pa.table({"a": [f"a rather long value {i}" for i in range(5_000)], "b": [1] * 5_000})
    data = write(table, row_group_size=5_000, dictionary_pagesize_limit=1_000, data_page_size=1_000)
    metadata = read_footer(open_source(data))
    assert not dictionary_complete(metadata, 0, 0)
    assert dictionary_range(metadata, 0, 0) is not None
    assert dictionary_complete(metadata, 0, 1)


def test_plain_columns(write: Any) -> None:
    metadata = read_footer(open_source(write(pa.table({"a": [1, 2]}), use_dictionary=False)))
    assert dictionary_range(metadata, 0, 0) is None
    assert not dictionary_complete(metadata, 0, 0)


def test_duckdb_values(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    duckdb.sql("select 'v' || (i % 3) s from range(5000) r(i)").write_parquet(str(path))
    metadata = read_footer(open_source(path))
    assert sorted(values_of(path.read_bytes(), metadata, 0, 0)) == [b"v0", b"v1", b"v2"]


# ---------------------------------------------------------------- pages that lie


@pytest.fixture(scope="module")
def simple(write: Any) -> tuple[bytes, ParquetMetadata]:
    data = write(pa.table({"a": ["x", "yy", "x"] * 50}), compression="none")
    return data, read_footer(open_source(data))


def header(
    size: int, plain: int, count: int, *, kind: int = 2, encoding: int = 0, crc: int | None = None
) -> bytes:
    def zigzag(number: int) -> bytes:
        number = (number << 1) ^ (number >> 63)
        out = bytearray()
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        return bytes([*out, number])

    out = b"\x15" + zigzag(kind) + b"\x15" + zigzag(plain) + b"\x15" + zigzag(size)
    if crc is not None:
        out += b"\x15" + zigzag(crc)
    step = b"\x4c" if crc is None else b"\x3c"
    return out + step + b"\x15" + zigzag(count) + b"\x15" + zigzag(encoding) + b"\x00\x00"


BODY = b"\x01\0\0\0x\x02\0\0\0yy"


def decode(simple: tuple[bytes, ParquetMetadata], page: bytes, codec: int = 0) -> Any:
    metadata = simple[1]
    column = metadata.chunks(0)[0]
    before, column.codec = column.codec, codec
    try:
        return decode_dictionary(page, column, metadata.leaves[0])
    finally:
        column.codec = before


def test_the_hand_made_page_is_sound(simple: Any) -> None:
    assert decode(simple, header(11, 11, 2) + BODY) == [b"x", b"yy"]
    assert decode(simple, header(11, 11, 2, crc=zlib.crc32(BODY) - 2**32) + BODY) == [b"x", b"yy"]
    packed = pa.compress(BODY, "snappy", asbytes=True)
    assert decode(simple, header(len(packed), 11, 2) + packed, codec=1) == [b"x", b"yy"]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b"", "can't be decoded"),
        (header(11, 11, 2, kind=0) + BODY, "page has type 0"),
        (header(11, 11, 2, encoding=8) + BODY, "encoding 8"),
        (header(11, 11, -1) + BODY, "-1 values"),
        (header(11, 11, 3) + BODY, "sizes differ"),
        (header(11, 11, 1) + BODY, "sizes differ"),
        (header(11, 11, 2**31 - 1) + BODY, "sizes differ"),
        (header(11, 12, 2) + BODY, "sizes differ"),
        (header(12, 12, 2) + BODY, "page size is 12 bytes, but 11 are available"),
        (header(-1, 11, 2) + BODY, "page size is -1 bytes"),
        (header(11, 11, 2, crc=5) + BODY, "checksum"),
        (header(11, 11, 2) + b"\x01\0\0\0x\xff\xff\xff\xffyy", "sizes differ"),
    ],
)
def test_bad_pages(simple: Any, page: bytes, reason: str) -> None:
    with pytest.raises(BadDictionary, match=reason):
        decode(simple, page)


@pytest.mark.parametrize(
    ("name", "codec"), [("snappy", 1), ("gzip", 2), ("brotli", 4), ("zstd", 6), ("lz4_raw", 7)]
)
@pytest.mark.parametrize("size", [10, 12, 1_000, MAX_BYTES, MAX_BYTES + 1, 2**31 - 1])
def test_a_wrong_uncompressed_size_never_lets_uninitialised_memory_through(
    simple: Any, name: str, codec: int, size: int
) -> None:
    packed = pa.compress(BODY, name, asbytes=True)
    assert decode(simple, header(len(packed), 11, 2) + packed, codec) == [b"x", b"yy"]
    with pytest.raises(BadDictionary):
        decode(simple, header(len(packed), size, 2) + packed, codec)


@pytest.mark.parametrize("codec", [3, 5, 8, 99])
def test_unknown_codecs(simple: Any, codec: int) -> None:
    with pytest.raises(BadDictionary, match=f"codec {codec}"):
        decode(simple, header(11, 11, 2) + BODY, codec)


def test_numbers_come_as_an_array(write: Any) -> None:
    data = write(pa.table({"a": [3, 1, 2] * 10}))
    metadata = read_footer(open_source(data))
    span = dictionary_range(metadata, 0, 0)
    assert span is not None
    found = decode_dictionary(data[span.start : span.stop], metadata.chunks(0)[0], metadata.leaves[0])
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [3, 1, 2]
