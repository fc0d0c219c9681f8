"""A source that keeps the file's last bytes: footer and page indexes often come with one request."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.store.ranges import ByteRange
from skipstone.store.source import IoCounter, Source


class TailSource:
    """Serves ranges out of the tail once it has been read; everything else goes to the source below."""

    __slots__ = ("_below", "_size", "_tail")

    def __init__(self, below: Source) -> None:
        self._below = below
        self._tail = b""
        self._size = 0

    @property
    def path(self) -> str:
        """The file's name in messages."""
        return self._below.path

    @property
    def counter(self) -> IoCounter:
        """What reading has cost so far."""
        return self._below.counter

    @property
    def gap(self) -> int:
        """Bytes that cost as much as a request."""
        return self._below.gap

    @property
    def kept(self) -> int:
        """Bytes at hand."""
        return len(self._tail)

    def size(self) -> int:
        """The file's size in bytes."""
        return self._size or self._below.size()

    def version(self) -> object | None:
        """What tells this version of the file from another."""
        return self._below.version()

    def expect(self, version: object | None, size: int | None) -> None:
        """Refuse to be another version."""
        self._below.expect(version, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last bytes, which are kept."""
        self._tail, self._size = self._below.tail(length)
        return self._tail, self._size

    async def tail_async(self, length: int) -> tuple[bytes, int]:
        """``tail`` without blocking the event loop."""
        self._tail, self._size = await self._below.tail_async(length)
        return self._tail, self._size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range; only those outside the tail cost anything."""
        missing = [r for r in ranges if not self._has(r)]
        return self._fill(ranges, self._below.read_ranges(missing) if missing else [])

    async def read_ranges_async(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """``read_ranges`` without blocking the event loop."""
        missing = [r for r in ranges if not self._has(r)]
        return self._fill(ranges, await self._below.read_ranges_async(missing) if missing else [])

    def _has(self, wanted: ByteRange) -> bool:
        return wanted.start >= self._size - len(self._tail) and wanted.stop <= self._size

    def _fill(self, ranges: Sequence[ByteRange], fetched: list[bytes]) -> list[bytes]:
        have = self._size - len(self._tail)
        rest = iter(fetched)
        return [self._tail[r.start - have : r.stop - have] if self._has(r) else next(rest) for r in ranges]
