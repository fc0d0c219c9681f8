"""One file's bytes, wherever they are: the interface that other packages read through.

Bytes are asked for as ranges, of which nearby ones become one request. To add a kind of store, write a class
with the methods of ``Source`` and name it in ``open_source``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from skipstone.errors import MissingFileError, ReadError, UsageError

if TYPE_CHECKING:
    from typing import BinaryIO

    from skipstone.typing import SourceLike, StorageOptions


class ByteRange(NamedTuple):
    """The bytes from ``start`` up to, not including, ``stop``."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many bytes the range holds."""
        return self.stop - self.start

    def cut(self, size: int) -> list[ByteRange]:
        """The range in parts of ``size`` bytes, the last of which may be shorter."""
        starts = range(self.start, self.stop, size)
        return [ByteRange(start, min(start + size, self.stop)) for start in starts]

    def __str__(self) -> str:
        return f"bytes {self.start}-{self.stop}"


@dataclass(frozen=True, slots=True)
class Coalesced:
    """Requests to make, and for each wanted range which request holds it (-1 for an empty range)."""

    requests: tuple[ByteRange, ...]
    wanted: tuple[ByteRange, ...]
    owners: tuple[int, ...]

    def split(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Cut the answers of the requests into the wanted ranges, in the order they were asked for."""
        pieces = []
        for (start, stop), owner in zip(self.wanted, self.owners, strict=True):
            if owner < 0:
                pieces.append(b"")
                continue
            first, last = self.requests[owner]
            body = bodies[owner]
            pieces.append(body if (first, last) == (start, stop) else body[start - first : stop - first])
        return pieces


def coalesce(ranges: Sequence[ByteRange], gap: int) -> Coalesced:
    """Merge ranges that overlap or lie at most ``gap`` bytes apart; empty ranges cost no request.

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
    return Coalesced(tuple(requests), tuple(ranges), tuple(owners))


class IoCounter:
    """Requests made and bytes transferred, added up over all reads of one source."""

    __slots__ = ("_lock", "bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, requests: int, transferred: int) -> None:
        """Count finished requests."""
        with self._lock:
            self.requests += requests
            self.bytes += transferred

    def __repr__(self) -> str:
        return f"IoCounter(requests={self.requests}, bytes={self.bytes})"


class Source(Protocol):
    """One file to read from; every failure is a ReadError that names the file."""

    @property
    def path(self) -> str:
        """The file's name in messages."""

    @property
    def counter(self) -> IoCounter:
        """What reading has cost so far."""

    @property
    def gap(self) -> int:
        """Bytes that cost as much as a request: ranges at most this far apart share one."""

    def size(self) -> int:
        """The file's size in bytes."""

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes (all of a shorter file) and the file's size, in one request."""

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range; nearby ranges share a request, a short answer is an error."""

    def version(self) -> object | None:
        """What tells this version of the file from another, as far as it is known by now."""

    def expect(self, version: object | None, size: int | None) -> None:
        """Refuse, now or at the next read, to be another version than this, or of another size."""


def check_size(source: Source, size: int | None) -> None:
    """Refuse a file of another size than the one its metadata was read from."""
    if size is not None and size != source.size():
        raise stale(source.path)


def stale(path: str, expected: int | None = None, found: int | None = None) -> ReadError:
    """The error for metadata or a listing of another file, or of another version of it.

    The sizes are those of a file of which nothing else was known, as is the case in tables.
    """
    if expected is None:
        message = "it is not the file that the metadata was read from, or that was listed"
        return MissingFileError(message, path=path, hint=_AGAIN)
    message = f"file has {found:,} bytes and its table says {expected:,}: not the file that was committed"
    return MissingFileError(message, path=path, hint=_RESTORE)


def gone(path: str) -> ReadError:
    """The error for a file that was there when its metadata was read, or when it was listed."""
    return MissingFileError("file no longer exists", path=path, hint=_AGAIN)


_AGAIN = "it was replaced or deleted: read the metadata again, or refresh the lake"
_RESTORE = (
    "restore the file if it was cut or replaced; if the table's manifest is wrong, remove the file from the "
    "table and add it again"
)


class Wrapped:
    """A source that reads from the source below it, and does there all that it doesn't do otherwise."""

    def __init__(self, below: Source) -> None:
        self._below = below
        self.path, self.counter, self.gap = below.path, below.counter, below.gap

    def size(self) -> int:
        """The file's size in bytes."""
        return self._below.size()

    def version(self) -> object | None:
        """What tells this version of the file from another."""
        return self._below.version()

    def expect(self, version: object | None, size: int | None) -> None:
        """Refuse to be another version."""
        self._below.expect(version, size)


class TailSource(Wrapped):
    """Keeps the file's last bytes once they were read, and serves ranges out of them.

    Footer and page indexes often come with one request.
    """

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

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range; only those outside the tail cost anything."""
        missing = [r for r in ranges if not self._has(r)]
        return self._fill(ranges, self._below.read_ranges(missing) if missing else [])

    def _has(self, wanted: ByteRange) -> bool:
        return wanted.start >= self._size - len(self._tail) and wanted.stop <= self._size

    def _fill(self, ranges: Sequence[ByteRange], fetched: list[bytes]) -> list[bytes]:
        have = self._size - len(self._tail)
        rest = iter(fetched)
        return [self._tail[r.start - have : r.stop - have] if self._has(r) else next(rest) for r in ranges]


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


_REMOTE = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "memory")


def open_source(x: SourceLike, *, storage_options: StorageOptions | None = None) -> Source:
    """Open a path, URI, buffer, binary file object, or ``(obstore store, key)`` pair for reading.

    A Source is returned as it is. Nothing is read yet, except that a local file must exist.
    ``storage_options`` go to obstore and are for object stores only.
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
            hint="give a path, a URI, bytes, a binary file object or an (obstore store, key) pair",
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
    """The file-system path that a path or file URI names; None for the URI of a remote store."""
    scheme, separator, _ = name.partition("://")
    if not separator:
        return name
    if scheme.lower() in _REMOTE:
        return None
    if scheme.lower() != "file":
        known = ", ".join(("file", *_REMOTE))
        raise ReadError(f"unknown kind of store {scheme!r}", path=name, hint=f"available: {known}")
    # Here, since urllib.request loads HTTP and TLS, which a local path has no use for.
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(name)
    if parts.netloc not in ("", "localhost"):
        hint = "a local file is written with three slashes, as in file:///data/f.parquet"
        raise ReadError(f"files of the host {parts.netloc} can't be read", path=name, hint=hint)
    return url2pathname(parts.path)


Need = TypeVar("Need")
Result = TypeVar("Result")


def drive(steps: Generator[Need, Any, Result], answer: Callable[[Need], Any]) -> Result:
    """Run ``steps`` to their end, answering every need."""
    given = None
    while True:
        try:
            need = steps.send(given)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        given = answer(need)
