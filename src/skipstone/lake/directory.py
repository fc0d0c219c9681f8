"""A directory of Parquet files, pinned to one listing.

Directories that belong to an Iceberg, Delta or Hudi table are refused: they contain files with deleted or
replaced rows, and only the table's log says which rows are live. Listing the table's directory, a part of it
or a warehouse above it would return them all.
"""

from __future__ import annotations

import marshal
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import xxhash

from skipstone.core.evidence import Array, FactOverride
from skipstone.core.ir.nodes import Node
from skipstone.core.judge import Verdict, judge
from skipstone.engine.jobs import Engine, gather
from skipstone.errors import (
    CorruptFileError,
    EncryptedFileError,
    NotParquetError,
    ReadError,
    SchemaError,
    UsageError,
)
from skipstone.lake.conform import check_readable
from skipstone.lake.files import CACHE_BYTES, Files
from skipstone.lake.partitions import Partitions, read_partitions
from skipstone.lake.records import STAGED, list_again, list_settled, real_store, with_own_files
from skipstone.lake.schema import first_of_each_schema, merge_schemas
from skipstone.lake.snapshot import PLANS, Deletions, FileEntry, IndexRecords, Overlay, Path, PrunedFiles
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.prune.ledger import Blame, Ledger
from skipstone.report.trace import Cause, Level
from skipstone.store.cache import Cache
from skipstone.store.retry import RetryPolicy
from skipstone.store.store import BY_KEY, ListedFile, Store, matches

if TYPE_CHECKING:
    from skipstone.parquet.naming import Naming


# Larger lakes take their schema from a sample of this many files, spread over the listing.
SCHEMA_SAMPLE = 256
_BROKEN = (NotParquetError, CorruptFileError, EncryptedFileError)


