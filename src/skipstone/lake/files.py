"""Access to the files of a lake: sources, cached footers and tails, I/O counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipstone.engine.jobs import gather
from skipstone.errors import MissingFileError, UsageError
from skipstone.parquet.metadata import ParquetMetadata, read_footer
from skipstone.parquet.wire import paused_gc
from skipstone.store.cache import Cache
from skipstone.store.local import is_listed
from skipstone.store.retry import RetryPolicy, RetrySource
from skipstone.store.source import ByteRange, IoCounter, TailSource, checkpoint, watch
from skipstone.store.store import IN_MEMORY, ListedFile, Store

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.lake.conform import Evolution
    from skipstone.parquet.naming import Naming

CACHE_BYTES = 256 * 1024 * 1024
_TAIL_CACHE_BYTES = 64 * 1024 * 1024
_POSITIONS_SHARE = 4
# A parsed footer takes about thirty times its size, including the facts derived from it.
_FOOTER_WEIGHT = 30
# Recorded metadata of a file, with the chunks of a few columns.
_RECORD_WEIGHT = 4_000
# One thread parses footers as fast as the page cache delivers them.
_LOCAL_THREADS = 1
_REMOTE_THREADS = 32


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
    """Opens the files of a store, and caches their footers within a bound.

    Pickles contain the store but no cached state. ``naming`` renames columns; ``evolution`` adds the type
    changes that tables allow beyond widening.
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
            raise UsageError(f"retry must be a RetryPolicy, got {retry!r}")
        self.store = store
        self.retry = retry or RetryPolicy()
        self.memory = memory
        self.naming = naming
        self.evolution = evolution
        self.cache: Cache[Any, Any] = Cache(memory)
        self.recorded: Callable[[Sequence[ListedFile]], list[ParquetMetadata | None] | None] | None = None
        """Looks up files in an index; None without an index."""
        self.explain: Callable[[MissingFileError], None] | None = None
        """Completes the error for a file that no longer exists."""
        self.positions: Cache[Any, Any] = Cache(memory // _POSITIONS_SHARE)
        """Deleted positions by delete file and data file, which later snapshots of a table share."""
        self._tails: Cache[ListedFile, TailSource] = Cache(_TAIL_CACHE_BYTES)
        self._sources: dict[ListedFile, RetrySource] = {}
        self._total = IoCounter()
        self._tables: Mapping[str, pa.Table] = {}
        self._below: Files | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self.store, self.retry, self.memory, self.naming, self.evolution))

    def over(self, store: Store, tables: Mapping[str, pa.Table]) -> Files:
        """These files and those that ``store`` has in memory; caches and counts are shared.

        ``tables`` are the rows of files in memory by key, which need not be decoded.
        """
        files = Files(
            store, retry=self.retry, memory=self.memory, naming=self.naming, evolution=self.evolution
        )
        files.cache, files._tails, files._total, files._below = self.cache, self._tails, self._total, self
        files.positions, files._tables = self.positions, tables
        return files

    @property
    def threads(self) -> int:
        """Useful number of parallel requests."""
        return _LOCAL_THREADS if self.store.local else _REMOTE_THREADS

    def io(self) -> Io:
        """Requests and bytes so far, over all files."""
        return Io(self._total.requests, self._total.bytes)

    def path(self, entry: ListedFile) -> str:
        """Full path or URI of a file."""
        return self.store.path(entry.key)

    def source(self, entry: ListedFile) -> RetrySource:
        """The source of a file, pinned to the listed version."""
        source = self._sources.get(entry)
        if source is None:
            in_memory = entry.version == IN_MEMORY
            if self._below is not None and not in_memory:
                return self._below.source(entry)
            opened = self.store.open(entry.key, version=entry.version, size=entry.size)
            new = RetrySource(opened, self.retry, explain=self.explain)
            # Another thread can be first.
            source = self._sources.setdefault(entry, new)
            if source is new and not in_memory:
                new.counter.count_in(self._total)
        return source

    def table(self, entry: ListedFile) -> pa.Table | None:
        """The rows of a file in memory; None if only its bytes are known."""
        return self._tables.get(entry.key)

    def opens(self, entry: ListedFile) -> bool:
        """Whether a file is in the local file system, where other libraries can open it."""
        return self.store.local and entry.version != IN_MEMORY

    def check_unchanged(self, entries: Sequence[ListedFile]) -> None:
        """Raise if a file has changed since it was listed, before another library reads it."""
        changed = entries
        if self.store.local:
            changed = [entry for entry in entries if not is_listed(self.path(entry), entry)]
        gather(lambda entry: self.source(entry).tail(1), changed, threads=self.threads)

    def read_whole(self, key: str) -> bytes:
        """All bytes of a file that was not listed."""
        source = RetrySource(self.store.open(key), self.retry, explain=self.explain)
        source.counter.count_in(self._total)
        return source.read_ranges([ByteRange(0, source.size())])[0]

    def footer(self, entry: ListedFile) -> ParquetMetadata:
        """The metadata of a file, read at the first call."""

        def make() -> tuple[ParquetMetadata, int]:
            metadata = self._read_footer(entry)
            return metadata, _FOOTER_WEIGHT * metadata.footer_size

        footer: ParquetMetadata = self.cache.get_or_make((ParquetMetadata, entry), make)
        return footer

    def footers(self, entries: Sequence[ListedFile]) -> list[ParquetMetadata]:
        """The metadata of many files, fetched in parallel from remote stores."""
        keys = [(ParquetMetadata, entry) for entry in entries]
        footers: list[Any] = self.cache.get_all(keys)
        missing = [number for number, footer in enumerate(footers) if footer is None]
        if self.threads > 1:
            with paused_gc():
                read = gather(self.footer, [entries[number] for number in missing], threads=self.threads)
            for number, footer in zip(missing, read, strict=True):
                footers[number] = footer
            return footers
        new: list[tuple[Any, ParquetMetadata, int]] = []
        try:
            with paused_gc():
                for number in missing:
                    if watch.on:
                        checkpoint()
                    footer = footers[number] = self._read_footer(entries[number])
                    new.append((keys[number], footer, _FOOTER_WEIGHT * footer.footer_size))
        finally:
            # Also caches the footers read before a broken one.
            self.cache.put_all(new)
        return footers

    def _read_footer(self, entry: ListedFile) -> ParquetMetadata:
        source = self.source(entry)
        if self.store.local or entry.version == IN_MEMORY:
            metadata = read_footer(source)
        else:
            tail = TailSource(source)
            metadata = read_footer(tail)
            # The tail often contains the page index, which then needs no request.
            self._tails.put(entry, tail, tail.tail_length)
        return metadata if self.naming is None else self.naming.apply(metadata)

    def layout(self, entry: ListedFile) -> ParquetMetadata:
        """The metadata of a file, as recorded in an index or read from the footer.

        Recorded metadata has facts but no raw statistics; use ``footer`` for those.
        """
        if self.recorded is None:
            return self.footer(entry)
        layout: ParquetMetadata | None = self.cache.get((Files.layout, entry))
        return layout or self._records([entry])[0] or self.footer(entry)

    def layouts(self, entries: Sequence[ListedFile]) -> list[ParquetMetadata]:
        """The layouts of many files; missing footers are fetched in parallel."""
        if self.recorded is None:
            return self.footers(entries)
        layouts = self._records(entries)
        missing = [number for number, layout in enumerate(layouts) if layout is None]
        for number, footer in zip(missing, self.footers([entries[n] for n in missing]), strict=True):
            layouts[number] = footer
        return layouts  # type: ignore[return-value]  # all are filled in

    def _records(self, entries: Sequence[ListedFile]) -> list[ParquetMetadata | None]:
        """Metadata recorded in an index, None for files without it."""
        keys = [(Files.layout, entry) for entry in entries]
        layouts: list[ParquetMetadata | None] = self.cache.get_all(keys)
        missing = [number for number, layout in enumerate(layouts) if layout is None]
        recorded = self.recorded([entries[n] for n in missing]) if self.recorded and missing else None
        for number, layout in zip(missing, recorded or (), strict=False):
            if layout is not None:
                layouts[number] = layout
                self.cache.put(keys[number], layout, _RECORD_WEIGHT)
        return layouts

    def forget_layouts(self) -> None:
        """Drop cached metadata, because the index it came from can't be trusted."""
        self.cache.clear()

    def read(self, entry: ListedFile, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Bytes of one file, from its cached tail where possible."""
        # Tails of local files are not cached.
        tail = self._tails.get(entry) if len(self._tails) else None
        return (tail or self.source(entry)).read_ranges(ranges)

    def read_into(self, entry: ListedFile, ranges: Sequence[ByteRange], views: Sequence[memoryview]) -> None:
        """Read ranges into buffers."""
        tail = self._tails.get(entry) if len(self._tails) else None
        if tail is None:
            self.source(entry).read_into(ranges, views)
            return
        for view, body in zip(views, tail.read_ranges(ranges), strict=True):
            view[:] = body

    def read_many(self, wanted: Mapping[ListedFile, Sequence[ByteRange]]) -> dict[ListedFile, list[bytes]]:
        """Bytes of many files, fetched in parallel."""
        entries = list(wanted)
        bodies = gather(lambda entry: self.read(entry, wanted[entry]), entries, threads=self.threads)
        return dict(zip(entries, bodies, strict=True))


def _restore(
    store: Store, retry: RetryPolicy, memory: int, naming: Naming | None, evolution: Evolution | None
) -> Files:
    return Files(store, retry=retry, memory=memory, naming=naming, evolution=evolution)
