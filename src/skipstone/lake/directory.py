"""A directory of Parquet files, pinned to one listing.

Directories that belong to an Iceberg, Delta or Hudi table are refused: the table keeps files whose rows were
deleted or replaced, and only its log tells which rows count. A listing of its directory, of a part of it, or
of a warehouse above it would return them all.
"""

from __future__ import annotations

import re
import time
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
from skipstone.lake.records import list_again, list_settled, real_store, with_own_files
from skipstone.lake.schema import first_of_each_schema, merge_schemas
from skipstone.lake.snapshot import PLANS, Deletions, FileEntry, Path, PrunedFiles, Records
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.prune.ledger import Blame, Ledger
from skipstone.report.trace import Cause, Level
from skipstone.store.cache import Cache
from skipstone.store.retry import RetryPolicy
from skipstone.store.store import ListedFile, Store, matches

if TYPE_CHECKING:
    from skipstone.parquet.naming import Naming


# Up to this many files the schema is that of all files; of more, a sample spread over the listing tells it.
SCHEMA_SAMPLE = 256
_BROKEN = (NotParquetError, CorruptFileError, EncryptedFileError)


class DirectorySnapshot:
    """The Parquet files below a directory, or one file, as one listing saw them.

    Directories named ``key=value`` are partitions. Hidden files (a name that begins with ``.`` or ``_``,
    unless it is a partition's) and empty ones are no part of the lake. Footers are read when a plan needs
    them, and kept within a bound.
    """

    index_naming: Naming | None = None

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
        self._pattern, self._given = pattern, schema
        self._records: Records | None = None

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
        """List a directory, or those of its files that match a pattern; listing is all that this costs."""
        if schema is not None and not isinstance(schema, pa.Schema):
            raise UsageError(f"the schema is a {type(schema).__name__}", hint="give a pyarrow.Schema")
        real = real_store(store)
        if not pattern:
            refuse_part_of_table(real)
        return _listed(Files(with_own_files(store, real), retry=retry, memory=memory), pattern, schema)

    def latest(self, engine: Engine | None = None) -> DirectorySnapshot:
        """What the directory holds now; a large one is listed by the engine's tasks."""
        if engine is None:
            return _listed(self.access, self._pattern, self._given)
        listing = partial(list_again, engine, self.access.store, self.entries)
        return _listed(self.access, self._pattern, self._given, listing)

    def use(self, records: Records) -> None:
        """Take the schema from the files' metadata that an index has recorded."""
        self._records = records

    # -- what there is -----------------------------------------------------------------------

    @cached_property
    def version(self) -> str:
        """A digest of the listing: equal for the same files in the same versions."""
        told = repr((self.uri, list(map(tuple, self.entries))))
        return xxhash.xxh3_128_hexdigest(told.encode())

    @cached_property
    def numbers(self) -> dict[ListedFile, int]:
        """The files' numbers."""
        return {entry: number for number, entry in enumerate(self.entries)}

    @cached_property
    def files(self) -> tuple[FileEntry, ...]:
        """The files, by path."""
        return self.files_of(np.arange(len(self.entries)))

    @cached_property
    def all_overrides(self) -> dict[Path, FactOverride]:
        """What the directories say of every file."""
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
        """The values that the directories' names give each file."""
        keys = [entry.key for entry in self.entries]
        given = self._given
        if given is not None:
            # Only names of partitions count here; which those are, the paths tell.
            names = read_partitions(keys, uri=self.uri).schema.names
            given = pa.schema([field for field in given if field.name in names])
        return read_partitions(keys, schema=given, uri=self.uri)

    # -- schema ------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the lake with the types that reading gives."""
        return self._schemas[0]

    @cached_property
    def query_schema(self) -> pa.Schema:
        """The schema that predicates are bound to: INT96 and old timestamps are instants."""
        return self._schemas[1]

    @cached_property
    def _schemas(self) -> tuple[pa.Schema, pa.Schema]:
        if self._given is not None:
            schema = self._with_partitions(self._given)
            return schema, schema
        footers = first_of_each_schema(self._sample())
        asked = merge_schemas([(f.path, f.query_schema) for f in footers])
        query = self._with_partitions(asked)
        if all(f.query_schema is f.arrow_schema for f in footers):
            return query, query
        try:
            stored = merge_schemas([(f.path, f.arrow_schema) for f in footers])
        except SchemaError:
            # Files with INT96 among files with zones: all are instants then.
            return query, query
        return self._with_partitions(stored), query

    def _with_partitions(self, data: pa.Schema) -> pa.Schema:
        """Partition columns keep a place they have in the files, with the directories' type."""
        partitions = {field.name: field for field in self.partitions.schema}
        fields = [partitions.pop(field.name, field) for field in data]
        return pa.schema([*fields, *partitions.values()])

    def _sample(self) -> list[ParquetMetadata]:
        """The files that tell the schema: one of every kind that an index knows, some of those it doesn't."""
        recorded = None if self._records is None else self._records.kinds()
        if recorded is None:
            return self._spread(self.entries, needed=True)
        known, others = recorded
        unknown = [self.entries[number] for number in others.tolist()]
        return [*known, *(self._spread(unknown, needed=False) if unknown else ())]

    def _spread(self, files: Sequence[ListedFile], *, needed: bool) -> list[ParquetMetadata]:
        """Some of the files; an error if all of them are broken and one is ``needed``."""
        count = len(files)
        chosen = np.unique(np.linspace(0, count - 1, min(count, SCHEMA_SAMPLE)).round().astype(int))
        entries = [files[number] for number in chosen.tolist()]
        try:
            return self.access.layouts(entries)
        except _BROKEN:
            # A file that is broken for good is the business of the query that needs it.
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
        """The names of the columns that directories give."""
        return frozenset(self.partitions.schema.names)

    def check(self, footers: Iterable[ParquetMetadata]) -> None:
        """Refuse a file whose columns can't be read as the lake's."""
        if self._given is None and len(self.entries) <= SCHEMA_SAMPLE:
            return
        known: set[pa.Schema] = set()
        names = set(self.partitions.schema.names)
        lake = pa.schema([field for field in self.query_schema if field.name not in names])
        for footer in footers:
            if footer.query_schema not in known:
                check_readable(footer.query_schema, lake, footer.path, self.uri)
                known.add(footer.query_schema)

    def overrides(self, files: Array) -> dict[Path, FactOverride]:
        """What the directories say of the numbered files."""
        if not self.partition_names:
            return {}
        chosen = self.partitions.take(files)
        return {
            (name,): FactOverride(chosen.facts(number)) for number, name in enumerate(chosen.schema.names)
        }

    def constants(self, files: Sequence[int]) -> list[Mapping[str, pa.Scalar]]:
        """The partition of each numbered file, as scalars of the partition columns' types."""
        names, values = self.partitions.schema.names, self.partitions.values
        return [
            {name: column[number] for name, column in zip(names, values, strict=True)} for number in files
        ]

    def prune_files(self, node: Node | None, ledger: Ledger, *, strict: bool = False) -> PrunedFiles:  # noqa: ARG002
        """The files that their directories leave."""
        if node is None or not len(self.partitions.schema):
            return PrunedFiles()
        judgement = judge(node, self.partitions.evidence())
        verdicts = judgement.verdicts()
        folders = [entry.key.rpartition("/")[0] for entry in self.entries]
        _, first = np.unique(folders, return_index=True)
        distinct = judgement.take(first)
        found = distinct.verdicts()
        ledger.add(
            Level(
                "partitions",
                units=len(found),
                kept=int((found != Verdict.NONE).sum()),
                whole=int((found == Verdict.ALL).sum()),
                rows=None,
                drops=Blame.all_by(distinct, Cause.PARTITION).drops(),
            )
        )
        kept = verdicts != Verdict.NONE
        return PrunedFiles() if kept.all() else PrunedFiles(np.flatnonzero(kept))

    def deletions(self, files: Sequence[int]) -> Deletions:  # noqa: ARG002
        """Nothing: files of a directory are deleted whole."""
        return Deletions()

    def check_files(self, files: Sequence[int]) -> None:
        """Refuse none: all are Parquet, or else their footers will say."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The listing goes along: elsewhere it is the same version of the lake.
        return (type(self), (self.access, self._pattern, self._given, self.entries, self.others))

    def __repr__(self) -> str:
        size = sum(entry.size for entry in self.entries)
        return f"DirectorySnapshot({self.uri!r}, {len(self.entries):,} files, {size:,} bytes)"


def _listed(
    access: Files,
    pattern: str,
    schema: pa.Schema | None,
    listing: Callable[[], Sequence[ListedFile]] | None = None,
) -> DirectorySnapshot:
    """The files that are there now and belong to no job that isn't done."""
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
        what = f"no file in it matches {pattern}" if pattern else "there is no file in it"
        raise ReadError(what, path=access.store.uri, hint="hidden and empty files don't count")
    others = tuple([entry for entry in listed if entry.key[:1] == "_"])
    return DirectorySnapshot(access, pattern, schema, entries, others, listed_at)


