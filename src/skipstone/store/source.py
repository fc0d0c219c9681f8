"""One file's bytes, wherever they are: the interface that the rooms above read through.

To add a kind of store, write a class with the methods of ``Source`` and name it in ``open_source``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from skipstone.errors import MissingFileError, ReadError, UsageError
from skipstone.store.ranges import ByteRange


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

    async def tail_async(self, length: int) -> tuple[bytes, int]:
        """``tail`` without blocking the event loop."""

    async def read_ranges_async(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """``read_ranges`` without blocking the event loop."""


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


_REMOTE = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "memory")


def open_source(x: Any, *, storage_options: Mapping[str, Any] | None = None) -> Source:
    """Open a path, URI, buffer, binary file object, or ``(obstore store, key)`` pair for reading.

    A Source is returned as it is. Nothing is read yet, except that a local file must exist.
    ``storage_options`` go to obstore and are for object stores only.
    """
    if hasattr(x, "read_ranges_async"):
        source: Source = x
        return source
    if isinstance(x, str | os.PathLike):
        return _open_name(os.fspath(x), storage_options)
    if isinstance(x, tuple) and len(x) == 2:
        from skipstone.store.objects import ObjectSource

        return ObjectSource(*x)
    if hasattr(x, "read") and hasattr(x, "seek"):
        from skipstone.store.memory import FileObjectSource

        return FileObjectSource(x)
    try:
        view = memoryview(x)
    except TypeError:
        raise UsageError(
            f"can't read a file from {type(x).__name__}",
            hint="give a path, a URI, bytes, a binary file object or an (obstore store, key) pair",
        ) from None
    from skipstone.store.memory import BufferSource

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
        raise ReadError(f"{scheme!r} is no known kind of store", path=name, hint=f"known are {known}")
    # Here, since urllib.request loads HTTP and TLS, which a local path has no use for.
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(name)
    if parts.netloc not in ("", "localhost"):
        hint = "a local file is written with three slashes, as in file:///data/f.parquet"
        raise ReadError(f"files of the host {parts.netloc} can't be read", path=name, hint=hint)
    return url2pathname(parts.path)