class DirectorySnapshot:
    """The Parquet files below a directory, or a single file, as listed at one time.

    Directories named ``key=value`` are partitions. Empty files and hidden ones (a name that begins with ``.``
    or ``_``, unless it is a partition) are ignored. Footers are read when a plan needs them, and cached
    within a bound.
    """

    index_naming: Naming | None = None
    overlay: Overlay | None = None

    def __init__(
        self,
        access: Files,
        pattern: str,
        schema: pa.Schema | None,
        entries: tuple[ListedFile, ...],
        others: tuple[ListedFile, ...] = (),
        listed_at: float = 0.0,
    ) -> None:
        self.access, self.uri = access, access.store.uri
        self.entries, self.others, self.listed_at = entries, others, listed_at
        self.is_whole, self.has_own_schema = not pattern, schema is not None
        self.listed_whole = all(entry.key != pattern for entry in entries[:2])
        self.plans: Cache[Any, Any] = Cache(PLANS)
        self.pattern, self._user_schema = pattern, schema
        self._records: IndexRecords | None = None

    @classmethod
    def open(
        cls,
        store: Store,
        pattern: str = "",
        *,
        schema: pa.Schema | None = None,
        retry: RetryPolicy | None = None,
        memory: int = CACHE_BYTES,
    ) -> DirectorySnapshot:
        """List the files of a directory that match a pattern; no file is opened."""
        if schema is not None and not isinstance(schema, pa.Schema):
            raise UsageError(f"schema must be a pyarrow.Schema, got {type(schema).__name__}")
        real = real_store(store)
        if not pattern:
            refuse_part_of_table(real)
        return _take_snapshot(Files(with_own_files(store, real), retry=retry, memory=memory), pattern, schema)

    def latest(self, engine: Engine | None = None) -> DirectorySnapshot:
        """List the directory again; tasks of the engine list a large one."""
        if engine is None:
            return _take_snapshot(self.access, self.pattern, self._user_schema)
        listing = partial(list_again, engine, self.access.store, self.entries)
        return _take_snapshot(self.access, self.pattern, self._user_schema, listing)

    def use(self, records: IndexRecords) -> None:
        """Take the schema from file metadata that an index has recorded."""
        self._records = records

    # -- files -------------------------------------------------------------------------------

    @cached_property
    def version(self) -> str:
        """A digest of the listing: equal for the same files in the same versions."""
        listing = self.uri, list(map(tuple, self.entries))
        try:
            # Several times as fast as repr(); this version of the format writes equal values alike.
            content = marshal.dumps(listing, 2)
        except ValueError:
            content = repr(listing).encode()
        return xxhash.xxh3_128_hexdigest(content)

    def number_of(self, entry: ListedFile) -> int | None:
        """The number of a file; None if it is not listed."""
        number = bisect_left(self.entries, entry.key, key=BY_KEY)
        return number if number < len(self.entries) and self.entries[number] == entry else None

    @cached_property
    def files(self) -> tuple[FileEntry, ...]:
        """The files, by path."""
        return self.files_of(np.arange(len(self.entries)))

    @cached_property
    def all_overrides(self) -> dict[Path, FactOverride]:
        """Facts of partition columns for all files."""
        return self.overrides(np.arange(len(self.entries)))

    def files_of(self, files: Array) -> tuple[FileEntry, ...]:
        """The numbered files."""
        chosen = self.partitions.take(files)
        values = [column.to_pylist() for column in chosen.values]
        rows = zip(*values, strict=True) if values else (() for _ in files)
        entries = [self.entries[number] for number in files.tolist()]
        return tuple(
            FileEntry(self.access.path(entry), entry.size, dict(zip(chosen.schema.names, row, strict=True)))
            for entry, row in zip(entries, rows, strict=True)
        )

    @cached_property
    def partitions(self) -> Partitions:
        """Partition values of each file, from the names of its directories."""
        keys = [entry.key for entry in self.entries]
        schema = self._user_schema
        if schema is not None:
            names = read_partitions(keys, uri=self.uri).schema.names
            schema = pa.schema([field for field in schema if field.name in names])
        return read_partitions(keys, schema=schema, uri=self.uri)

    # -- schema ------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the lake with the types that scans return."""
        return self._schemas[0]

    @cached_property
    def query_schema(self) -> pa.Schema:
        """The schema that predicates are bound to: INT96 and legacy timestamps are instants."""
        return self._schemas[1]

    @cached_property
    def _schemas(self) -> tuple[pa.Schema, pa.Schema]:
        if self._user_schema is not None:
            schema = self._with_partitions(self._user_schema)
            return schema, schema
        footers = first_of_each_schema(self._sample())
        query = self._with_partitions(merge_schemas([(f.path, f.query_schema) for f in footers]))
        if all(f.query_schema is f.arrow_schema for f in footers):
            return query, query
        try:
            stored = merge_schemas([(f.path, f.arrow_schema) for f in footers])
        except SchemaError:
            # Some files have INT96, others zoned timestamps: all are instants then.
            return query, query
        return self._with_partitions(stored), query

    def _with_partitions(self, data: pa.Schema) -> pa.Schema:
        """Add partition columns; one that files store too keeps its position and has the partition's type."""
        partitions = {field.name: field for field in self.partitions.schema}
        fields = [partitions.pop(field.name, field) for field in data]
        return pa.schema([*fields, *partitions.values()])

    def _sample(self) -> list[ParquetMetadata]:
        """Files whose schemas are merged: one of every schema in the index, and a sample of other files."""
        recorded = None if self._records is None else self._records.kinds()
        if recorded is None:
            return self._spread(self.entries, needed=True)
        kinds, others = recorded
        unindexed = [self.entries[number] for number in others.tolist()]
        return [*kinds, *(self._spread(unindexed, needed=False) if unindexed else ())]

    def _spread(self, files: Sequence[ListedFile], *, needed: bool) -> list[ParquetMetadata]:
        """Metadata of a sample of files; raises if all of them are broken and one is ``needed``."""
        count = len(files)
        chosen = np.unique(np.linspace(0, count - 1, min(count, SCHEMA_SAMPLE)).round().astype(int))
        entries = [files[number] for number in chosen.tolist()]
        try:
            return self.access.layouts(entries)
        except _BROKEN:
            # Broken files fail the queries that need them, not the schema.
            footers = [footer for entry in entries if (footer := self._layout_or_none(entry)) is not None]
            if not footers and needed:
                raise
            return footers

    def _layout_or_none(self, entry: ListedFile) -> ParquetMetadata | None:
        try:
            return self.access.layout(entry)
        except _BROKEN:
            return None

    # -- footers -----------------------------------------------------------------------------

    @cached_property
    def partition_names(self) -> frozenset[str]:
        """Names of the partition columns."""
        return frozenset(self.partitions.schema.names)

    def check(self, footers: Iterable[ParquetMetadata]) -> None:
        """Refuse a file whose columns can't be converted to the lake's types."""
        if self._user_schema is None and len(self.entries) <= SCHEMA_SAMPLE:
            return
        checked: set[pa.Schema] = set()
        names = set(self.partitions.schema.names)
        lake = pa.schema([field for field in self.query_schema if field.name not in names])
        for footer in footers:
            if footer.query_schema not in checked:
                check_readable(footer.query_schema, lake, footer.path, self.uri)
                checked.add(footer.query_schema)

    def overrides(self, files: Array) -> dict[Path, FactOverride]:
        """Facts of partition columns for the numbered files."""
        if not self.partition_names:
            return {}
        chosen = self.partitions.take(files)
        return {
            (name,): FactOverride(chosen.facts(number)) for number, name in enumerate(chosen.schema.names)
        }

    def constants(self, files: Sequence[int]) -> list[Mapping[str, pa.Scalar]]:
        """Partition values of each numbered file."""
        names, values = self.partitions.schema.names, self.partitions.values
        return [
            {name: column[number] for name, column in zip(names, values, strict=True)} for number in files
        ]

    def prune_files(self, node: Node | None, ledger: Ledger, *, strict: bool = False) -> PrunedFiles:  # noqa: ARG002
        """Files whose partitions may match."""
        if node is None or not len(self.partitions.schema):
            return PrunedFiles()
        judgement = judge(node, self.partitions.evidence())
        verdicts = judgement.verdicts()
        folders = [entry.key.rpartition("/")[0] for entry in self.entries]
        _, first = np.unique(folders, return_index=True)
        distinct = judgement.take(first)
        by_partition = distinct.verdicts()
        ledger.add(
            Level(
                "partitions",
                units=len(by_partition),
                kept=int((by_partition != Verdict.NONE).sum()),
                whole=int((by_partition == Verdict.ALL).sum()),
                rows=None,
                drops=Blame.all_by(distinct, Cause.PARTITION).drops(),
            )
        )
        kept = verdicts != Verdict.NONE
        return PrunedFiles() if kept.all() else PrunedFiles(np.flatnonzero(kept))

    def renamed(self, column: str) -> str | None:  # noqa: ARG002
        """None: directories have no history of schemas."""
        return None

    def deletions(self, files: Sequence[int]) -> Deletions:  # noqa: ARG002
        """None: directories have no row-level deletes."""
        return Deletions()

    def check_files(self, files: Sequence[int]) -> None:
        """Accept all: reading a footer fails if the file is not Parquet."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Includes the listing, so that other processes see the same version of the lake.
        return (type(self), (self.access, self.pattern, self._user_schema, self.entries, self.others))

    def __repr__(self) -> str:
        size = sum(entry.size for entry in self.entries)
        return f"DirectorySnapshot({self.uri!r}, {len(self.entries):,} files, {size:,} bytes)"


def _take_snapshot(
    access: Files,
    pattern: str,
    schema: pa.Schema | None,
    listing: Callable[[], Sequence[ListedFile]] | None = None,
) -> DirectorySnapshot:
    """List the files, without those of unfinished jobs."""
    listed_at = time.time()
    listed = list_settled(access.store, named=pattern) if listing is None else listing()
    if pattern:
        entries = tuple([entry for entry in listed if is_visible(entry, pattern)])
    else:
        hidden = _HIDDEN.search
        entries = tuple([entry for entry in listed if entry.size and hidden(entry.key) is None])
    if not pattern:
        refuse_tables(access.store, listed)
    if not entries and schema is None:
        raise _nothing_listed(listed, pattern, access.store.uri)
    others = tuple([entry for entry in listed if entry.key[:1] == "_"])
    return DirectorySnapshot(access, pattern, schema, entries, others, listed_at)


def _nothing_listed(listed: Sequence[ListedFile], pattern: str, uri: str) -> ReadError:
    if pattern:
        below = f"**/{pattern}"
        hint = "check the pattern; empty files, and names that begin with . or _, are ignored"
        if any(is_visible(entry, below) for entry in listed):
            hint = f"for files in subdirectories use ** in the pattern: {below}"
        return ReadError(f"no file matches {pattern}", path=uri, hint=hint)
    if not listed:
        hint = "check the path, or write files with skipstone ingest"
        return ReadError("directory contains no files", path=uri, hint=hint)
    if any(entry.key.startswith(f"{STAGED}/") for entry in listed):
        hint = "wait until the ingest has finished, or run it again if it was stopped"
        return ReadError(
            "directory contains no files to read: an ingest has not finished", path=uri, hint=hint
        )
    names = ", ".join(entry.key for entry in listed[:3]) + (" and others" if len(listed) > 3 else "")
    return ReadError(
        f"directory contains no files to read: {names} {'are' if len(listed) > 1 else 'is'} ignored",
        path=uri,
        hint="rename files that begin with . or _, and write empty ones again",
    )


# A name that begins with a dot, or with an underscore unless it is a partition.
_HIDDEN = re.compile(r"(?:^|/)(?:\.|_(?![^/]*=))")


def is_visible(entry: ListedFile, pattern: str = "") -> bool:
    """Whether a file is part of a lake: matched by the pattern, not hidden and not empty."""
    if entry.key == pattern:
        return True  # a file requested by name is never skipped silently
    return entry.size > 0 and matches(pattern, entry.key) and _HIDDEN.search(entry.key) is None


_ICEBERG: Final = "metadata"
_DELTA: Final = "_delta_log"
_HUDI: Final = ".hoodie"
_LOGS: Final = (
    ("an Iceberg", re.compile(rf"(?s)(.*/)?{_ICEBERG}/(?:[^/]+\.metadata\.json(\.gz)?|version-hint\.text)")),
    ("a Delta", re.compile(rf"(?s)(.*/)?{_DELTA}/[^/]+")),
    # Hudi writes such a file into every partition.
    ("a Hudi", re.compile(rf"(?s)(.*/)?{_HUDI}(?:/.*|_partition_metadata[^/]*)")),
)
_VERSION: Final = re.compile(r"v?(\d+)")
_REQUESTS: Final = 8


def refuse_tables(store: Store, listed: Sequence[ListedFile]) -> None:
    """Refuse a listed directory that belongs to a table or contains tables."""
    for entry in listed:
        key = entry.key
        # A quick check first: there can be millions of keys.
        if not (_ICEBERG in key or _DELTA in key or _HUDI in key):
            continue
        for kind, log in _LOGS:
            match = log.fullmatch(key)
            if match is not None:
                root = match[1] or ""
                inner = f" {store.path(root.rstrip('/'))}" if root else ""
                problem = f"directory {'contains' if inner else 'belongs to'} {kind} table{inner}"
                own = [e for e in listed if e.key.startswith(f"{root}{_ICEBERG}/")]
                raise _table_error(problem, store, store, own)


def refuse_part_of_table(store: Store) -> None:
    """Refuse a directory inside a table: one below Iceberg's ``data``, or a partition.

    Takes one request for each ``data`` in the path, and three if the path ends in partitions, in parallel.
    A parent that can't be listed is not considered a table.
    """
    candidates: list[tuple[Store, str]] = []
    inner = store
    while (above := inner.parent()) is not None:
        if _name(inner) == "data":
            candidates.append((above, _ICEBERG))
        elif "=" in _name(inner) and "=" not in _name(above):
            candidates += [(above, folder) for folder in (_ICEBERG, _DELTA, _HUDI)]
        inner = above
    listings = gather(_list_directory, candidates, threads=_REQUESTS)
    for (above, _), files in zip(candidates, listings, strict=True):
        kinds = [kind for kind, log in _LOGS if any(log.fullmatch(entry.key) for entry in files)]
        if kinds:
            raise _table_error(f"directory belongs to {kinds[0]} table, {above.uri}", store, above, files)


def _list_directory(candidate: tuple[Store, str]) -> list[ListedFile]:
    above, folder = candidate
    with suppress(ReadError):
        files = above.child(folder).list_files()
        return [ListedFile(f"{folder}/{entry.key}", entry.size, entry.version) for entry in files]
    return []


def _table_error(problem: str, store: Store, owner: Store, files: Sequence[ListedFile]) -> UsageError:
    metadata = [entry.key for entry in files if ".metadata.json" in entry.key]
    advice = "use a reader of the table's format"
    if metadata:
        newest = max(metadata, key=_version)
        advice = f"open the table through its catalog, or its metadata file {owner.path(newest)}"
    as_files = f"{store.uri.rstrip('/')}/**/*.parquet"
    hint = f"{advice}; to read all its files, including deleted rows, use the glob {as_files}"
    return UsageError(problem, path=store.uri, hint=hint)


def _version(key: str) -> tuple[int, str]:
    match = _VERSION.match(key.rpartition("/")[2])
    return (int(match[1]) if match is not None else -1, key)


def _name(store: Store) -> str:
    return store.uri.rstrip("/").rpartition("/")[2]
