"""A store that is far away, simulated."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from skipstone.store.objects import GAP, PARALLEL
from skipstone.store.source import ByteRange, Source, SourceWrapper, coalesce
from skipstone.store.store import ListedFile, Store

_PAGE = 1000


class LatencySource(SourceWrapper):
    """Waits before it reads from the source below: for each round of requests, and for the bytes.

    Ranges are coalesced as for an object store, so that the source below counts what a far one would.
    """

    def __init__(
        self,
        below: Source,
        seconds: float,
        bytes_per_second: float | None = None,
        *,
        parallel: int = PARALLEL,
        gap: int = GAP,
    ) -> None:
        super().__init__(below)
        self.gap = gap
        self._seconds = seconds
        self._rate = bytes_per_second
        self._parallel = parallel

    def size(self) -> int:
        """The file's size in bytes; a request unless the version is known."""
        if self._below.version() is None:
            time.sleep(self._wait(1, 0))
        return self._below.size()

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the file's size, after a request's wait."""
        time.sleep(self._wait(1, length))
        return self._below.tail(length)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range, after the wait of requests side by side."""
        plan = coalesce(ranges, self.gap)
        time.sleep(self._wait_for(plan.requests))
        return plan.split(self._below.read_ranges(plan.requests) if plan.requests else [])

    def _wait_for(self, requests: Sequence[ByteRange]) -> float:
        return self._wait(len(requests), sum(request.length for request in requests))

    def _wait(self, requests: int, transferred: int) -> float:
        rounds = -(-requests // self._parallel)
        return rounds * self._seconds + (transferred / self._rate if self._rate is not None else 0.0)


@dataclass(frozen=True, slots=True)
class SlowStore:
    """A store whose every request takes ``seconds``."""

    store: Store
    seconds: float
    bytes_per_second: float | None = None
    parallel: int = PARALLEL

    @property
    def uri(self) -> str:
        """The root's name."""
        return self.store.uri

    @property
    def local(self) -> bool:
        """It plays a far one."""
        return False

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        """The files below a directory, a request's wait for every thousand."""
        files = self.store.list_prefix(prefix)
        self._wait_for_pages(len(files))
        return files

    def list_directories(self) -> list[str]:
        """The directories in the root, a request's wait for every thousand."""
        names = self.store.list_directories()
        self._wait_for_pages(len(names))
        return names

    def list_files(self) -> list[ListedFile]:
        """The files in the root itself, a request's wait for every thousand."""
        files = self.store.list_files()
        self._wait_for_pages(len(files))
        return files

    # The last that names the type, which this name hides.
    def list(self) -> list[ListedFile]:
        """The files below, a request's wait for every thousand."""
        files = self.store.list()
        self._wait_for_pages(len(files))
        return files

    def child(self, key: str) -> SlowStore:
        """The store below this one, as slow."""
        return replace(self, store=self.store.child(key))

    def parent(self) -> SlowStore | None:
        """The store above this one, as slow."""
        above = self.store.parent()
        return replace(self, store=above) if above is not None else None

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> LatencySource:
        """A file that is slow to read."""
        below = self.store.open(key, version=version, size=size)
        return LatencySource(below, self.seconds, self.bytes_per_second, parallel=self.parallel)

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write a file, after the wait for a request and for the bytes."""
        body = b"".join(parts)
        sending = len(body) / self.bytes_per_second if self.bytes_per_second is not None else 0.0
        time.sleep(self.seconds + sending)
        self.store.write(key, [body], exclusive=exclusive)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, a request's wait for every thousand."""
        names = tuple(keys)
        self._wait_for_pages(len(names))
        self.store.delete(names)

    def move(self, key: str, to: str) -> None:
        """Move a file, after the wait for a look, a copy and a deletion."""
        time.sleep(3 * self.seconds)
        self.store.move(key, to)

    def clear(self, prefix: str) -> None:
        """Delete all below a directory, a request's wait to list and one to delete every thousand."""
        pages = max(-(-len(self.store.list_prefix(prefix)) // _PAGE), 1)
        time.sleep(2 * pages * self.seconds)
        self.store.clear(prefix)

    def path(self, key: str) -> str:
        """The full path or URI of a file."""
        return self.store.path(key)

    def _wait_for_pages(self, entries: int) -> None:
        time.sleep(self.seconds * max(-(-entries // _PAGE), 1))
