"""A directory of Parquet files, pinned to one listing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from skipstone.core.evidence import Array, Stated
from skipstone.core.ir.nodes import Node
from skipstone.core.judge import Verdict, judge
from skipstone.engine.jobs import Engine
from skipstone.errors import (
    CorruptFileError,
    EncryptedFileError,
    NotParquetError,
    ReadError,
    SchemaError,
    UsageError,
)
from skipstone.lake.base import BaseLake, FileEntry, Path, Sifted
from skipstone.lake.beside import real_place, with_own_files
from skipstone.lake.conform import check_readable
from skipstone.lake.files import CACHE_BYTES, Files
from skipstone.lake.formats import refuse_part_of_table, refuse_tables
from skipstone.lake.partitions import Partitions, read_partitions
from skipstone.lake.records import list_settled
from skipstone.lake.schema import merge_schemas
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.prune.ledger import Blame, Ledger
from skipstone.report.trace import Cause, Level
from skipstone.store.place import Listed, Place, matches
from skipstone.store.retry import RetryPolicy

# Up to this many files the schema is that of all files; of more, a sample spread over the listing tells it.
SCHEMA_SAMPLE = 256
_BROKEN = (NotParquetError, CorruptFileError, EncryptedFileError)


class DirectoryLake(BaseLake):
    """The Parquet files below a directory, or one file, as they were when the lake was opened.

    Directories named ``key=value`` are partitions. Hidden files (a name that begins with ``.`` or ``_``,
    unless it is a partition's) and empty ones are no part of the lake. Listing is all that opening costs;
    footers are read when a plan needs them, and kept within a bound.
    """

    def __init__(
        self,
        place: Place,
        pattern: str = "",
        *,
        schema: pa.Schema | None = None,
        retry: RetryPolicy | None = None,
        memory: int = CACHE_BYTES,
    ) -> None:
        if schema is not None and not isinstance(schema, pa.Schema):
            raise UsageError(f"the schema is a {type(schema).__name__}", hint="give a pyarrow.Schema")
        self._pattern = pattern
        self._given = schema
        self._access = Files(with_own_files(place), retry=retry, memory=memory)
        if not pattern:
            refuse_part_of_table(real_place(place))
        self.refresh()

    def refresh(self, listing: Sequence[Listed] | None = None) -> None:
        """List anew, unless there is a new listing: from now on the lake is what the directory holds now.

        A listing that is given should be one of ``list_settled``: without files of jobs that are not done.
        """
        self.listed_at = time.time()
        listed = list_settled(self._access.place, named=self._pattern) if listing is None else listing
        entries = tuple(entry for entry in listed if is_visible(entry, self._pattern))
        if not self._pattern:
            refuse_tables(self._access.place, listed)
        self._others = tuple(entry for entry in listed if entry.key.startswith("_"))
        if not entries and self._given is None:
            what = f"no file in it matches {self._pattern}" if self._pattern else "there is no file in it"
            raise ReadError(what, path=self.uri, hint="hidden and empty files don't count")
        self._pin(entries)

    def relist(self, engine: Engine) -> None:
        """``refresh``, with large directories listed by an engine's tasks."""
        from skipstone.lake.listing import list_again

        self.refresh(list_again(engine, self._access.place, self._entries))

    def _pin(self, entries: tuple[Listed, ...]) -> None:
        self._entries = entries
        self._forget("version", "partitions", "partition_names", "_schemas", "schema", "query_schema")

    # -- what there is -----------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The lake's root."""
        return self._access.place.uri

    @property
    def entries(self) -> tuple[Listed, ...]:
        """The files as listed, by path."""
        return self._entries

    @property
    def others(self) -> tuple[Listed, ...]:
        """Files that were listed in hidden directories of the root."""
        return self._others

    @property
    def is_whole(self) -> bool:
        """Whether all files below the root are meant, or some."""
        return not self._pattern

    @property
    def listed_whole(self) -> bool:
        """Whether the listing saw all that is below the root, or one file of it."""
        return all(entry.key != self._pattern for entry in self._entries[:2])

    @cached_property
    def version(self) -> str:
        """A digest of the listing: equal for the same files in the same versions."""
        digest = xxhash.xxh3_128()
        digest.update(self.uri.encode())
        for entry in self._entries:
            digest.update(repr((entry.key, entry.size, entry.version)).encode())
        return digest.hexdigest()

    def files_of(self, files: Array) -> tuple[FileEntry, ...]:
        """The numbered files."""
        chosen = self.partitions.take(files)
        values = [column.to_pylist() for column in chosen.values]
        rows = zip(*values, strict=True) if values else (() for _ in files)
        entries = [self._entries[number] for number in files.tolist()]
        return tuple(
            FileEntry(self._access.path(entry), entry.size, dict(zip(chosen.schema.names, row, strict=True)))
            for entry, row in zip(entries, rows, strict=True)
        )

    @cached_property
    def partitions(self) -> Partitions:
        """The values that the directories' names give each file."""
        keys = [entry.key for entry in self._entries]
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
        footers = self._sample()
        asked = merge_schemas([(f.path, f.query_schema) for f in footers])
        try:
            stored = merge_schemas([(f.path, f.arrow_schema) for f in footers])
        except SchemaError:
            # Files with INT96 among files with zones: all are instants then.
            stored = asked
        return self._with_partitions(stored), self._with_partitions(asked)

    def _with_partitions(self, data: pa.Schema) -> pa.Schema:
        """Partition columns keep a place they have in the files, with the directories' type."""
        partitions = {field.name: field for field in self.partitions.schema}
        fields = [partitions.pop(field.name, field) for field in data]
        return pa.schema([*fields, *partitions.values()])

    def _sample(self) -> list[ParquetMetadata]:
        """The files that tell the schema."""
        return self._spread(self._entries, needed=True)

    def _spread(self, files: Sequence[Listed], *, needed: bool) -> list[ParquetMetadata]:
        """Some of the files; an error if all of them are broken and one is ``needed``."""
        count = len(files)
        chosen = np.unique(np.linspace(0, count - 1, min(count, SCHEMA_SAMPLE)).round().astype(int))
        entries = [files[number] for number in chosen.tolist()]
        try:
            return self._access.layouts(entries)
        except _BROKEN:
            # A file that is broken for good is the business of the query that needs it.
            footers = [footer for entry in entries if (footer := self._layout_or_none(entry)) is not None]
            if not footers and needed:
                raise
            return footers

    def _layout_or_none(self, entry: Listed) -> ParquetMetadata | None:
        try:
            return self._access.layout(entry)
        except _BROKEN:
            return None

    # -- footers -----------------------------------------------------------------------------

    @cached_property
    def partition_names(self) -> frozenset[str]:
        """The names of the columns that directories give."""
        return frozenset(self.partitions.schema.names)

    def check(self, footers: Iterable[ParquetMetadata]) -> None:
        """Refuse a file whose columns can't be read as the lake's."""
        if self._given is None and len(self._entries) <= SCHEMA_SAMPLE:
            return
        known: set[pa.Schema] = set()
        names = set(self.partitions.schema.names)
        lake = pa.schema([field for field in self.query_schema if field.name not in names])
        for footer in footers:
            if footer.query_schema not in known:
                check_readable(footer.query_schema, lake, footer.path, self.uri)
                known.add(footer.query_schema)

    def stated(self, files: Array) -> dict[Path, Stated]:
        """What the directories say of the numbered files."""
        if not self.partition_names:
            return {}
        chosen = self.partitions.take(files)
        return {(name,): Stated(chosen.facts(number)) for number, name in enumerate(chosen.schema.names)}

    def constants(self, files: Sequence[int]) -> list[Mapping[str, pa.Scalar]]:
        """The partition of each numbered file, as scalars of the partition columns' types."""
        names, values = self.partitions.schema.names, self.partitions.values
        return [
            {name: column[number] for name, column in zip(names, values, strict=True)} for number in files
        ]

    def sift(self, node: Node | None, ledger: Ledger, *, strict: bool = False) -> Sifted:  # noqa: ARG002
        """The files that their directories leave."""
        if node is None or not len(self.partitions.schema):
            return Sifted()
        judgement = judge(node, self.partitions.evidence())
        verdicts = judgement.verdicts()
        folders = [entry.key.rpartition("/")[0] for entry in self._entries]
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
        return Sifted() if kept.all() else Sifted(np.flatnonzero(kept))

    def __reduce__(self) -> tuple[Any, ...]:
        # The listing goes along: elsewhere it is the same version of the lake.
        return (_moved, (type(self), self._access, self._pattern, self._given, self._entries))

    def __repr__(self) -> str:
        size = sum(entry.size for entry in self._entries)
        return f"{type(self).__name__}({self.uri!r}, {len(self._entries):,} files, {size:,} bytes)"


def _moved(
    cls: type[DirectoryLake],
    access: Files,
    pattern: str,
    schema: pa.Schema | None,
    entries: tuple[Listed, ...],
) -> DirectoryLake:
    lake = cls.__new__(cls)
    lake._access, lake._pattern, lake._given = access, pattern, schema
    lake._pin(entries)
    return lake


def is_visible(entry: Listed, pattern: str = "") -> bool:
    """Whether a file is part of a lake: meant by the pattern, not hidden and not empty."""
    if entry.key == pattern:
        return True  # a file asked for by name is read, or complained about
    if not entry.size or not matches(pattern, entry.key):
        return False
    return not any(_hidden(part) for part in entry.key.split("/"))


def _hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
