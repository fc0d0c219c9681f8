"""Compressed metadata and blocks of Avro containers, unpacked within bounds."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import zstandard

from skipstone.errors import EncryptedFileError

# Metadata and manifests of real tables shrink to a tenth or so, those of wide and mostly empty ones to a
# hundredth; small files may shrink more.
_RATIO = 128
_LEAST = 64 << 20
_MOST = 1 << 30
_PART = 1 << 20
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
        return _measured(lambda: _inflated(data, wbits), most)
    except zlib.error as error:
        raise AvroError(f"a block can't be inflated: {error}") from None


def _inflated(data: bytes, wbits: int) -> Iterator[bytes]:
    decoder = zlib.decompressobj(wbits)
    while not decoder.eof:
        part = decoder.decompress(data, _PART)
        data = decoder.unconsumed_tail
        if not part and not data:
            raise AvroError("a block is cut short")
        yield part


def gunzip(data: bytes, most: int) -> bytes:
    """Unpack gzip."""
    return _inflate(data, most, _GZIP)


def _bunzip(data: bytes, most: int) -> bytes:
    try:
        return _measured(lambda: _bunzipped(data), most)
    except OSError as error:
        raise AvroError(f"a block can't be unpacked: {error}") from None


def _bunzipped(data: bytes) -> Iterator[bytes]:
    decoder = bz2.BZ2Decompressor()
    while not decoder.eof:
        part = decoder.decompress(data, _PART)
        if not part and decoder.needs_input:
            raise AvroError("a block is cut short")
        data = b""
        yield part


def _measured(parts: Callable[[], Iterator[bytes]], most: int) -> bytes:
    """All parts as one, measured before any is kept."""
    size = 0
    for part in parts():
        size += len(part)
        if size > most:
            raise _too_large()
    return b"".join(parts())


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
        if size > most:
            raise _too_large()
        if size >= 0:
            return decoder.decompress(data)
        return _measured(lambda: _streamed(decoder, data), most)
    except zstandard.ZstdError as error:
        raise AvroError(f"a block can't be unpacked: {error}") from None


def _streamed(decoder: zstandard.ZstdDecompressor, data: bytes) -> Iterator[bytes]:
    with decoder.stream_reader(data) as stream:
        while part := stream.read(_PART):
            yield part


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