# A name that begins with a dot, or with an underscore unless it is a partition's.
_HIDDEN = re.compile(r"(?:^|/)(?:\.|_(?![^/]*=))")


def is_visible(entry: ListedFile, pattern: str = "") -> bool:
    """Whether a file is part of a lake: meant by the pattern, not hidden and not empty."""
    if entry.key == pattern:
        return True  # a file asked for by name is read, or complained about
    return entry.size > 0 and matches(pattern, entry.key) and _HIDDEN.search(entry.key) is None


_ICEBERG: Final = "metadata"
_DELTA: Final = "_delta_log"
_HUDI: Final = ".hoodie"
_LOGS: Final = (
    ("an Iceberg", re.compile(rf"(?s)(.*/)?{_ICEBERG}/(?:[^/]+\.metadata\.json(\.gz)?|version-hint\.text)")),
    ("a Delta", re.compile(rf"(?s)(.*/)?{_DELTA}/[^/]+")),
    # Each partition has a file of its own that begins so.
    ("a Hudi", re.compile(rf"(?s)(.*/)?{_HUDI}(?:/.*|_partition_metadata[^/]*)")),
)
_VERSION: Final = re.compile(r"v?(\d+)")
_REQUESTS: Final = 8


def refuse_tables(store: Store, listed: Sequence[ListedFile]) -> None:
    """Refuse a directory that is a table's or has tables in it, as a listing of it tells."""
    for entry in listed:
        key = entry.key
        # There may be millions of keys: most have none of these in them, which is quickly seen.
        if not (_ICEBERG in key or _DELTA in key or _HUDI in key):
            continue
        for kind, log in _LOGS:
            found = log.fullmatch(key)
            if found is not None:
                root = found[1] or ""
                inner = f" {store.path(root.rstrip('/'))}" if root else ""
                problem = f"the directory {'contains' if inner else 'belongs to'} {kind} table{inner}"
                own = [e for e in listed if e.key.startswith(f"{root}{_ICEBERG}/")]
                raise _refusal(problem, store, store, own)


