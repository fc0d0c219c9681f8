"""Bytes in memory and file objects that somebody else opened."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from typing import Any

from skipstone.errors import ReadError
from skipstone.store.ranges import ByteRange, coalesce
from skipstone.store.source import IoCounter, check_size


class BufferSource:
    """A whole file in memory; every range is a read of its own, for there is nothing to save."""

    gap = 0

    def __init__(self, data: memoryview | bytes, path: str = "<buffer>") -> None:
        self.path = path
        self.counter = IoCounter()
        self._view = memoryview(data).cast("B")

    def size(self) -> int:
        """The buffer's length."""
        return len(self._view)

    def version(self) -> object | None:
        """Nothing tells versions of it apart."""
        return None

    def expect(self, version: object | None, size: int | None) -> None:  # noqa: ARG002
        """Refuse to be of another size."""
        check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the buffer's length."""
        size = self.size()
        return self._read(ByteRange(max(size - length, 0), size)), size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range."""
        return [self._read(request) for request in ranges]

    async def tail_async(self, length: int) -> tuple[bytes, int]:
        """``tail``, which never waits."""
        return self.tail(length)

    async def read_ranges_async(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """``read_ranges``, which never waits."""
        return self.read_ranges(ranges)

    def _read(self, request: ByteRange) -> bytes:
        data = bytes(self._view[max(request.start, 0) : max(request.stop, 0)])
        self.counter.add(1, len(data))
        if len(data) != request.length:
            raise ReadError(f"{request}: only {len(data)} bytes came back", path=self.path)
        return data


class FileObjectSource:
    """A seekable binary file object; its position is left where it was."""

    def __init__(self, file: Any, *, gap: int = 64 * 1024) -> None:
        name = getattr(file, "name", None)
        self.path = name if isinstance(name, str) else "<file object>"
        self.counter = IoCounter()
        self._file = file
        self.gap = gap
        # Seek and read belong together, and readers may share the object.
        self._lock = threading.Lock()

    def size(self) -> int:
        """The file's size in bytes."""
        return self._work([])[1]

    def version(self) -> object | None:
        """Nothing tells versions of it apart."""
        return None

    def expect(self, version: object | None, size: int | None) -> None:  # noqa: ARG002
        """Refuse to be of another size."""
        check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the file's size."""
        size = self.size()
        return self.read_ranges([ByteRange(max(size - length, 0), size)])[0], size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range."""
        plan = coalesce(ranges, self.gap)
        return plan.split(self._work(plan.requests)[0])

    async def tail_async(self, length: int) -> tuple[bytes, int]:
        """``tail`` in a thread."""
        return await asyncio.to_thread(self.tail, length)

    async def read_ranges_async(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """``read_ranges`` in a thread."""
        return await asyncio.to_thread(self.read_ranges, ranges)

    def _work(self, requests: Sequence[ByteRange]) -> tuple[list[bytes], int]:
        with self._lock:
            try:
                before = self._file.tell()
                self._file.seek(0, os.SEEK_END)
                size = int(self._file.tell())
                bodies = [self._read(request) for request in requests]
                self._file.seek(before)
            except (OSError, ValueError) as error:
                raise ReadError(f"the file object can't be read: {error}", path=self.path) from error
        return bodies, size

    def _read(self, request: ByteRange) -> bytes:
        self._file.seek(request.start)
        pieces = []
        missing = request.length
        # An unbuffered file may give less than asked for at a time.
        while missing > 0:
            piece = self._file.read(missing)
            if not isinstance(piece, bytes | bytearray | memoryview):
                raise ReadError("the file object gives no bytes", path=self.path, hint="open it in mode 'rb'")
            if not piece:
                break
            pieces.append(bytes(piece))
            missing -= len(piece)
        self.counter.add(1, request.length - missing)
        if missing > 0:
            got = request.length - missing
            raise ReadError(f"{request}: only {got} bytes came back", path=self.path)
        return b"".join(pieces)
