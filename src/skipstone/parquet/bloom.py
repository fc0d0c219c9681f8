"""Split-block bloom filters: may this chunk hold this value?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.page_structs import BloomFilterHeader
from skipstone.parquet.wire import decode_prefix
from skipstone.store.ranges import ByteRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK_BYTES: Final = 32
# The format's own limit.
_MAX_BYTES: Final = 128 * 1024 * 1024
# Read first when the writer didn't say how long header and filter are; holds most filters whole.
_GUESS: Final = 16 * 1024
_GATHER: Final = 256 * 1024


class BadBloom(Exception):
    """A bloom filter that can't be used; never fatal, the caller notes the reason and does without it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """The bits of one filter, as blocks of eight 32-bit words."""

    blocks: NDArray[np.uint32]

    def might_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Per hash, false only if the value is surely absent."""
        found: NDArray[np.bool_] = probe_stack(self.blocks[np.newaxis], hashes)[0]
        return found


def hash_values(values: Iterable[bytes]) -> NDArray[np.uint64]:
    """Hash plain-encoded physical values; byte arrays go without their length prefix.

    >>> hash_values([(42).to_bytes(8, "little"), b"forty-two"]).dtype
    dtype('uint64')
    """
    from xxhash import xxh64_intdigest

    return np.fromiter((xxh64_intdigest(value) for value in values), dtype=np.uint64)


def probe(filters: Sequence[BloomFilter], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Probe many filters with many hashes: ``[filter, hash]``, false only where surely absent."""
    found = np.empty((len(filters), len(hashes)), dtype=np.bool_)
    by_size: dict[int, list[int]] = {}
    for position, bloom in enumerate(filters):
        by_size.setdefault(len(bloom.blocks), []).append(position)
    for positions in by_size.values():
        found[positions] = probe_stack(stack([filters[position] for position in positions]), hashes)
    return found


def stack(filters: Sequence[BloomFilter]) -> NDArray[np.uint32]:
    """Put filters of one size into one array, ``[filter, block, 8]``."""
    return np.stack([bloom.blocks for bloom in filters])


def probe_stack(stacked: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """``probe`` for filters already stacked: all of them pick the same blocks, so one gather serves all."""
    half = np.uint64(32)
    chosen = (((hashes >> half) * np.uint64(stacked.shape[1])) >> half).astype(np.intp)
    keys = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    masks = np.uint32(1) << ((keys[:, np.newaxis] * _salt()) >> np.uint32(27))
    found = np.empty((len(stacked), len(hashes)), dtype=np.bool_)
    # In pieces, since the gathered blocks take 32 bytes per filter and hash.
    step = max(1, _GATHER // max(1, len(stacked)))
    for start in range(0, len(hashes), step):
        piece = slice(start, start + step)
        wanted = masks[piece]
        found[:, piece] = ((stacked[:, chosen[piece]] & wanted) == wanted).all(axis=-1)
    return found


def _salt() -> NDArray[np.uint32]:
    # One odd multiplier per word, from the format's definition.
    words = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
    return np.array(words, dtype=np.uint32)


def bloom_range(metadata: ParquetMetadata, row_group: int, leaf: int) -> ByteRange | None:
    """Where a chunk's filter is; without a known length, a first piece that holds at least its header."""
    chunk = metadata.chunks(leaf)[row_group]
    start = chunk.bloom_filter_offset
    if start is None or metadata.is_encrypted(row_group, leaf):
        return None
    length = chunk.bloom_filter_length
    size = metadata.size
    if start < 0 or (length is not None and length <= 0):
        raise BadBloom("the filter has no place in the file")
    if size is not None and start + (length or 1) > size:
        raise BadBloom("the filter lies outside the file")
    if length is not None:
        return ByteRange(start, start + length)
    return ByteRange(start, start + _GUESS if size is None else min(start + _GUESS, size))


def bloom_length(data: bytes) -> int:
    """Bytes of header and filter together, told from the header: read on when ``data`` has fewer."""
    return sum(_header(data))


def parse_bloom(data: bytes) -> BloomFilter:
    """Make a filter of its header and bits."""
    skip, length = _header(data)
    if len(data) < skip + length:
        raise BadBloom(f"the filter has {len(data) - skip} of {length} bytes")
    words = np.frombuffer(data, dtype="<u4", count=length // 4, offset=skip)
    return BloomFilter(words.reshape(-1, 8))


def _header(data: bytes) -> tuple[int, int]:
    try:
        header, consumed = decode_prefix(BloomFilterHeader, data, "bloom filter header")
    except CorruptFileError as error:
        raise BadBloom(error.message) from error
    length = header.numBytes
    if length is None or not 0 < length <= _MAX_BYTES or length % _BLOCK_BYTES:
        raise BadBloom(f"a filter of {length} bytes")
    for part, known in (
        (header.algorithm, "BLOCK"),
        (header.hash, "XXHASH"),
        (header.compression, "UNCOMPRESSED"),
    ):
        if part is None or part.variant != known:
            raise BadBloom(f"the filter is not {known}")
    return consumed, length