def refuse_part_of_table(store: Store) -> None:
    """Refuse a directory inside a table: one below ``data``, as Iceberg names it, or a partition.

    That takes a request for each ``data`` in the path, and three if the path ends in partitions, all at once.
    A directory above that can't be listed is taken for no table's.
    """
    looks: list[tuple[Store, str]] = []
    inner = store
    while (above := inner.parent()) is not None:
        if _name(inner) == "data":
            looks.append((above, _ICEBERG))
        elif "=" in _name(inner) and "=" not in _name(above):
            looks += [(above, folder) for folder in (_ICEBERG, _DELTA, _HUDI)]
        inner = above
    for (above, _), found in zip(looks, gather(_look, looks, threads=_REQUESTS), strict=True):
        kinds = [kind for kind, log in _LOGS if any(log.fullmatch(entry.key) for entry in found)]
        if kinds:
            raise _refusal(f"the directory belongs to {kinds[0]} table, {above.uri}", store, above, found)


def _look(where: tuple[Store, str]) -> list[ListedFile]:
    above, folder = where
    with suppress(ReadError):
        files = above.child(folder).list_files()
        return [ListedFile(f"{folder}/{entry.key}", entry.size, entry.version) for entry in files]
    return []


def _refusal(problem: str, store: Store, owner: Store, files: Sequence[ListedFile]) -> UsageError:
    metadata = [entry.key for entry in files if ".metadata.json" in entry.key]
    how = "read the table with a reader of its format"
    if metadata:
        newest = max(metadata, key=_version)
        how = f"open the table by its catalog, or its metadata: {owner.path(newest)}"
    as_files = f"{store.uri.rstrip('/')}/**/*.parquet"
    hint = f"{how}; its files as they are, deleted rows included, are the glob {as_files}"
    return UsageError(problem, path=store.uri, hint=hint)


def _version(key: str) -> tuple[int, str]:
    found = _VERSION.match(key.rpartition("/")[2])
    return (int(found[1]) if found is not None else -1, key)


def _name(store: Store) -> str:
    return store.uri.rstrip("/").rpartition("/")[2]
