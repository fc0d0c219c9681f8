"""Split-block bloom filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.structs import BloomFilterHeader
from skipstone.parquet.wire import decode_prefix
from skipstone.store.source import ByteRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK_BYTES: Final = 32
# The format's own limit.
_MAX_BYTES: Final = 128 * 1024 * 1024
# First read of a filter of unrecorded length; long enough for most filters.
_GUESS: Final = 16 * 1024
_GATHER: Final = 256 * 1024
# For more keys the entire filter is read.
_FEW_KEYS: Final = 16
# No writer's header is longer.
_MAX_HEADER: Final = 64


class BadBloom(Exception):
    """An unusable bloom filter; never fatal: the caller records the reason and ignores the filter."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """The bits of one filter, as blocks of eight 32-bit words."""

    blocks: NDArray[np.uint32]

    def might_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Per hash, false only if the value is certainly absent."""
        may_contain: NDArray[np.bool_] = probe([self], hashes)[0]
        return may_contain


def hash_values(values: Iterable[bytes]) -> NDArray[np.uint64]:
    """Hash plain-encoded physical values, byte arrays without their length prefix.

    >>> hash_values([(42).to_bytes(8, "little"), b"forty-two"]).dtype
    dtype('uint64')
    """
    return np.array([*map(_hasher(), values)], dtype=np.uint64)


@cache
def _hasher() -> Callable[[bytes], int]:
    from xxhash import xxh64_intdigest

    return xxh64_intdigest


