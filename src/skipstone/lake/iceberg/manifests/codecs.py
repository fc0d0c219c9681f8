"""Compressed metadata and blocks of Avro containers, unpacked within bounds."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import zstandard

from skipstone.errors import EncryptedFileError

# Metadata and manifests of real tables shrink to a tenth or so, those of wide and mostly empty ones to a
# hundredth; small files may shrink more.
_RATIO = 128
_LEAST = 64 << 20
_MOST = 1 << 30
_ENCRYPTED = b"AGS1"
_DEFLATE_RATIO = 1032
_SNAPPY_RATIO = 64
_RAW, _GZIP = -zlib.MAX_WBITS, 16 + zlib.MAX_WBITS

Unpack = Callable[[bytes, int], bytes]
"""Unpacks bytes, unless there are more of them than the given number."""


class AvroError(Exception):
    """Bytes that are not the Avro they claim to be."""


def check_plain(head: bytes, path: str) -> None:
    """Refuse a file that begins as the format says of encrypted files other than Parquet."""
    if head.startswith(_ENCRYPTED):
        hint = "Skipstone reads no encrypted tables: write a copy without encryption"
        raise EncryptedFileError("the file is encrypted", path=path, hint=hint)


def most_unpacked(size: int) -> int:
    """How many bytes a file of this size may unpack to: far more than writers make, far less than a bomb."""
    return min(max(size * _RATIO, _LEAST), _MOST)


def _inflate(data: bytes, most: int, wbits: int = _RAW) -> bytes:
    try:
        if len(data) * _DEFLATE_RATIO <= most:
            return zlib.decompress(data, wbits, 4096)
        return _bounded(zlib.decompressobj(wbits), data, most)
    except zlib.error as error:
        raise AvroError(f"a block can't be inflated: {error}") from None


def gunzip(data: bytes, most: int) -> bytes:
    """Unpack gzip."""
    return _inflate(data, most, _GZIP)


def _bunzip(data: bytes, most: int) -> bytes:
    try:
        return _bounded(bz2.BZ2Decompressor(), data, most)
    except OSError as error:
        raise AvroError(f"a block can't be unpacked: {error}") from None


def _bounded(decoder: Any, data: bytes, most: int) -> bytes:
    # One byte more tells what is too large from what is cut short.
    body: bytes = decoder.decompress(data, most + 1)
    if len(body) > most:
        raise _too_large()
    if not decoder.eof:
        raise AvroError("a block is cut short")
    return body


def _unsnap(data: bytes, most: int) -> bytes:
    packed, check = data[:-4], data[-4:]
    size, shift = 0, 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > len(packed) * _SNAPPY_RATIO:
        raise AvroError("a block can't be as large as it says")
    if size > most:
        raise _too_large()
    try:
        body: bytes = pa.decompress(packed, size, "snappy", asbytes=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise AvroError(f"a block can't be unpacked: {error}") from None
    if zlib.crc32(body) != int.from_bytes(check, "big"):
        raise AvroError("a block fails its checksum")
    return body


def unzstd(data: bytes, most: int, decoder: zstandard.ZstdDecompressor | None = None) -> bytes:
    """Unpack Zstandard."""
    decoder = decoder or zstandard.ZstdDecompressor()
    try:
        size = zstandard.frame_content_size(data)
        if 0 <= size <= most:
            return decoder.decompress(data)
        with decoder.stream_reader(data) as stream:
            body = stream.read(most + 1)
    except zstandard.ZstdError as error:
        raise AvroError(f"a block can't be unpacked: {error}") from None
    if len(body) > most:
        raise _too_large()
    return body


def _zstandard() -> Unpack:
    decoder = zstandard.ZstdDecompressor()
    return lambda data, most: unzstd(data, most, decoder)


def _stored(data: bytes, _most: int) -> bytes:
    return data


def _too_large() -> AvroError:
    return AvroError("the file unpacks to far more than a file of its size can hold")


CODECS: Mapping[str, Callable[[], Unpack]] = {
    "null": lambda: _stored,
    "deflate": lambda: _inflate,
    "zstandard": _zstandard,
    "snappy": lambda: _unsnap,
    "bzip2": lambda: _bunzip,
}
"""By the name in a container's header, what makes an unpacker of its blocks; it serves one thread."""
