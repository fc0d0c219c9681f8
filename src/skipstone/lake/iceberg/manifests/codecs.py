"""Blocks of Avro containers unpacked, within bounds."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import zstandard

# No writer makes blocks near this size; a damaged length must not fill the memory.
_LARGEST_BLOCK = 1 << 30
_DEFLATE_RATIO = 1032
_SNAPPY_RATIO = 64


class AvroError(Exception):
    """Bytes that are not the Avro they claim to be."""


def _inflate(data: bytes) -> bytes:
    try:
        if len(data) * _DEFLATE_RATIO <= _LARGEST_BLOCK:
            return zlib.decompress(data, -15, 4096)
        return _bounded(zlib.decompressobj(-15), data)
    except zlib.error as error:
        raise AvroError(f"a block can't be inflated: {error}") from None


def _bunzip(data: bytes) -> bytes:
    try:
        return _bounded(bz2.BZ2Decompressor(), data)
    except OSError as error:
        raise AvroError(f"a block can't be unpacked: {error}") from None


def _bounded(decoder: Any, data: bytes) -> bytes:
    body: bytes = decoder.decompress(data, _LARGEST_BLOCK)
    if not decoder.eof:
        raise AvroError("a block is cut short or far too large")
    return body


def _unsnap(data: bytes) -> bytes:
    packed, check = data[:-4], data[-4:]
    size, shift = 0, 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > min(_LARGEST_BLOCK, len(packed) * _SNAPPY_RATIO):
        raise AvroError("a block can't be as large as it says")
    try:
        body: bytes = pa.decompress(packed, size, "snappy", asbytes=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise AvroError(f"a block can't be unpacked: {error}") from None
    if zlib.crc32(body) != int.from_bytes(check, "big"):
        raise AvroError("a block fails its checksum")
    return body


def _unzstd() -> Callable[[bytes], bytes]:
    decoder = zstandard.ZstdDecompressor()

    def unpack(data: bytes) -> bytes:
        try:
            size = zstandard.frame_content_size(data)
            if 0 <= size <= _LARGEST_BLOCK:
                return decoder.decompress(data)
            with decoder.stream_reader(data) as stream:
                body = stream.read(_LARGEST_BLOCK + 1)
        except zstandard.ZstdError as error:
            raise AvroError(f"a block can't be unpacked: {error}") from None
        if len(body) > _LARGEST_BLOCK:
            raise AvroError("a block is far too large")
        return body

    return unpack


CODECS: Mapping[str, Callable[[], Callable[[bytes], bytes]]] = {
    "null": lambda: bytes,
    "deflate": lambda: _inflate,
    "zstandard": _unzstd,
    "snappy": lambda: _unsnap,
    "bzip2": lambda: _bunzip,
}
"""By the name in a container's header, what makes an unpacker of its blocks; it serves one thread."""
