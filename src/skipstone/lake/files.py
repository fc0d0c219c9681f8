"""The files of a lake as this process has met them: sources, footers, and the bytes at their ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from skipstone.engine.jobs import gather
from skipstone.errors import UsageError
from skipstone.parquet.metadata import ParquetMetadata, read_footer
from skipstone.parquet.wire import paused_gc
from skipstone.store.cache import Cache
from skipstone.store.retry import RetryPolicy, RetrySource
from skipstone.store.source import ByteRange, IoCounter, TailSource
from skipstone.store.store import ListedFile, Store

if TYPE_CHECKING:
    from skipstone.lake.conform import Evolution
    from skipstone.parquet.naming import Naming

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
        store: Store,
        *,
        retry: RetryPolicy | None = None,
        memory: int = CACHE_BYTES,
        naming: Naming | None = None,
        evolution: Evolution | None = None,
    ) -> None:
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise UsageError(f"retry={retry!r}", hint="give a RetryPolicy")
        self.store = store
        self.retry = retry or RetryPolicy()
        self.memory = memory
        self.naming = naming
        self.evolution = evolution
        self.cache: Cache[Any, Any] = Cache(memory)
        self.recorded: Callable[[Sequence[ListedFile]], list[ParquetMetadata | None] | None] | None = None
        """Looks files up in an index; None if there is none."""
        self._tails: Cache[ListedFile, TailSource] = Cache(_TAIL_CACHE_BYTES)
        self._sources: dict[ListedFile, RetrySource] = {}
        self._counters: list[IoCounter] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_remade, (self.store, self.retry, self.memory, self.naming, self.evolution))

    @property
    def threads(self) -> int:
        """How many requests to files of this place are worth having side by side."""
        return _LOCAL_THREADS if self.store.local else _REMOTE_THREADS

    def io(self) -> Io:
        """What reading has cost so far, over all files."""
        return Io(sum(map(_REQUESTS, self._counters)), sum(map(_BYTES, self._counters)))

    def path(self, entry: ListedFile) -> str:
        """The file's full name."""
        return self.store.path(entry.key)

    def source(self, entry: ListedFile) -> RetrySource:
        """The file's bytes, of the version that was listed."""
        found = self._sources.get(entry)
        if found is None:
            opened = self.store.open(entry.key, version=entry.version, size=entry.size)
            made = RetrySource(opened, self.retry)
            # Of two threads one is first.
            found = self._sources.setdefault(entry, made)
            if found is made:
                self._counters.append(made.counter)
        return found

    def read_whole(self, key: str) -> bytes:
        """All of a file that is known by its name alone."""
        source = RetrySource(self.store.open(key), self.retry)
        with self._lock:
            self._counters.append(source.counter)
        return source.read_ranges([ByteRange(0, source.size())])[0]

    def footer(self, entry: ListedFile) -> ParquetMetadata:
        """The file's metadata, read at the first call."""

        def make() -> tuple[ParquetMetadata, int]:
            metadata = self._read_footer(entry)
            return metadata, _FOOTER_WEIGHT * metadata.footer_size

        found: ParquetMetadata = self.cache.get_or_make((ParquetMetadata, entry), make)
        return found

    def footers(self, entries: Sequence[ListedFile]) -> list[ParquetMetadata]:
        """The metadata of many files, fetched side by side where that is worth it."""
        keys = [(ParquetMetadata, entry) for entry in entries]
        found: list[Any] = self.cache.get_all(keys)
        missing = [number for number, footer in enumerate(found) if footer is None]
        if self.threads > 1:
            with paused_gc():
                read = gather(self.footer, [entries[number] for number in missing], threads=self.threads)
            for number, footer in zip(missing, read, strict=True):
                found[number] = footer
            return found
        made: list[tuple[Any, ParquetMetadata, int]] = []
        try:
            with paused_gc():
                for number in missing:
                    footer = found[number] = self._read_footer(entries[number])
                    made.append((keys[number], footer, _FOOTER_WEIGHT * footer.footer_size))
        finally:
            # Those before one that is broken, too.
            self.cache.put_all(made)
        return found

    def _read_footer(self, entry: ListedFile) -> ParquetMetadata:
        source = self.source(entry)
        if self.store.local:
            metadata = read_footer(source)
        else:
            tail = TailSource(source)
            metadata = read_footer(tail)
            # Footer and page index often come with one request; the index need not be asked for again.
            self._tails.put(entry, tail, tail.kept)
        return metadata if self.naming is None else self.naming.apply(metadata)

    def layout(self, entry: ListedFile) -> ParquetMetadata:
        """Where everything is in the file: as an index recorded it, else as its footer says.

        Recorded metadata has no statistics, but facts: who quotes the former asks for the footer.
        """
        found: ParquetMetadata | None = self.cache.get((Files.layout, entry))
        return found or self._records([entry])[0] or self.footer(entry)

    def layouts(self, entries: Sequence[ListedFile]) -> list[ParquetMetadata]:
        """The layouts of many files; footers that are needed are fetched side by side."""
        found = self._records(entries)
        unknown = [number for number, known in enumerate(found) if known is None]
        for number, footer in zip(unknown, self.footers([entries[n] for n in unknown]), strict=True):
            found[number] = footer
        return found  # type: ignore[return-value]  # all are filled in

    def _records(self, entries: Sequence[ListedFile]) -> list[ParquetMetadata | None]:
        """What an index has recorded of files."""
        keys = [(Files.layout, entry) for entry in entries]
        found: list[ParquetMetadata | None] = self.cache.get_all(keys)
        missing = [number for number, known in enumerate(found) if known is None]
        made = self.recorded([entries[n] for n in missing]) if self.recorded and missing else None
        for number, known in zip(missing, made or (), strict=False):
            if known is not None:
                found[number] = known
                self.cache.put(keys[number], known, _RECORD_WEIGHT)
        return found

    def forget_layouts(self) -> None:
        """Look files up again: what an index has told of them can't be trusted."""
        self.cache.clear()

    def read(self, entry: ListedFile, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Bytes of one file; those at its end may still be at hand."""
        # Of local files nothing is held.
        tail = self._tails.get(entry) if len(self._tails) else None
        return (tail or self.source(entry)).read_ranges(ranges)

    def read_into(self, entry: ListedFile, ranges: Sequence[ByteRange], views: Sequence[memoryview]) -> None:
        """``read`` to places in memory."""
        tail = self._tails.get(entry) if len(self._tails) else None
        if tail is None:
            self.source(entry).read_into(ranges, views)
            return
        for view, body in zip(views, tail.read_ranges(ranges), strict=True):
            view[:] = body

    def read_many(self, wanted: Mapping[ListedFile, Sequence[ByteRange]]) -> dict[ListedFile, list[bytes]]:
        """Bytes of many files, fetched side by side."""
        entries = list(wanted)
        bodies = gather(lambda entry: self.read(entry, wanted[entry]), entries, threads=self.threads)
        return dict(zip(entries, bodies, strict=True))


def _remade(
    store: Store, retry: RetryPolicy, memory: int, naming: Naming | None, evolution: Evolution | None
) -> Files:
    return Files(store, retry=retry, memory=memory, naming=naming, evolution=evolution)
