"""A source that keeps the file's last bytes: footer and page indexes often come with one request."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.store.ranges import ByteRange
from skipstone.store.source import Source
from skipstone.store.wrapped import Wrapped


class TailSource(Wrapped):
    """Serves ranges out of the tail once it has been read; everything else goes to the source below."""

    def __init__(self, below: Source) -> None:
        super().__init__(below)
        self._tail = b""
        self._size = 0

    @property
    def kept(self) -> int:
        """Bytes at hand."""
        return len(self._tail)

    def size(self) -> int:
        """The file's size in bytes."""
        return self._size or self._below.size()

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