def probe(filters: Sequence[BloomFilter], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Probe many filters with many hashes: ``[filter, hash]``, false only where certainly absent."""
    hits = np.empty((len(filters), len(hashes)), dtype=np.bool_)
    masks = block_masks(hashes)
    by_size: dict[int, list[int]] = {}
    for position, bloom in enumerate(filters):
        by_size.setdefault(len(bloom.blocks), []).append(position)
    for size, positions in by_size.items():
        chosen = block_numbers(hashes, size)
        # In pieces, because the gathered blocks take 32 bytes per filter and hash.
        step = max(1, _GATHER // len(positions))
        for start in range(0, len(hashes), step):
            piece = slice(start, start + step)
            wanted = masks[piece]
            gathered = np.stack([filters[position].blocks[chosen[piece]] for position in positions])
            hits[positions, piece] = ((gathered & wanted) == wanted).all(axis=-1)
    return hits


_HALF, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_ONE, _SHIFT = np.uint32(1), np.uint32(27)
# One odd multiplier per word, from the format's definition.
_SALT = np.array(
    (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
    dtype=np.uint32,
)


def block_numbers(hashes: NDArray[np.uint64], count: int) -> NDArray[np.intp]:
    """Return the block of each hash in a filter with ``count`` blocks."""
    return (((hashes >> _HALF) * np.uint64(count)) >> _HALF).astype(np.intp)


def block_masks(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return the bit that each hash sets in every word of its block."""
    keys = (hashes & _LOW_HALF).astype(np.uint32)
    return _ONE << ((keys[:, np.newaxis] * _SALT) >> _SHIFT)


def has_bloom(metadata: ParquetMetadata, leaf: int) -> bool:
    """Whether any chunk of a leaf has a filter; computed once per footer."""
    key = (BloomFilter, leaf)
    if key not in metadata.memo:
        metadata.memo[key] = any(c.bloom_filter_offset is not None for c in metadata.chunks(leaf))
    return bool(metadata.memo[key])


def bloom_range(metadata: ParquetMetadata, row_group: int, leaf: int) -> ByteRange | None:
    """Return the byte range of a chunk's filter; of its first bytes if the length is not recorded."""
    chunk = metadata.chunks(leaf)[row_group]
    start = chunk.bloom_filter_offset
    if start is None or metadata.is_encrypted(row_group, leaf):
        return None
    length = chunk.bloom_filter_length
    size = metadata.size
    if start < 0 or (length is not None and length <= 0):
        raise BadBloom("filter has an invalid offset or length")
    if size is not None and start + (length or 1) > size:
        raise BadBloom("filter is outside the file")
    if length is not None:
        return ByteRange(start, start + length)
    return ByteRange(start, start + _GUESS if size is None else min(start + _GUESS, size))


@dataclass(frozen=True, slots=True, eq=False)
class BlockProbe:
    """Looks up a few values in filters of one size by reading the header and one block per value.

    The size of a filter is a power of two, which gives the header's length before it is read; ``check``
    refuses a filter whose header differs.
    """

    header: int
    length: int
    offsets: tuple[int, ...]
    """Offsets of the blocks in the filter."""
    masks: NDArray[np.uint32]

    @classmethod
    def of(cls, size: int, hashes: NDArray[np.uint64]) -> BlockProbe | None:
        """Probe filters of ``size`` bytes with their header; None if they are better read in full."""
        length = 1 << (size.bit_length() - 1)
        header = size - length
        if not 0 < header <= _MAX_HEADER or length < _BLOCK_BYTES or len(hashes) > _FEW_KEYS:
            return None
        blocks = block_numbers(hashes, length // _BLOCK_BYTES)
        offsets = tuple((header + _BLOCK_BYTES * blocks).tolist())
        return cls(header, length, offsets, block_masks(hashes))

    def ranges(self, start: int) -> list[ByteRange]:
        """Return the byte ranges to read of the filter at ``start``."""
        blocks = [ByteRange(start + offset, start + offset + _BLOCK_BYTES) for offset in self.offsets]
        return [ByteRange(start, start + self.header), *blocks]

    def check(self, header: bytes) -> None:
        """Refuse a filter whose header contradicts its length."""
        if _cached_header(header) != (self.header, self.length):
            raise BadBloom("filter length differs from the footer's")

    def might_contain(self, blocks: Sequence[bytes]) -> NDArray[np.bool_]:
        """Per filter, whether it may contain one of the values; ``blocks`` are those of all filters."""
        words = np.frombuffer(b"".join(blocks), dtype="<u4").reshape(-1, len(self.offsets), 8)
        hits: NDArray[np.bool_] = ((words & self.masks) == self.masks).all(axis=-1).any(axis=-1)
        return hits


@lru_cache(maxsize=256)
def _cached_header(data: bytes) -> tuple[int, int]:
    # The filters of a column rarely differ in their headers.
    return _header(data)


def bloom_length(data: bytes) -> int:
    """Total bytes of header and filter, from the header; ``data`` may be shorter."""
    return sum(_header(data))


def whole_bloom_range(metadata: ParquetMetadata, row_group: int, leaf: int, first: bytes) -> ByteRange:
    """Return the byte range of a chunk's entire filter, whose ``first`` bytes are those of ``bloom_range``.

    A header that contradicts the footer is refused: a filter of another size has all bits in other places.
    """
    chunk, length = metadata.chunks(leaf)[row_group], bloom_length(first)
    if chunk.bloom_filter_length not in (None, length):
        raise BadBloom("filter length differs from the footer's")
    start = chunk.bloom_filter_offset
    assert start is not None
    if metadata.size is not None and start + length > metadata.size:
        raise BadBloom("filter ends outside the file")
    return ByteRange(start, start + length)


def parse_bloom(data: bytes) -> BloomFilter:
    """Parse a filter with its header."""
    skip, length = _header(data)
    if len(data) < skip + length:
        raise BadBloom(f"filter has {len(data) - skip} of {length} bytes")
    words = np.frombuffer(data, dtype="<u4", count=length // 4, offset=skip)
    return BloomFilter(words.reshape(-1, 8))


def _header(data: bytes) -> tuple[int, int]:
    try:
        header, consumed = decode_prefix(BloomFilterHeader, data, "bloom filter header")
    except CorruptFileError as error:
        raise BadBloom(error.message) from error
    length = header.numBytes
    if length is None or not 0 < length <= _MAX_BYTES or length % _BLOCK_BYTES:
        raise BadBloom(f"filter has an invalid size of {length} bytes")
    for part, expected in (
        (header.algorithm, "BLOCK"),
        (header.hash, "XXHASH"),
        (header.compression, "UNCOMPRESSED"),
    ):
        if part is None or part.variant != expected:
            raise BadBloom(f"filter is not {expected}")
    return consumed, length
