"""Files of the local file system, read with pread."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from skipstone.errors import MissingFileError, ReadError
from skipstone.store.ranges import ByteRange, coalesce
from skipstone.store.source import IoCounter, check_size, gone, stale

# A seek costs less than this many bytes from the page cache.
GAP = 64 * 1024


class LocalSource:
    """A local file, pinned by size, modification time and inode when the source is made.

    The file is opened anew for each read: a plan may hold more sources than a process may hold
    descriptors, and a file replaced in between is noticed. A ``lazy`` source touches nothing before its
    first read, which pins the file or checks it against what was expected by then.
    """

    def __init__(self, path: str, *, gap: int = GAP, lazy: bool = False) -> None:
        self.path = path
        self.counter = IoCounter()
        self.gap = gap
        self._identity: tuple[int, int, int] | None = None
        self._size: int | None = None
        self._expected = False
        self._lock = threading.Lock()
        if not lazy:
            self._pin()

    def size(self) -> int:
        """The file's size in bytes."""
        if self._size is None:
            self._pin()
        assert self._size is not None
        return self._size

    def version(self) -> object | None:
        """Size, modification time and inode, once they are known."""
        return self._identity

    def expect(self, version: object | None, size: int | None) -> None:
        """Refuse, at the next read if nothing is known yet, to be another file than this."""
        known = version if isinstance(version, tuple) else None
        if known is not None and self._identity is None:
            self._identity, size = known, known[0]
        elif known is not None and known != self._identity:
            raise stale(self.path)
        if self._size is None:
            self._size = size
            self._expected = size is not None
        else:
            check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the file's size."""
        size = self.size()
        with self._open() as descriptor:
            return self._read(descriptor, ByteRange(max(size - length, 0), size)), size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range."""
        plan = coalesce(ranges, self.gap)
        with self._open() as descriptor:
            return plan.split([self._read(descriptor, request) for request in plan.requests])

    async def tail_async(self, length: int) -> tuple[bytes, int]:
        """``tail`` in a thread."""
        return await asyncio.to_thread(self.tail, length)

    async def read_ranges_async(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """``read_ranges`` in a thread."""
        return await asyncio.to_thread(self.read_ranges, ranges)

    def _pin(self) -> None:
        with self._open():
            pass

    @contextmanager
    def _open(self) -> Iterator[int]:
        try:
            # Without O_NONBLOCK opening a named pipe would wait for its writer.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            if self._expected and isinstance(error, FileNotFoundError | NotADirectoryError):
                raise gone(self.path) from error
            raise refusal(error, self.path) from error
        try:
            self._check(os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    def _check(self, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            hint = "open a directory of Parquet files with skipstone.open"
            raise ReadError("it is a directory", path=self.path, hint=hint)
        if not stat.S_ISREG(found.st_mode):
            raise ReadError("it is no regular file", path=self.path)
        identity = identity_of(found)
        with self._lock:
            if self._identity is None and self._size in (None, identity[0]):
                self._identity, self._size = identity, identity[0]
        if self._identity != identity:
            if self._expected and self._identity is None and self._size is not None:
                raise stale(self.path, self._size, identity[0])
            if self._expected:
                raise stale(self.path)
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
            raise refusal(error, self.path, f"{request}: ") from error
        self.counter.add(len(pieces), position - request.start)
        if position < request.stop:
            message = f"{request}: only {position - request.start} bytes came back"
            # Behind the known end there will never be more.
            raise ReadError(message, path=self.path, transient=request.stop <= self.size())
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def identity_of(found: os.stat_result) -> tuple[int, int, int]:
    """What tells a file from another and from its other versions: size, modification time, inode."""
    return (found.st_size, found.st_mtime_ns, found.st_ino)


def refusal(error: Exception, path: str, what: str = "") -> ReadError:
    """A failed system call as an error that names the file."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError(f"{what}no such file", path=path)
    transient = isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(error, OSError) and error.errno in _TRANSIENT
    )
    return ReadError(what + _reason(error), path=path, transient=transient)


# A disk or network file system that hiccups; EMFILE passes when other readers finish.
_TRANSIENT = frozenset((errno.EIO, errno.EINTR, errno.ESTALE, errno.EAGAIN, errno.EMFILE, errno.ENFILE))


def _reason(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return "too many open files"
    return str(error) or type(error).__name__
