"""Dictionary pages: all distinct values of a chunk, if every data page is dictionary-encoded."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import LeafColumn, PhysicalType
from skipstone.parquet.structs import ColumnMetaData, PageHeader
from skipstone.parquet.wire import decode_prefix
from skipstone.store.source import ByteRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DATA_PAGES: Final = (0, 3)
_DICTIONARY_PAGE: Final = 2
_DICTIONARY_ENCODINGS: Final = (2, 8)
_PLAIN_ENCODINGS: Final = (0, 2)
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_FIXED: Final = {
    PhysicalType.INT32: "<i4",
    PhysicalType.INT64: "<i8",
    PhysicalType.FLOAT: "<f4",
    PhysicalType.DOUBLE: "<f8",
}
# Writers stop at one or two MiB. A larger one would cost more to decode than it could save.
MAX_BYTES: Final = 64 * 1024 * 1024


class BadDictionary(Exception):
    """An unusable dictionary page; never fatal: the caller records the reason and ignores the page."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def dictionary_complete(metadata: ParquetMetadata, row_group: int, leaf: int) -> bool:
    """Whether encoding statistics prove that every data page of a chunk is dictionary-encoded."""
    try:
        stats = metadata.encoding_stats(row_group, leaf)
    except CorruptFileError:
        # Unreadable statistics prove nothing.
        return False
    if not stats:
        return False
    pages = 0
    for entry in stats:
        if entry.page_type is None or entry.encoding is None or entry.count is None or entry.count < 0:
            return False
        if entry.page_type in _DATA_PAGES and entry.count:
            pages += entry.count
            if entry.encoding not in _DICTIONARY_ENCODINGS:
                return False
    return pages > 0


def dictionary_range(metadata: ParquetMetadata, row_group: int, leaf: int) -> ByteRange | None:
    """Return the byte range of a chunk's dictionary page; None if the chunk declares none."""
    chunk = metadata.chunks(leaf)[row_group]
    start = chunk.dictionary_page_offset
    if start is None or not 0 < start < chunk.data_page_offset or metadata.is_encrypted(row_group, leaf):
        return None
    return ByteRange(start, min(chunk.data_page_offset, metadata.chunk_range(row_group, leaf).stop))


def decode_dictionary(page: bytes, column: ColumnMetaData, leaf: LeafColumn) -> NDArray[Any] | list[bytes]:
    """Decode the values of a dictionary page: an array for numbers, else physical values as bytes."""
    header, body = _open(page)
    dictionary = header.dictionary_page_header
    if header.type != _DICTIONARY_PAGE or dictionary is None:
        raise BadDictionary(f"page has type {header.type} instead of a dictionary page")
    if dictionary.encoding not in _PLAIN_ENCODINGS:
        raise BadDictionary(f"dictionary has unsupported encoding {dictionary.encoding}")
    count = dictionary.num_values
    if count is None or count < 0:
        raise BadDictionary(f"dictionary has an invalid count of {count} values")
    plain = _decompress(body, header.uncompressed_page_size, column.codec)
    if leaf.physical in _FIXED:
        return _numbers(plain, count, _FIXED[leaf.physical])
    if leaf.physical is PhysicalType.BYTE_ARRAY:
        return _byte_arrays(plain, count)
    if leaf.physical is PhysicalType.BOOLEAN:
        raise BadDictionary("boolean column has a dictionary")
    width = 12 if leaf.physical is PhysicalType.INT96 else leaf.type_length
    _expect(len(plain), count * width)
    return [plain[start : start + width] for start in range(0, len(plain), width)]


def _open(page: bytes) -> tuple[PageHeader, bytes]:
    try:
        header, consumed = decode_prefix(PageHeader, page, "page header")
    except CorruptFileError as error:
        raise BadDictionary(error.message) from error
    size = header.compressed_page_size
    if size is None or not 0 <= size <= len(page) - consumed:
        raise BadDictionary(f"page size is {size} bytes, but {len(page) - consumed} are available")
    body = page[consumed : consumed + size]
    if header.crc is not None and zlib.crc32(body) != header.crc & 0xFFFFFFFF:
        raise BadDictionary("page checksum mismatch")
    return header, body


def _decompress(body: bytes, size: int | None, codec: int) -> bytes:
    if size is None or not 0 <= size <= MAX_BYTES:
        raise BadDictionary(f"dictionary has an invalid size of {size} bytes")
    if codec == 0:
        _expect(len(body), size)
        return body
    name = _CODECS.get(codec)
    if name is None:
        raise BadDictionary(f"compression codec {codec} is unknown")
    if size == 0:
        return b""
    import pyarrow as pa

    try:
        decoder = pa.Codec(name)
        plain: bytes = decoder.decompress(body, decompressed_size=size, asbytes=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadDictionary(f"{name}: {error}") from error
    # pyarrow trusts the size and leaves the rest of a shorter result uninitialised. Only a buffer that is
    # too small is an error, so the size is right if one byte less is too little.
    try:
        decoder.decompress(body, decompressed_size=size - 1)
    except (pa.ArrowException, OSError, ValueError):
        return plain
    raise BadDictionary(f"dictionary has fewer than {size} bytes")


def _numbers(plain: bytes, count: int, dtype: str) -> NDArray[Any]:
    values = np.dtype(dtype)
    _expect(len(plain), count * values.itemsize)
    return np.frombuffer(plain, dtype=values)


def _byte_arrays(plain: bytes, count: int) -> list[bytes]:
    values = []
    position = 0
    # Each length gives the position of the next, so this can't be vectorized.
    for _ in range(min(count, len(plain) // 4)):
        start = position + 4
        position = start + int.from_bytes(plain[position:start], "little")
        values.append(plain[start:position])
    _expect(len(values), count)
    _expect(position, len(plain))
    return values


def _expect(actual: int, expected: int) -> None:
    if actual != expected:
        raise BadDictionary(f"dictionary sizes differ: {actual} and {expected}")
