"""Files of the local file system, read with pread."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from skipstone.errors import ReadError
from skipstone.store.ranges import ByteRange, coalesce
from skipstone.store.source import IoCounter, check_size, stale

# A seek costs less than this many bytes from the page cache.
GAP = 64 * 1024

_Identity: TypeAlias = tuple[int, int, int]


class LocalSource:
    """A local file, pinned by size, modification time and inode when the source is made.

    The file is opened anew for each read: a plan may hold more sources than a process may hold
    descriptors, and a file replaced in between is noticed.
    """

    def __init__(self, path: str, *, gap: int = GAP) -> None:
        self.path = path
        self.counter = IoCounter()
        self._gap = gap
        self._identity: _Identity | None = None
        with self._open() as descriptor:
            self._identity = _identity(os.fstat(descriptor))

    def size(self) -> int:
        """The file's size in bytes."""
        assert self._identity is not None
        return self._identity[0]

    def version(self) -> object | None:
        """Size, modification time and inode."""
        return self._identity

    def expect(self, version: object | None, size: int | None) -> None:
        """Refuse to be another file than the one with this identity."""
        if isinstance(version, tuple):
            if version != self._identity:
                raise stale(self.path)
        else:
            check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the file's size."""
        size = self.size()
        with self._open() as descriptor:
            return self._read(descriptor, ByteRange(max(size - length, 0), size)), size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range."""
        plan = coalesce(ranges, self._gap)
        with self._open() as descriptor:
            return plan.split([self._read(descriptor, request) for request in plan.requests])

    async def tail_async(self, length: int) -> tuple[bytes, int]:
        """``tail`` in a thread."""
        return await asyncio.to_thread(self.tail, length)

    async def read_ranges_async(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """``read_ranges`` in a thread."""
        return await asyncio.to_thread(self.read_ranges, ranges)

    @contextmanager
    def _open(self) -> Iterator[int]:
        try:
            # Without O_NONBLOCK opening a named pipe would wait for its writer.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise ReadError(_reason(error), path=self.path) from error
        try:
            self._check(os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    def _check(self, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise ReadError("it is a directory", path=self.path, hint="give one Parquet file")
        if not stat.S_ISREG(found.st_mode):
            raise ReadError("it is no regular file", path=self.path)
        if self._identity is not None and self._identity != _identity(found):
            raise ReadError("file changed while it was being read", path=self.path, hint="open it again")

    def _read(self, descriptor: int, request: ByteRange) -> bytes:
        pieces = []
        position = request.start
        try:
            while position < request.stop:
                piece = os.pread(descriptor, request.stop - position, position)
                if not piece:
                    break
                pieces.append(piece)
                position += len(piece)
        except OSError as error:
            raise ReadError(f"{request}: {_reason(error)}", path=self.path) from error
        self.counter.add(len(pieces), position - request.start)
        if position < request.stop:
            message = f"{request}: only {position - request.start} bytes came back"
            raise ReadError(message, path=self.path)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _identity(found: os.stat_result) -> _Identity:
    return (found.st_size, found.st_mtime_ns, found.st_ino)


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return "too many open files"
    return str(error)
