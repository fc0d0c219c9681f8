"""The files of a lake as this process has met them: sources, footers, and the bytes at their ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from skipstone.engine.jobs import gather
from skipstone.errors import UsageError
from skipstone.lake.conform import Evolution
from skipstone.parquet.footer import read_footer
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.naming import Naming
from skipstone.parquet.wire import paused_gc
from skipstone.store.cache import Cache
from skipstone.store.place import Listed, Place
from skipstone.store.ranges import ByteRange
from skipstone.store.retry import RetryPolicy, RetrySource
from skipstone.store.source import IoCounter, TailSource

CACHE_BYTES = 256 * 1024 * 1024
_TAIL_CACHE_BYTES = 64 * 1024 * 1024
# Parsed, a footer takes some thirty times its bytes, the facts worked out from it included.
_FOOTER_WEIGHT = 30
# A file as an index knows it, with the chunks of a few columns.
_RECORD_WEIGHT = 4_000
# Local files come from the page cache as fast as one thread parses them.
_LOCAL_THREADS = 1
_REMOTE_THREADS = 32
_REQUESTS, _BYTES = attrgetter("requests"), attrgetter("bytes")


@dataclass(frozen=True, slots=True)
class Io:
    """Requests made and bytes transferred."""

    requests: int = 0
    bytes: int = 0

    def __sub__(self, other: Io) -> Io:
        return Io(self.requests - other.requests, self.bytes - other.bytes)

    def __add__(self, other: Io) -> Io:
        return Io(self.requests + other.requests, self.bytes + other.bytes)


class Files:
    """Opens the files of one place, each once, and remembers their footers within a bound.

    Pickled, only the place goes along: another process meets the files anew. With a ``naming`` their columns
    are seen under its names; ``evolution`` is what tables allow their files beyond widening.
    """

    def __init__(
        self,
        place: Place,
        *,
        retry: RetryPolicy | None = None,
        memory: int = CACHE_BYTES,
        naming: Naming | None = None,
        evolution: Evolution | None = None,
    ) -> None:
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise UsageError(f"retry={retry!r}", hint="give a RetryPolicy")
        self.place = place
        self.retry = retry or RetryPolicy()
        self.memory = memory
        self.naming = naming
        self.evolution = evolution
        self.cache: Cache[Any, Any] = Cache(memory)
        self.recorded: Callable[[Listed], ParquetMetadata | None] | None = None
        """Looks a file up in an index."""
        self._tails: Cache[Listed, TailSource] = Cache(_TAIL_CACHE_BYTES)
        self._sources: dict[Listed, RetrySource] = {}
        self._counters: list[IoCounter] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_remade, (self.place, self.retry, self.memory, self.naming, self.evolution))

    @property
    def threads(self) -> int:
        """How many requests to files of this place are worth having side by side."""
        return _LOCAL_THREADS if self.place.local else _REMOTE_THREADS

    def io(self) -> Io:
        """What reading has cost so far, over all files."""
        return Io(sum(map(_REQUESTS, self._counters)), sum(map(_BYTES, self._counters)))

    def path(self, entry: Listed) -> str:
        """The file's full name."""
        return self.place.path(entry.key)

    def source(self, entry: Listed) -> RetrySource:
        """The file's bytes, of the version that was listed."""
        found = self._sources.get(entry)
        if found is None:
            opened = self.place.open(entry.key, version=entry.version, size=entry.size)
            with self._lock:
                found = self._sources.get(entry)
                if found is None:
                    found = self._sources[entry] = RetrySource(opened, self.retry)
                    self._counters.append(found.counter)
        return found

    def read_whole(self, key: str) -> bytes:
        """All of a file that is known by its name alone."""
        source = RetrySource(self.place.open(key), self.retry)
        with self._lock:
            self._counters.append(source.counter)
        return source.read_ranges([ByteRange(0, source.size())])[0]

    def footer(self, entry: Listed) -> ParquetMetadata:
        """The file's metadata, read at the first call."""

        def make() -> tuple[ParquetMetadata, int]:
            tail = TailSource(self.source(entry))
            metadata = self._named(read_footer(tail))
            if not self.place.local:
                # Footer and page index often come with one request; the index need not be asked for again.
                self._tails.put(entry, tail, tail.kept)
            return metadata, _FOOTER_WEIGHT * metadata.footer_size

        found: ParquetMetadata = self.cache.get_or_make((ParquetMetadata, entry), make)
        return found

    def _named(self, metadata: ParquetMetadata) -> ParquetMetadata:
        return metadata if self.naming is None else self.naming.apply(metadata)

    def layout(self, entry: Listed) -> ParquetMetadata:
        """Where everything is in the file: as an index recorded it, else as its footer says.

        Recorded metadata has no statistics, but facts: who quotes the former asks for the footer.
        """
        recorded = self.recorded
        if recorded is None:
            return self.footer(entry)

        def make() -> tuple[ParquetMetadata, int]:
            return recorded(entry) or self.footer(entry), _RECORD_WEIGHT

        found: ParquetMetadata = self.cache.get_or_make((Files.layout, entry), make)
        return found

    def forget_layouts(self) -> None:
        """Look files up again: what an index has told of them can't be trusted."""
        self.cache.clear()

    def layouts(self, entries: Sequence[Listed]) -> list[ParquetMetadata]:
        """The layouts of many files; footers that are needed are fetched side by side."""
        if self.recorded is None:
            return self.footers(entries)
        with paused_gc():
            return gather(self.layout, entries, threads=self.threads)

    def footers(self, entries: Sequence[Listed]) -> list[ParquetMetadata]:
        """The metadata of many files, fetched side by side."""
        with paused_gc():
            return gather(self.footer, entries, threads=self.threads)

    def read(self, entry: Listed, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Bytes of one file; those at its end may still be at hand."""
        # Of local files nothing is held.
        tail = self._tails.get(entry) if len(self._tails) else None
        return (tail or self.source(entry)).read_ranges(ranges)

    def read_into(self, entry: Listed, ranges: Sequence[ByteRange], views: Sequence[memoryview]) -> None:
        """``read`` to places in memory."""
        tail = self._tails.get(entry) if len(self._tails) else None
        if tail is None:
            self.source(entry).read_into(ranges, views)
            return
        for view, body in zip(views, tail.read_ranges(ranges), strict=True):
            view[:] = body

    def read_many(self, wanted: Mapping[Listed, Sequence[ByteRange]]) -> dict[Listed, list[bytes]]:
        """Bytes of many files, fetched side by side."""
        entries = list(wanted)
        bodies = gather(lambda entry: self.read(entry, wanted[entry]), entries, threads=self.threads)
        return dict(zip(entries, bodies, strict=True))


def _remade(
    place: Place, retry: RetryPolicy, memory: int, naming: Naming | None, evolution: Evolution | None
) -> Files:
    return Files(place, retry=retry, memory=memory, naming=naming, evolution=evolution)
