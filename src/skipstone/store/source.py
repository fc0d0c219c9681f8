"""Byte ranges of one file, local, remote or in memory: the interface that other packages read through.

Nearby ranges are coalesced into one request. To add a kind of file, write a class with the methods of
``Source`` and name it in ``open_source``.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from skipstone.errors import ChangedFileError, MissingFileError, ReadError, UsageError

if TYPE_CHECKING:
    from typing import BinaryIO

    from skipstone.typing import SourceLike, StorageOptions


class ByteRange(NamedTuple):
    """Bytes from ``start`` (inclusive) to ``stop`` (exclusive)."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Length in bytes."""
        return self.stop - self.start

    def cut(self, size: int) -> list[ByteRange]:
        """Split into ranges of ``size`` bytes; the last can be shorter."""
        starts = range(self.start, self.stop, size)
        return [ByteRange(start, min(start + size, self.stop)) for start in starts]

    def __str__(self) -> str:
        return f"bytes {self.start}-{self.stop}"


range_of: Callable[[tuple[int, int]], ByteRange] = partial(tuple.__new__, ByteRange)
"""A range from its start and stop, in one call instead of the two of ``ByteRange()``."""


@dataclass(frozen=True, slots=True)
class CoalescedRanges:
    """Requests to make, and for each wanted range the request that covers it (-1 for an empty range)."""

    requests: tuple[ByteRange, ...]
    wanted: tuple[ByteRange, ...]
    owners: tuple[int, ...]

    def split(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Cut response bodies into the wanted ranges, in their original order."""
        pieces = []
        for (start, stop), owner in zip(self.wanted, self.owners, strict=True):
            if owner < 0:
                pieces.append(b"")
                continue
            first, last = self.requests[owner]
            body = bodies[owner]
            pieces.append(body if (first, last) == (start, stop) else body[start - first : stop - first])
        return pieces


def coalesce(ranges: Sequence[ByteRange], gap: int) -> CoalescedRanges:
    """Merge ranges that overlap or are at most ``gap`` bytes apart; empty ranges cost no request.

    >>> coalesce([ByteRange(50, 60), ByteRange(0, 10), ByteRange(12, 20)], gap=4).requests
    (ByteRange(start=0, stop=20), ByteRange(start=50, stop=60))
    """
    requests: list[ByteRange] = []
    owners = [-1] * len(ranges)
    end = 0
    for position in sorted(range(len(ranges)), key=ranges.__getitem__):
        start, stop = want = ranges[position]
        if stop <= start:
            continue
        if requests and start - end <= gap:
            if stop > end:
                requests[-1] = ByteRange(requests[-1].start, stop)
        else:
            requests.append(want)
        end = requests[-1].stop
        owners[position] = len(requests) - 1
    return CoalescedRanges(tuple(requests), tuple(ranges), tuple(owners))


class IoCounter:
    """Requests and bytes transferred over all reads of one source.

    ``total`` adds them up over all sources that share it.
    """

    __slots__ = ("_lock", "bytes", "requests", "total")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
        self.total: IoCounter | None = None
        self._lock = threading.Lock()

    def add(self, requests: int, transferred: int) -> None:
        """Add finished requests."""
        with self._lock:
            self.requests += requests
            self.bytes += transferred
        if self.total is not None:
            self.total.add(requests, transferred)

    def count_in(self, total: IoCounter) -> None:
        """Add to ``total`` from now on, and add what was counted so far."""
        with self._lock:
            self.total = total
            requests, transferred = self.requests, self.bytes
        total.add(requests, transferred)

    def __repr__(self) -> str:
        return f"IoCounter(requests={self.requests}, bytes={self.bytes})"


class Source(Protocol):
    """One file to read from; every failure is a ReadError that names the file."""

    @property
    def path(self) -> str:
        """The file's path or URI, for messages."""

    @property
    def counter(self) -> IoCounter:
        """Requests and bytes so far."""

    @property
    def gap(self) -> int:
        """Largest gap in bytes between ranges that share a request."""

    def size(self) -> int:
        """The file's size in bytes."""

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes (all of a shorter file) and the file size, in one request if possible."""

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Bytes of each range; nearby ranges share a request. A short response is an error."""

    def version(self) -> object | None:
        """The pinned version of the file; None if none is pinned yet or the source has no versions."""

    def expect(self, version: object | None, size: int | None) -> None:
        """Pin version and size: fail now or at the next read if the file differs."""


def check_size(source: Source, size: int | None) -> None:
    """Refuse a file whose size differs from the recorded one."""
    if size is not None and size != source.size():
        raise stale_error(source.path)


def stale_error(path: str, expected: int | None = None, actual: int | None = None) -> ReadError:
    """The error for a file that changed since it was listed or its metadata was read.

    Tables record only sizes, so their message compares those.
    """
    if expected is None:
        message = "file has changed since it was listed or its metadata was read"
        return ChangedFileError(message, path=path, hint=_REFRESH)
    message = f"file has {actual:,} bytes, but the table recorded {expected:,}: not the committed file"
    return ChangedFileError(message, path=path, hint=_RESTORE)


def gone_error(path: str) -> MissingFileError:
    """The error for a file that was deleted since it was listed or its metadata was read."""
    return MissingFileError("file no longer exists", path=path, hint=_REFRESH)


_REFRESH = "refresh the lake with lake.refresh(), or open it again, and repeat the query"
_RESTORE = (
    "restore the file if it was truncated or replaced; if the manifest is wrong, remove the file from the "
    "table and add it again"
)


class SourceWrapper:
    """A source that delegates to another source."""

    def __init__(self, below: Source) -> None:
        self._below = below
        self.path, self.counter, self.gap = below.path, below.counter, below.gap

    def size(self) -> int:
        """File size in bytes."""
        return self._below.size()

    def version(self) -> object | None:
        """The pinned version."""
        return self._below.version()

    def expect(self, version: object | None, size: int | None) -> None:
        """Pin version and size."""
        self._below.expect(version, size)


class TailSource(SourceWrapper):
    """Caches the file's tail, so that footer and page indexes often take one request."""

    def __init__(self, below: Source) -> None:
        super().__init__(below)
        self._tail = b""
        self._size = 0

    @property
    def tail_length(self) -> int:
        """Bytes of the cached tail."""
        return len(self._tail)

    def size(self) -> int:
        """File size in bytes."""
        return self._size or self._below.size()

    def tail(self, length: int) -> tuple[bytes, int]:
        """Read and cache the last bytes."""
        self._tail, self._size = self._below.tail(length)
        return self._tail, self._size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Bytes of each range; only ranges outside the tail are requested."""
        missing = [r for r in ranges if not self._has(r)]
        return self._fill(ranges, self._below.read_ranges(missing) if missing else [])

    def _has(self, wanted: ByteRange) -> bool:
        return wanted.start >= self._size - len(self._tail) and wanted.stop <= self._size

    def _fill(self, ranges: Sequence[ByteRange], fetched: list[bytes]) -> list[bytes]:
        have = self._size - len(self._tail)
        rest = iter(fetched)
        return [self._tail[r.start - have : r.stop - have] if self._has(r) else next(rest) for r in ranges]


class BufferSource:
    """A file in memory; ranges are not coalesced."""

    gap = 0

    def __init__(self, data: memoryview | bytes, path: str = "<buffer>") -> None:
        self.path = path
        self.counter = IoCounter()
        self._view = memoryview(data).cast("B")

    def size(self) -> int:
        """The buffer's length."""
        return len(self._view)

    def version(self) -> object | None:
        """None: there is nothing to pin."""
        return None

    def expect(self, version: object | None, size: int | None) -> None:  # noqa: ARG002
        """Check the size."""
        check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the buffer length."""
        size = self.size()
        return self._read(ByteRange(max(size - length, 0), size)), size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range."""
        return [self._read(request) for request in ranges]

    def read_into(self, ranges: Sequence[ByteRange], views: Sequence[memoryview]) -> None:
        """Copy each range into its buffer."""
        for request, view in zip(ranges, views, strict=True):
            view[:] = self._cut(request)

    def _read(self, request: ByteRange) -> bytes:
        return bytes(self._cut(request))

    def _cut(self, request: ByteRange) -> memoryview:
        data = self._view[max(request.start, 0) : max(request.stop, 0)]
        self.counter.add(1, len(data))
        if len(data) != request.length:
            raise ReadError(f"{request}: got only {len(data)} bytes", path=self.path)
        return data


class FileObjectSource:
    """A seekable binary file object; reads restore its position."""

    def __init__(self, file: Any, *, gap: int = 64 * 1024) -> None:
        name = getattr(file, "name", None)
        self.path = name if isinstance(name, str) else "<file object>"
        self.counter = IoCounter()
        self._file = file
        self.gap = gap
        # Readers can share the object, and seek and read belong together.
        self._lock = threading.Lock()

    def size(self) -> int:
        """The file's size in bytes."""
        return self._work([])[1]

    def version(self) -> object | None:
        """None: there is nothing to pin."""
        return None

    def expect(self, version: object | None, size: int | None) -> None:  # noqa: ARG002
        """Check the size."""
        check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the file's size."""
        size = self.size()
        return self.read_ranges([ByteRange(max(size - length, 0), size)])[0], size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range."""
        plan = coalesce(ranges, self.gap)
        return plan.split(self._work(plan.requests)[0])

    def _work(self, requests: Sequence[ByteRange]) -> tuple[list[bytes], int]:
        with self._lock:
            try:
                before = self._file.tell()
                self._file.seek(0, os.SEEK_END)
                size = int(self._file.tell())
                bodies = [self._read(request) for request in requests]
                self._file.seek(before)
            except (OSError, ValueError) as error:
                raise ReadError(f"can't read the file object: {error}", path=self.path) from error
        return bodies, size

    def _read(self, request: ByteRange) -> bytes:
        self._file.seek(request.start)
        pieces = []
        missing = request.length
        # An unbuffered file can return less than requested.
        while missing > 0:
            piece = self._file.read(missing)
            if not isinstance(piece, bytes | bytearray | memoryview):
                raise ReadError(
                    "file object does not return bytes", path=self.path, hint="open it in mode 'rb'"
                )
            if not piece:
                break
            pieces.append(bytes(piece))
            missing -= len(piece)
        self.counter.add(1, request.length - missing)
        if missing > 0:
            got = request.length - missing
            raise ReadError(f"{request}: got only {got} bytes", path=self.path)
        return b"".join(pieces)


_REMOTE = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "memory")
_ONE_SLASH = re.compile(r"(s3a?|gs|az|abfss?):/(\w.*)")
# Schemes of Hadoop and fsspec.
_SAME_SCHEMES = {"s3n": "s3", "gcs": "gs", "wasb": "abfs", "wasbs": "abfss"}


def open_source(x: SourceLike, *, storage_options: StorageOptions | None = None) -> Source:
    """Open a path, URI, buffer, binary file object, or ``(obstore store, key)`` pair for reading.

    A Source is returned unchanged. Nothing is read, but a local file must exist. ``storage_options`` are
    passed to obstore.
    """
    if hasattr(x, "read_ranges"):
        return cast("Source", x)
    if isinstance(x, str | os.PathLike):
        return _open_name(os.fspath(x), storage_options)
    if isinstance(x, tuple) and len(x) == 2:
        from skipstone.store.objects import ObjectSource

        return ObjectSource(*x)
    if hasattr(x, "read") and hasattr(x, "seek"):
        return FileObjectSource(cast("BinaryIO", x))
    try:
        view = memoryview(x)
    except TypeError:
        raise UsageError(
            f"can't read a file from {type(x).__name__}",
            hint="pass a path, a URI, bytes, a binary file object or an (obstore store, key) pair",
        ) from None
    return BufferSource(view)


def _open_name(name: str | bytes, storage_options: Mapping[str, Any] | None) -> Source:
    path = os.fsdecode(name)
    local = local_path(path)
    if local is None:
        from skipstone.store.objects import open_uri

        return open_uri(path, storage_options)
    from skipstone.store.local import LocalSource

    return LocalSource(local)


def local_path(name: str) -> str | None:
    """The local path of a path or file URI; None for the URI of a remote store."""
    scheme, separator, _ = name.partition("://")
    if not separator:
        if match := _ONE_SLASH.match(name):
            raise ReadError(
                "URI has one slash after its scheme", path=name, hint=f"use {match[1]}://{match[2]}"
            )
        return name
    if scheme.lower() in _REMOTE:
        return None
    if scheme.lower() != "file":
        same = _SAME_SCHEMES.get(scheme.lower())
        hint = f"use {same}://" if same else f"use one of: {', '.join(('file', *_REMOTE))}"
        raise ReadError(f"unknown URI scheme {scheme!r}", path=name, hint=hint)
    # Imported here: urllib.request loads HTTP and TLS, which a local path does not need.
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(name)
    if parts.netloc not in ("", "localhost"):
        hint = "write local files with three slashes, as in file:///data/f.parquet"
        raise ReadError(f"file URI names another host, {parts.netloc}", path=name, hint=hint)
    return url2pathname(parts.path)


# -- long work ---------------------------------------------------------------------------------


class Stopped(BaseException):
    """Work that nobody waits for any more: like an interrupt, nothing recovers from it."""


class _Watch:
    """Whether any work of this process can be stopped; a test of it costs nothing where none can."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = 0


watch = _Watch()
_watching = threading.Lock()
_unwanted: ContextVar[Callable[[], bool] | None] = ContextVar("unwanted", default=None)


@contextmanager
def stopping(unwanted: Callable[[], bool]) -> Iterator[None]:
    """Stop the work of this block at its next checkpoint once ``unwanted`` is true."""
    with _watching:
        watch.on += 1
    token = _unwanted.set(unwanted)
    try:
        yield
    finally:
        _unwanted.reset(token)
        with _watching:
            watch.on -= 1


def checkpoint() -> None:
    """Raise :class:`Stopped` if nobody waits for the work of this thread any more."""
    unwanted = _unwanted.get()
    if unwanted is not None and unwanted():
        raise Stopped


Need = TypeVar("Need")
Result = TypeVar("Result")


def drive(steps: Generator[Need, Any, Result], answer: Callable[[Need], Any]) -> Result:
    """Run a generator to its end, sending it the answer to everything it yields."""
    reply = None
    while True:
        try:
            need = steps.send(reply)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        if watch.on:
            checkpoint()
        reply = answer(need)
