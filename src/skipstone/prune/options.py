"""What a caller may switch on and off, and the hook for filters kept elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from skipstone.parquet.bloom import BloomFilter


@dataclass(frozen=True, slots=True)
class BloomRequest:
    """One bloom filter the cascade wants: of a column in a row group of a file."""

    path: str
    row_group: int
    column: tuple[str, ...]
    leaf: int


@runtime_checkable
class BloomProvider(Protocol):
    """A source of bloom filters other than the file itself, such as a cache or an index.

    Both calls answer a whole batch; ``None`` for a filter that isn't there keeps its unit.
    """

    def load(self, requests: Sequence[BloomRequest]) -> Sequence[BloomFilter | None]:
        """The filters asked for, in that order."""

    async def load_async(self, requests: Sequence[BloomRequest]) -> Sequence[BloomFilter | None]:
        """``load`` without blocking the event loop."""


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """Switches of the cascade. None of them changes which rows can match, only how many others are kept."""

    page_index: bool = True
    bloom_filter: bool = True
    dictionary: bool = False
    emit_roaring: bool = False
    """Make the bitmap of kept rows at once, with the result, rather than when it is asked for."""
    case_sensitive: bool = True
    max_bloom_keys: int = 1_000
    """An IN list longer than this is not looked up in bloom filters, nor is a range of over 256 integers."""
    bloom_provider: BloomProvider | None = None
    tail_bytes: int = 64 * 1024
    """Bytes read from the file's end in the first request."""
