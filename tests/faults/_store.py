"""A store that records every request, and injects faults."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import skipstone as sk
from skipstone.errors import ReadError
from skipstone.store.source import ByteRange, IoCounter, Source
from skipstone.store.store import ListedFile, Store, open_store


@dataclass(frozen=True)
class Request:
    """One call to a source, by its number among all calls to the store."""

    number: int
    key: str
    ranges: tuple[ByteRange, ...]

    @property
    def bytes(self) -> int:
        """How many bytes were asked for."""
        return sum(r.length for r in self.ranges)


class Fault:
    """What goes wrong: nothing, in this one."""

    def before(self, request: Request, path: str) -> None:
        """Raise instead of reading."""

    def after(self, request: Request, bodies: list[bytes]) -> list[bytes]:
        """Change what was read."""
        return bodies


@dataclass
class Fails(Fault):
    """Requests from the ``first`` on fail, ``times`` of them."""

    first: int
    times: float = 1
    transient: bool = False
    message: str = "connection reset by peer"
    struck: list[Request] = field(default_factory=list)

    def before(self, request: Request, path: str) -> None:
        if self.first <= request.number < self.first + self.times:
            self.struck.append(request)
            raise ReadError(self.message, path=path, transient=self.transient)


@dataclass
class Truncates(Fault):
    """The answers to ``times`` requests come back short, without an error."""

    first: int
    times: float = 1
    struck: list[Request] = field(default_factory=list)

    def after(self, request: Request, bodies: list[bytes]) -> list[bytes]:
        if not self.first <= request.number < self.first + self.times:
            return bodies
        self.struck.append(request)
        return [body[: len(body) // 2] for body in bodies]


@dataclass
class Flips(Fault):
    """A byte of a file reads wrong, whoever asks for it."""

    key: str
    position: int
    struck: list[Request] = field(default_factory=list)

    def after(self, request: Request, bodies: list[bytes]) -> list[bytes]:
        if request.key != self.key:
            return bodies
        out = []
        for wanted, body in zip(request.ranges, bodies, strict=True):
            if wanted.start <= self.position < wanted.stop:
                self.struck.append(request)
                at = self.position - wanted.start
                body = body[:at] + bytes([body[at] ^ 0x55]) + body[at + 1 :]
            out.append(body)
        return out


class WatchedStore:
    """Any store, with its requests recorded."""

    def __init__(self, store: Store, fault: Fault | None = None, *, local: bool = False) -> None:
        self.store = store
        self.local = local  # near files may be read around their sources
        self.fault = fault or Fault()
        self.requests: list[Request] = []
        self.delay: Callable[[], None] | None = None
        self._lock = threading.Lock()

    @classmethod
    def at(cls, root: Path | str, fault: Fault | None = None, *, local: bool = False) -> WatchedStore:
        """A watched directory."""
        return cls(open_store(str(root))[0], fault, local=local)

    @property
    def uri(self) -> str:
        return self.store.uri

    def list(self) -> list[ListedFile]:
        return self.store.list()

    def path(self, key: str) -> str:
        return self.store.path(key)

    def list_prefix(self, prefix: str) -> Any:
        return self.store.list_prefix(prefix)

    def child(self, key: str) -> WatchedStore:
        """The store below, whose requests are recorded here as well."""
        below = WatchedStore(self.store.child(key), self.fault, local=self.local)
        below.requests, below._lock = self.requests, self._lock
        return below

    def write(self, key: str, parts: Any, *, exclusive: bool = False) -> None:
        self.store.write(key, parts, exclusive=exclusive)

    def delete(self, keys: Any) -> None:
        self.store.delete(keys)

    def parent(self) -> WatchedStore | None:
        """The store above, whose requests are recorded here as well."""
        above = self.store.parent()
        if above is None:
            return None
        store = WatchedStore(above, self.fault, local=self.local)
        store.requests, store._lock = self.requests, self._lock
        return store

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> WatchedSource:
        return WatchedSource(self, key, self.store.open(key, version=version, size=size))

    def note(self, key: str, ranges: Sequence[ByteRange]) -> Request:
        """Write a request down."""
        with self._lock:
            request = Request(len(self.requests), key, tuple(ranges))
            self.requests.append(request)
        return request

    def ranges(self, key: str) -> list[ByteRange]:
        """Every range that was asked of a file."""
        return [r for request in self.requests if request.key == key for r in request.ranges]


class WatchedSource:
    """One file of a watched store."""

    def __init__(self, store: WatchedStore, key: str, below: Source) -> None:
        self.store, self.key, self.below = store, key, below

    @property
    def path(self) -> str:
        return self.below.path

    @property
    def counter(self) -> IoCounter:
        return self.below.counter

    @property
    def gap(self) -> int:
        return self.below.gap

    def size(self) -> int:
        return self.below.size()

    def version(self) -> object | None:
        return self.below.version()

    def expect(self, version: object | None, size: int | None) -> None:
        self.below.expect(version, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        size = self.below.size()
        request = self._ask([ByteRange(max(size - length, 0), size)])
        body, size = self.below.tail(length)
        return self.store.fault.after(request, [body])[0], size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        request = self._ask(ranges)
        return self.store.fault.after(request, self.below.read_ranges(ranges))

    async def tail_async(self, length: int) -> tuple[bytes, int]:
        return await asyncio.to_thread(self.tail, length)

    async def read_ranges_async(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        return await asyncio.to_thread(self.read_ranges, ranges)

    def _ask(self, ranges: Sequence[ByteRange]) -> Request:
        request = self.store.note(self.key, ranges)
        if self.store.delay is not None:
            self.store.delay()
        self.store.fault.before(request, self.path)
        return request


def open_watched(store: WatchedStore, retry: sk.RetryPolicy | None = None, **options: Any) -> sk.Lake:
    """The lake that ``sk.open`` returns, on this store."""
    return sk.Lake(store, "", retry=retry, **options)


def data_end(path: Path) -> int:
    """Where a file's data pages end and its indexes and footer begin (no bloom filters between)."""
    footer = pq.read_metadata(path)
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    chunks = [group.column(n) for group in groups for n in range(footer.num_columns)]
    return max(_start(chunk) + chunk.total_compressed_size for chunk in chunks)


def _start(chunk: Any) -> int:
    start = chunk.dictionary_page_offset
    return int(chunk.data_page_offset if start is None else start)
